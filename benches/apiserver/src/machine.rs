//! The document: the machine, what each row means, and the tables.

use std::fmt::Write as _;

use tokio::process::Command;

use crate::objects::Kind;
use crate::report::Report;

/// A heading, and what its rows mean.
const SECTIONS: [(&str, &str, &str); 6] = [
    (
        "ready",
        "Start",
        "From the start of the first process until `GET /readyz` answers 200 over TLS; the bench looks every 2 ms. envtest looks every 100 ms or less often, and makes its \
         certificates before. Processor time and memory are the sum of the server's processes.",
    ),
    (
        "writes",
        "Writes",
        "Each client has a connection and one request at a time. A cell has 3,200 objects; each is created, read, updated (`PUT` with its version), changed by a merge patch and by \
         an apply, and deleted. *Writes* are all of these but the reads. *CPU of one create* and the like are processor time of the server.",
    ),
    (
        "snapshots",
        "Writes during a snapshot",
        "20,000 ConfigMaps of 1 KB, each updated three times by 16 clients. Ours replaces its logs by a snapshot beside the writes; the rows *during a snapshot* are the updates that \
         ended in that time. etcd writes its own from time to time, which the bench cannot see.",
    ),
    (
        "lists",
        "Lists and memory",
        "Pods whose stored form has 2 KB, managed fields included. A list is read whole and thrown away, again and again for a second; *objects* are those in the answers. \
         *Peak memory* is that of the server while it answers, its Pods included.",
    ),
    (
        "watches",
        "Watches",
        "One ConfigMap of 1 KB is updated 1,000 times at an even rate (30,000 events a second for all watchers together, at most 500 writes a second); 90 watches share a connection. \
         The latency counts from the moment at which the update is sent, for ten of the watchers.",
    ),
    (
        "many",
        "Many servers in one process",
        "`ApiServer::builder().start()` again and again in one process, as tests do; then each serves HTTPS, then a namespace and a ConfigMap are made in each.",
    ),
];

/// The whole text.
pub(crate) async fn document(
    report: &Report,
    suites: &[&str],
    rounds: usize,
    quick: bool,
) -> String {
    let mut text = String::from("# API servers, side by side\n\n");
    let versions = [
        command("rustc", "--version").await,
        command("go", "version").await,
    ];
    let _ = write!(
        text,
        "Rounds: {rounds}, all servers in turn in each; medians. {}. kube-apiserver {} with the flags of envtest, etcd with its data on a tmpfs and without fsync; {}.\n\n",
        processor(),
        kubernetes(),
        versions.join("; "),
    );
    if quick {
        text.push_str("**Small counts: the figures mean nothing.**\n\n");
    }
    let _ = write!(
        text,
        "`±` is half the distance between the smallest and the largest round, as a share of the median. `n×` is how many times better ours is than kube-apiserver with etcd: more of \
         a rate, less of a cost. `–`: not measured. Sizes of bodies: ConfigMap {} bytes, Pod {}, custom resource {}.\n\n\
         All columns but *plain HTTP* are HTTPS (TLS 1.3, HTTP/2). kube-apiserver gets a client certificate of `system:masters`, ours a bearer token of an administrator; both check roles. \
         One program with one thread sends the requests, and shares the machine with the server: compare the rates a CPU-second.\n",
        Kind::config_map().size(),
        Kind::pod().size(),
        Kind::custom().size(),
    );
    for (suite, title, notes) in SECTIONS {
        let table = report.table(suite);
        if suites.contains(&suite) && !table.is_empty() {
            let _ = write!(text, "\n## {title}\n\n{notes}\n\n{table}");
        }
    }
    text
}

async fn command(program: &str, argument: &str) -> String {
    match Command::new(program).arg(argument).output().await {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(_) => format!("no {program}"),
    }
}

/// The version that tools/kube-apiserver builds.
fn kubernetes() -> &'static str {
    let module = include_str!("../../../tools/kube-apiserver/go.mod");
    let line = module
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
    line.and_then(|line| line.split_whitespace().next())
        .unwrap_or("of an unknown version")
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cores = text
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    format!("{cores} cores, {model}")
}

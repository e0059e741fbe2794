//! The program as a process on the node, with a double of the operator on the client.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use http::StatusCode;
use jiff::SignedDuration;

use crate::namespace::{CLIENT, NODE, Namespace, Pair, wait};
use crate::operator::Operator;

/// The address of the double. It is the client's, and never banned.
const OPERATOR: &str = "10.77.0.3:8093";
/// How long a change may take that a test waits for.
const SOON: Duration = Duration::from_secs(8);

/// A running agent, which is killed when this is dropped.
struct Running {
    child: Option<Child>,
}

impl Running {
    fn start(node: &Namespace, url: &str, flags: &[&str]) -> Self {
        let child = program(node)
            .args([
                "run",
                "--list-url",
                url,
                "--node-name=node-7",
                "--bind-address=127.0.0.1:9478",
            ])
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child: Some(child) }
    }

    /// Sends SIGTERM. Returns the status and the log.
    fn terminate(mut self) -> (ExitStatus, String) {
        let mut child = self.child.take().unwrap();
        let id = child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &id])
                .status()
                .unwrap()
                .success()
        );
        let mut log = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        (child.wait().unwrap(), log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn program(node: &Namespace) -> Command {
    node.command(env!("CARGO_BIN_EXE_ipblock-agent"))
}

/// What `ipblock-agent` prints, and whether it succeeds.
fn output(node: &Namespace, arguments: &[&str]) -> (String, bool) {
    let output = program(node).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (text, output.status.success())
}

/// Whether `holds` at the latest after [`SOON`].
fn soon(mut holds: impl FnMut() -> bool) -> bool {
    let pause = Duration::from_millis(50);
    (0..SOON.as_millis() / pause.as_millis()).any(|_| {
        let done = holds();
        if !done {
            wait(pause);
        }
        done
    })
}

/// What the agent serves at a path, over a connection inside of the node.
fn served(node: &Namespace, path: &str) -> String {
    let asked = node.inside(|| {
        let mut stream = std::net::TcpStream::connect("127.0.0.1:9478")?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        std::io::Result::Ok(text)
    });
    asked.unwrap_or_default()
}

/// The errors that the agent has counted.
fn errors(node: &Namespace) -> u32 {
    let metrics = served(node, "/metrics");
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("ipblock_agent_errors_total"));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u32>().ok());
    values.sum()
}

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("ipblock-agent-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn url() -> String {
    format!("http://{OPERATOR}/bans")
}

#[test]
fn the_program_follows_the_list_and_leaves_the_table_when_it_ends() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut operator = Operator::start(&pair.client, OPERATOR, None);
    // The node and the operator itself are on the list, too.
    operator.publish(&[
        (CLIENT[0], None),
        (NODE[0], None),
        ("10.77.0.3", None),
        ("2001:db8:77::2", Some(3600)),
    ]);
    let agent = Running::start(&pair.node, &url(), &[]);
    assert!(pair.becomes_dropped(CLIENT[0]));
    assert!(pair.is_dropped(CLIENT[2]));
    assert!(pair.passes(CLIENT[1]), "the operator is never banned");
    assert!(soon(
        || served(&pair.node, "/readyz").starts_with("HTTP/1.1 200")
    ));
    let reported = || operator.reports().last().cloned();
    assert!(soon(|| reported().is_some()));
    let (node, report) = reported().unwrap();
    assert_eq!(node, "node-7");
    assert_eq!(report, serde_json::json!({"version": "v1", "count": 2}));

    // A change arrives as a difference, and within the wait of the request.
    operator.publish(&[
        (NODE[0], None),
        ("10.77.0.3", None),
        ("2001:db8:77::2", Some(3600)),
        ("192.0.2.0/24", Some(600)),
    ]);
    assert!(pair.passes(CLIENT[0]));
    assert!(
        operator
            .queries()
            .iter()
            .any(|query| query == "format=json&wait=30&since=v1")
    );
    let (status, intact) = output(&pair.node, &["status", "--entries"]);
    assert!(
        intact && status.contains("table inet ipblock: intact"),
        "{status}"
    );
    assert!(
        status.contains("192.0.2.0/24") && (status.contains("9m5") || status.contains("10m0s")),
        "{status}"
    );
    assert!(
        soon(|| {
            let metrics = served(&pair.node, "/metrics");
            [
                "ipblock_agent_entries{family=\"v6\"} 1",
                "ipblock_agent_refused{reason=\"node\"} 1",
                "ipblock_agent_refused{reason=\"operator\"} 1",
            ]
            .iter()
            .all(|line| metrics.contains(line))
                && !metrics.contains("ipblock_agent_dropped_packets_total{family=\"v4\"} 0\n")
        }),
        "{}",
        served(&pair.node, "/metrics")
    );

    operator.stop();
    let (status, log) = agent.terminate();
    assert!(status.success() && log.contains("the table stays"), "{log}");
    assert!(pair.is_dropped(CLIENT[2]), "it still stands");
    assert_eq!(
        output(&pair.node, &["flush"]),
        (
            "the table is removed; this node bans nothing now\n".into(),
            true
        )
    );
    assert!(pair.passes(CLIENT[2]));
    assert_eq!(
        output(&pair.node, &["flush"]),
        ("there is no table\n".into(), true)
    );
    assert_eq!(
        output(&pair.node, &["status"]),
        (
            "table inet ipblock: missing; this node bans nothing\n".into(),
            false
        )
    );
}

#[test]
fn a_flushed_ruleset_is_repaired_within_seconds_without_the_operator() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut operator = Operator::start(&pair.client, OPERATOR, None);
    operator.publish(&[(CLIENT[0], None)]);
    let _agent = Running::start(&pair.node, &url(), &["--check-interval=1s"]);
    assert!(pair.becomes_dropped(CLIENT[0]));
    operator.stop();
    pair.node.run("nft flush ruleset");
    assert!(pair.becomes_dropped(CLIENT[0]));
    pair.node
        .run("nft delete rule inet ipblock banned handle 4");
    assert!(pair.becomes_dropped(CLIENT[0]));
}

#[test]
fn errors_and_empty_answers_of_the_operator_lift_nothing() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let mut operator = Operator::start(&pair.client, OPERATOR, None);
    operator.publish(&[(CLIENT[0], None)]);
    let agent = Running::start(&pair.node, &url(), &["--wait=1s"]);
    assert!(pair.becomes_dropped(CLIENT[0]));
    for fault in [
        (StatusCode::OK, ""),
        (StatusCode::OK, "{}"),
        (StatusCode::SERVICE_UNAVAILABLE, "the bans are not read yet"),
        (StatusCode::NOT_FOUND, "no such page"),
    ] {
        let before = errors(&pair.node);
        operator.break_with(Some(fault));
        assert!(soon(|| errors(&pair.node) > before), "{fault:?}");
        assert!(pair.is_dropped(CLIENT[0]), "{fault:?}");
    }
    operator.stop();
    wait(Duration::from_millis(500));
    assert!(pair.is_dropped(CLIENT[0]), "an operator that is away");
    let (status, log) = agent.terminate();
    assert!(
        status.success() && log.contains("the bans in the kernel stay"),
        "{log}"
    );
}

#[test]
fn a_list_beyond_the_limit_of_memory_changes_nothing() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let operator = Operator::start(&pair.client, OPERATOR, None);
    operator.publish(&[(CLIENT[0], None)]);
    let agent = Running::start(&pair.node, &url(), &["--max-entries=1"]);
    assert!(pair.becomes_dropped(CLIENT[0]));
    let before = errors(&pair.node);
    // More than a MiB.
    let targets: Vec<String> = (0..60_000)
        .map(|at| format!("2001:db8:{at:x}::/48"))
        .collect();
    let entries: Vec<_> = targets
        .iter()
        .map(|target| (target.as_str(), None))
        .collect();
    operator.publish(&entries);
    assert!(soon(|| errors(&pair.node) > before));
    assert!(pair.is_dropped(CLIENT[0]));
    let (_, log) = agent.terminate();
    assert!(log.contains("larger than 1048576 bytes"), "{log}");
}

#[test]
fn a_wrong_clock_of_the_node_does_not_change_when_a_ban_ends() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let operator = Operator::start(&pair.client, OPERATOR, None);
    operator.set_ahead(SignedDuration::from_hours(24));
    operator.publish(&[(CLIENT[0], Some(3)), ("192.0.2.7", Some(7200))]);
    let _agent = Running::start(&pair.node, &url(), &[]);
    assert!(pair.becomes_dropped(CLIENT[0]));
    let (status, _) = output(&pair.node, &["status", "--entries"]);
    assert!(
        status.contains("1h59m") || status.contains("2h0m"),
        "{status}"
    );
    assert!(pair.passes(CLIENT[0]));
}

#[test]
fn the_list_is_read_by_https_with_a_token_that_is_rotated() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let files = Directory::new("https");
    let made = rcgen::generate_simple_self_signed(vec!["10.77.0.3".to_owned()]).unwrap();
    let authority = files.write("ca.crt", &made.cert.pem());
    let token = files.write("token", "first\n");
    let certificate = (made.cert.der().to_vec(), made.signing_key.serialize_der());
    let operator = Operator::start(&pair.client, OPERATOR, Some(certificate));
    operator.require("first");
    operator.publish(&[(CLIENT[0], None)]);
    let url = format!("https://{OPERATOR}/bans");
    let token_flag = format!("--token-file={token}");
    // Without its authority the server is not trusted.
    let untrusting = Running::start(&pair.node, &url, &[&token_flag]);
    wait(Duration::from_millis(1500));
    assert!(pair.passes(CLIENT[0]));
    let (_, log) = untrusting.terminate();
    assert!(
        log.contains("UnknownIssuer") && !log.contains("first"),
        "{log}"
    );

    let authority_flag = format!("--ca-file={authority}");
    let agent = Running::start(
        &pair.node,
        &url,
        &[&token_flag, &authority_flag, "--wait=1s"],
    );
    assert!(pair.becomes_dropped(CLIENT[0]));
    operator.require("second");
    operator.publish(&[]);
    wait(Duration::from_millis(1500));
    assert!(
        pair.is_dropped(CLIENT[0]),
        "the old token is refused, and the ban stays"
    );
    files.write("token", "second\n");
    assert!(pair.passes(CLIENT[0]));
    // In plain text a token is not sent.
    let plain = url.replace("https", "http");
    let refused = program(&pair.node)
        .args(["run", "--list-url", &plain, "--node-name=n", &token_flag])
        .output()
        .unwrap();
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && error.contains("plain text"),
        "{error}"
    );
    drop(agent);
}

#[test]
fn with_flush_on_exit_the_table_goes_with_the_agent() {
    let Some(pair) = Pair::new() else {
        return;
    };
    let operator = Operator::start(&pair.client, OPERATOR, None);
    operator.publish(&[(CLIENT[0], None)]);
    let agent = Running::start(
        &pair.node,
        &url(),
        &["--flush-on-exit", "--log-format=json"],
    );
    assert!(pair.becomes_dropped(CLIENT[0]));
    let (status, log) = agent.terminate();
    assert!(
        status.success() && log.contains("the table is removed"),
        "{log}"
    );
    assert!(pair.passes(CLIENT[0]));
}

//! Restarts a real kube-apiserver under the informers of each peer, and prints a table: how late they see what is changed
//! right after a restart, and how many requests they send for it.
//!
//! ```text
//! eval "$(tools/kube-apiserver/build.sh)"
//! cargo build --release --manifest-path benches/peers/Cargo.toml -p peer-ours -p peer-kube -p peer-restart
//! (cd benches/peers/go && go build -o ../target/release/peer-go .)
//! benches/peers/target/release/peer-restart
//! ```

mod audit;
mod peer;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use clap::Parser;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_client::api::{Patch, PatchParams, PostParams};
use kube_client::{Api, Client};
use peer_measure::restart::namespace;
use reeve_apiserver::control_plane::ControlPlane;
use serde_json::json;
use tokio::time::sleep;

use audit::Audit;
use peer::Peer;

/// The program and the name of each peer.
const PEERS: [(&str, &str); 4] = [
    ("peer-go", "client-go"),
    ("peer-go", "controller-runtime"),
    ("peer-kube", "kube"),
    ("peer-ours", "ours"),
];

/// How long the API server is away besides its own start.
const AWAY: Duration = Duration::from_secs(1);

/// How long the informers get to see a change before the next restart.
const WAIT: Duration = Duration::from_secs(25);

type Error = Box<dyn std::error::Error>;

/// Restarts an API server under informers.
#[derive(Debug, Parser)]
struct Args {
    /// How often each peer runs; the table shows medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How often the API server restarts in a run.
    #[arg(long, default_value_t = 2)]
    restarts: usize,
    /// How many informers there are, each of a namespace of its own.
    #[arg(long, default_value_t = 100)]
    count: usize,
    /// Where the table is written, beside standard output.
    #[arg(long)]
    table: Option<PathBuf>,
}

/// The figures of a run.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Of a change after the restart, in ms.
    median: f64,
    longest: f64,
    /// Changes that were not seen.
    missed: f64,
    /// Requests that reached the server, for each informer and restart.
    requests: f64,
}

/// Reads a figure of a run.
type Figure = fn(&Run) -> f64;

#[tokio::main]
async fn main() -> ExitCode {
    match compare(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn compare(args: &Args) -> Result<(), Error> {
    let policy = std::env::temp_dir().join(format!("peer-restart-{}", std::process::id()));
    std::fs::create_dir_all(&policy)?;
    let compared = compare_within(args, &policy).await;
    std::fs::remove_dir_all(&policy)?;
    compared
}

async fn compare_within(args: &Args, directory: &Path) -> Result<(), Error> {
    let audit = Audit::new(directory)?;
    let mut plane = ControlPlane::builder();
    for argument in audit.arguments() {
        plane = plane.apiserver_argument(argument);
    }
    let mut plane = plane.start().await?;
    let kubeconfig = directory.join("kubeconfig");
    std::fs::write(&kubeconfig, plane.kubeconfig())?;
    create(&plane.client()?, args.count).await?;
    let mut runs = PEERS.map(|_| Vec::new());
    for round in 1..=args.rounds {
        for ((program, name), runs) in PEERS.iter().zip(&mut runs) {
            let path = std::env::current_exe()?.with_file_name(program);
            if !path.exists() {
                continue;
            }
            let run = one(
                args,
                &mut plane,
                &audit,
                &Peer::new(&path, name, &kubeconfig),
            )
            .await?;
            eprintln!("round {round}, {name}: {run:?}");
            runs.push(run);
        }
    }
    let text = render(args, &runs);
    println!("{text}");
    if let Some(path) = &args.table {
        std::fs::write(path, text)?;
    }
    Ok(())
}

/// The namespaces, with a ConfigMap in each.
async fn create(client: &Client, count: usize) -> Result<(), Error> {
    for number in 0..count {
        let name = namespace(number);
        let made = serde_json::from_value::<Namespace>(json!({ "metadata": { "name": name } }))?;
        let params = PostParams::default();
        Api::all(client.clone()).create(&params, &made).await?;
        let map = json!({ "metadata": { "name": "one" }, "data": { "ts": "0" } });
        let map = serde_json::from_value::<ConfigMap>(map)?;
        let maps = Api::namespaced(client.clone(), &name);
        maps.create(&params, &map).await?;
    }
    Ok(())
}

/// Writes the time into each ConfigMap.
async fn change(client: &Client, count: usize) -> Result<(), Error> {
    let changes = (0..count).map(|number| async move {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(number));
        let now = UNIX_EPOCH.elapsed()?.as_micros().to_string();
        let patch = Patch::Merge(json!({ "data": { "ts": now } }));
        maps.patch("one", &PatchParams::default(), &patch).await?;
        Ok::<_, Error>(())
    });
    try_join_all(changes).await.map(drop)
}

/// One run of a peer.
async fn one(
    args: &Args,
    plane: &mut ControlPlane,
    audit: &Audit,
    peer: &Peer<'_>,
) -> Result<Run, Error> {
    let running = peer.start(args.count).await?;
    // Whatever a peer does once, such as opening its watches, is over.
    sleep(Duration::from_secs(2)).await;
    let before = audit.requests_of(peer.user_agent())?;
    for _ in 0..args.restarts {
        plane.stop_apiserver();
        sleep(AWAY).await;
        plane.start_apiserver().await?;
        change(&plane.client()?, args.count).await?;
        sleep(WAIT).await;
    }
    let requests = audit.requests_of(peer.user_agent())? - before;
    let report = running.stop().await?;
    let number = |name: &str| {
        let value = report[name].as_f64();
        value.ok_or_else(|| format!("{report}: no {name}"))
    };
    let changes = (args.count * args.restarts) as f64;
    Ok(Run {
        median: number("p50_us")? / 1e3,
        longest: number("max_us")? / 1e3,
        missed: (changes - number("n")?).max(0.0),
        requests: requests as f64 / changes,
    })
}

fn render(args: &Args, runs: &[Vec<Run>]) -> String {
    let mut text = format!(
        "# A restart of kube-apiserver under {} informers, side by side\n\n\
         {} rounds, all peers in turn in each; medians. One kube-apiserver 1.36 with etcd is killed, and started again a second later; {} restarts a run. When it is ready, one \
         object in each informer's namespace is changed at once. *late* is the time from that write to the handler. Requests are those that reached the server, by its audit log, until {} s \
         after each restart. client-go and controller-runtime read protobuf; no client limits its own requests. controller-runtime has one cache with {} namespaces.\n\n",
        args.count,
        args.rounds,
        args.restarts,
        WAIT.as_secs(),
        args.count
    );
    text.push_str("| |");
    for (_, name) in PEERS {
        text.push_str(&format!(" {name} |"));
    }
    text.push_str("\n|---|---|---|---|---|\n");
    let rows: [(&str, Figure); 4] = [
        ("late, median, ms", |run| run.median),
        ("late, longest, ms", |run| run.longest),
        ("changes that were not seen", |run| run.missed),
        ("requests an informer and restart", |run| run.requests),
    ];
    for (title, of) in rows {
        text.push_str(&format!("| {title} |"));
        for runs in runs {
            let mut values: Vec<f64> = runs.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            match values.get(values.len() / 2) {
                Some(value) => text.push_str(&format!(" {value:.1} |")),
                None => text.push_str(" – |"),
            }
        }
        text.push('\n');
    }
    text
}

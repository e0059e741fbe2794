//! The operator bench: an IPBlock operator against a real kube-apiserver and etcd and a mock gateway.
//!
//! ```text
//! eval "$(tools/kube-apiserver/build.sh)"
//! cargo build --release && cargo run --release -p operator-bench
//! ```
//! Every figure is measured in one run together with the floor: a bare driver that makes the same writes without an
//! operator. `--peer NAME=COMMAND` measures another operator of the same objects in the same run.

mod bench;
mod blocks;
mod cluster;
mod feed;
mod gateway;
mod local;
mod report;
mod scale;
mod scenario;
mod subject;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use tokio::time::Instant;

use bench::Bench;
use blocks::{Error, Result};
use cluster::Cluster;
use gateway::Gateway;
use report::Report;
use subject::Recipe;

const SCENARIOS: [&str; 6] = ["burst", "one", "lift", "gateway", "api-down", "kill"];

/// Measures an IPBlock operator.
#[derive(Debug, Parser)]
struct Args {
    /// The operator to measure; `cargo build --release` makes the default one.
    #[arg(long, default_value = "target/release/ipblock-operator")]
    operator: PathBuf,
    /// Another operator of the same objects: NAME=PATH, and its arguments after blanks.
    #[arg(long)]
    peer: Vec<String>,
    /// Blocks in the small burst, and in the lift scenario.
    #[arg(long, default_value_t = 1000)]
    count: usize,
    /// Blocks in the large burst; 0 leaves it out.
    #[arg(long, default_value_t = 5000)]
    large: usize,
    /// How often the bursts are repeated; the table shows medians.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Only the sizes: BLOCKS+ENTRIES of lists, with commas between them, against the built-in API server.
    #[arg(long, value_delimiter = ',', value_parser = size)]
    scale: Vec<(usize, usize)>,
    /// The blocks of `--scale` are at a gateway, with a call for each, in place of one engine that serves all.
    #[arg(long, requires = "scale")]
    at_gateway: bool,
    /// The API server of `--scale` is reached by TLS.
    #[arg(long, requires = "scale")]
    tls: bool,
    /// Only lists of so many entries, which the operator pulls and keeps as BlockLists, against the built-in API server.
    #[arg(long, value_delimiter = ',')]
    feed: Vec<usize>,
    /// Seconds that an idle operator of a size is watched.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// Only these scenarios, with commas between them.
    #[arg(long, value_delimiter = ',', value_parser = SCENARIOS)]
    only: Vec<String>,
    /// Only the requests of so many lifecycles, as the floor of their processor time; prints the seconds. The bench runs
    /// itself with this.
    #[arg(long, hide = true, requires = "gateway")]
    bare: Option<usize>,
    /// The gateway of `--bare`.
    #[arg(long, hide = true)]
    gateway: Option<String>,
    /// Where the Markdown table is written, beside standard output.
    #[arg(long)]
    table: Option<PathBuf>,
    /// Where the operator's log goes.
    #[arg(long, default_value = "target/operator-bench.log")]
    log: PathBuf,
}

fn includes(args: &Args, scenario: &str) -> bool {
    args.only.is_empty() || args.only.iter().any(|only| only == scenario)
}

/// A burst of `count` for each operator, each right after one of the floor: the floor changes from minute to minute.
async fn bursts(bench: &mut Bench, count: usize, subjects: &[(String, Recipe)]) -> Result<()> {
    let floor = scenario::floor(bench, count).await?;
    for (name, recipe) in subjects {
        bench.name.clone_from(name);
        bench.recipe = recipe.clone();
        scenario::burst(bench, count, floor).await?;
    }
    Ok(())
}

async fn measure(bench: &mut Bench, args: &Args) -> Result<()> {
    if includes(args, "one") {
        scenario::single(bench, 100).await?;
    }
    if includes(args, "lift") {
        scenario::lift(bench, args.count, Duration::from_secs(20)).await?;
    }
    if includes(args, "gateway") {
        scenario::gateway_faults(bench, 50).await?;
    }
    if includes(args, "api-down") {
        scenario::api_down(bench, 200).await?;
    }
    if includes(args, "kill") {
        scenario::kill(bench, 200).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    match run(Args::parse()).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            let mut message = error.to_string();
            let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(&error);
            while let Some(inner) = cause {
                message = format!("{message}: {inner}");
                cause = inner.source();
            }
            eprintln!("operator-bench: {message}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn size(text: &str) -> std::result::Result<(usize, usize), String> {
    let wrong = || format!("{text}: expected BLOCKS+ENTRIES, for example 100000+1000000");
    let (blocks, entries) = text.split_once('+').ok_or_else(wrong)?;
    let number = |text: &str| text.parse().map_err(|_| wrong());
    Ok((number(blocks)?, number(entries)?))
}

/// Measures the sizes, without kube-apiserver and etcd.
async fn scales(args: &Args) -> Result<()> {
    let mut report = Report::default();
    for (blocks, entries) in &args.scale {
        let size = scale::Size {
            blocks: *blocks,
            entries: *entries,
            idle: Duration::from_secs(args.idle),
            called: args.at_gateway,
            tls: args.tls,
        };
        scale::run(&mut report, args.operator.clone(), args.log.clone(), size).await?;
    }
    show(&report, args)
}

/// Measures lists that are pulled.
async fn feeds(args: &Args) -> Result<()> {
    let mut report = Report::default();
    for entries in &args.feed {
        feed::run(
            &mut report,
            args.operator.clone(),
            args.log.clone(),
            *entries,
        )
        .await?;
    }
    show(&report, args)
}

fn show(report: &Report, args: &Args) -> Result<()> {
    let table = report.table();
    if let Some(path) = &args.table {
        std::fs::write(path, &table)?;
    }
    print(&table);
    Ok(())
}

#[allow(
    clippy::print_stdout,
    reason = "the figures are the purpose of this program"
)]
fn print(text: &str) {
    println!("{text}");
}

async fn run(args: Args) -> Result<()> {
    if let (Some(count), Some(gateway)) = (args.bare, &args.gateway) {
        let seconds = scenario::drive(count, gateway).await?;
        print(&format!("{seconds:.2}"));
        return Ok(());
    }
    if !args.scale.is_empty() {
        return scales(&args).await;
    }
    if !args.feed.is_empty() {
        return feeds(&args).await;
    }
    let gateway = Gateway::start().await?;
    let cluster = Cluster::start().await?;
    let client = cluster.client().await?;
    cluster::install(&client, &gateway.host()).await?;
    let kubeconfig = cluster.write_kubeconfig().await?;
    let environment = vec![("KUBECONFIG".to_string(), kubeconfig.display().to_string())];
    let ours = Recipe {
        program: args.operator.clone(),
        args: [
            "run",
            "--namespace=default",
            "--allow-loopback",
            "--insecure-triggers",
            "--metrics-bind-address=127.0.0.1:0",
            "--health-probe-bind-address=127.0.0.1:0",
        ]
        .map(String::from)
        .to_vec(),
        environment: environment.clone(),
        log: args.log.clone(),
    };
    let mut subjects = vec![("ours".to_string(), ours)];
    for peer in &args.peer {
        let (name, command) = peer
            .split_once('=')
            .ok_or_else(|| Error::Setup(format!("--peer {peer}: expected NAME=COMMAND")))?;
        let mut words = command.split_whitespace().map(String::from);
        let program = words
            .next()
            .ok_or_else(|| Error::Setup(format!("--peer {peer}: no command")))?
            .into();
        let recipe = Recipe {
            program,
            args: words.collect(),
            environment: environment.clone(),
            log: args.log.clone(),
        };
        subjects.push((name.to_string(), recipe));
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the bench compares the operator's dates with real time"
    )]
    let clocks = (Instant::now(), jiff::Timestamp::now());
    let (name, recipe) = subjects[0].clone();
    let mut bench = Bench {
        cluster,
        client,
        gateway,
        recipe,
        name,
        report: Report::default(),
        clocks,
    };
    if includes(&args, "burst") {
        for _ in 0..args.runs.max(1) {
            bursts(&mut bench, args.count, &subjects).await?;
        }
        if args.large > 0 {
            bursts(&mut bench, args.large, &subjects).await?;
        }
    }
    if includes(&args, "one") {
        scenario::write_alone(&mut bench, 100).await?;
    }
    if includes(&args, "lift") {
        scenario::bare(&mut bench, args.count).await?;
    }
    for (name, recipe) in subjects {
        bench.name = name;
        bench.recipe = recipe;
        measure(&mut bench, &args).await?;
    }
    show(&bench.report, &args)?;
    bench.cluster.stop().await;
    Ok(())
}

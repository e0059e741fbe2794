//! The bench of the API server: `reeve-apiserver` beside kube-apiserver and etcd, in turn, in one run.
//!
//! ```text
//! eval "$(tools/kube-apiserver/build.sh)"
//! cargo build --release -p reeve-apiserver -p apiserver-bench
//! target/release/apiserver-bench --table docs/peers-apiserver.md
//! ```
//! One program measures all servers. It has one thread, and speaks HTTP/2 over TLS with bodies that are prepared. What
//! counts is the processor time of the servers' processes, because the bench shares the machine with them.

mod connection;
mod credentials;
mod error;
mod machine;
mod objects;
mod process;
mod report;
mod server;
mod suite;
mod template;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use error::{Error, Result};
use report::{Report, Values};
use server::{Programs, Server, Subject};
use suite::{lists, many, ready, snapshots, watches, writes};

const SUITES: [&str; 6] = ["ready", "writes", "snapshots", "lists", "watches", "many"];

/// Measures API servers.
#[derive(Debug, Parser)]
struct Args {
    /// The program that is measured; `cargo build --release -p reeve-apiserver` makes the default one.
    #[arg(long, default_value = "target/release/reeve-apiserver")]
    server: PathBuf,
    /// The directory of etcd and kube-apiserver; without it only ours is measured.
    #[arg(long, env = "KUBEBUILDER_ASSETS")]
    assets: Option<PathBuf>,
    /// Where the servers keep their data: a tmpfs.
    #[arg(long, default_value = "/dev/shm")]
    scratch: PathBuf,
    /// Rounds of each suite, with all servers in turn in each; the table shows medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only these suites, with commas between them.
    #[arg(long, value_delimiter = ',', value_parser = SUITES)]
    only: Vec<String>,
    /// Only these servers: real, ours, plain, durable, drop-in.
    #[arg(long, value_delimiter = ',', value_parser = Subject::ALL.map(Subject::key))]
    servers: Vec<String>,
    /// Small counts, to see that everything works. The figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Objects of a cell of writes.
    #[arg(long, default_value_t = 3200)]
    objects: usize,
    /// Clients that write, with commas between the cells.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 64])]
    clients: Vec<usize>,
    /// Only writes of kinds whose titles contain this.
    #[arg(long, default_value = "")]
    kind: String,
    /// Pods of the large list.
    #[arg(long, default_value_t = 100_000)]
    pods: usize,
    /// Keeps every result in this file, and continues with what is there.
    #[arg(long)]
    kept: Option<PathBuf>,
    /// Where the Markdown is written, beside standard output.
    #[arg(long)]
    table: Option<PathBuf>,
    /// So many servers in this process, for the suite `many`.
    #[arg(long = "in-process", hide = true)]
    in_process: Option<usize>,
}

// === impl Args ===

impl Args {
    fn includes(&self, suite: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == suite)
    }

    /// The servers that `suite` compares.
    fn subjects(&self, suite: &str) -> Vec<Subject> {
        let measured: &[Subject] = match suite {
            "many" => &[Subject::Ours],
            "snapshots" => &[Subject::Real, Subject::Durable],
            "writes" => &[
                Subject::Real,
                Subject::Ours,
                Subject::Plain,
                Subject::Durable,
            ],
            "ready" => &[
                Subject::Real,
                Subject::DropIn,
                Subject::Ours,
                Subject::Plain,
            ],
            _ => &[Subject::Real, Subject::Ours, Subject::Plain],
        };
        let chosen = |subject: &&Subject| {
            let named = self.servers.iter().any(|name| name == subject.key());
            (self.servers.is_empty() || named)
                && (**subject != Subject::Real || self.assets.is_some())
        };
        measured.iter().filter(chosen).copied().collect()
    }

    fn programs(&self) -> Programs {
        Programs {
            assets: self.assets.clone().unwrap_or_default(),
            ours: self.server.clone(),
            scratch: self.scratch.clone(),
        }
    }
}

/// One round of `suite` with one server.
async fn measure(args: &Args, suite: &str, subject: Subject) -> Result<Values> {
    if suite == "many" {
        return many::run(if args.quick { 20 } else { 200 }).await;
    }
    let server = Server::start(subject, &args.programs()).await?;
    let quick = args.quick;
    let values = match suite {
        "ready" => ready::run(&server, Duration::from_secs(if quick { 0 } else { 5 })).await,
        "writes" => {
            let sizes = writes::Sizes {
                clients: if quick { vec![8] } else { args.clients.clone() },
                objects: if quick { 80 } else { args.objects },
                kind: args.kind.clone(),
            };
            writes::run(&server, &sizes).await
        }
        "snapshots" => {
            let sizes = snapshots::Sizes {
                objects: if quick { 160 } else { 20_000 },
                updates: if quick { 1 } else { 3 },
            };
            snapshots::run(&server, &sizes).await
        }
        "lists" => {
            let sizes = lists::Sizes {
                objects: if quick {
                    vec![100]
                } else {
                    vec![1000, args.pods]
                },
                settle: Duration::from_secs(if quick { 0 } else { 3 }),
                at_least: Duration::from_secs(u64::from(!quick)),
            };
            lists::run(&server, &sizes).await
        }
        "watches" => {
            let sizes = watches::Sizes {
                watchers: if quick {
                    vec![1, 100]
                } else {
                    vec![1, 100, 1000]
                },
                writes: if quick { 20 } else { 1000 },
                events: 30_000,
            };
            watches::run(&server, &sizes).await
        }
        _ => Err(Error::Setup(format!("no suite {suite}"))),
    }?;
    server.stop().await?;
    Ok(values)
}

async fn run(args: &Args) -> Result<()> {
    if let Some(count) = args.in_process {
        let line = many::in_process(count).await?;
        print(&line.to_string());
        return Ok(());
    }
    let mut report = Report::keeping(args.kept.clone())?;
    let suites: Vec<&str> = SUITES
        .into_iter()
        .filter(|suite| args.includes(suite))
        .collect();
    for suite in &suites {
        for round in 0..args.rounds {
            for subject in args.subjects(suite) {
                if report.rounds(suite, subject) > round {
                    continue;
                }
                eprintln!("{suite}, round {}: {}", round + 1, subject.key());
                let values = measure(args, suite, subject).await?;
                report.add(suite, subject, values)?;
            }
        }
    }
    let text = machine::document(&report, &SUITES, args.rounds, args.quick).await;
    if let Some(path) = &args.table {
        std::fs::write(path, &text).map_err(Error::io(path.display().to_string()))?;
    }
    print(&text);
    Ok(())
}

#[allow(clippy::print_stdout, reason = "the purpose of this program")]
fn print(text: &str) {
    println!("{text}");
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut runtime = match args.in_process {
        Some(_) => tokio::runtime::Builder::new_multi_thread(),
        // One thread leaves the other processor to the server.
        None => tokio::runtime::Builder::new_current_thread(),
    };
    let result = runtime
        .enable_all()
        .build()
        .map_err(Error::io("runtime"))
        .and_then(|runtime| runtime.block_on(run(&args)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("apiserver-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

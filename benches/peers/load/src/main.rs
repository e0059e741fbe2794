//! Calls a webhook server as kube-apiserver does, and measures the server: `webhook -peer=NAME -program=FILE`.
//!
//! The server is another process, `FILE webhooks -port=… -certificates=…`, so its processor time and memory are those of the
//! kernel's record of that process, and not of this one. This program has one thread for the calls, which is the same for
//! every server.
//!
//! | flag | what |
//! |---|---|
//! | `-n` | the number of calls that are measured; a tenth as many run before |
//! | `-review=pod\|pod40\|deployment` | the object: a Pod of 5 KB or 40 KB, a Deployment of 5 KB |
//! | `-handler=validate\|mutate` | the handler: one call of ten is denied, or each gets a patch |
//! | `-flight` | calls at once, as streams of one HTTP/2 connection |
//! | `-connections=kept\|new` | one connection, or another one for each call, with a whole handshake |
//! | `-rate` | calls a second at even intervals, however long the answers take; 0: each call follows an answer |

mod client;
mod drive;
mod process;
mod review;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use peer_measure::latency::Sorted;
use peer_measure::usage::{Cpu, Span};
use peer_measure::{Flags, Outcome, Report, Stop, report};

use client::Client;
use drive::{Drive, Measured};
use process::Server;
use review::Review;

fn main() -> ExitCode {
    report::main("ours", |flags| match flags.scenario.as_str() {
        "webhook" => run(flags),
        _ => Err(Stop::unknown(flags)),
    })
}

fn run(flags: &Flags) -> Outcome {
    let drive = Drive::of(flags)?;
    let count = flags.get("n", 10_000)?;
    let review = Arc::new(Review::of(flags)?);
    let program = flags.text("program", "");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(wrong)?;
    runtime.block_on(async {
        let mut server = Server::start(&program, &flags.peer)?;
        let client = Client::new(&server).map_err(wrong)?;
        server.wait(&client).await?;
        review.check(&client).await?;
        let warm_up = (count / 10).clamp(10, 5000);
        drive.calls(&client, &review, warm_up).await?;

        let before = server.cpu()?;
        let own_before = Cpu::now();
        let Measured { took, latencies } = drive.calls(&client, &review, count).await?;
        let own = Cpu::now().all - own_before.all;
        let after = server.cpu()?;
        let span = Span {
            secs: took.as_secs_f64(),
            cpu: Cpu {
                all: after.all - before.all,
                system: after.system - before.system,
                faults: 0.0,
            },
        };
        let sorted = Sorted::new(latencies.iter().copied().map(nanoseconds).collect());
        Ok(Report::new(count, span)
            .peak(server.peak()?)
            .latency(&sorted)
            .extra("p999_us", sorted.quantile_us(0.999))
            .extra("load_cpu", own))
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn wrong(error: impl std::fmt::Display) -> Stop {
    Stop::wrong(error.to_string())
}

//! kube-runtime as a peer (`-peer=kube`, `kube-meta`, `kube-dyn`).

mod faults;
mod fleet;
mod informer;
mod queue;
mod reconcile;
mod restart;
mod starve;

use std::process::ExitCode;
use std::sync::Arc;

use peer_measure::heap::Counting;
use peer_measure::{Flags, Outcome, Stop, report};

#[global_allocator]
static HEAP: Counting = Counting;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("faults") {
        return faults::main().unwrap_or(ExitCode::FAILURE);
    }
    report::main("kube", run)
}

fn run(flags: &Flags) -> Outcome {
    if !flags.peer.starts_with("kube") {
        return Err(Stop::unknown(flags));
    }
    match flags.scenario.as_str() {
        "sync" | "steady" | "latency" | "get" | "listns" | "relist" => informer::run(flags),
        _ if flags.peer != "kube" => Err(Stop::unknown(flags)),
        "fleet" => fleet::run(flags),
        "restart" => restart::run(flags),
        "ctrlcold" | "ctrlburst" | "ctrlwrite" => reconcile::run(flags),
        "wq" | "wqdedup" => match flags.text("key", "arc").as_str() {
            "arc" => queue::wq::<Arc<str>>(flags),
            "string" => queue::wq::<String>(flags),
            other => Err(Stop::wrong(format!("-key={other}: arc or string"))),
        },
        "wqdelay" => queue::wqdelay(flags),
        "wqmem" => queue::wqmem(flags),
        "wqlimit" => Err(Stop::skip("kube-runtime has no rate limiter per key")),
        "starve" => starve::run(flags),
        _ => Err(Stop::unknown(flags)),
    }
}

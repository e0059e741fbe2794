//! This project as a peer (`-peer=ours`, `ours-meta`, `ours-dyn`, `ours-compact`, `ours-borrowed`), and floors in plain Rust (`-peer=floor`).
//!
//! Without the feature `informer` it has the queue's scenarios only, and builds in a fraction of the time.

mod delay;
#[cfg(feature = "informer")]
mod faults;
#[cfg(feature = "informer")]
mod fleet;
mod floor;
#[cfg(feature = "informer")]
mod informer;
mod limit;
mod memory;
mod queue;
#[cfg(feature = "informer")]
mod read;
#[cfg(feature = "informer")]
mod reconcile;
#[cfg(feature = "informer")]
mod restart;
mod starve;

use std::process::ExitCode;
use std::sync::Arc;

use peer_measure::heap::Counting;
use peer_measure::{Flags, Outcome, Stop, report};

#[global_allocator]
static HEAP: Counting = Counting;

fn main() -> ExitCode {
    #[cfg(feature = "informer")]
    if std::env::args().nth(1).as_deref() == Some("faults") {
        return faults::main().unwrap_or(ExitCode::FAILURE);
    }
    report::main("ours", run)
}

fn run(flags: &Flags) -> Outcome {
    match flags.scenario.as_str() {
        #[cfg(feature = "informer")]
        "sync" if flags.peer.starts_with("floor") => read::run(flags),
        #[cfg(feature = "informer")]
        "sync" | "steady" | "latency" | "get" | "listns" | "relist" => informer::run(flags),
        #[cfg(feature = "informer")]
        "fleet" if flags.peer == "ours" => fleet::run(flags),
        #[cfg(feature = "informer")]
        "restart" if flags.peer == "ours" => restart::run(flags),
        #[cfg(feature = "informer")]
        "ctrlcold" | "ctrlburst" | "ctrlwrite" if flags.peer == "ours" => reconcile::run(flags),
        _ => queues(flags),
    }
}

fn queues(flags: &Flags) -> Outcome {
    let owned = match flags.text("key", "arc").as_str() {
        "arc" => false,
        "string" => true,
        other => return Err(Stop::wrong(format!("-key={other}: arc or string"))),
    };
    match (flags.scenario.as_str(), flags.peer.as_str()) {
        ("wq" | "wqdedup", "ours") if owned => queue::run::<String>(flags),
        ("wq" | "wqdedup", "ours") => queue::run::<Arc<str>>(flags),
        ("wq" | "wqdedup", "floor") if owned => floor::wq::<String>(flags),
        ("wq" | "wqdedup", "floor") => floor::wq::<Arc<str>>(flags),
        ("wqdelay", "ours") => delay::run(flags),
        ("wqlimit", "ours") => limit::run(flags),
        ("wqlimit", "floor") => floor::wqlimit(flags),
        ("wqmem", "ours") => memory::run(flags),
        ("wqmem", "floor") => floor::wqmem(flags),
        ("starve", "ours") => starve::run(flags),
        ("wqdelay" | "starve", "floor") => Err(Stop::skip("the floor is a queue without time")),
        _ => Err(Stop::unknown(flags)),
    }
}

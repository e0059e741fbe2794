//! `wqmem`: live bytes of the queue for each key that waits, without the bytes of the key.

use std::sync::Arc;
use std::time::Duration;

use peer_measure::usage::Stopwatch;
use peer_measure::{Flags, Outcome, Report, Stop, heap, keys};
use reeve_workqueue::Queue;

use crate::queue::builder;

pub(crate) fn run(flags: &Flags) -> Outcome {
    heap::count();
    let count = flags.get("n", 1_000_000)?;
    let keys: Vec<Arc<str>> = keys::range(0, count);
    let delay = match flags.text("mode", "ready").as_str() {
        "ready" => None,
        "delayed" => Some(Duration::from_secs(3600)),
        other => return Err(Stop::wrong(format!("-mode={other}: ready or delayed"))),
    };
    let before = heap::live();
    let stopwatch = Stopwatch::start();
    let queue: Queue<Arc<str>> = builder(flags)?.build();
    for key in &keys {
        match delay {
            None => queue.add(Arc::clone(key)),
            Some(delay) => queue.add_after(Arc::clone(key), delay),
        }
    }
    let bytes = (heap::live() - before) as f64 / count as f64;
    let span = stopwatch.stop();
    let snapshot = queue.snapshot_of(0);
    if snapshot.ready + snapshot.waiting != count {
        return Err(Stop::wrong(format!(
            "{count} keys were added: {snapshot:?}"
        )));
    }
    Ok(Report::new(count, span).heap(bytes))
}

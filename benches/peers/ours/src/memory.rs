//! `wqmem`: live bytes of the queue for each key that waits, without the bytes of the key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use peer_measure::usage::Stopwatch;
use peer_measure::{Flags, Outcome, Report, Stop, heap, keys};
use reeve_workqueue::Queue;

use crate::queue::builder;

pub(crate) fn run(flags: &Flags) -> Outcome {
    heap::count();
    let count = flags.get("n", 1_000_000)?;
    let keys: Vec<Arc<str>> = keys::range(0, count);
    let mode = flags.text("mode", "ready");
    let add = match mode.as_str() {
        "ready" => |queue: &Queue<Arc<str>>, key| queue.add(key),
        "delayed" => |queue: &Queue<Arc<str>>, key| queue.add_after(key, Duration::from_secs(3600)),
        // The item is done; the queue keeps its failure record.
        "failed" => |queue: &Queue<Arc<str>>, key: Arc<str>| {
            queue.add_rate_limited(Arc::clone(&key));
            queue.cancel(&key);
        },
        other => {
            let text = format!("-mode={other}: ready, delayed or failed");
            return Err(Stop::wrong(text));
        }
    };
    let before = heap::live();
    let stopwatch = Stopwatch::start();
    let queue: Queue<Arc<str>> = builder(flags)?.failure_records(count).build();
    for key in &keys {
        add(&queue, Arc::clone(key));
    }
    let bytes = (heap::live() - before) as f64 / count as f64;
    let span = stopwatch.stop();
    let asked = Instant::now();
    let snapshot = queue.snapshot();
    let asked = asked.elapsed();
    let known = match mode.as_str() {
        "ready" => snapshot.ready,
        "delayed" => snapshot.waiting,
        _ => snapshot.records,
    };
    if known != count {
        return Err(Stop::wrong(format!(
            "{count} keys were added, {known} are {mode}"
        )));
    }
    let microseconds = asked.as_secs_f64() * 1e6;
    let report = Report::new(count, span).heap(bytes);
    Ok(report.extra("snapshot_us", microseconds))
}

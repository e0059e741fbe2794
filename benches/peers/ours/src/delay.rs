//! `wqdelay`: many timers, and how late their keys are handed out.

use std::sync::Arc;
use std::time::Instant;

use peer_measure::late::{Due, Seen};
use peer_measure::{Flags, Outcome, Stop};
use reeve_workqueue::Queue;

use crate::queue::{builder, runtime};

pub(crate) fn run(flags: &Flags) -> Outcome {
    let due = Arc::new(Due::of(flags)?);
    let threads = flags.get("threads", 1)?;
    let queue: Queue<Arc<str>> = builder(flags)?.build();
    let runtime = runtime(threads);
    let blocking = match flags.text("mode", "async").as_str() {
        "async" => false,
        "blocking" => true,
        other => return Err(Stop::wrong(format!("-mode={other}: async or blocking"))),
    };
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (queue, mut seen) = (queue.clone(), Seen::new(&due));
            if blocking {
                return runtime.spawn_blocking(move || {
                    while let Some(item) = queue.get_blocking() {
                        if seen.note(&item, Instant::now()) {
                            queue.shut_down();
                        }
                        item.forget();
                    }
                    seen
                });
            }
            runtime.spawn(async move {
                while let Some(item) = queue.get().await {
                    if seen.note(&item, Instant::now()) {
                        queue.shut_down();
                    }
                    item.forget();
                }
                seen
            })
        })
        .collect();
    due.run(
        |key, delay| queue.add_after(key, delay),
        || {
            let seen = workers.into_iter().map(|worker| runtime.block_on(worker));
            seen.map(|seen| seen.expect("a worker that ends")).collect()
        },
    )
}

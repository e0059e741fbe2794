//! `starve`: every run requests the next one at once; how often does each key run?

use std::sync::Arc;
use std::time::Duration;

use peer_measure::starve::Runs;
use peer_measure::{Flags, Outcome};
use reeve_workqueue::Queue;

use crate::queue::{builder, runtime};

pub(crate) fn run(flags: &Flags) -> Outcome {
    let runs = Arc::new(Runs::of(flags)?);
    let threads = flags.get("threads", 1)?;
    let queue: Queue<Arc<str>> = builder(flags)?.build();
    let runtime = runtime(threads);
    runs.measure(|keys| {
        for key in keys {
            queue.add(key);
        }
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let (queue, runs) = (queue.clone(), Arc::clone(&runs));
                runtime.spawn(async move {
                    while let Some(item) = queue.get().await {
                        if !runs.note(&item) {
                            queue.shut_down();
                            return;
                        }
                        if let Some(work) = runs.work() {
                            tokio::time::sleep(work).await;
                        }
                        item.requeue_after(Duration::ZERO);
                    }
                })
            })
            .collect();
        for worker in workers {
            runtime.block_on(worker).expect("a worker that ends");
        }
    })
}

//! `wq`, `wqdedup`: add, get, done.

use std::sync::Arc;
use std::thread;

use peer_measure::crowd::{Counters, Plan};
use peer_measure::keys::Key;
use peer_measure::{Flags, Outcome, Stop};
use prometheus_client::registry::Registry;
use reeve_workqueue::prometheus::Metrics;
use reeve_workqueue::{Builder, Queue};
use tokio::runtime::{self, Runtime};

/// How many items a worker takes at a time in `-mode=batch`.
const BATCH: usize = 32;

/// The workers: the items that each took, and those that each finished.
struct Crew {
    taken: Counters,
    done: Counters,
}

pub(crate) fn run<K: Key>(flags: &Flags) -> Outcome {
    let plan = Plan::of(flags)?;
    let queue: Queue<K> = builder(flags)?.build();
    let crew = Arc::new(Crew {
        taken: Counters::new(plan.threads),
        done: Counters::new(plan.threads),
    });
    let runtime = runtime(plan.threads);
    let mut threads = Vec::new();
    for worker in 0..plan.threads {
        let (queue, crew) = (queue.clone(), Arc::clone(&crew));
        match flags.text("mode", "async").as_str() {
            "async" => drop(runtime.spawn(async move { crew.work(worker, &queue).await })),
            "chain" => drop(runtime.spawn(async move { crew.work_in_chain(worker, &queue).await })),
            "batch" => {
                drop(runtime.spawn(async move { crew.work_in_batches(worker, &queue).await }));
            }
            "blocking" => threads.push(thread::spawn(move || crew.work_blocking(worker, &queue))),
            other => {
                return Err(Stop::wrong(format!(
                    "-mode={other}: async, chain, batch or blocking"
                )));
            }
        }
    }
    let (adds, expected) = (queue.clone(), plan.count as u64);
    let report = plan.run(
        &crew.done,
        move |key| adds.add(key),
        |times| {
            if plan.hot {
                queue.is_empty() && crew.taken.sum() == crew.done.sum()
            } else {
                crew.done.sum() == expected * times
            }
        },
    );
    queue.shut_down();
    for thread in threads {
        thread.join().expect("a worker that ends");
    }
    report
}

/// The queue of the flags, with the limiter of a controller; `-metrics=on` adds metrics.
pub(crate) fn builder<K: Key>(flags: &Flags) -> Result<Builder<K>, Stop> {
    let builder = Queue::builder().name("peers");
    match flags.text("metrics", "off").as_str() {
        "off" => Ok(builder),
        "on" => Ok(builder.metrics(Arc::new(Metrics::register(&mut Registry::default())))),
        other => Err(Stop::wrong(format!("-metrics={other}: on or off"))),
    }
}

/// The runtime of a usual program, with `threads` workers.
pub(crate) fn runtime(threads: usize) -> Runtime {
    runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("a runtime")
}

// === impl Crew ===

impl Crew {
    async fn work<K: Key>(&self, worker: usize, queue: &Queue<K>) {
        while let Some(item) = queue.get().await {
            self.taken.of(worker).count();
            item.done();
            self.done.of(worker).count();
        }
    }

    /// The end of an item and the hand-out of the next are one operation. An item counts as done right before it.
    async fn work_in_chain<K: Key>(&self, worker: usize, queue: &Queue<K>) {
        let mut next = queue.get().await;
        while let Some(item) = next {
            self.taken.of(worker).count();
            self.done.of(worker).count();
            next = item.done_and_get().await;
        }
    }

    async fn work_in_batches<K: Key>(&self, worker: usize, queue: &Queue<K>) {
        loop {
            let items = queue.get_batch(BATCH).await;
            if items.is_empty() {
                return;
            }
            self.taken.of(worker).add(items.len());
            for item in items {
                item.done();
                self.done.of(worker).count();
            }
        }
    }

    fn work_blocking<K: Key>(&self, worker: usize, queue: &Queue<K>) {
        while let Some(item) = queue.get_blocking() {
            self.taken.of(worker).count();
            item.done();
            self.done.of(worker).count();
        }
    }
}

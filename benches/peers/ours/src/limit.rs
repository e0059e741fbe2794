//! `wqlimit`: the cost of counting a failure, and of clearing the count.
//!
//! The queue keeps failures in the slot of the key, so there is no limiter to call alone: it is
//! measured through the item, `retry` and `forget`, which settle the item as well.

use std::sync::Arc;
use std::time::Duration;

use peer_measure::limit::Limiter;
use peer_measure::{Flags, Outcome, Stop, limit};
use reeve_workqueue::{Item, ItemExponentialFailure, Queue};

/// The queue, and all keys in flight at one worker.
struct ThroughItem {
    queue: Queue<Arc<str>>,
    items: Vec<Item<Arc<str>>>,
}

pub(crate) fn run(flags: &Flags) -> Outcome {
    if flags.text("mode", "item") == "limiter" {
        return Err(Stop::skip(
            "failures are counted in the queue's own slots: no limiter holds them",
        ));
    }
    // A back-off so long that no item returns while others are measured.
    let long =
        ItemExponentialFailure::new(Duration::from_secs(1000), Duration::from_secs(1_000_000));
    let subject = ThroughItem {
        queue: Queue::builder().rate_limiter(long).build(),
        items: Vec::new(),
    };
    limit::run(flags, subject)
}

impl Limiter for ThroughItem {
    fn prepare(&mut self, keys: &[Arc<str>]) {
        for key in keys {
            self.queue.add(Arc::clone(key));
        }
        self.items.reserve(keys.len());
        for _ in keys {
            self.items
                .push(self.queue.try_get().expect("an item for each key"));
        }
    }

    fn when(&mut self, _: &[Arc<str>]) {
        for item in self.items.drain(..) {
            item.retry();
        }
    }

    fn forget(&mut self, _: &[Arc<str>]) {
        for item in self.items.drain(..) {
            item.forget();
        }
    }

    fn failures(&self, key: &Arc<str>) -> u32 {
        self.queue.num_requeues(key)
    }
}

//! A panic in a key's own code affects that operation only.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reeve_workqueue::{Delay, Failure, ItemExponentialFailure, Queue, RateLimiter};
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(3600);

thread_local! {
    /// Number of calls of a key's own code before one panics.
    static FUSE: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A key whose hashes are all equal, so that lookups compare, and whose code panics when the fuse is burnt.
#[derive(Debug)]
struct Fused(u32);

// === impl Fused ===

impl Fused {
    fn burn() {
        match FUSE.get() {
            Some(0) => {
                FUSE.set(None);
                panic!("on purpose");
            }
            left => FUSE.set(left.map(|left| left - 1)),
        }
    }
}

impl Hash for Fused {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Self::burn();
        state.write_u8(0);
    }
}

impl PartialEq for Fused {
    fn eq(&self, other: &Self) -> bool {
        Self::burn();
        self.0 == other.0
    }
}

impl Eq for Fused {}

impl Clone for Fused {
    fn clone(&self) -> Self {
        Self::burn();
        Self(self.0)
    }
}

/// All queue operations that may call a key's code; each step goes on after the panic of another.
fn use_all(queue: &Queue<Fused>) {
    let steps: [&dyn Fn(); 11] = [
        &|| queue.add(Fused(1)),
        &|| queue.add(Fused(2)),
        &|| queue.add(Fused(1)),
        &|| queue.add_after(Fused(3), SECOND),
        &|| queue.add_after(Fused(3), 2 * SECOND),
        &|| queue.add_rate_limited(Fused(2)),
        &|| {
            if let Some(item) = queue.try_get() {
                queue.add(Fused(item.0));
                item.retry();
            }
        },
        &|| {
            if let Some(item) = queue.try_get() {
                item.requeue_after(SECOND);
            }
        },
        &|| {
            queue.cancel(&Fused(3));
        },
        &|| {
            assert!(queue.num_requeues(&Fused(1)) < 3);
        },
        &|| drop(queue.snapshot()),
    ];
    for step in steps {
        // The step that panicked does not matter here.
        drop(catch_unwind(AssertUnwindSafe(step)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_panics_leaves_the_queue_in_order() {
    // The fuse burns at each call in turn.
    for fuse in 0.. {
        let limiter = ItemExponentialFailure::new(SECOND, 4 * SECOND);
        let queue = Queue::builder().rate_limiter(limiter).build();
        FUSE.set(Some(fuse));
        use_all(&queue);
        let burnt = FUSE.take().is_none();
        for key in 1..=3 {
            queue.add(Fused(key));
        }
        let mut runs = [0; 4];
        while let Ok(Some(item)) = timeout(LONG, queue.get()).await {
            runs[item.0 as usize] += 1;
            item.forget();
        }
        assert_eq!(runs, [0, 1, 1, 1], "fuse {fuse}");
        assert!(queue.is_empty(), "fuse {fuse}");
        let left = queue.snapshot();
        assert!(left.items.is_empty(), "fuse {fuse}: {left:?}");
        if !burnt {
            assert!(fuse > 20, "{fuse} calls");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_keys_are_prefetched_affects_no_operation() {
    let queue = Queue::new();
    for key in 0..200 {
        queue.add_after(Fused(key), LONG);
    }
    tokio::time::advance(LONG).await;
    // The first call of a key's own code is the prefetch; the clone of a hand-out would be the next.
    FUSE.set(Some(0));
    let first = queue.try_get().expect("an item that is due");
    assert_eq!((first.0, FUSE.get()), (0, None));
    let mut next = Some(first);
    let mut keys = Vec::new();
    while let Some(item) = next {
        keys.push(item.0);
        next = item.done_and_try_get();
    }
    assert_eq!(keys, (0..200).collect::<Vec<_>>());
}

/// Panics at the first request for a token.
#[derive(Debug, Default)]
struct Careless(AtomicBool);

impl RateLimiter<&'static str> for Careless {
    fn when(&self, _: &Failure<'_, &'static str>) -> Delay {
        Delay {
            back_off: Duration::ZERO,
            at_most: None,
        }
    }

    fn release(&self, _: Instant) -> Result<(), Instant> {
        assert!(self.0.swap(true, Ordering::Relaxed), "on purpose");
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_panics_when_it_is_asked_for_a_token_is_asked_again_a_second_later() {
    let queue = Queue::builder().rate_limiter(Careless::default()).build();
    let start = Instant::now();
    queue.add_rate_limited("limited");
    queue.add("other");
    assert_eq!(queue.get().await.map(|item| *item), Some("other"));
    assert_eq!(start.elapsed(), Duration::ZERO);
    let limited = timeout(LONG, queue.get()).await.unwrap().unwrap();
    assert_eq!((*limited, start.elapsed()), ("limited", SECOND));
}

//! Batches, minimum intervals, causes of failures.

use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use reeve_workqueue::{
    Cause, Delay, Drain, Failure, ItemExponentialFailure, ItemStatus, OnDrop, Queue, RateLimiter,
};
use tokio::time::{Instant, advance};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_batch_waits_for_the_first_item_and_takes_what_is_ready_with_it() {
    let queue = Queue::new();
    let start = Instant::now();
    queue.add_after(1, 5 * MS);
    queue.add_after(2, 5 * MS);
    queue.add_after(3, 6 * MS);
    let batch = queue.get_batch(10).await;
    let keys: Vec<_> = batch.iter().map(|item| **item).collect();
    assert_eq!((keys, start.elapsed()), (vec![1, 2], 5 * MS));
    queue.add_all(10..15);
    assert_eq!(queue.get_batch(2).await.len(), 2, "no more than asked for");
    assert_eq!(queue.get_batch(0).await.len(), 1, "one at least");
    queue.shut_down();
    assert_eq!(queue.get_batch(9).await.len(), 2);
    assert!(queue.get_batch(9).await.is_empty(), "shut down");
}

#[tokio::test]
async fn a_batch_that_is_given_up_loses_nothing() {
    let queue = Queue::new();
    assert!(queue.get_batch(3).now_or_never().is_none());
    queue.add_all([1, 2]);
    let mut batch = queue.get_batch(3).now_or_never().unwrap();
    assert_eq!(batch.len(), 2);
    drop(batch.pop());
    batch.pop().unwrap().forget();
    assert!(queue.is_empty());
}

/// A key whose third clone panics: the clone for the third hand-out.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fragile(u32);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert_ne!(self.0, 2, "on purpose");
        Self(self.0)
    }
}

#[tokio::test]
async fn a_clone_that_panics_in_a_batch_does_not_take_the_others_with_it() {
    let queue = Queue::builder()
        .on_drop(OnDrop::Retry)
        .rate_limiter(ItemExponentialFailure::new(Duration::ZERO, MS))
        .build();
    queue.add_all([0, 1, 2, 3].map(Fragile));
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
        queue.get_batch(4).now_or_never().is_some()
    }));
    assert!(panicked.is_err());
    assert_eq!(queue.snapshot_of(0).in_flight, 0, "0 and 1 were put back");
    assert_eq!(queue.num_requeues(&Fragile(1)), 1);
    assert!(queue.cancel(&Fragile(2)));
    let keys: Vec<u32> = queue.get_batch(4).await.iter().map(|item| item.0).collect();
    assert_eq!(keys, [3, 0, 1]);
}

#[test]
fn plain_threads_get_batches() {
    let queue = Queue::new();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut got = 0;
            loop {
                let batch = queue.get_batch_blocking(7);
                if batch.is_empty() {
                    return got;
                }
                got += batch.len();
            }
        });
        queue.add_all(0..1000);
        queue.shut_down();
        assert_eq!(worker.join().unwrap(), 1000);
    });
}

#[tokio::test]
async fn many_are_added_in_their_order() {
    let queue = Queue::new();
    queue.add_all((0..5000).chain(0..10));
    assert_eq!(queue.len(), 5000);
    let order: Vec<u32> = std::iter::from_fn(|| queue.try_get().map(|item| *item)).collect();
    assert!(order.into_iter().eq(0..5000));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_not_handed_out_again_before_its_interval_has_passed() {
    let queue = Queue::builder().min_interval(10 * MS).build();
    let start = Instant::now();
    queue.add("foo");
    let item = queue.try_get().expect("the first time at once");
    advance(3 * MS).await;
    queue.add("foo");
    item.forget();
    queue.add("foo");
    assert!(queue.try_get().is_none());
    queue.add("bar");
    assert_eq!(queue.try_get().map(|item| *item), Some("bar"), "other keys");
    queue.get().await.unwrap().requeue_after(2 * MS);
    assert_eq!(start.elapsed(), 10 * MS);
    queue.get().await.unwrap().forget();
    assert_eq!(start.elapsed(), 20 * MS, "counted from the hand-out");
    advance(10 * MS).await;
    queue.add("foo");
    assert!(queue.try_get().is_some(), "long enough ago");
}

#[tokio::test(start_paused = true)]
async fn what_is_put_back_does_not_rest() {
    let queue = Queue::builder().min_interval(10 * MS).build();
    let start = Instant::now();
    queue.add("foo");
    queue.get().await.unwrap().put_back(2 * MS);
    let item = queue.get().await.unwrap();
    assert_eq!(start.elapsed(), 2 * MS);
    queue.add("foo");
    item.forget();
    let item = queue.get().await.unwrap();
    assert_eq!(start.elapsed(), 12 * MS, "counted from the one before");
    queue.add("foo");
    item.put_back(MS);
    queue.get().await.unwrap().forget();
    assert_eq!(
        start.elapsed(),
        13 * MS,
        "what was added meanwhile, neither"
    );
}

#[tokio::test(start_paused = true)]
async fn an_item_waits_as_long_as_it_was_asked_to_at_least() {
    let queue = Queue::builder()
        .rate_limiter(ItemExponentialFailure::new(5 * MS, 1000 * MS))
        .build();
    queue.add("foo");
    let fail = async |retry_after: Duration| {
        let item = queue.get().await.unwrap();
        item.retry_because(Cause::new("busy").retry_after(retry_after))
    };
    assert_eq!(fail(7 * MS).await, 7 * MS, "longer than 5 ms");
    assert_eq!(fail(7 * MS).await, 10 * MS, "shorter than 10 ms");
    let start = Instant::now();
    let item = queue.get().await.unwrap();
    assert_eq!((start.elapsed(), item.attempts()), (10 * MS, 2));
}

/// Gives up early on errors that cannot succeed soon.
struct ByClass;

impl RateLimiter<&'static str> for ByClass {
    fn when(&self, failure: &Failure<'_, &'static str>) -> Delay {
        match failure.cause.map(Cause::kind) {
            Some("invalid") => Duration::from_secs(3600).into(),
            _ => MS.into(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_sees_why_an_item_failed_and_so_does_a_snapshot() {
    let queue = Queue::builder().rate_limiter(ByClass).build();
    queue.add("foo");
    let waited = queue.try_get().unwrap().retry();
    assert_eq!(waited, MS);
    let item = queue.get().await.unwrap();
    let error: Box<dyn Error> = "no such field".into();
    item.retry_because(Cause::new(&error).class("invalid"));
    let snapshot = queue.snapshot();
    let item = &snapshot.items[0];
    let due_in = Duration::from_secs(3600);
    assert_eq!(item.status, ItemStatus::Waiting { due_in });
    assert_eq!(item.failures, 2);
    assert_eq!(item.last_error.as_ref().unwrap().message(), "no such field");
    queue.add("foo");
    let item = queue.try_get().unwrap();
    assert!(queue.snapshot().items[0].last_error.is_some());
    item.forget();
    queue.add("foo");
    assert_eq!(
        queue.snapshot().items[0].last_error,
        None,
        "it succeeded since"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_record_expires_while_its_key_is_not_used() {
    let queue = Queue::builder().failure_expiry(100 * MS).build();
    queue.add_rate_limited("foo");
    advance(1000 * MS).await;
    assert_eq!(queue.num_requeues(&"foo"), 1, "it is pending");
    queue.try_get().unwrap().done();
    advance(99 * MS).await;
    assert_eq!(queue.num_requeues(&"foo"), 1);
    advance(MS).await;
    assert_eq!(queue.num_requeues(&"foo"), 0);
    queue.add("foo");
    assert_eq!(queue.try_get().unwrap().attempts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_a_drain_reports_what_is_left() {
    let queue = Queue::new();
    queue.add_all(["in flight", "ready"]);
    let item = queue.try_get().unwrap();
    queue.add_after("later", 9 * MS);
    queue.add_after("soon", MS);
    let left = queue.shut_down_with(Drain::Nothing, None).await;
    assert_eq!((left.ready, left.waiting, left.in_flight), (1, 2, 1));
    assert_eq!(left.keys, ["in flight", "ready", "soon", "later"]);
    assert_eq!(
        queue.get().await.map(|item| *item),
        Some("ready"),
        "still handed out"
    );
    assert!(queue.get().await.is_none());
    item.forget();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_drops_nothing_that_is_due_however_much_it_is() {
    let queue = Queue::new();
    for number in 0..1000 {
        queue.add_after(number, 9 * MS);
    }
    queue.add_after(1000, 11 * MS);
    // Nothing waits for an item, so nothing applies the timers meanwhile.
    advance(10 * MS).await;
    let left = queue.shut_down_with(Drain::Nothing, None).await;
    assert_eq!((left.ready, left.waiting), (1000, 1));
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_what_is_in_flight_hands_out_nothing_more() {
    let queue = Queue::new();
    queue.add_all(["in flight", "ready"]);
    let item = queue.try_get().unwrap();
    let mut drain = Box::pin(queue.shut_down_with(Drain::InFlight, None));
    assert!(drain.as_mut().now_or_never().is_none());
    assert!(queue.get().await.is_none());
    item.forget();
    let left = drain.await;
    assert_eq!((left.ready, left.in_flight), (1, 0));
    assert_eq!(left.keys, ["ready"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_what_is_delayed_waits_until_it_is_due_and_done() {
    let queue = Queue::new();
    let start = Instant::now();
    queue.add_after("late", 50 * MS);
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            while let Some(item) = queue.get().await {
                advance(MS).await;
                item.forget();
            }
        }
    });
    let left = queue.shut_down_with(Drain::Delayed, None).await;
    assert!(left.is_empty());
    assert_eq!(start.elapsed(), 51 * MS);
    worker.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_at_its_deadline_and_says_what_was_left() {
    for drain in [Drain::InFlight, Drain::Ready, Drain::Delayed] {
        let queue = Queue::new();
        queue.add_all([1, 2]);
        let hangs = queue.try_get().unwrap();
        queue.add_after(3, Duration::from_secs(3600));
        let start = Instant::now();
        let left = queue.shut_down_with(drain, Some(100 * MS)).await;
        assert_eq!(start.elapsed(), 100 * MS);
        assert_eq!((left.ready, left.waiting, left.in_flight), (1, 1, 1));
        assert_eq!(left.keys, [1, 2, 3]);
        assert!(
            queue.get().await.is_none(),
            "nothing is handed out any more"
        );
        hangs.forget();
    }
}

#[tokio::test(start_paused = true)]
async fn a_million_timers_due_at_once_come_in_order_through_one_driver() {
    const COUNT: u32 = 1_000_000;
    let queue = Queue::new();
    for key in 0..COUNT {
        queue.add_after(key, 5 * MS);
    }
    let start = Instant::now();
    for key in 0..COUNT {
        assert_eq!(queue.get().await.map(|item| *item), Some(key));
    }
    assert_eq!(start.elapsed(), 5 * MS);
    assert_eq!(queue.snapshot_of(0).waiting, 0);
}

#[cfg(feature = "serde")]
#[tokio::test(start_paused = true)]
async fn a_snapshot_can_be_serialised() {
    let queue = Queue::builder().name("pods").build();
    queue.add("foo");
    let item = queue.try_get().unwrap();
    item.retry_because(Cause::new("busy").class("throttled").retry_after(MS * 1500));
    let snapshot = serde_json::to_value(queue.snapshot()).unwrap();
    let expected = serde_json::json!({
        "name": "pods", "ready": 0, "waiting": 1, "awaiting_token": 0, "in_flight": 0, "failing": 1,
        "records": 0, "refused": 0, "shutting_down": false,
        "items": [{
            "item": "foo", "status": {"Waiting": {"due_in": 1.5}}, "priority": 0, "failures": 1,
            "last_error": {"class": "throttled", "message": "busy", "retry_after": 1.5},
            "reasons": ["retry"],
        }],
    });
    assert_eq!(snapshot, expected);
}

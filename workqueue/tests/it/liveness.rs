//! Nothing is lost and no item starves: cancelled waits, panicking workers, many waiters, distant times.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use reeve_clock::Random;
use reeve_workqueue::{
    Delay, Failure, ItemExponentialFailure, ItemStatus, OnDrop, Queue, RateLimiter,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::limit::within_a_minute;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);

fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    let mut cx = Context::from_waker(Waker::noop());
    future.as_mut().poll(&mut cx)
}

#[tokio::test]
async fn a_dropped_get_passes_its_wake_up_on() {
    let queue = Queue::new();
    let mut first = Box::pin(queue.get());
    assert!(poll_once(&mut first).is_pending());
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|item| *item) }
    });
    tokio::task::yield_now().await;
    queue.add(7);
    // The first waiter was notified, and leaves without a poll.
    drop(first);
    assert_eq!(timeout(LONG, second).await.unwrap().unwrap(), Some(7));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_driver_passes_the_timers_on() {
    let queue = Queue::new();
    queue.add_after(7, 10 * MS);
    let mut driver = Box::pin(queue.get());
    assert!(poll_once(&mut driver).is_pending());
    let other = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|item| (*item, Instant::now())) }
    });
    tokio::task::yield_now().await;
    let start = Instant::now();
    drop(driver);
    let (item, at) = other.await.unwrap().unwrap();
    assert_eq!((item, at - start), (7, 10 * MS));
}

/// The waker of a task that uses the queue when it is freed.
struct UsesQueueOnDrop {
    queue: Queue<u32>,
    dropped: Arc<AtomicUsize>,
}

impl Wake for UsesQueueOnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for UsesQueueOnDrop {
    fn drop(&mut self) {
        assert_eq!(self.queue.len(), 0);
        self.dropped.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_replaced_waker_is_dropped_outside_the_lock() {
    within_a_minute(|| {
        let queue = Queue::<u32>::new();
        let dropped = Arc::new(AtomicUsize::new(0));
        let first = Waker::from(Arc::new(UsesQueueOnDrop {
            queue: queue.clone(),
            dropped: Arc::clone(&dropped),
        }));
        let mut get = Box::pin(queue.get());
        let poll = get.as_mut().poll(&mut Context::from_waker(&first));
        assert!(poll.is_pending());
        drop(first);
        assert_eq!(dropped.load(SeqCst), 0, "the queue holds it");
        assert!(poll_once(&mut get).is_pending());
        assert_eq!(dropped.load(SeqCst), 1);
    });
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_not_polled_is_replaced_by_the_next_caller() {
    let queue = Queue::new();
    queue.add_after(7, 10 * MS);
    let mut driver = Box::pin(queue.get());
    assert!(poll_once(&mut driver).is_pending());
    advance(20 * MS).await;
    queue
        .try_get()
        .expect("it is due, whichever waiter drives")
        .done();
    queue.add_after(8, 10 * MS);
    let start = Instant::now();
    let item = queue.get().await.unwrap();
    assert_eq!((*item, start.elapsed()), (8, 10 * MS));
    item.done();
}

#[tokio::test(start_paused = true)]
async fn an_earlier_timer_wakes_the_driver() {
    let queue = Queue::new();
    queue.add_after("late", 1000 * MS);
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|item| (*item, Instant::now())) }
    });
    tokio::task::yield_now().await;
    let start = Instant::now();
    queue.add_after("early", 5 * MS);
    let (item, at) = worker.await.unwrap().unwrap();
    assert_eq!((item, at - start), ("early", 5 * MS));
}

#[tokio::test]
async fn an_item_that_was_got_and_dropped_is_settled_as_configured() {
    let dropped = |on_drop| {
        let queue = Queue::builder()
            .on_drop(on_drop)
            .rate_limiter(ItemExponentialFailure::new(Duration::ZERO, MS))
            .build();
        queue.add("foo");
        drop(queue.try_get().unwrap());
        let again = queue.try_get().map(|item| item.attempts());
        let failures = queue.num_requeues(&"foo");
        (again, failures)
    };
    assert_eq!(dropped(OnDrop::Done), (None, 0));
    assert_eq!(dropped(OnDrop::Retry), (Some(1), 2), "counted each time");
    assert_eq!(dropped(OnDrop::PutBack), (Some(0), 0), "not processed");
}

/// Runs a worker that panics with an item in its hands.
async fn panicking_worker(queue: &Queue<&'static str>) {
    let queue = queue.clone();
    let worker = tokio::spawn(async move {
        let _item = queue.get().await;
        panic!("on purpose");
    });
    assert!(worker.await.unwrap_err().is_panic());
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_put_back_when_it_is_dropped_counts_as_failed_after_a_panic() {
    let queue = Queue::builder().on_drop(OnDrop::PutBack).build();
    queue.add("foo");
    panicking_worker(&queue).await;
    assert_eq!(queue.get().await.unwrap().attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_worker_leaves_the_queue_in_order() {
    let queue = Queue::builder().on_drop(OnDrop::Retry).build();
    queue.add("foo");
    panicking_worker(&queue).await;
    let snapshot = queue.snapshot();
    assert_eq!((snapshot.in_flight, snapshot.waiting), (0, 1));
    let item = queue.get().await.unwrap();
    assert_eq!((*item, item.attempts()), ("foo", 1));
    item.forget();
    assert_eq!(queue.num_requeues(&"foo"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_aborted_worker_leaves_the_queue_in_order() {
    let queue = Queue::builder().on_drop(OnDrop::Retry).build();
    queue.add("foo");
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let item = queue.get().await.unwrap();
            sleep(LONG).await;
            item.done();
        }
    });
    tokio::task::yield_now().await;
    assert_eq!(queue.snapshot_of(0).in_flight, 1);
    worker.abort();
    assert!(worker.await.unwrap_err().is_cancelled());
    assert_eq!(*queue.get().await.unwrap(), "foo");
}

/// Panics at the first failure of each item.
struct Panics(AtomicU32);

impl RateLimiter<u32> for Panics {
    fn when(&self, _failure: &Failure<'_, u32>) -> Delay {
        assert_ne!(self.0.fetch_add(1, SeqCst), 0, "on purpose");
        Duration::ZERO.into()
    }
}

#[tokio::test]
async fn a_panicking_limiter_costs_that_item_only() {
    let queue = Queue::builder()
        .rate_limiter(Panics(AtomicU32::new(0)))
        .on_drop(OnDrop::Retry)
        .build();
    queue.add(1);
    queue.add(2);
    let item = queue.try_get().unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| item.retry()));
    assert!(panicked.is_err());
    assert_eq!(queue.snapshot_of(0).in_flight, 0);
    queue.try_get().unwrap().retry();
    assert_eq!(queue.try_get().map(|item| *item), Some(2));
}

/// Without an operation after the drop, nothing else would end the run; during a panic of the worker, a second one would
/// end the process.
#[tokio::test]
async fn a_dropped_item_whose_limiter_panics_is_not_in_flight_any_more() {
    for worker_panics in [false, true] {
        let queue = Queue::builder()
            .rate_limiter(Panics(AtomicU32::new(0)))
            .on_drop(OnDrop::Retry)
            .build();
        queue.add(1);
        let item = queue.try_get().unwrap();
        let work = std::panic::AssertUnwindSafe(|| {
            let _item = item;
            assert!(!worker_panics, "the worker");
        });
        assert_eq!(std::panic::catch_unwind(work).is_err(), worker_panics);
        assert_eq!(queue.snapshot_of(0).in_flight, 0);
        queue.add(1);
        assert_eq!(queue.try_get().map(|item| *item), Some(1));
    }
}

/// Panics in `forget` for the key 1, and in the first `release`.
#[derive(Default)]
struct PanicsLate(AtomicU32);

impl RateLimiter<u32> for PanicsLate {
    fn when(&self, failure: &Failure<'_, u32>) -> Delay {
        Delay {
            back_off: Duration::ZERO,
            at_most: (*failure.item != 9).then_some(Duration::ZERO),
        }
    }

    fn forget(&self, item: &u32) {
        assert_ne!(*item, 1, "on purpose");
    }

    fn release(&self, _: Instant) -> Result<(), Instant> {
        assert_ne!(self.0.fetch_add(1, SeqCst), 0, "on purpose");
        Ok(())
    }
}

#[tokio::test]
async fn a_limiter_that_panics_when_an_old_record_is_dropped_affects_no_other_item() {
    let queue = Queue::builder()
        .rate_limiter(PanicsLate::default())
        .failure_records(1)
        .build();
    for key in [1, 2] {
        queue.add(key);
        queue.try_get().unwrap().retry();
        queue.try_get().unwrap().done();
    }
    let snapshot = queue.snapshot_of(0);
    assert_eq!((snapshot.in_flight, snapshot.records), (0, 1));
    assert_eq!((queue.num_requeues(&1), queue.num_requeues(&2)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_limiter_panics_over_a_token_is_settled_once() {
    let queue = Queue::builder()
        .rate_limiter(PanicsLate::default())
        .on_drop(OnDrop::Retry)
        .build();
    queue.add(9);
    queue.try_get().unwrap().retry();
    assert_eq!(queue.snapshot_of(0).in_flight, 0);
    let item = queue.get().await.unwrap();
    assert_eq!(*item, 9);
    item.done();
    assert!(queue.try_get().is_none());
}

#[tokio::test]
async fn of_keys_that_all_requeue_at_once_each_runs_as_often() {
    const KEYS: usize = 1000;
    let queue = Queue::new();
    let mut runs = vec![0_u32; KEYS];
    for key in 0..KEYS {
        queue.add(key);
    }
    for _ in 0..10 * KEYS {
        let item = queue.get().await.unwrap();
        runs[*item] += 1;
        item.requeue_after(Duration::ZERO);
    }
    assert_eq!(
        (runs.iter().min(), runs.iter().max()),
        (Some(&10), Some(&10))
    );
}

/// On one thread: with several, a suspended thread keeps its key from running.
#[tokio::test]
async fn of_keys_that_all_requeue_at_once_each_runs_as_often_with_many_workers() {
    const KEYS: usize = 1000;
    let queue = Queue::new();
    let runs: Arc<Vec<AtomicU32>> = Arc::new((0..KEYS).map(|_| AtomicU32::new(0)).collect());
    let total = Arc::new(AtomicUsize::new(0));
    for key in 0..KEYS {
        queue.add(key);
    }
    let mut workers = JoinSet::new();
    for worker in 0..8 {
        let (queue, runs, total) = (queue.clone(), Arc::clone(&runs), Arc::clone(&total));
        workers.spawn(async move {
            let random = Random::seeded(worker);
            while total.fetch_add(1, SeqCst) < 10 * KEYS {
                let item = queue.get().await.unwrap();
                runs[*item].fetch_add(1, SeqCst);
                for _ in 0..random.below(4) {
                    tokio::task::yield_now().await;
                }
                item.requeue_after(Duration::ZERO);
            }
        });
    }
    workers.join_all().await;
    let runs: Vec<u32> = runs.iter().map(|runs| runs.load(SeqCst)).collect();
    let (min, max) = (*runs.iter().min().unwrap(), *runs.iter().max().unwrap());
    assert!(min >= 9 && max <= 11, "{min} to {max}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_among_many_waiters_that_come_and_go() {
    const ITEMS: u64 = 20_000;
    let queue: Queue<u64> = Queue::new();
    let done = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for worker in 0..32 {
        let (queue, done) = (queue.clone(), Arc::clone(&done));
        workers.spawn(async move {
            let random = Random::seeded(worker);
            loop {
                // A third of the waits is cancelled, at any moment.
                let got = if random.below(3) == 0 {
                    let patience = Duration::from_micros(random.below(300));
                    match timeout(patience, queue.get()).await {
                        Ok(got) => got,
                        Err(_) => continue,
                    }
                } else {
                    queue.get().await
                };
                let Some(item) = got else { return };
                done.fetch_add(1, SeqCst);
                item.forget();
            }
        });
    }
    let mut producers = JoinSet::new();
    for producer in 0..4 {
        let queue = queue.clone();
        producers.spawn(async move {
            let random = Random::seeded(1000 + producer);
            for number in 0..ITEMS / 4 {
                let key = producer * ITEMS + number;
                match random.below(3) {
                    0 => queue.add_after(key, Duration::from_micros(random.below(3000))),
                    _ => queue.add(key),
                }
                if random.below(50) == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    producers.join_all().await;
    let all = async {
        while done.load(SeqCst) < usize::try_from(ITEMS).unwrap() {
            sleep(MS).await;
        }
    };
    let in_time = timeout(LONG, all).await;
    assert!(
        in_time.is_ok(),
        "{} of {ITEMS}; {:?}",
        done.load(SeqCst),
        queue.snapshot()
    );
    queue.shut_down();
    timeout(LONG, workers.join_all()).await.unwrap();
}

#[test]
fn plain_threads_get_items_delayed_ones_too_without_a_runtime() {
    within_a_minute(|| {
        const ITEMS: u64 = 2000;
        let queue: Queue<u64> = Queue::new();
        let seen = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some(item) = queue.get_blocking() {
                        item.forget();
                        if seen.fetch_add(1, SeqCst) + 1 == usize::try_from(ITEMS).unwrap() {
                            queue.shut_down();
                        }
                    }
                });
            }
            for number in 0..ITEMS {
                match number % 3 {
                    0 => queue.add_after(number, Duration::from_micros(number)),
                    _ => queue.add(number),
                }
            }
        });
        assert_eq!(seen.load(SeqCst), 2000);
    });
}

#[tokio::test(start_paused = true)]
async fn delays_beyond_the_reach_of_the_runtimes_timers_work() {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    let queue = Queue::new();
    let start = Instant::now();
    queue.add_after("never", Duration::MAX);
    queue.add_after("in twenty years", 20 * YEAR);
    queue.add_after("in three years", 3 * YEAR);
    for (years, expected) in [(3, "in three years"), (20, "in twenty years")] {
        let item = queue.get().await.unwrap();
        assert_eq!((*item, start.elapsed()), (expected, years * YEAR));
        item.done();
    }
    assert_eq!(queue.snapshot_of(0).waiting, 1);
    assert!(queue.cancel(&"never"));
}

#[tokio::test(start_paused = true)]
async fn failure_records_are_bounded_and_the_oldest_goes_first() {
    let queue = Queue::builder().failure_records(3).build();
    for key in 0..5 {
        queue.add_rate_limited(key);
        assert!(queue.cancel(&key));
    }
    let failures: Vec<u32> = (0..5).map(|key| queue.num_requeues(&key)).collect();
    assert_eq!(failures, [0, 0, 1, 1, 1]);
    // Pending keys and keys in flight are neither counted among the records nor dropped.
    queue.add_rate_limited(2);
    for key in 5..10 {
        queue.add_rate_limited(key);
        queue.cancel(&key);
    }
    assert_eq!(queue.num_requeues(&2), 2);
    assert_eq!(queue.snapshot_of(0).records, 3);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_failing_until_it_succeeds_or_its_record_goes() {
    let queue = Queue::builder().failure_records(1).build();
    let failing = || queue.snapshot_of(0).failing;
    for key in ["ready", "in flight", "waits", "forgotten", "recorded"] {
        queue.add(key);
        queue.try_get().unwrap().retry();
    }
    assert!(queue.try_get().is_none());
    assert_eq!(failing(), 5, "each waits for its retry");
    queue.add("in flight");
    let item = queue.try_get().unwrap();
    queue.add("ready");
    assert_eq!(failing(), 5);
    queue.cancel(&"forgotten");
    assert_eq!(failing(), 5, "it is recorded");
    queue.cancel(&"recorded");
    assert_eq!(failing(), 4, "one record is kept");
    item.forget();
    assert_eq!(failing(), 3);
    queue.try_get().unwrap().retry();
    assert_eq!(failing(), 3, "it failed twice, and counts once");
    queue.forget(&"waits");
    assert_eq!(failing(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_where_items_stand() {
    let queue = Queue::builder().name("pods").build();
    queue.add("in flight");
    let _in_flight = queue.try_get().unwrap();
    advance(5 * MS).await;
    queue.add("in flight");
    queue.add("ready");
    queue.add_after("later", 30 * MS);
    queue.add_after("soon", 20 * MS);
    let snapshot = queue.snapshot();
    assert_eq!(snapshot.name, "pods");
    let items: Vec<_> = snapshot
        .items
        .into_iter()
        .map(|i| (i.item, i.status))
        .collect();
    let (running, again) = (5 * MS, true);
    let waiting = |due_in| ItemStatus::Waiting { due_in };
    let expected = [
        ("in flight", ItemStatus::InFlight { running, again }),
        ("ready", ItemStatus::Ready),
        ("soon", waiting(20 * MS)),
        ("later", waiting(30 * MS)),
    ];
    assert_eq!(items, expected);
    assert_eq!(queue.snapshot_of(2).items.len(), 2);
}

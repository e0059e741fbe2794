//! The counterparts of client-go's workqueue tests; the crate's docs have the table of names.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::FutureExt;
use reeve_workqueue::{Gauges, Item, ItemExponentialFailure, MetricsProvider, Queue, QueueMetrics};
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep};

const MS: Duration = Duration::from_millis(1);

async fn many_producers_and_workers(drain: bool) {
    const PRODUCERS: usize = 50;
    let queue: Queue<usize> = Queue::new();
    let running: Arc<Mutex<HashMap<usize, usize>>> = Arc::default();
    let processed = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for worker in 0..10 {
        let (queue, running) = (queue.clone(), Arc::clone(&running));
        let processed = Arc::clone(&processed);
        workers.spawn(async move {
            while let Some(item) = queue.get().await {
                assert_ne!(*item, usize::MAX, "was added after shutdown");
                let other = running.lock().unwrap().insert(*item, worker);
                assert_eq!(other, None, "{} is with two workers", *item);
                sleep(3 * MS).await;
                running.lock().unwrap().remove(&*item);
                processed.fetch_add(1, Ordering::Relaxed);
                item.done();
            }
        });
    }
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let queue = queue.clone();
        producers.spawn(async move {
            for _ in 0..PRODUCERS {
                queue.add(producer);
                sleep(MS).await;
            }
        });
    }
    producers.join_all().await;
    if drain {
        queue.shut_down_with_drain().await;
        assert!(running.lock().unwrap().is_empty());
    } else {
        queue.shut_down();
    }
    queue.add(usize::MAX);
    workers.join_all().await;
    assert!(processed.load(Ordering::Relaxed) >= PRODUCERS);
    assert_eq!((queue.len(), queue.snapshot_of(0).refused), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn fifty_producers_and_ten_workers_until_shutdown() {
    many_producers_and_workers(false).await;
}

#[tokio::test(start_paused = true)]
async fn fifty_producers_and_ten_workers_until_drained() {
    many_producers_and_workers(true).await;
}

#[tokio::test]
async fn an_item_added_while_it_is_processed_runs_again() {
    let queue = Queue::new();
    queue.add("foo");
    let item = queue.try_get().unwrap();
    queue.add("foo");
    assert!(queue.try_get().is_none(), "held back while it is in flight");
    item.done();
    queue.try_get().unwrap().done();
    assert!(queue.try_get().is_none());
}

#[tokio::test]
async fn len_counts_distinct_items_that_are_queued() {
    let queue = Queue::new();
    assert!(queue.is_empty());
    queue.add("foo");
    assert_eq!(queue.len(), 1);
    queue.add("bar");
    assert_eq!(queue.len(), 2);
    queue.add("foo");
    assert_eq!(queue.len(), 2);
    let item = queue.try_get().unwrap();
    assert_eq!(queue.len(), 1, "what is in flight is not queued");
    item.done();
}

#[tokio::test]
async fn an_item_added_while_it_is_processed_is_queued_once_it_is_done() {
    let queue = Queue::new();
    queue.add("foo");
    let item = queue.try_get().unwrap();
    queue.add("foo");
    assert_eq!(queue.len(), 0);
    item.done();
    assert_eq!(queue.len(), 1);
    let again = queue.try_get().unwrap();
    assert_eq!(*again, "foo");
    again.done();
    assert_eq!(queue.len(), 0);
}

#[tokio::test]
async fn adds_of_a_queued_item_collapse() {
    let queue = Queue::new();
    queue.add("bar");
    queue.add("bar");
    queue.try_get().unwrap().done();
    assert_eq!(queue.len(), 0);
    assert!(queue.try_get().is_none());
}

#[tokio::test]
async fn adds_of_an_item_in_flight_collapse_and_no_second_worker_gets_it() {
    let queue = Queue::new();
    queue.add("bar");
    let first = queue.try_get().unwrap();
    queue.add("bar");
    queue.add("bar");
    let second_worker = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(Item::done) }
    });
    tokio::task::yield_now().await;
    assert!(!second_worker.is_finished());
    first.done();
    assert_eq!(second_worker.await.unwrap(), Some(()));
    assert!(queue.try_get().is_none());
}

#[tokio::test]
async fn a_drain_returns_when_everything_is_done() {
    let queue = Queue::new();
    queue.add("foo");
    queue.add("bar");
    let (first, second) = (queue.try_get().unwrap(), queue.try_get().unwrap());
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(drain.as_mut().now_or_never().is_none());
    first.done();
    assert!(drain.as_mut().now_or_never().is_none());
    second.done();
    drain.await;
    assert!(queue.get().await.is_none());
}

#[tokio::test]
async fn a_drain_waits_for_what_is_queued_though_nothing_is_in_flight() {
    let queue = Queue::new();
    queue.add("foo");
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(drain.as_mut().now_or_never().is_none());
    queue.get().await.unwrap().done();
    drain.await;
}

#[tokio::test]
async fn an_immediate_shutdown_does_not_wait_for_items_in_flight() {
    let queue = Queue::new();
    queue.add("foo");
    queue.add("bar");
    let _in_flight = (queue.try_get().unwrap(), queue.try_get().unwrap());
    queue.shut_down();
    assert!(queue.get().await.is_none());
    assert!(queue.is_shutting_down());
}

#[tokio::test]
async fn an_immediate_shutdown_ends_a_drain() {
    let queue = Queue::new();
    queue.add("foo");
    let _in_flight = queue.try_get().unwrap();
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.shut_down_with_drain().await }
    });
    tokio::task::yield_now().await;
    assert!(!drain.is_finished());
    queue.shut_down();
    drain.await.unwrap();
}

#[tokio::test]
async fn a_drain_includes_an_item_that_was_added_while_it_was_processed() {
    let queue = Queue::new();
    queue.add("foo");
    let first = queue.try_get().unwrap();
    queue.add("foo");
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(drain.as_mut().now_or_never().is_none());
    let mut other_worker = Box::pin(queue.get());
    assert!(
        other_worker.as_mut().now_or_never().is_none(),
        "there is something to come"
    );
    first.done();
    let again = other_worker.await.unwrap();
    assert!(drain.as_mut().now_or_never().is_none());
    again.done();
    drain.await;
    assert!(queue.get().await.is_none());
}

#[tokio::test]
async fn nothing_holds_on_to_items_that_are_done() {
    let queue = Queue::new();
    let mut weak: Vec<Weak<u32>> = Vec::new();
    for number in 0..10 {
        let key = Arc::new(number);
        weak.push(Arc::downgrade(&key));
        queue.add(key);
    }
    while let Some(item) = queue.try_get() {
        item.forget();
    }
    assert!(weak.iter().all(|key| key.strong_count() == 0));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_item_comes_when_it_is_due_and_not_before() {
    let queue = Queue::new();
    queue.add_after("foo", 50 * MS);
    assert_eq!(queue.len(), 0);
    advance(49 * MS).await;
    assert_eq!(queue.len(), 0);
    advance(MS).await;
    assert_eq!(queue.len(), 1);
    queue.try_get().unwrap().done();
    advance(Duration::from_secs(10)).await;
    assert_eq!(queue.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn of_two_delays_the_earlier_wins_in_either_order() {
    let queue = Queue::new();
    queue.add_after("foo", 50 * MS);
    queue.add_after("foo", 70 * MS);
    advance(60 * MS).await;
    queue.try_get().expect("the first was earlier").done();
    advance(20 * MS).await;
    assert_eq!(queue.len(), 0, "the later one is gone");

    queue.add_after("foo", 50 * MS);
    queue.add_after("foo", 30 * MS);
    advance(40 * MS).await;
    queue.try_get().expect("the second was earlier").done();
    advance(20 * MS).await;
    assert_eq!(queue.len(), 0, "the later one is gone");
}

#[tokio::test(start_paused = true)]
async fn two_items_with_different_delays_come_apart() {
    let queue = Queue::new();
    queue.add_after("third", 200 * MS);
    queue.add_after("first", 50 * MS);
    queue.add_after("second", 100 * MS);
    let start = Instant::now();
    for (due, expected) in [(50, "first"), (100, "second"), (200, "third")] {
        let item = queue.get().await.unwrap();
        assert_eq!((*item, start.elapsed()), (expected, due * MS));
        item.done();
    }
}

#[tokio::test(start_paused = true)]
async fn items_added_late_still_come_in_the_order_of_their_times() {
    let queue = Queue::new();
    let delays: Vec<u32> = vec![500, 300, 400, 700, 600, 100, 900, 200, 800];
    for &delay in &delays {
        queue.add_after(delay, delay * MS);
    }
    advance(1000 * MS).await;
    let mut order = Vec::new();
    while let Some(item) = queue.try_get() {
        order.push(*item);
        item.done();
    }
    let mut sorted = delays.clone();
    sorted.sort_unstable();
    assert_eq!(order, sorted);
}

#[tokio::test(start_paused = true)]
async fn each_item_has_a_back_off_of_its_own_and_forget_resets_it() {
    let queue = Queue::builder()
        .rate_limiter(ItemExponentialFailure::new(MS, Duration::from_secs(1)))
        .build();
    let due = |item: &str| {
        let snapshot = queue.snapshot();
        let item = snapshot.items.into_iter().find(|i| i.item == item);
        item.unwrap().status
    };
    let waiting = |milliseconds| reeve_workqueue::ItemStatus::Waiting {
        due_in: milliseconds * MS,
    };
    for (item, delay) in [("one", 1), ("one", 2), ("two", 1), ("two", 2), ("one", 4)] {
        queue.cancel(&item);
        queue.add_rate_limited(item);
        assert_eq!(due(item), waiting(delay), "{item}");
    }
    assert_eq!(queue.num_requeues(&"one"), 3);
    queue.forget(&"one");
    assert_eq!(queue.num_requeues(&"one"), 0);
    queue.cancel(&"one");
    queue.add_rate_limited("one");
    assert_eq!(due("one"), waiting(1));
    assert_eq!(queue.num_requeues(&"two"), 2);
}

/// Records the calls.
#[derive(Default)]
struct Recorder {
    events: Arc<Mutex<Vec<String>>>,
    gauges: Mutex<Option<Weak<dyn Gauges>>>,
}

struct EventLog(Arc<Mutex<Vec<String>>>);

impl MetricsProvider for Recorder {
    fn queue(
        &self,
        name: &str,
        controller: &str,
        gauges: Weak<dyn Gauges>,
    ) -> Box<dyn QueueMetrics> {
        assert_eq!((name, controller), ("test", "test"));
        *self.gauges.lock().unwrap() = Some(gauges);
        Box::new(EventLog(Arc::clone(&self.events)))
    }
}

impl QueueMetrics for EventLog {
    fn added(&self, items: u64) {
        self.0.lock().unwrap().push(format!("added {items}"));
    }
    fn retried(&self, adds: u64) {
        self.0.lock().unwrap().push(format!("retried {adds}"));
    }
    fn started(&self, waited: Duration) {
        self.0
            .lock()
            .unwrap()
            .push(format!("started after {waited:?}"));
    }
    fn finished(&self, worked: Duration) {
        self.0
            .lock()
            .unwrap()
            .push(format!("finished after {worked:?}"));
    }
}

impl Recorder {
    fn events(&self) -> Vec<String> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }

    fn read(&self) -> Option<(usize, Duration, Duration)> {
        let gauges = self.gauges.lock().unwrap().as_ref()?.upgrade()?;
        let read = gauges.read();
        let depth = read.depth.iter().map(|(_, depth)| depth).sum();
        Some((depth, read.unfinished, read.longest_running))
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_have_exact_values() {
    let recorder = Arc::new(Recorder::default());
    let queue = Queue::builder()
        .name("test")
        .metrics(Arc::clone(&recorder) as Arc<dyn MetricsProvider>)
        .build();
    let us = Duration::from_micros;
    queue.add("foo");
    assert_eq!(recorder.events(), ["added 1"]);
    assert_eq!(recorder.read(), Some((1, us(0), us(0))));
    advance(us(50)).await;
    queue.add("foo");
    assert_eq!(recorder.events(), [""; 0], "was there already");

    let item = queue.try_get().unwrap();
    assert_eq!(recorder.events(), ["started after 50µs"]);
    assert_eq!(recorder.read(), Some((0, us(0), us(0))));

    // Added again while in flight: counts as queued.
    advance(us(25)).await;
    queue.add("foo");
    queue.add("foo");
    assert_eq!(recorder.events(), ["added 1"]);
    assert_eq!(recorder.read(), Some((1, us(25), us(25))));
    queue.add("bar");
    let other = queue.try_get().unwrap();
    assert_eq!(recorder.events(), ["added 1", "started after 0ns"]);
    advance(us(25)).await;
    assert_eq!(recorder.read(), Some((1, us(75), us(50))));
    item.done();
    assert_eq!(recorder.events(), ["finished after 50µs"]);
    other.requeue_after(MS);
    assert_eq!(recorder.events(), ["retried 1", "finished after 25µs"]);
    queue.try_get().unwrap().done();
    assert_eq!(
        recorder.events(),
        ["started after 25µs", "finished after 0ns"]
    );

    advance(2 * MS).await;
    assert_eq!(recorder.read(), Some((1, us(0), us(0))), "due, and counted");
    assert_eq!(recorder.events(), ["added 1"]);
    queue.try_get().unwrap().done();
    assert_eq!(
        recorder.events(),
        ["started after 1ms", "finished after 0ns"],
        "it waited from when it was due"
    );
}

#[tokio::test]
async fn gauges_end_with_their_queue() {
    let recorder = Arc::new(Recorder::default());
    let queue: Queue<u8> = Queue::builder()
        .name("test")
        .metrics(Arc::clone(&recorder) as Arc<dyn MetricsProvider>)
        .build();
    assert!(recorder.read().is_some());
    drop(queue);
    assert!(recorder.read().is_none());
}

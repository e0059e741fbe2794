//! The counterparts of controller-runtime's tests of its priority queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use reeve_clock::Random;
use reeve_workqueue::{AddOptions, Item, ItemExponentialFailure, LOW_PRIORITY, Queue, Reason};
use tokio::task::JoinSet;
use tokio::time::{Instant, advance};

const MS: Duration = Duration::from_millis(1);

fn with_priority(priority: i32) -> AddOptions {
    AddOptions::new().priority(priority)
}

/// Takes all ready items.
fn drain(queue: &Queue<&'static str>) -> Vec<(&'static str, i32)> {
    let mut order = Vec::new();
    while let Some(item) = queue.try_get() {
        order.push((*item, item.priority()));
        item.done();
    }
    order
}

#[tokio::test]
async fn higher_priorities_come_first_and_equal_ones_in_the_order_of_adds() {
    let queue = Queue::new();
    queue.add_with("low", with_priority(LOW_PRIORITY));
    queue.add("foo");
    queue.add_with("high", with_priority(5));
    queue.add("bar");
    queue.add_with("also high", with_priority(5));
    let expected = [
        ("high", 5),
        ("also high", 5),
        ("foo", 0),
        ("bar", 0),
        ("low", -100),
    ];
    assert_eq!(drain(&queue), expected);
}

#[tokio::test]
async fn an_item_added_twice_is_handed_out_once_with_the_higher_priority() {
    let queue = Queue::new();
    queue.add_with("foo", with_priority(1));
    queue.add_with("foo", with_priority(2));
    queue.add_with("foo", with_priority(0));
    assert_eq!(queue.len(), 1);
    assert_eq!(drain(&queue), [("foo", 2)]);
}

#[tokio::test]
async fn an_item_whose_priority_rises_goes_to_the_end_of_its_new_priority() {
    let queue = Queue::new();
    queue.add("foo");
    queue.add_with("bar", with_priority(1));
    queue.add_with("baz", with_priority(1));
    queue.add_with("foo", with_priority(1));
    assert_eq!(drain(&queue), [("bar", 1), ("baz", 1), ("foo", 1)]);
}

#[tokio::test]
async fn an_item_in_flight_is_skipped_and_handed_out_after_with_its_new_priority() {
    let queue = Queue::new();
    queue.add_with("foo", with_priority(10));
    let in_flight = queue.try_get().unwrap();
    queue.add_with("foo", with_priority(10));
    queue.add_with("bar", with_priority(1));
    assert_eq!(drain(&queue), [("bar", 1)]);
    in_flight.done();
    assert_eq!(drain(&queue), [("foo", 10)]);
}

#[tokio::test]
async fn the_priority_of_a_handed_out_item_does_not_stick_to_later_adds() {
    let queue = Queue::new();
    queue.add_with("foo", with_priority(10));
    let in_flight = queue.try_get().unwrap();
    queue.add_with("foo", with_priority(-1));
    in_flight.done();
    assert_eq!(drain(&queue), [("foo", -1)]);
}

#[tokio::test(start_paused = true)]
async fn retry_and_requeue_keep_the_priority_unless_it_is_set() {
    let queue = Queue::new();
    queue.add_with("foo", with_priority(LOW_PRIORITY));
    queue.try_get().unwrap().retry();
    advance(10 * MS).await;
    let item = queue.try_get().unwrap();
    assert_eq!((item.priority(), item.attempts()), (LOW_PRIORITY, 1));
    item.requeue_after(MS);
    advance(10 * MS).await;
    let mut item = queue.try_get().unwrap();
    assert_eq!((item.priority(), item.attempts()), (LOW_PRIORITY, 0));
    item.set_priority(3);
    item.retry();
    advance(10 * MS).await;
    assert_eq!(drain(&queue), [("foo", 3)]);
}

#[tokio::test(start_paused = true)]
async fn delayed_items_do_not_count_and_are_ready_exactly_when_due() {
    let queue = Queue::new();
    let start = Instant::now();
    queue.add_after("foo", 17 * MS);
    assert_eq!(queue.len(), 0);
    let item = queue.get().await.unwrap();
    assert_eq!(start.elapsed(), 17 * MS);
    item.done();
}

#[tokio::test(start_paused = true)]
async fn a_delayed_item_of_high_priority_beats_ready_ones_once_it_is_due() {
    let queue = Queue::new();
    queue.add("foo");
    queue.add("bar");
    let delayed = with_priority(1).after(MS);
    queue.add_with("delayed", delayed);
    queue.try_get().unwrap().done();
    advance(MS).await;
    assert_eq!(drain(&queue), [("delayed", 1), ("bar", 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_item_added_without_delay_is_ready_now_and_its_timer_is_gone() {
    let queue = Queue::new();
    queue.add_after("foo", 10 * MS);
    queue.add("foo");
    assert_eq!(drain(&queue), [("foo", 0)]);
    advance(20 * MS).await;
    assert_eq!(drain(&queue), []);
}

#[tokio::test(start_paused = true)]
async fn a_delay_does_not_hold_back_an_item_that_is_ready() {
    let queue = Queue::new();
    queue.add("foo");
    queue.add_after("foo", 10 * MS);
    assert_eq!(drain(&queue), [("foo", 0)]);
    advance(20 * MS).await;
    assert_eq!(drain(&queue), [], "the two adds merged");
}

#[tokio::test(start_paused = true)]
async fn of_a_delay_and_the_limiter_the_earlier_counts_and_so_does_the_failure() {
    let queue = Queue::builder()
        .rate_limiter(ItemExponentialFailure::new(10 * MS, 1000 * MS))
        .build();
    let options = |after| AddOptions::new().after(after * MS).rate_limited();
    queue.add_with("foo", options(4));
    queue.add_with("bar", options(40));
    advance(4 * MS).await;
    assert_eq!(drain(&queue), [("foo", 0)]);
    advance(6 * MS).await;
    assert_eq!(drain(&queue), [("bar", 0)]);
    assert_eq!(
        (queue.num_requeues(&"foo"), queue.num_requeues(&"bar")),
        (1, 1)
    );
    queue.add("foo");
    queue.add_rate_limited("foo");
    assert_eq!(queue.num_requeues(&"foo"), 2, "counted though it is ready");
    assert_eq!(drain(&queue), [("foo", 0)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_put_back_comes_as_it_came() {
    let queue = Queue::new();
    let because = |reason| with_priority(3).reason(reason);
    queue.add_with("foo", because(Reason::Changed));
    queue.try_get().unwrap().retry();
    advance(10 * MS).await;
    queue.add_with("foo", because(Reason::Changed));
    for _ in 0..2 {
        let item = queue.try_get().unwrap();
        assert_eq!((item.priority(), item.attempts()), (3, 1));
        assert_eq!(item.reasons(), [Reason::Changed, Reason::Retry]);
        item.put_back(MS);
        assert!(queue.try_get().is_none(), "not before");
        advance(MS).await;
    }
    // An add meanwhile is merged, and does not wait.
    let item = queue.try_get().unwrap();
    queue.add_with("foo", because(Reason::Owner));
    item.put_back(MS);
    let item = queue.try_get().unwrap();
    assert_eq!(item.attempts(), 1);
    let merged = item.reasons();
    assert!(
        [Reason::Changed, Reason::Retry, Reason::Owner]
            .iter()
            .all(|reason| merged.contains(reason)),
        "{merged:?}"
    );
    item.done();
    // After the shutdown no item is requeued.
    queue.add("foo");
    let item = queue.try_get().unwrap();
    queue.shut_down();
    item.put_back(MS);
    advance(MS).await;
    assert!(queue.try_get().is_none());
}

#[tokio::test]
async fn reasons_of_collapsed_adds_reach_the_worker() {
    let queue = Queue::new();
    let because = |reason| AddOptions::new().reason(reason);
    queue.add_with("foo", because(Reason::Changed));
    queue.add_with("foo", because(Reason::Custom("configuration")));
    queue.add("foo");
    let item = queue.try_get().unwrap();
    let expected = [Reason::Changed, Reason::Custom("configuration")];
    assert_eq!(item.reasons(), expected);
    item.requeue_after(Duration::ZERO);
    let item = queue.try_get().unwrap();
    assert_eq!(item.reasons(), [Reason::Timer]);
    item.done();
}

#[tokio::test]
async fn many_priorities_keep_their_order() {
    let queue = Queue::new();
    let random = Random::seeded(11);
    let mut expected = Vec::new();
    for number in 0..1000_usize {
        let priority = i32::try_from(random.below(500)).unwrap() - 250;
        queue.add_with(number, with_priority(priority));
        expected.push((std::cmp::Reverse(priority), number));
    }
    expected.sort_unstable();
    for (priority, number) in expected {
        let item = queue.get().await.unwrap();
        assert_eq!((item.priority(), *item), (priority.0, number));
        item.done();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn shutdown_with_many_workers_never_hangs() {
    for _ in 0..50 {
        let queue = Queue::new();
        let mut workers = JoinSet::new();
        for _ in 0..20 {
            let queue = queue.clone();
            workers.spawn(async move {
                while let Some(item) = queue.get().await {
                    Item::forget(item);
                }
            });
        }
        for number in 0..100 {
            queue.add(number);
        }
        queue.shut_down();
        let all = tokio::time::timeout(Duration::from_secs(20), workers.join_all());
        all.await.expect("every worker sees the shutdown");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_add_of_many_threads_is_missed_and_no_item_is_with_two_workers() {
    const PRODUCERS: u64 = 10;
    const ADDS: usize = 1000;
    const KEYS: u64 = 400;
    let queue: Queue<u64> = Queue::new();
    let counters = || -> Arc<Vec<AtomicU64>> { Arc::new((0..KEYS).map(|_| 0.into()).collect()) };
    // Per key: the number of adds, of adds that a worker has seen, and of workers that have it.
    let (added, seen, workers_on) = (counters(), counters(), counters());
    let mut workers = JoinSet::new();
    for _ in 0..100 {
        let (queue, added) = (queue.clone(), Arc::clone(&added));
        let (seen, workers_on) = (Arc::clone(&seen), Arc::clone(&workers_on));
        workers.spawn(async move {
            while let Some(item) = queue.get().await {
                let key = usize::try_from(*item).unwrap();
                assert_eq!(workers_on[key].fetch_add(1, SeqCst), 0, "with two workers");
                assert!((0..10).contains(&item.priority()));
                seen[key].store(added[key].load(SeqCst), SeqCst);
                tokio::task::yield_now().await;
                workers_on[key].fetch_sub(1, SeqCst);
                item.done();
            }
        });
    }
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let (queue, added) = (queue.clone(), Arc::clone(&added));
        let random = Random::seeded(producer);
        producers.spawn(async move {
            for _ in 0..ADDS {
                let key = random.below(KEYS);
                let priority = i32::try_from(random.below(10)).unwrap();
                added[usize::try_from(key).unwrap()].fetch_add(1, SeqCst);
                queue.add_with(key, with_priority(priority));
                if random.below(20) == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    producers.join_all().await;
    let drain = tokio::time::timeout(Duration::from_secs(20), queue.shut_down_with_drain());
    drain.await.expect("everything is handed out");
    workers.join_all().await;
    for (added, seen) in added.iter().zip(seen.iter()) {
        assert_eq!(seen.load(SeqCst), added.load(SeqCst), "an add was missed");
    }
}

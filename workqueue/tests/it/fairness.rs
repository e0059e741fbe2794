//! No item starves: tenants take turns, old items age, and keys that requeue at once run equally often.

use std::num::NonZeroU32;
use std::time::Duration;

use reeve_workqueue::{AddOptions, LOW_PRIORITY, Queue, Tenant};
use tokio::time::advance;

const MS: Duration = Duration::from_millis(1);
const AGEING: Duration = Duration::from_secs(60);

fn with_priority(priority: i32) -> AddOptions {
    AddOptions::new().priority(priority)
}

/// Takes all ready items.
fn drain<T: std::hash::Hash + Eq + Copy + Send + Sync + 'static>(queue: &Queue<T>) -> Vec<T> {
    std::iter::from_fn(|| queue.try_get().map(|item| *item)).collect()
}

type Key = (&'static str, u32);

fn by_namespace() -> Queue<Key> {
    Queue::builder()
        .fair_by(|(namespace, _): &Key| Tenant::of(namespace))
        .build()
}

#[tokio::test]
async fn tenants_take_turns_within_a_priority() {
    let queue = by_namespace();
    for number in 0..4 {
        queue.add(("noisy", number));
    }
    queue.add(("quiet", 0));
    queue.add_with(("noisy", 9), with_priority(1));
    queue.add(("late", 0));
    let expected = [
        ("noisy", 9),
        ("noisy", 0),
        ("quiet", 0),
        ("late", 0),
        ("noisy", 1),
        ("noisy", 2),
        ("noisy", 3),
    ];
    assert_eq!(drain(&queue), expected);
}

#[tokio::test]
async fn a_tenant_of_weight_two_has_two_items_a_turn() {
    let queue = Queue::builder()
        .fair_by(|(namespace, _): &Key| {
            let weight = if *namespace == "large" { 2 } else { 1 };
            Tenant::of(namespace).weight(NonZeroU32::new(weight).unwrap())
        })
        .build();
    for number in 0..4 {
        queue.add(("large", number));
        queue.add(("small", number));
    }
    let names: Vec<_> = drain(&queue).into_iter().map(|(name, _)| name).collect();
    let (l, s) = ("large", "small");
    assert_eq!(names, [l, l, s, l, l, s, s, s]);
}

#[tokio::test]
async fn a_tenant_that_comes_and_goes_gains_nothing() {
    let queue = by_namespace();
    for number in 0..3 {
        queue.add(("steady", number));
    }
    queue.add(("other", 0));
    let mut order = Vec::new();
    for number in 1..4 {
        queue.add(("in and out", number));
        for _ in 0..2 {
            order.push(queue.try_get().map(|item| item.0).unwrap());
        }
    }
    let (s, o, i) = ("steady", "other", "in and out");
    assert_eq!(order, [s, o, i, s, i, s]);
}

#[tokio::test(start_paused = true)]
async fn an_overdue_item_gets_every_second_hand_out() {
    let queue = Queue::new();
    for number in 0..3 {
        queue.add_with(number, with_priority(LOW_PRIORITY));
    }
    advance(AGEING).await;
    for number in 100..106 {
        queue.add(number);
    }
    assert_eq!(drain(&queue), [100, 0, 101, 1, 102, 2, 103, 104, 105]);
}

#[tokio::test(start_paused = true)]
async fn an_item_is_not_overdue_before_its_time_and_never_without_ageing() {
    let order = async |ageing| {
        let queue = Queue::builder().ageing(ageing).build();
        queue.add_with(0, with_priority(LOW_PRIORITY));
        advance(AGEING - MS).await;
        queue.add(100);
        queue.add(101);
        drain(&queue)
    };
    assert_eq!(order(Some(AGEING)).await, [100, 101, 0]);
    assert_eq!(order(Some(AGEING - MS)).await, [100, 0, 101]);
    assert_eq!(order(None).await, [100, 101, 0]);
}

#[tokio::test(start_paused = true)]
async fn of_several_priorities_the_longest_ready_item_comes_first() {
    let queue = Queue::new();
    queue.add_with(1, with_priority(1));
    advance(MS).await;
    queue.add_with(2, with_priority(2));
    queue.add_with(3, with_priority(3));
    advance(AGEING).await;
    for number in 100..103 {
        queue.add_with(number, with_priority(9));
    }
    assert_eq!(
        drain(&queue),
        [100, 1, 101, 3, 102, 2],
        "of equally old ones the more urgent"
    );
}

/// 1,000 keys that each requeue at once, 10,000 runs: the minimum and maximum of the runs of a key.
async fn runs(queue: Queue<usize>, priority: impl Fn(usize) -> i32) -> (u32, u32) {
    const KEYS: usize = 1000;
    let mut runs = vec![0_u32; KEYS];
    for key in 0..KEYS {
        queue.add_with(key, with_priority(priority(key)));
    }
    for _ in 0..10 * KEYS {
        let item = queue.get().await.unwrap();
        runs[*item] += 1;
        item.requeue_after(Duration::ZERO);
    }
    (*runs.iter().min().unwrap(), *runs.iter().max().unwrap())
}

#[tokio::test]
async fn keys_that_requeue_at_once_run_equally_often_where_tenants_take_turns() {
    let fair = Queue::builder().fair_by(|key: &usize| Tenant::of(key % 8));
    assert_eq!(runs(fair.build(), |_| 0).await, (10, 10));
}

#[tokio::test]
async fn keys_that_requeue_at_once_run_equally_often_whatever_their_priority_once_they_are_overdue()
{
    // Everything is overdue at once: every second hand-out goes to the half of low priority.
    let queue = Queue::builder().ageing(Some(Duration::ZERO)).build();
    let (min, max) = runs(queue, |key| if key % 2 == 0 { LOW_PRIORITY } else { 0 }).await;
    assert!(min >= 9 && max <= 11, "{min} to {max}");
}

#[tokio::test(start_paused = true)]
async fn urgent_work_that_never_ends_does_not_starve_the_rest() {
    let queue = Queue::new();
    for key in 0..10 {
        queue.add_with(key, with_priority(LOW_PRIORITY));
    }
    queue.add(100);
    queue.add(101);
    let mut low = Vec::new();
    let mut urgent = 0;
    while low.len() < 10 {
        let item = queue.get().await.unwrap();
        advance(MS * 100).await;
        if *item < 100 {
            low.push(*item);
            item.forget();
        } else {
            urgent += 1;
            item.requeue_after(Duration::ZERO);
        }
    }
    // 60 s of nothing but urgent work, then half of it.
    assert_eq!(low, (0..10).collect::<Vec<_>>());
    assert_eq!(urgent, 600 + 10);
}

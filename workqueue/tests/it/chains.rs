//! The end of an item and the next one in one operation.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::FutureExt;
use reeve_workqueue::{AddOptions, ItemExponentialFailure, OnDrop, Queue};
use tokio::time::advance;

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn the_next_item_is_the_one_that_a_get_after_the_end_would_return() {
    let queue = Queue::new();
    queue.add_all([1, 2]);
    queue.add_after(3, 5 * MS);
    let item = queue.get().await.unwrap();
    queue.add(1);
    queue.add_with(4, AddOptions::new().priority(7));
    // The item itself runs again after those that were ready before its end, and due items are ready.
    advance(5 * MS).await;
    let mut keys = Vec::new();
    let mut next = item.done_and_try_get();
    while let Some(item) = next {
        keys.push(*item);
        assert_eq!(queue.snapshot_of(0).in_flight, 1);
        next = item.done_and_try_get();
    }
    assert_eq!(keys, [4, 2, 3, 1]);
    assert_eq!(queue.snapshot_of(0).in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn forget_clears_the_failures_and_done_keeps_them() {
    let queue = Queue::builder()
        .rate_limiter(ItemExponentialFailure::new(MS, MS))
        .build();
    for (forget, left) in [(false, 1), (true, 0)] {
        queue.forget(&1);
        queue.add(1);
        let _ = queue.get().await.unwrap().retry();
        let item = queue.get().await.unwrap();
        let next = if forget {
            item.forget_and_get().now_or_never()
        } else {
            item.done_and_get().now_or_never()
        };
        assert!(next.is_none(), "nothing is ready");
        assert_eq!(queue.num_requeues(&1), left, "forget: {forget}");
    }
}

#[tokio::test]
async fn an_item_ends_when_the_next_one_is_waited_for_or_the_future_is_dropped() {
    let queue = Queue::builder().on_drop(OnDrop::Retry).build();
    queue.add(1);
    let unpolled = queue.get().await.unwrap().forget_and_get();
    assert_eq!(queue.snapshot_of(0).in_flight, 1);
    drop(unpolled);
    // It is not retried, as a dropped item would be.
    assert_eq!(queue.snapshot_of(0).in_flight, 0);
    assert_eq!(queue.num_requeues(&1), 0);

    queue.add(2);
    let mut waiting = Box::pin(queue.get().await.unwrap().done_and_get());
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(
        queue.snapshot_of(0).in_flight,
        0,
        "it waits, without an item"
    );
    queue.add(3);
    assert_eq!(waiting.await.map(|item| *item), Some(3));
}

#[tokio::test]
async fn a_wait_that_is_given_up_passes_its_item_on() {
    let queue = Queue::new();
    queue.add(1);
    let mut first = Box::pin(queue.get().await.unwrap().done_and_get());
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = Box::pin(queue.get());
    assert!(second.as_mut().now_or_never().is_none());
    queue.add(2);
    drop(first);
    assert_eq!(second.await.map(|item| *item), Some(2));
}

#[tokio::test]
async fn after_a_shutdown_what_is_ready_is_taken_and_then_nothing() {
    let queue = Queue::new();
    queue.add_all([1, 2]);
    let item = queue.get().await.unwrap();
    queue.shut_down();
    let next = item.done_and_get().await.unwrap();
    assert_eq!(*next, 2);
    assert!(next.done_and_get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn more_due_items_than_one_operation_applies_are_found() {
    // The steps in which timers come due end before, within and after an operation.
    for count in [1, 50, 100, 150, 200, 300, 2000] {
        let queue = Queue::new();
        queue.add(0);
        let item = queue.get().await.unwrap();
        for key in 1..=count {
            queue.add_after(key, 3_600_000 * MS);
        }
        advance(3_600_000 * MS).await;
        let item = item.done_and_try_get();
        assert_eq!(item.map(|item| *item), Some(1), "{count}");
        let queue = Queue::new();
        for key in 1..=count {
            queue.add_after(key, 3_600_000 * MS);
        }
        advance(3_600_000 * MS).await;
        assert_eq!(queue.try_get().map(|item| *item), Some(1), "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_without_anything_pending_leaves_due_items_to_the_next_operation() {
    let queue = Queue::new();
    queue.add_after(2, 5 * MS);
    queue.add(1);
    let item = queue.get().await.unwrap();
    advance(6 * MS).await;
    item.done();
    // The order is that of the times, though the timer is applied after the end.
    queue.add(1);
    assert_eq!(*queue.get().await.unwrap(), 2);
    assert_eq!(*queue.get().await.unwrap(), 1);
}

thread_local! {
    static CLONE_PANICS: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Fragile(u32);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(!CLONE_PANICS.get(), "on purpose");
        Self(self.0)
    }
}

#[tokio::test]
async fn an_item_has_ended_though_taking_the_next_one_panics() {
    let queue = Queue::builder().on_drop(OnDrop::Retry).build();
    queue.add_all([Fragile(1), Fragile(2)]);
    let item = queue.get().await.unwrap();
    CLONE_PANICS.set(true);
    let end = AssertUnwindSafe(|| item.done_and_try_get());
    catch_unwind(end).expect_err("the clone of the next key");
    CLONE_PANICS.set(false);
    let left = queue.snapshot_of(0);
    assert_eq!((left.in_flight, left.ready), (0, 1));
    assert_eq!(*queue.get().await.unwrap(), Fragile(2));
}

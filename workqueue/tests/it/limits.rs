//! Limiters in a queue: own back-off first, then a token, first come first served.

use std::time::Duration;

use reeve_workqueue::{
    ItemExponentialFailure, MaxOf, Queue, TokenBucket, WithMaxWait, default_controller_rate_limiter,
};
use tokio::time::{Instant, advance};

const MS: Duration = Duration::from_millis(1);

fn one_token_in_100_ms() -> MaxOf<u32> {
    MaxOf::new()
        .and(ItemExponentialFailure::new(10 * MS, 1000 * MS))
        .and(TokenBucket::new(10.0, 1))
}

#[tokio::test(start_paused = true)]
async fn an_item_waits_its_own_back_off_and_then_for_a_token() {
    let queue = Queue::builder().rate_limiter(one_token_in_100_ms()).build();
    let start = Instant::now();
    for key in [1, 2, 3] {
        queue.add_rate_limited(key);
    }
    for (key, due) in [(1, 10), (2, 110), (3, 210)] {
        let item = queue.get().await.unwrap();
        assert_eq!((*item, start.elapsed()), (key, due * MS));
        item.forget();
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_failing_keys_leave_at_ten_a_second() {
    let limiter = default_controller_rate_limiter();
    let queue = Queue::builder().rate_limiter(limiter).build();
    for key in 0..10_000 {
        queue.add_rate_limited(key);
    }
    let start = Instant::now();
    for key in 0..10_000 {
        let item = queue.get().await.unwrap();
        assert_eq!(*item, key, "first come first served");
        item.forget();
    }
    // The burst of 100 at 5 ms, then one in 100 ms.
    assert_eq!(start.elapsed(), 5 * MS + 9_900 * (100 * MS));
}

#[tokio::test(start_paused = true)]
async fn cancelled_and_merged_items_leave_no_debt() {
    let queue = Queue::builder().rate_limiter(one_token_in_100_ms()).build();
    for key in 0..1000 {
        queue.add_rate_limited(key);
    }
    advance(10 * MS).await;
    queue.try_get().expect("the first has its token").forget();
    for key in 1..500 {
        assert!(queue.cancel(&key));
    }
    for key in 500..999 {
        queue.add(key);
    }
    for _ in 500..999 {
        queue
            .try_get()
            .expect("an immediate add needs no token")
            .forget();
    }
    let start = Instant::now();
    let last = queue.get().await.unwrap();
    assert_eq!((*last, start.elapsed()), (999, 100 * MS), "next in line");
    last.forget();
}

#[tokio::test(start_paused = true)]
async fn a_plain_delay_takes_an_item_out_of_the_line_when_it_ends() {
    let queue = Queue::builder().rate_limiter(one_token_in_100_ms()).build();
    queue.add_rate_limited(1);
    queue.add_rate_limited(2);
    queue.add_after(2, 50 * MS);
    let start = Instant::now();
    for (key, due) in [(1, 10), (2, 50)] {
        let item = queue.get().await.unwrap();
        assert_eq!((*item, start.elapsed()), (key, due * MS));
        item.forget();
    }
}

#[tokio::test(start_paused = true)]
async fn a_maximum_wait_lets_items_go_without_a_token() {
    let limiter = WithMaxWait::new(one_token_in_100_ms(), 150 * MS);
    let queue = Queue::builder().rate_limiter(limiter).build();
    for key in [1, 2, 3, 4] {
        queue.add_rate_limited(key);
    }
    let start = Instant::now();
    for (key, due) in [(1, 10), (2, 110), (3, 150), (4, 150)] {
        let item = queue.get().await.unwrap();
        assert_eq!((*item, start.elapsed()), (key, due * MS));
        item.forget();
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_taken_in_their_time_without_a_waiter() {
    let queue = Queue::builder().rate_limiter(one_token_in_100_ms()).build();
    for key in [1, 2, 3] {
        queue.add_rate_limited(key);
    }
    advance(1000 * MS).await;
    for key in [1, 2, 3] {
        let item = queue.try_get().expect("its token was there long ago");
        assert_eq!(*item, key);
        item.forget();
    }
}

#[tokio::test(start_paused = true)]
async fn a_retried_item_backs_off_longer_each_time_until_it_succeeds() {
    let queue = Queue::builder()
        .rate_limiter(ItemExponentialFailure::new(5 * MS, 30 * MS))
        .build();
    queue.add(1);
    for (attempts, delay) in [(0, 5), (1, 10), (2, 20), (3, 30), (4, 30)] {
        let item = queue.get().await.unwrap();
        assert_eq!(item.attempts(), attempts);
        let start = Instant::now();
        assert_eq!(item.retry(), delay * MS);
        let again = queue.get().await.unwrap();
        assert_eq!(start.elapsed(), delay * MS);
        // Ready at once, with its failure record.
        queue.add(*again);
        again.done();
    }
    queue.get().await.unwrap().forget();
    assert_eq!(queue.num_requeues(&1), 0);
}

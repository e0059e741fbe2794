//! Schedules of the lock-and-waker core, explored by shuttle, which also finds deadlocks.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p reeve-workqueue --test it schedules`; the number of
//! schedules is `SHUTTLE_ITERATIONS`, by default 2,000 each.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;

use reeve_workqueue::{Drain, Queue};
use shuttle::future::{block_on, spawn};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    let iterations = std::env::var("SHUTTLE_ITERATIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2000);
    let scenario = Arc::new(scenario);
    let random = Arc::clone(&scenario);
    shuttle::check_random(move || random(), iterations);
    shuttle::check_pct(move || scenario(), iterations, 3);
}

/// Counts for each key the workers that have it, and its hand-outs.
#[derive(Default)]
struct Watch {
    in_flight: [AtomicUsize; 3],
    handed_out: AtomicUsize,
}

impl Watch {
    fn process(&self, item: reeve_workqueue::Item<usize>) {
        let key = *item;
        assert_eq!(
            self.in_flight[key].fetch_add(1, SeqCst),
            0,
            "with two workers"
        );
        self.handed_out.fetch_add(1, SeqCst);
        thread::yield_now();
        self.in_flight[key].fetch_sub(1, SeqCst);
        item.done();
    }
}

#[test]
fn every_add_is_seen_and_no_item_is_with_two_workers() {
    explore(|| {
        let queue: Queue<usize> = Queue::new();
        let watch = Arc::new(Watch::default());
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (queue, watch) = (queue.clone(), Arc::clone(&watch));
                spawn(async move {
                    while let Some(item) = queue.get().await {
                        watch.process(item);
                    }
                })
            })
            .collect();
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                let queue = queue.clone();
                thread::spawn(move || {
                    for key in [producer, 2, producer] {
                        queue.add(key);
                    }
                })
            })
            .collect();
        for producer in producers {
            producer.join().unwrap();
        }
        block_on(queue.shut_down_with_drain());
        for worker in workers {
            block_on(worker).unwrap();
        }
        let handed_out = watch.handed_out.load(SeqCst);
        assert!((3..=6).contains(&handed_out), "{handed_out}");
    });
}

/// Polls a `get` a few times and drops it, unless it has an item.
async fn impatient(queue: &Queue<usize>) -> Option<usize> {
    let mut get = Box::pin(queue.get());
    let mut patience = thread_rng().gen_range(0..3);
    std::future::poll_fn(|cx| match Pin::new(&mut get).poll(cx) {
        Poll::Ready(item) => Poll::Ready(item.map(|item| *item)),
        Poll::Pending if patience == 0 => Poll::Ready(None),
        Poll::Pending => {
            patience -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

#[test]
fn a_wait_that_is_given_up_loses_no_wake_up() {
    explore(|| {
        let queue: Queue<usize> = Queue::new();
        let impatient_one = spawn({
            let queue = queue.clone();
            async move {
                // It puts its item back, so that there is enough for the patient workers.
                if let Some(key) = impatient(&queue).await {
                    queue.add(key);
                }
            }
        });
        let patient_ones: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                spawn(async move { queue.get().await.map(|item| *item) })
            })
            .collect();
        for key in 0..2 {
            queue.add(key);
        }
        let mut got: Vec<usize> = patient_ones
            .into_iter()
            .map(|worker| block_on(worker).unwrap().unwrap())
            .collect();
        got.sort_unstable();
        assert_eq!(got, [0, 1]);
        block_on(impatient_one).unwrap();
        assert_eq!(queue.len(), 0);
    });
}

#[test]
fn every_waiter_sees_a_shutdown() {
    explore(|| {
        let queue: Queue<usize> = Queue::new();
        let again = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let (queue, again) = (queue.clone(), Arc::clone(&again));
                spawn(async move {
                    while let Some(item) = queue.get().await {
                        // An unfair schedule would let one worker requeue indefinitely.
                        if again.fetch_add(1, SeqCst) < 4 {
                            queue.add(*item);
                        }
                        item.done();
                    }
                })
            })
            .collect();
        queue.add(0);
        queue.add(1);
        if thread_rng().gen_bool(0.5) {
            let drain = spawn({
                let queue = queue.clone();
                async move { queue.shut_down_with_drain().await }
            });
            if thread_rng().gen_bool(0.5) {
                queue.shut_down();
            }
            block_on(drain).unwrap();
        }
        queue.shut_down();
        for worker in workers {
            block_on(worker).unwrap();
        }
    });
}

#[test]
fn batches_take_every_item_once() {
    explore(|| {
        let queue: Queue<usize> = Queue::new();
        let watch = Arc::new(Watch::default());
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (queue, watch) = (queue.clone(), Arc::clone(&watch));
                spawn(async move {
                    loop {
                        let batch = queue.get_batch(2).await;
                        if batch.is_empty() {
                            return;
                        }
                        for item in batch {
                            watch.process(item);
                        }
                    }
                })
            })
            .collect();
        let single = spawn({
            let (queue, watch) = (queue.clone(), Arc::clone(&watch));
            async move {
                if let Some(item) = queue.get().await {
                    watch.process(item);
                }
            }
        });
        let producer = thread::spawn({
            let queue = queue.clone();
            move || {
                queue.add_all([0, 1, 2]);
                queue.add(1);
            }
        });
        producer.join().unwrap();
        block_on(queue.shut_down_with_drain());
        for worker in workers {
            block_on(worker).unwrap();
        }
        block_on(single).unwrap();
        let handed_out = watch.handed_out.load(SeqCst);
        assert!((3..=4).contains(&handed_out), "{handed_out}");
    });
}

#[test]
fn workers_that_end_an_item_and_take_the_next_at_once_miss_none() {
    explore(|| {
        let queue: Queue<usize> = Queue::new();
        let handed_out = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let (queue, handed_out) = (queue.clone(), Arc::clone(&handed_out));
                spawn(async move {
                    let mut next = queue.get().await;
                    while let Some(item) = next {
                        handed_out.fetch_add(1, SeqCst);
                        // Two ways, so that they meet.
                        next = if worker == 0 {
                            item.forget_and_get().await
                        } else {
                            item.done();
                            queue.get().await
                        };
                    }
                })
            })
            .collect();
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                let queue = queue.clone();
                thread::spawn(move || {
                    for key in [producer, 2, producer] {
                        queue.add(key);
                    }
                })
            })
            .collect();
        for producer in producers {
            producer.join().unwrap();
        }
        block_on(queue.shut_down_with_drain());
        for worker in workers {
            block_on(worker).unwrap();
        }
        let handed_out = handed_out.load(SeqCst);
        assert!((3..=6).contains(&handed_out), "{handed_out}");
    });
}

#[test]
fn every_drain_ends_and_its_report_is_right() {
    explore(|| {
        let queue: Queue<usize> = Queue::new();
        let watch = Arc::new(Watch::default());
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (queue, watch) = (queue.clone(), Arc::clone(&watch));
                spawn(async move {
                    while let Some(item) = queue.get().await {
                        watch.process(item);
                    }
                })
            })
            .collect();
        queue.add_all([0, 1, 2]);
        let drain = [
            Drain::Nothing,
            Drain::InFlight,
            Drain::Ready,
            Drain::Delayed,
        ][thread_rng().gen_range(0..4)];
        let other = spawn({
            let queue = queue.clone();
            async move { queue.shut_down_with(Drain::Ready, None).await }
        });
        let left = block_on(queue.shut_down_with(drain, None));
        if drain != Drain::Nothing {
            assert_eq!(left.in_flight, 0);
        }
        assert_eq!(left.keys.len(), left.ready + left.in_flight);
        block_on(other).unwrap();
        for worker in workers {
            block_on(worker).unwrap();
        }
        let left = block_on(queue.shut_down_with(Drain::Nothing, None));
        assert_eq!(left.ready + watch.handed_out.load(SeqCst), 3);
    });
}

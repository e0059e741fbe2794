//! Adds and ends of runs while the queue is locked: they do not wait, and none is lost.

use std::hash::{Hash, Hasher};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use reeve_workqueue::{Delay, Failure, OnDrop, Queue, RateLimiter};

use crate::limit::within_a_minute;

/// The key on whose failure the limiter blocks until the test answers.
const GATE: u32 = u32::MAX;
/// The key for which [`RateLimiter::forget`] panics.
const UNFORGETTABLE: u32 = 13;

/// Keys compare as their numbers; all hashes are equal, so that every lookup compares.
#[derive(Clone, Copy, Debug)]
struct Key {
    number: u32,
    panics: bool,
}

/// Blocks in [`RateLimiter::when`], which runs while the queue is locked.
struct Gate {
    began: Sender<()>,
    /// Whether to panic.
    answers: Mutex<Receiver<bool>>,
}

struct Gated {
    queue: Queue<Key>,
    begins: Receiver<()>,
    answer: Sender<bool>,
}

fn key(number: u32) -> Key {
    Key {
        number,
        panics: false,
    }
}

// === impl Key ===

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(0);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        assert!(!self.panics && !other.panics, "on purpose");
        self.number == other.number
    }
}

impl Eq for Key {}

// === impl Gate ===

impl RateLimiter<Key> for Gate {
    fn when(&self, failure: &Failure<'_, Key>) -> Delay {
        if failure.item.number == GATE {
            self.began.send(()).unwrap();
            let panics = self.answers.lock().unwrap().recv().unwrap();
            assert!(!panics, "on purpose");
        }
        Delay::from(Duration::from_secs(3600))
    }

    fn forget(&self, item: &Key) {
        assert_ne!(item.number, UNFORGETTABLE, "on purpose");
    }
}

// === impl Gated ===

impl Gated {
    fn new() -> Self {
        let (began, begins) = channel();
        let (answer, answers) = channel();
        let queue = Queue::builder()
            .rate_limiter(Gate {
                began,
                answers: Mutex::new(answers),
            })
            .on_drop(OnDrop::Retry)
            .build();
        Self {
            queue,
            begins,
            answer,
        }
    }

    /// Runs `meanwhile` while another thread holds the queue's lock, in an operation that then ends, or panics.
    fn while_locked(&self, panics: bool, meanwhile: impl FnOnce()) {
        let queue = self.queue.clone();
        let holder = thread::spawn(move || queue.add_rate_limited(key(GATE)));
        self.begins.recv().unwrap();
        meanwhile();
        self.answer.send(panics).unwrap();
        assert_eq!(holder.join().is_err(), panics);
    }

    fn numbers_ready(&self) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some(item) = self.queue.try_get() {
            numbers.push(item.number);
            item.done();
        }
        numbers
    }
}

#[test]
fn adds_do_not_wait_for_the_lock_and_keep_their_order() {
    within_a_minute(|| {
        let gated = Gated::new();
        gated.queue.add(key(2));
        gated.while_locked(false, || {
            for number in [5, 1, 2, 5, 4] {
                gated.queue.add(key(number));
            }
        });
        assert_eq!(gated.numbers_ready(), [2, 5, 1, 4]);
    });
}

#[test]
fn runs_end_without_waiting_for_the_lock() {
    within_a_minute(|| {
        let gated = Gated::new();
        let queue = &gated.queue;
        for number in 1..=3 {
            queue.add(key(number));
        }
        let items: Vec<_> = (0..3).filter_map(|_| queue.try_get()).collect();
        queue.add(key(2));
        gated.while_locked(false, || {
            for item in items {
                item.done();
            }
        });
        let left = queue.snapshot();
        assert_eq!((left.in_flight, left.ready), (0, 1));
        assert_eq!(gated.numbers_ready(), [2]);
    });
}

#[test]
fn what_is_left_during_an_operation_that_panics_wakes_a_worker_all_the_same() {
    within_a_minute(|| {
        let gated = Gated::new();
        let queue = gated.queue.clone();
        let worker = thread::spawn(move || queue.get_blocking().map(|item| item.number));
        gated.while_locked(true, || gated.queue.add(key(7)));
        assert_eq!(worker.join().unwrap(), Some(7));
    });
}

#[test]
fn a_key_that_panics_when_it_is_compared_costs_its_own_add_only() {
    within_a_minute(|| {
        let gated = Gated::new();
        gated.queue.add(key(1));
        gated.while_locked(false, || {
            gated.queue.add(key(2));
            gated.queue.add(Key {
                number: 3,
                panics: true,
            });
            gated.queue.add(key(4));
        });
        assert_eq!(gated.numbers_ready(), [1, 2, 4]);
    });
}

#[test]
fn a_run_ends_though_the_limiter_panics_when_it_is_to_forget_it() {
    within_a_minute(|| {
        let gated = Gated::new();
        let queue = &gated.queue;
        queue.add(key(UNFORGETTABLE));
        let item = queue.try_get().unwrap();
        queue.add_rate_limited(key(UNFORGETTABLE));
        assert!(queue.cancel(&key(UNFORGETTABLE)));
        gated.while_locked(false, || item.forget());
        assert_eq!(queue.snapshot().in_flight, 0);
        assert_eq!(queue.num_requeues(&key(UNFORGETTABLE)), 0);
    });
}

#[test]
fn more_than_there_is_room_for_waits_and_is_not_lost() {
    within_a_minute(|| {
        const MANY: u32 = 1000;
        let gated = Gated::new();
        let queue = gated.queue.clone();
        let (before, at_room) = channel();
        let mut producer = None;
        gated.while_locked(false, || {
            producer = Some(thread::spawn(move || {
                for number in 0..MANY {
                    if number == 100 {
                        before.send(()).unwrap();
                    }
                    queue.add(key(number));
                }
            }));
            at_room.recv().unwrap();
        });
        producer.unwrap().join().unwrap();
        assert_eq!(gated.numbers_ready(), (0..MANY).collect::<Vec<_>>());
    });
}

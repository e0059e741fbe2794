//! Random sequences of every operation, under virtual time, against a reference implementation.
//!
//! Workers wait in `get` with wakers of the test's own, and are polled only when they were woken: a
//! lost wake-up shows as an item that the reference hands out and the queue does not.
//!
//! The number of sequences is `PROPTEST_CASES`, by default 2,000.

mod reference;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use proptest::prelude::*;
use reeve_workqueue::{
    AddOptions, Item, ItemExponentialFailure, MaxOf, OnDrop, Queue, Reason, TokenBucket,
    WithMaxWait,
};
use reference::{BASE, BURST, Handed, Limit, MAX, MAX_WAIT, PERIOD, Reference, Shutdown};

#[derive(Clone, Debug)]
enum Op {
    Add {
        key: u8,
        after: Option<u64>,
        limited: bool,
        priority: Option<i32>,
        reason: Option<Reason>,
    },
    /// A worker begins to wait.
    Get,
    /// A waiting worker goes away.
    Abandon(usize),
    Settle(usize, Outcome),
    Cancel(u8),
    Forget(u8),
    Advance(u64),
    ShutDown,
    Drain,
}

#[derive(Clone, Debug)]
enum Outcome {
    Done,
    Forget,
    Retry,
    After(u64),
    SetPriorityAndRetry(i32),
    Dropped,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..6u8;
    let delay = prop_oneof![Just(0), 1..40u64];
    let priority = prop_oneof![Just(-100), Just(0), Just(3), Just(7)];
    let reason = prop_oneof![
        Just(Reason::Added),
        Just(Reason::Resync),
        Just(Reason::Custom("own"))
    ];
    let outcome = prop_oneof![
        2 => Just(Outcome::Done),
        3 => Just(Outcome::Forget),
        4 => Just(Outcome::Retry),
        2 => delay.clone().prop_map(Outcome::After),
        1 => priority.clone().prop_map(Outcome::SetPriorityAndRetry),
        2 => Just(Outcome::Dropped),
    ];
    let add = (
        key.clone(),
        prop::option::of(delay),
        prop::bool::weighted(0.4),
        prop::option::of(priority),
        prop::option::of(reason),
    );
    prop_oneof![
        10 => add.prop_map(|(key, after, limited, priority, reason)| Op::Add {
            key, after, limited, priority, reason
        }),
        8 => Just(Op::Get),
        2 => any::<usize>().prop_map(Op::Abandon),
        8 => (any::<usize>(), outcome).prop_map(|(index, outcome)| Op::Settle(index, outcome)),
        2 => key.clone().prop_map(Op::Cancel),
        1 => key.prop_map(Op::Forget),
        6 => (1..30u64).prop_map(Op::Advance),
    ]
}

/// An operation, and whether workers get to run after it. If not, woken ones may go away unseen.
type Step = (Op, bool);

fn sequence() -> impl Strategy<Value = (Limit, Vec<Step>)> {
    let limit = prop_oneof![
        Just(Limit::Exponential),
        Just(Limit::Bucket),
        Just(Limit::MaxWait)
    ];
    let end = prop_oneof![Just(None), Just(Some(Op::ShutDown)), Just(Some(Op::Drain))];
    let steps = || prop::collection::vec((op(), prop::bool::weighted(0.7)), 0..60);
    let cut = prop::bool::ANY;
    (limit, steps(), end, steps(), cut).prop_map(|(limit, mut steps, end, after, cut)| {
        steps.extend(end.map(|op| (op, true)));
        steps.extend(after);
        steps.extend(cut.then_some((Op::ShutDown, true)));
        (limit, steps)
    })
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A future that is polled when it was woken, and only then.
struct Woken<'a, R> {
    future: Pin<Box<dyn Future<Output = R> + 'a>>,
    flag: Arc<Flag>,
}

impl<'a, R> Woken<'a, R> {
    fn new(future: impl Future<Output = R> + 'a) -> Self {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let future = Box::pin(future);
        Self { future, flag }
    }

    fn poll_if_woken(&mut self) -> Option<Poll<R>> {
        if !self.flag.0.swap(false, Ordering::SeqCst) {
            return None;
        }
        let waker = Waker::from(Arc::clone(&self.flag));
        Some(self.future.as_mut().poll(&mut Context::from_waker(&waker)))
    }
}

struct Bench<'a> {
    queue: &'a Queue<u8>,
    reference: Reference,
    workers: Vec<Woken<'a, Option<Item<u8>>>>,
    drain: Option<Woken<'a, ()>>,
    items: Vec<Item<u8>>,
}

impl<'a> Bench<'a> {
    fn apply(&mut self, op: &Op) {
        let queue = self.queue;
        match *op {
            Op::Add {
                key,
                after,
                limited,
                priority,
                reason,
            } => {
                let options = AddOptions {
                    after: after.map(Duration::from_millis),
                    rate_limited: limited,
                    priority,
                    reason,
                    debounce: None,
                };
                queue.add_with(key, options);
                let reason = reason.map(name);
                let priority = priority.unwrap_or(0);
                self.reference.add(key, after, limited, priority, reason);
            }
            Op::Get => self.workers.push(Woken::new(queue.get())),
            Op::Abandon(index) => {
                if !self.workers.is_empty() {
                    drop(self.workers.remove(index % self.workers.len()));
                }
            }
            Op::Settle(index, ref outcome) => {
                if !self.items.is_empty() {
                    let item = self.items.remove(index % self.items.len());
                    self.settle(item, outcome);
                }
            }
            Op::Cancel(key) => {
                assert_eq!(queue.cancel(&key), self.reference.cancel(key), "cancel");
            }
            Op::Forget(key) => {
                queue.forget(&key);
                self.reference.forget(key);
            }
            Op::Advance(_) => unreachable!("needs the runtime"),
            Op::ShutDown => {
                queue.shut_down();
                self.reference.shut_down(Shutdown::Now);
            }
            Op::Drain => {
                self.drain = Some(Woken::new(queue.shut_down_with_drain()));
                self.poll_drain();
                self.reference.shut_down(Shutdown::Drain);
                // It shut the queue down when it was polled first; what it waits for is looked at
                // with everything else.
                if let Some(drain) = &self.drain {
                    drain.flag.0.store(true, Ordering::SeqCst);
                }
            }
        }
    }

    fn poll_drain(&mut self) {
        if let Some(drain) = &mut self.drain
            && let Some(Poll::Ready(())) = drain.poll_if_woken()
        {
            self.drain = None;
        }
    }

    fn settle(&mut self, mut item: Item<u8>, outcome: &Outcome) {
        let key = *item;
        let reference = &mut self.reference;
        match *outcome {
            Outcome::Done => {
                item.done();
                reference.done(key);
            }
            Outcome::Forget => {
                item.forget();
                reference.forget(key);
                reference.done(key);
            }
            Outcome::Retry => {
                let priority = item.priority();
                item.retry();
                reference.retry(key, priority);
            }
            Outcome::After(after) => {
                let priority = item.priority();
                item.requeue_after(Duration::from_millis(after));
                reference.requeue_after(key, after, priority);
            }
            Outcome::SetPriorityAndRetry(priority) => {
                item.set_priority(priority);
                item.retry();
                reference.retry(key, priority);
            }
            Outcome::Dropped => {
                let priority = item.priority();
                drop(item);
                reference.retry(key, priority);
            }
        }
    }

    /// Lets woken workers run, and compares everything that can be seen.
    fn check(&mut self) {
        loop {
            let mut progress = false;
            let mut index = 0;
            while index < self.workers.len() {
                match self.workers[index].poll_if_woken() {
                    Some(Poll::Ready(Some(item))) => {
                        progress = true;
                        drop(self.workers.remove(index));
                        let handed = Handed {
                            key: *item,
                            priority: item.priority(),
                            failures: item.attempts(),
                            reasons: item.reasons().into_iter().map(name).collect(),
                        };
                        assert_eq!(Some(handed), self.reference.take());
                        self.items.push(item);
                    }
                    Some(Poll::Ready(None)) => {
                        progress = true;
                        drop(self.workers.remove(index));
                        assert!(self.reference.closed(), "closed too early");
                    }
                    Some(Poll::Pending) => index += 1,
                    None => index += 1,
                }
            }
            if !progress {
                break;
            }
        }
        if !self.workers.is_empty() {
            assert_eq!(self.reference.len(), 0, "an item that no waiter got");
            assert!(!self.reference.closed(), "waiters of a closed queue");
        }
        if self.drain.is_some() {
            self.poll_drain();
            assert_eq!(self.drain.is_none(), self.reference.drained(), "drained");
        }
        assert_eq!(self.queue.len(), self.reference.len(), "len");
        for key in 0..6 {
            let failures = self.reference.failures(key);
            assert_eq!(self.queue.num_requeues(&key), failures, "failures of {key}");
        }
        let snapshot = self.queue.snapshot();
        assert_eq!(snapshot.refused, self.reference.refused);
        let later = snapshot.waiting + snapshot.in_line;
        let counts = (later, snapshot.ready, snapshot.in_flight);
        assert_eq!(counts, self.reference.counts());
        let told: BTreeSet<u8> = snapshot.items.iter().map(|item| item.item).collect();
        assert_eq!(told.len(), snapshot.items.len(), "each item once");
    }
}

fn name(reason: Reason) -> &'static str {
    match reason {
        Reason::Added => "added",
        Reason::Resync => "resync",
        Reason::Timer => "timer",
        Reason::Retry => "retry",
        Reason::Custom(text) => text,
        other => unreachable!("{other}"),
    }
}

fn queue(limit: Limit) -> Queue<u8> {
    let milliseconds = Duration::from_millis;
    let exponential = ItemExponentialFailure::new(milliseconds(BASE), milliseconds(MAX));
    let bucket = TokenBucket::new(1000.0 / PERIOD as f64, BURST as u32);
    let both = MaxOf::new().and(exponential.clone()).and(bucket);
    let builder = Queue::builder().on_drop(OnDrop::Retry);
    match limit {
        Limit::Exponential => builder.rate_limiter(exponential).build(),
        Limit::Bucket => builder.rate_limiter(both).build(),
        Limit::MaxWait => {
            let limiter = WithMaxWait::new(both, milliseconds(MAX_WAIT));
            builder.rate_limiter(limiter).build()
        }
    }
}

async fn run(limit: Limit, steps: Vec<Step>) {
    let queue = queue(limit);
    let mut bench = Bench {
        queue: &queue,
        reference: Reference::new(limit),
        workers: Vec::new(),
        drain: None,
        items: Vec::new(),
    };
    for (op, workers_run) in steps {
        if let Op::Advance(by) = op {
            tokio::time::advance(Duration::from_millis(by)).await;
            tokio::task::yield_now().await;
            bench.reference.advance(by);
        } else {
            bench.apply(&op);
        }
        if workers_run {
            bench.check();
        }
    }
    bench.check();
}

fn config() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 2000;
    }
    config.failure_persistence = None;
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_queue_does_what_the_reference_does((limit, steps) in sequence()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(limit, steps));
    }
}

//! Random sequences of every operation, under virtual time, against a reference implementation.
//!
//! Workers wait in `get` with wakers of the test, and are polled only after a wake-up: a lost wake-up
//! shows as an item that the reference hands out and the queue does not.
//!
//! The number of sequences is `PROPTEST_CASES`, by default 5,000.

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
    AddOptions, Cause, Drain, Item, ItemExponentialFailure, Left, MaxOf, OnDrop, Queue, Reason,
    Tenant, TokenBucket, WithMaxWait,
};
use reference::{
    BASE, BURST, Config, Handed, Limit, MAX, MAX_WAIT, PERIOD, Reference, Shutdown, Wish,
};

#[derive(Clone, Debug)]
enum Op {
    Add(u8, Add),
    AddAll(Vec<u8>, Add),
    /// A worker begins to wait, for this many items.
    Get(usize),
    /// A waiting worker leaves.
    Abandon(usize),
    Settle(usize, Outcome),
    Cancel(u8),
    Hasten(u8, u64),
    Forget(u8),
    Advance(u64),
    ShutDown,
    Drain(Drain, Option<u64>),
}

#[derive(Clone, Debug)]
struct Add {
    after: Option<u64>,
    limited: bool,
    priority: Option<i32>,
    reason: Option<Reason>,
}

#[derive(Clone, Debug)]
enum Outcome {
    Done,
    Forget,
    /// Done, or forgotten, and the next item taken with it.
    AndTryGet(bool),
    Retry,
    RetryBecause(Option<u64>),
    After(u64),
    Back(u64),
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
        3 => prop::bool::ANY.prop_map(Outcome::AndTryGet),
        3 => Just(Outcome::Retry),
        2 => prop::option::of(delay.clone()).prop_map(Outcome::RetryBecause),
        2 => delay.clone().prop_map(Outcome::After),
        2 => delay.clone().prop_map(Outcome::Back),
        1 => priority.clone().prop_map(Outcome::SetPriorityAndRetry),
        2 => Just(Outcome::Dropped),
    ];
    let later = delay.clone();
    let add = (
        prop::option::of(delay),
        prop::bool::weighted(0.3),
        prop::option::of(priority),
        prop::option::of(reason),
    );
    let add = add.prop_map(|(after, limited, priority, reason)| Add {
        after,
        limited,
        priority,
        reason,
    });
    let count = prop_oneof![3 => Just(1), 1 => 2..4usize];
    prop_oneof![
        10 => (key.clone(), add.clone()).prop_map(|(key, add)| Op::Add(key, add)),
        1 => (prop::collection::vec(key.clone(), 0..5), add)
            .prop_map(|(keys, add)| Op::AddAll(keys, add)),
        8 => count.prop_map(Op::Get),
        2 => any::<usize>().prop_map(Op::Abandon),
        8 => (any::<usize>(), outcome).prop_map(|(index, outcome)| Op::Settle(index, outcome)),
        2 => key.clone().prop_map(Op::Cancel),
        2 => (key.clone(), later).prop_map(|(key, wait)| Op::Hasten(key, wait)),
        1 => key.prop_map(Op::Forget),
        6 => (1..30u64).prop_map(Op::Advance),
    ]
}

/// An operation, and whether workers run after it. If not, woken ones may leave unseen.
type Step = (Op, bool);

fn config() -> impl Strategy<Value = Config> {
    let limit = prop_oneof![
        Just(Limit::Exponential),
        Just(Limit::Bucket),
        Just(Limit::MaxWait)
    ];
    let ageing = prop_oneof![Just(None), (0..20u64).prop_map(Some)];
    let interval = prop_oneof![3 => Just(0), 1 => 1..20u64];
    let expiry = prop_oneof![Just(1_000_000), 5..50u64];
    (limit, ageing, prop::bool::ANY, interval, expiry).prop_map(
        |(limit, ageing, fair, min_interval, expiry)| Config {
            limit,
            ageing,
            fair,
            min_interval,
            expiry,
        },
    )
}

fn sequence() -> impl Strategy<Value = (Config, Vec<Step>)> {
    let drain = prop_oneof![
        Just(Drain::InFlight),
        Just(Drain::Ready),
        Just(Drain::Delayed)
    ];
    let drain = (drain, prop::option::of(0..60u64));
    let drain = drain.prop_map(|(drain, deadline)| Some(Op::Drain(drain, deadline)));
    let end = prop_oneof![2 => Just(None), 1 => Just(Some(Op::ShutDown)), 3 => drain];
    let steps = || prop::collection::vec((op(), prop::bool::weighted(0.7)), 0..60);
    let cut = prop::bool::ANY;
    (config(), steps(), end, steps(), cut).prop_map(|(config, mut steps, end, after, cut)| {
        steps.extend(end.map(|op| (op, true)));
        steps.extend(after);
        steps.extend(cut.then_some((Op::ShutDown, true)));
        (config, steps)
    })
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A future that is polled after a wake-up, and only then.
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
    /// The waiting workers, and the number of items each waits for.
    workers: Vec<(usize, Woken<'a, Vec<Item<u8>>>)>,
    drain: Option<Draining<'a>>,
    items: Vec<Item<u8>>,
    failures: usize,
}

struct Draining<'a> {
    future: Woken<'a, Left<u8>>,
    deadline: Option<u64>,
    /// Number of items that were dropped when it began.
    dropped: usize,
}

impl<'a> Bench<'a> {
    fn apply(&mut self, op: &Op) {
        let queue = self.queue;
        match *op {
            Op::Add(key, ref add) => {
                queue.add_with(key, add.options());
                self.reference.add(key, add.wish());
            }
            Op::AddAll(ref keys, ref add) => {
                queue.add_all_with(keys.iter().copied(), add.options());
                for &key in keys {
                    self.reference.add(key, add.wish());
                }
            }
            Op::Get(count) => {
                let got = Woken::new(async move {
                    if count == 1 {
                        queue.get().await.into_iter().collect()
                    } else {
                        queue.get_batch(count).await
                    }
                });
                self.workers.push((count, got));
            }
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
            Op::Hasten(key, delay) => {
                let waits = queue.hasten(&key, Duration::from_millis(delay));
                assert_eq!(waits, self.reference.hasten(key, delay), "hasten");
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
            Op::Drain(drain, deadline) => self.drain(drain, deadline),
        }
    }

    fn drain(&mut self, drain: Drain, deadline: Option<u64>) {
        let queue = self.queue;
        let limit = deadline.map(Duration::from_millis);
        let dropped = self.reference.shut_down(match drain {
            Drain::Delayed => Shutdown::Delayed,
            _ => Shutdown::Drain,
        });
        if drain == Drain::InFlight {
            self.reference.stop();
        }
        self.drain = Some(Draining {
            future: Woken::new(queue.shut_down_with(drain, limit)),
            deadline: deadline.map(|deadline| self.reference.now + deadline),
            dropped,
        });
        self.poll_drain();
    }

    /// Returns whether the drain has ended.
    fn poll_drain(&mut self) -> bool {
        let Some(drain) = &mut self.drain else {
            return false;
        };
        let Some(Poll::Ready(left)) = drain.future.poll_if_woken() else {
            return false;
        };
        let reference = &mut self.reference;
        if !reference.drained() {
            let deadline = drain
                .deadline
                .expect("a drain without deadline that ended early");
            assert!(deadline <= reference.now, "before its deadline");
            reference.stop();
        }
        let (later, _, in_flight) = reference.counts();
        let expected = (reference.left_ready(), later + drain.dropped, in_flight);
        assert_eq!((left.ready, left.waiting, left.in_flight), expected, "left");
        let unlike: BTreeSet<u8> = left.keys.iter().copied().collect();
        assert_eq!(unlike.len(), left.keys.len(), "each key once");
        assert_eq!(left.is_empty(), left.keys.is_empty());
        self.drain = None;
        true
    }

    fn settle(&mut self, mut item: Item<u8>, outcome: &Outcome) {
        let key = *item;
        let reference = &mut self.reference;
        let priority = item.priority();
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
            Outcome::AndTryGet(forget) => {
                if forget {
                    reference.forget(key);
                }
                reference.done(key);
                let next = if forget {
                    item.forget_and_try_get()
                } else {
                    item.done_and_try_get()
                };
                match next {
                    Some(next) => self.got(vec![next], 1),
                    None => assert!(self.reference.closed() || self.reference.len() == 0),
                }
            }
            Outcome::Retry => {
                item.retry();
                reference.retry(key, priority, None, 0);
            }
            Outcome::RetryBecause(wait) => {
                self.failures += 1;
                let message = format!("failure {}", self.failures);
                let mut cause = Cause::new(&message);
                if let Some(wait) = wait {
                    cause = cause.retry_after(Duration::from_millis(wait));
                }
                item.retry_because(cause);
                reference.retry(key, priority, Some(message), wait.unwrap_or(0));
            }
            Outcome::After(after) => {
                item.requeue_after(Duration::from_millis(after));
                reference.requeue_after(key, after, priority);
            }
            Outcome::Back(after) => {
                let reasons = item.reasons().into_iter().map(name).collect();
                item.put_back(Duration::from_millis(after));
                reference.put_back(key, after, priority, reasons);
            }
            Outcome::SetPriorityAndRetry(priority) => {
                item.set_priority(priority);
                item.retry();
                reference.retry(key, priority, None, 0);
            }
            Outcome::Dropped => {
                drop(item);
                reference.retry(key, priority, None, 0);
            }
        }
    }

    /// Runs woken workers, and compares everything that is visible.
    fn check(&mut self) {
        loop {
            let mut progress = self.poll_drain();
            let mut index = 0;
            while index < self.workers.len() {
                let (count, worker) = &mut self.workers[index];
                let count = *count;
                match worker.poll_if_woken() {
                    Some(Poll::Ready(items)) => {
                        progress = true;
                        drop(self.workers.remove(index));
                        self.got(items, count);
                    }
                    Some(Poll::Pending) | None => index += 1,
                }
            }
            if !progress {
                break;
            }
        }
        if !self.workers.is_empty() {
            assert!(!self.reference.closed(), "waiters of a closed queue");
            assert_eq!(self.reference.len(), 0, "an item that no waiter got");
        }
        if let Some(drain) = &self.drain {
            assert!(!self.reference.drained(), "drained");
            let deadline = drain.deadline;
            assert!(deadline.is_none_or(|deadline| self.reference.now < deadline));
        }
        assert_eq!(self.queue.len(), self.reference.len(), "len");
        for key in 0..6 {
            let failures = self.reference.failures(key);
            assert_eq!(self.queue.num_requeues(&key), failures, "failures of {key}");
        }
        let snapshot = self.queue.snapshot();
        assert_eq!(snapshot.refused, self.reference.refused);
        let later = snapshot.waiting + snapshot.awaiting_token;
        let counts = (later, snapshot.ready, snapshot.in_flight);
        assert_eq!(counts, self.reference.counts());
        for item in &snapshot.items {
            let error = item.last_error.as_ref().map(ToString::to_string);
            assert_eq!(error, self.reference.error(item.item), "last error");
        }
        let keys: BTreeSet<u8> = snapshot.items.iter().map(|item| item.item).collect();
        assert_eq!(keys.len(), snapshot.items.len(), "each item once");
    }

    fn got(&mut self, items: Vec<Item<u8>>, wanted: usize) {
        if items.is_empty() {
            assert!(self.reference.closed(), "closed too early");
            return;
        }
        let got = items.len();
        for item in items {
            let handed = Handed {
                key: *item,
                priority: item.priority(),
                failures: item.attempts(),
                reasons: item.reasons().into_iter().map(name).collect(),
            };
            assert_eq!(Some(handed), self.reference.take());
            self.items.push(item);
        }
        if got < wanted {
            assert_eq!(
                self.reference.len(),
                0,
                "a batch that could have been larger"
            );
        }
    }
}

impl Add {
    fn options(&self) -> AddOptions {
        let mut options = AddOptions::new();
        if let Some(after) = self.after {
            options = options.after(Duration::from_millis(after));
        }
        if self.limited {
            options = options.rate_limited();
        }
        if let Some(priority) = self.priority {
            options = options.priority(priority);
        }
        if let Some(reason) = self.reason {
            options = options.reason(reason);
        }
        options
    }

    fn wish(&self) -> Wish {
        Wish {
            after: self.after,
            limited: self.limited,
            least: 0,
            priority: self.priority.unwrap_or(0),
            reasons: self.reason.map(name).into_iter().collect(),
        }
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

fn queue(config: &Config) -> Queue<u8> {
    let milliseconds = Duration::from_millis;
    let exponential = ItemExponentialFailure::new(milliseconds(BASE), milliseconds(MAX));
    let bucket = TokenBucket::new(1000.0 / PERIOD as f64, BURST as u32);
    let both = MaxOf::new().and(exponential.clone()).and(bucket);
    let mut builder = Queue::builder()
        .on_drop(OnDrop::Retry)
        .ageing(config.ageing.map(milliseconds))
        .min_interval(milliseconds(config.min_interval))
        .failure_expiry(milliseconds(config.expiry));
    if config.fair {
        builder = builder.fair_by(|key| {
            let (tenant, weight) = reference::tenant(*key);
            Tenant::of(tenant).weight(weight.try_into().unwrap())
        });
    }
    match config.limit {
        Limit::Exponential => builder.rate_limiter(exponential).build(),
        Limit::Bucket => builder.rate_limiter(both).build(),
        Limit::MaxWait => {
            let limiter = WithMaxWait::new(both, milliseconds(MAX_WAIT));
            builder.rate_limiter(limiter).build()
        }
    }
}

async fn run(config: Config, steps: Vec<Step>) {
    let queue = queue(&config);
    let mut bench = Bench {
        queue: &queue,
        reference: Reference::new(config),
        workers: Vec::new(),
        drain: None,
        items: Vec::new(),
        failures: 0,
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

fn proptest_config() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 5_000;
    }
    config.failure_persistence = None;
    config
}

proptest! {
    #![proptest_config(proptest_config())]

    #[test]
    fn the_queue_does_what_the_reference_does((config, steps) in sequence()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(config, steps));
    }
}

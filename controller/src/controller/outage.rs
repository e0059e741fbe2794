//! Keys in back-off during an outage of the API server: while it cannot be reached, one of them is tried every two
//! seconds, in turn; and when one of them had an answer, the others are tried, too.
//!
//! The back-off of a key by itself grows with the outage: after twelve seconds it would wait for twelve more, though
//! the server is back.
//!
//! All keys of a controller count as of one API server. If one of several clusters is away, an answer of another one
//! may wake them for nothing, no more often than [`LONGEST_PAUSE`] allows.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reeve_workqueue::{Cause, Item, Queue};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use crate::reconcile::{RequestKey, ServerOutage};

/// The time between two probes (client-go: the `RetryPeriod` of leader election).
const PROBE: Duration = Duration::from_secs(2);
/// The shortest and the longest pause between two wakes of all keys. It doubles while keys wait: an answer may be about
/// one key only, or none, because a key that needs no request succeeds during an outage, too.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest time to wait that a server can ask for.
const LONGEST_REFUSAL: Duration = Duration::from_secs(24 * 60 * 60);
/// The number of keys that are looked at between two yields.
const SLICE: usize = 128;

/// The keys of a controller whose last try failed by an outage of the API server.
pub(super) struct Outages<R> {
    /// Whether there is any. Workers read it without the lock.
    any: AtomicBool,
    state: Mutex<State<R>>,
    changed: Notify,
}

struct State<R> {
    /// The keys, with the numbers of their failures.
    keys: HashMap<R, u64>,
    /// The number of the next failure.
    next: u64,
    /// The keys that had no answer, in the order of their tries, with the times of their failures.
    unreachable: BTreeMap<u64, (R, Instant)>,
    /// The keys that were answered by a refusal such as 503. It may be about one object, as that of a webhook that
    /// fails, and so causes no probe. With the time before which the server wants no other try.
    refused: BTreeMap<u64, (R, Instant)>,
    /// The keys to wake now.
    waking: BTreeMap<u64, (R, Instant)>,
    woken: usize,
    /// Whether a key had an answer after the others began to wait.
    answered: bool,
    probe_at: Instant,
    wake_at: Instant,
    pause: Duration,
}

/// What is left to do.
enum Rest {
    /// More, now.
    More,
    /// More, at that time.
    At(Instant),
    /// Nothing before the next change.
    Nothing,
}

// === impl Outages ===

impl<R: RequestKey> Outages<R> {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            any: AtomicBool::new(false),
            state: Mutex::new(State {
                keys: HashMap::new(),
                next: 0,
                unreachable: BTreeMap::new(),
                refused: BTreeMap::new(),
                waking: BTreeMap::new(),
                woken: 0,
                answered: false,
                probe_at: now,
                wake_at: now,
                pause: SHORTEST_PAUSE,
            }),
            changed: Notify::new(),
        }
    }

    /// Settles an item that failed by an outage of the API server. Returns its own back-off.
    pub(super) fn retry(&self, item: Item<R>, cause: Cause, outage: ServerOutage) -> Duration {
        let key = R::clone(&item);
        let least = cause.wait_at_least();
        let mut state = self.state.lock();
        // Under the lock, and before the item is settled: another worker may process the key from then on.
        self.any.store(true, Ordering::Release);
        let delay = item.retry_because(cause);
        if state.failed(key, least, outage) {
            self.changed.notify_one();
        }
        delay
    }

    /// Notes that `key` ended, and not by an outage; `answered` by the server, or not.
    pub(super) fn ended(&self, key: &R, answered: bool) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        let wakes = state.ended(key, answered);
        self.any.store(!state.keys.is_empty(), Ordering::Release);
        if wakes {
            self.changed.notify_one();
        }
    }

    /// Probes the server and wakes the keys, until it is dropped.
    pub(super) async fn watch(&self, queue: &Queue<R>) -> Infallible {
        loop {
            let rest = self.state.lock().turn(queue);
            match rest {
                Rest::More => yield_now().await,
                Rest::At(at) => {
                    tokio::select! {
                        () = self.changed.notified() => {}
                        () = sleep_until(at) => {}
                    }
                }
                Rest::Nothing => self.changed.notified().await,
            }
        }
    }
}

// === impl State ===

impl<R: RequestKey> State<R> {
    /// Adds a failed key. Returns whether it is the first one that had no answer.
    fn failed(&mut self, key: R, least: Option<Duration>, outage: ServerOutage) -> bool {
        let (now, number) = (Instant::now(), self.next);
        self.next += 1;
        if let Some(last) = self.keys.insert(key.clone(), number) {
            self.remove(last);
        }
        if outage != ServerOutage::Unreachable || least.is_some() {
            let least = least.unwrap_or_default().min(LONGEST_REFUSAL);
            self.refused.insert(number, (key, now + least));
            return false;
        }
        let first = self.unreachable.is_empty();
        if first {
            self.probe_at = now + PROBE;
        }
        self.unreachable.insert(number, (key, now));
        first
    }

    /// Removes a key. Returns whether others are to be woken.
    fn ended(&mut self, key: &R, answered: bool) -> bool {
        let Some(last) = self.keys.remove(key) else {
            return false;
        };
        self.remove(last);
        let others = !self.unreachable.is_empty() || !self.refused.is_empty();
        if self.keys.is_empty() {
            (self.pause, self.answered) = (SHORTEST_PAUSE, false);
        }
        let wakes = answered && others && !self.answered;
        self.answered |= wakes;
        wakes
    }

    fn remove(&mut self, number: u64) {
        self.unreachable.remove(&number);
        self.refused.remove(&number);
        self.waking.remove(&number);
    }

    /// Does a part of what is due.
    fn turn(&mut self, queue: &Queue<R>) -> Rest {
        let now = Instant::now();
        if !self.waking.is_empty() {
            self.wake_some(queue, now);
            return Rest::More;
        }
        let woken = take(&mut self.woken);
        if woken > 0 {
            tracing::info!(
                woken,
                "the API server answers again; requests in back-off are tried now"
            );
        }
        if self.answered && now >= self.wake_at {
            self.begin_to_wake(now);
            return Rest::More;
        }
        if self.unreachable.is_empty() {
            return if self.answered {
                Rest::At(self.wake_at)
            } else {
                Rest::Nothing
            };
        }
        if now >= self.probe_at {
            self.probe(queue);
            self.probe_at = now + PROBE;
        }
        Rest::At(if self.answered {
            self.probe_at.min(self.wake_at)
        } else {
            self.probe_at
        })
    }

    /// Moves all keys to those to be woken.
    fn begin_to_wake(&mut self, now: Instant) {
        self.answered = false;
        self.wake_at = now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.woken = self.unreachable.len();
        self.waking.append(&mut self.unreachable);
        self.waking.append(&mut self.refused);
    }

    /// Wakes a slice of the keys.
    fn wake_some(&mut self, queue: &Queue<R>, now: Instant) {
        for _ in 0..SLICE {
            let Some((_, (key, not_before))) = self.waking.pop_first() else {
                break;
            };
            queue.hasten(&key, not_before.saturating_duration_since(now));
        }
    }

    /// Tries the key whose try is the longest ago, of those that wait in the queue.
    fn probe(&mut self, queue: &Queue<R>) {
        for _ in 0..self.unreachable.len().min(SLICE) {
            let Some((_, (key, not_before))) = self.unreachable.pop_first() else {
                return;
            };
            let waited = queue.hasten(&key, Duration::ZERO);
            // It is the last one whose turn comes again.
            self.keys.insert(key.clone(), self.next);
            self.unreachable.insert(self.next, (key, not_before));
            self.next += 1;
            if waited {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use ServerOutage::{Refusing, Unreachable};

    /// The end of a try: an outage, or none.
    type End = Option<ServerOutage>;

    /// A queue with one worker.
    struct Work {
        queue: Queue<String>,
        outages: Outages<String>,
        begin: Instant,
    }

    /// The tries of keys, by their milliseconds.
    type Tries = Vec<(u128, String)>;

    impl Work {
        fn new<const N: usize>(keys: [&str; N]) -> Self {
            let queue = Queue::new();
            queue.add_all(keys.map(str::to_owned));
            Self {
                queue,
                outages: Outages::new(),
                begin: Instant::now(),
            }
        }

        fn settle(&self, item: Item<String>, end: End) {
            match end {
                Some(outage) => {
                    self.outages.retry(item, Cause::new("away"), outage);
                }
                None => {
                    self.outages.ended(&item, true);
                    item.forget();
                }
            }
        }

        /// Processes every key when it is ready, for this many seconds.
        async fn pass(&self, seconds: u64, end: impl Fn(&str) -> End) -> Tries {
            let until = Instant::now() + Duration::from_secs(seconds);
            let mut tries = Vec::new();
            let work = async {
                while Instant::now() < until {
                    while let Some(item) = self.queue.try_get() {
                        tries.push((self.begin.elapsed().as_millis(), item.to_string()));
                        let end = end(&item);
                        self.settle(item, end);
                    }
                    sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                () = work => tries,
                never = self.outages.watch(&self.queue) => match never {},
            }
        }
    }

    fn of_key(tries: &Tries, key: &str) -> usize {
        tries.iter().filter(|(_, name)| name == key).count()
    }

    fn names(tries: &[(u128, String)]) -> Vec<&str> {
        let mut names: Vec<&str> = tries.iter().map(|(_, key)| key.as_str()).collect();
        names.sort_unstable();
        names
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_probed_in_turn_and_all_are_tried_at_the_first_answer() {
        let work = Work::new(["a", "b", "c"]);
        // Their own back-off is 5 ms · 2ⁿ: after the try at 20.5 s, the next one would be at 41 s.
        let tries = work.pass(40, |_| Some(Unreachable)).await;
        let late: Tries = tries.into_iter().filter(|(at, _)| *at > 22_000).collect();
        assert!(late.len() >= 8, "{late:?}");
        for three in late.windows(3) {
            assert_eq!(names(three), ["a", "b", "c"], "{late:?}");
        }
        let mut gaps = late.windows(2).map(|pair| pair[1].0 - pair[0].0);
        assert!(gaps.all(|gap| gap <= 2005), "{late:?}");
        let tries = work.pass(10, |_| None).await;
        assert_eq!(names(&tries), ["a", "b", "c"], "each once: {tries:?}");
        assert!(
            tries[0].0 <= 42_000 && tries[2].0 - tries[0].0 <= 5,
            "{tries:?}"
        );
        let state = work.outages.state.lock();
        assert!(state.keys.is_empty() && state.unreachable.is_empty());
        assert!(!work.outages.any.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_of_one_key_stops_no_probe_and_is_none() {
        let work = Work::new(["refused", "a", "b"]);
        let end = |key: &str| {
            Some(if key == "refused" {
                Refusing
            } else {
                Unreachable
            })
        };
        let tries = work.pass(60, end).await;
        let late: Tries = tries.into_iter().filter(|(at, _)| *at > 22_000).collect();
        assert!(
            of_key(&late, "a") >= 8 && of_key(&late, "b") >= 8,
            "{late:?}"
        );
        assert_eq!(of_key(&late, "refused"), 1, "{late:?}");
        // It was about this moment, too: at an answer it is tried with the others.
        let tries = work.pass(3, |_| None).await;
        assert_eq!(names(&tries), ["a", "b", "refused"], "{tries:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_hangs_does_not_keep_others_from_being_probed() {
        let work = Work::new(["a", "b"]);
        work.pass(13, |_| Some(Unreachable)).await;
        assert!(work.queue.try_get().is_none());
        sleep(Duration::from_secs(2)).await;
        work.outages.state.lock().turn(&work.queue);
        let held = work.queue.try_get().unwrap();
        let other = if *held == "a" { "b" } else { "a" };
        let tries = work.pass(5, |_| None).await;
        assert_eq!(names(&tries), [other], "{tries:?}");
        work.settle(held, None);
        // It was in flight at the wake: it does not run again.
        assert!(work.pass(20, |_| None).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn keys_whose_answers_are_about_themselves_are_woken_once_a_minute_at_last() {
        let (work, alone) = (Work::new(["flaps", "broken"]), Work::new(["broken"]));
        let flapping = AtomicBool::new(false);
        let end = |key: &str| {
            let ends = key == "flaps" && flapping.fetch_xor(true, Ordering::Relaxed);
            (!ends).then_some(Refusing)
        };
        let mut tries = Vec::new();
        for _ in 0..3600 {
            work.queue.add("flaps".into());
            tries.extend(work.pass(1, end).await);
        }
        let own = of_key(&alone.pass(3600, |_| Some(Refusing)).await, "broken");
        let tried = of_key(&tries, "broken");
        assert!(
            own < 60 && (60..own + 70).contains(&tried),
            "{tried} and {own}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn no_key_is_woken_before_the_server_allows_it() {
        let work = Work::new(["a", "b"]);
        let (first, second) = (work.queue.try_get(), work.queue.try_get());
        work.settle(first.unwrap(), Some(Unreachable));
        let busy = Cause::new("busy").retry_after(Duration::from_secs(60));
        let own = work.outages.retry(second.unwrap(), busy, Refusing);
        assert_eq!(own, Duration::from_secs(60));
        let tries = work.pass(59, |_| None).await;
        assert_eq!(names(&tries), ["a"], "{tries:?}");
        let tries = work.pass(2, |_| None).await;
        assert_eq!(names(&tries), ["b"], "{tries:?}");
        let never = Cause::new("busy").retry_after(Duration::MAX);
        work.queue.add("c".into());
        let third = work.queue.try_get().unwrap();
        work.outages.retry(third, never, Unreachable);
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_without_an_answer_wakes_no_key_and_an_answer_only_those_that_wait() {
        let work = Work::new(["late", "a", "b"]);
        work.pass(12, |_| Some(Unreachable)).await;
        let late = &"late".to_owned();
        work.outages.ended(late, false);
        assert!(!work.outages.state.lock().answered);
        work.outages.ended(late, true);
        assert!(!work.outages.state.lock().answered, "it did not wait");
        for key in ["a", "b"] {
            work.outages.ended(&key.to_owned(), true);
        }
        // Both ended before the wake.
        let Rest::Nothing = work.outages.state.lock().turn(&work.queue) else {
            panic!("nothing is left to do");
        };
    }
}

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
/// The time after a failure without an answer in which refusals are taken for a server that starts.
const START: Duration = Duration::from_secs(60);
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
    /// The keys that had no answer, in the order of their tries: they are probed.
    away: Keys<R>,
    /// The keys that were refused, as by a 503. That may be about one object, as if a webhook fails, and so causes no
    /// probe.
    refused: Keys<R>,
    /// The keys to wake now.
    waking: [Keys<R>; 2],
    woken: usize,
    /// Whether a key had an answer after the others began to wait.
    answered: bool,
    /// The end of [`START`].
    starts_until: Instant,
    probe_at: Instant,
    wake_at: Instant,
    pause: Duration,
}

/// Keys by the numbers of their failures, with the times before which the server wants no other try.
type Keys<R> = BTreeMap<u64, (R, Instant)>;

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
                away: BTreeMap::new(),
                refused: BTreeMap::new(),
                waking: [BTreeMap::new(), BTreeMap::new()],
                woken: 0,
                answered: false,
                starts_until: now,
                probe_at: now,
                wake_at: now,
                pause: SHORTEST_PAUSE,
            }),
            changed: Notify::new(),
        }
    }

    /// Settles an item that failed without an answer to its request; `None`: not by an outage of the API server, as by
    /// a time-out. Returns its own back-off.
    pub(super) fn retry(
        &self,
        item: Item<R>,
        cause: Cause,
        outage: Option<ServerOutage>,
    ) -> Duration {
        if outage.is_none() && !self.any.load(Ordering::Acquire) {
            return item.retry_because(cause);
        }
        let key = R::clone(&item);
        let least = cause.wait_at_least();
        let mut state = self.state.lock();
        let Some(outage) = outage.or_else(|| state.keeps(&key)) else {
            return item.retry_because(cause);
        };
        // Under the lock, and before the item is settled: another worker may process the key from then on.
        self.any.store(true, Ordering::Release);
        let delay = item.retry_because(cause);
        if state.failed(key, least, outage) {
            self.changed.notify_one();
        }
        delay
    }

    /// Notes that `key` ended; `answered` by the server, or not.
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
    /// What a failure that says nothing about the server counts as: a refusal, if `key` is here already.
    fn keeps(&self, key: &R) -> Option<ServerOutage> {
        let kept = self.keys.contains_key(key);
        kept.then_some(ServerOutage::Refusing)
    }

    /// Adds a failed key. Returns whether it is the first one to be probed.
    fn failed(&mut self, key: R, least: Option<Duration>, outage: ServerOutage) -> bool {
        let (now, number) = (Instant::now(), self.next);
        self.next += 1;
        if let Some(last) = self.keys.insert(key.clone(), number) {
            self.remove(last);
        }
        let not_before = now + least.unwrap_or_default().min(LONGEST_REFUSAL);
        if outage == ServerOutage::Unreachable {
            self.starts_until = now + START;
        } else if now >= self.starts_until {
            self.refused.insert(number, (key, not_before));
            return false;
        }
        let first = self.away.is_empty();
        if first {
            self.probe_at = now + PROBE;
        }
        self.away.insert(number, (key, not_before));
        first
    }

    /// Removes a key. Returns whether others are to be woken.
    fn ended(&mut self, key: &R, answered: bool) -> bool {
        let Some(last) = self.keys.remove(key) else {
            return false;
        };
        self.remove(last);
        let others = !self.away.is_empty() || !self.refused.is_empty();
        if self.keys.is_empty() {
            (self.pause, self.answered) = (SHORTEST_PAUSE, false);
            self.wake_at = self.wake_at.min(Instant::now() + SHORTEST_PAUSE);
        }
        let wakes = answered && others && !self.answered;
        self.answered |= wakes;
        wakes
    }

    fn remove(&mut self, number: u64) {
        let [first, second] = &mut self.waking;
        for keys in [&mut self.away, &mut self.refused, first, second] {
            keys.remove(&number);
        }
    }

    /// Does a part of what is due.
    fn turn(&mut self, queue: &Queue<R>) -> Rest {
        let now = Instant::now();
        if self.wake_some(queue, now) {
            return Rest::More;
        }
        let woken = take(&mut self.woken);
        if woken > 0 && now < self.starts_until {
            tracing::info!(
                woken,
                "the API server answers again; requests in back-off are tried now"
            );
        }
        if self.answered && now >= self.wake_at {
            self.begin_to_wake(now);
            return Rest::More;
        }
        if self.away.is_empty() {
            return if self.answered {
                Rest::At(self.wake_at)
            } else {
                Rest::Nothing
            };
        }
        if now >= self.probe_at {
            self.probe(queue, now);
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
        if now >= self.wake_at + self.pause {
            // The last wake is long past.
            self.pause = SHORTEST_PAUSE;
        }
        self.wake_at = now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.waking = [take(&mut self.away), take(&mut self.refused)];
    }

    /// Wakes a slice of the keys. Returns whether there was any.
    fn wake_some(&mut self, queue: &Queue<R>, now: Instant) -> bool {
        let Some(waking) = self.waking.iter_mut().find(|keys| !keys.is_empty()) else {
            return false;
        };
        for _ in 0..SLICE {
            let Some((_, (key, not_before))) = waking.pop_first() else {
                break;
            };
            let waits = queue.hasten(&key, not_before.saturating_duration_since(now));
            self.woken += usize::from(waits);
        }
        true
    }

    /// Tries the key whose try is the longest ago, of those that wait in the queue and may be tried.
    fn probe(&mut self, queue: &Queue<R>, now: Instant) {
        for _ in 0..self.away.len().min(SLICE) {
            let Some((_, (key, not_before))) = self.away.pop_first() else {
                return;
            };
            let probed = now >= not_before && queue.hasten(&key, Duration::ZERO);
            // It is the last one whose turn comes again.
            self.keys.insert(key.clone(), self.next);
            self.away.insert(self.next, (key, not_before));
            self.next += 1;
            if probed {
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
        /// The time between two looks at the queue.
        step: Duration,
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
                step: Duration::from_millis(5),
            }
        }

        fn settle(&self, item: Item<String>, end: End) {
            match end {
                Some(_) => {
                    self.outages.retry(item, Cause::new("away"), end);
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
                    sleep(self.step).await;
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
        assert!(state.keys.is_empty() && state.away.is_empty());
        assert!(!work.outages.any.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_of_one_key_stops_no_probe() {
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
        for key in ["refused", "a", "b"] {
            assert!(of_key(&late, key) >= 5, "{key}: {late:?}");
        }
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
        let (mut work, mut alone) = (Work::new(["flaps", "broken"]), Work::new(["broken"]));
        (work.step, alone.step) = (Duration::from_millis(250), Duration::from_millis(250));
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
    async fn a_server_that_refuses_everything_while_it_starts_is_probed() {
        let work = Work::new(["a", "b"]);
        work.pass(30, |_| Some(Unreachable)).await;
        let tries = work.pass(20, |_| Some(Refusing)).await;
        assert!((9..=12).contains(&tries.len()), "{tries:?}");
        let tries = work.pass(3, |_| None).await;
        assert_eq!(names(&tries), ["a", "b"], "{tries:?}");
        // One that refuses one object for good is not.
        let work = Work::new(["a"]);
        work.pass(30, |_| Some(Unreachable)).await;
        work.pass(100, |_| Some(Refusing)).await;
        let tries = work.pass(100, |_| Some(Refusing)).await;
        assert!(tries.len() <= 2, "{tries:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_times_out_in_an_outage_is_woken_with_the_others() {
        let work = Work::new(["hangs", "a"]);
        work.pass(100, |_| Some(Unreachable)).await;
        let hang = |item| work.outages.retry(item, Cause::new("timed out"), None);
        let until = Instant::now() + Duration::from_secs(100);
        while Instant::now() < until {
            work.outages.state.lock().turn(&work.queue);
            while let Some(item) = work.queue.try_get() {
                hang(item);
            }
            sleep(Duration::from_millis(500)).await;
        }
        work.queue.add("a".into());
        let tries = work.pass(1, |_| None).await;
        assert_eq!(names(&tries), ["a", "hangs"], "{tries:?}");
        // One that never failed by an outage is none of these.
        work.queue.add("other".into());
        hang(work.queue.try_get().unwrap());
        assert!(work.outages.state.lock().keys.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_goes_on_where_it_was_dropped_and_the_next_outage_does_not_wait_for_it() {
        const KEYS: usize = 3 * SLICE;
        let work = Work::new([]);
        for outage in 0..8 {
            work.queue.add_all((0..KEYS).map(|key| key.to_string()));
            work.pass(31, |_| Some(Unreachable)).await;
            work.queue.add("0".into());
            work.settle(work.queue.try_get().unwrap(), None);
            // The lease is lost after the first slice.
            work.outages.state.lock().turn(&work.queue);
            work.outages.state.lock().turn(&work.queue);
            assert_eq!(work.queue.len(), SLICE);
            let tries = work.pass(1, |_| None).await;
            assert_eq!(tries.len(), KEYS - 1, "outage {outage}");
            assert!(work.outages.state.lock().keys.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_key_is_woken_before_the_server_allows_it() {
        let work = Work::new(["a", "b"]);
        let (first, second) = (work.queue.try_get(), work.queue.try_get());
        work.settle(first.unwrap(), Some(Unreachable));
        let busy = Cause::new("busy").retry_after(Duration::from_secs(60));
        let own = work.outages.retry(second.unwrap(), busy, Some(Refusing));
        assert_eq!(own, Duration::from_secs(60));
        let tries = work.pass(59, |_| None).await;
        assert_eq!(names(&tries), ["a"], "{tries:?}");
        let tries = work.pass(2, |_| None).await;
        assert_eq!(names(&tries), ["b"], "{tries:?}");
        let never = Cause::new("busy").retry_after(Duration::MAX);
        work.queue.add("c".into());
        let third = work.queue.try_get().unwrap();
        work.outages.retry(third, never, Some(Unreachable));
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

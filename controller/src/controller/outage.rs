//! Keys in back-off during an outage of the API server: while it cannot be reached, one of them is tried every two
//! seconds, in turn; and when one of them had its answer, the others are tried, too.
//!
//! The back-off of a key by itself grows with the outage: after twelve seconds it would wait for twelve more, though
//! the server is back.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reeve_workqueue::{AddOptions, Cause, Item, Queue};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::reconcile::{RequestKey, ServerOutage};

/// The time from a failed probe to the next one (client-go: the `RetryPeriod` of leader election).
const PROBE: Duration = Duration::from_secs(2);
/// The number of keys that are woken between two yields.
const SLICE: usize = 128;

/// The keys of a controller whose last try failed by an outage of the API server.
pub(super) struct Outages<R> {
    /// Whether any key waits. Workers read it without the lock.
    any: AtomicBool,
    state: Mutex<State<R>>,
    answered: Notify,
}

struct State<R> {
    keys: HashMap<R, Waiting>,
    /// The number of the next failure.
    next: u64,
    /// The key that is tried next, at most [`PROBE`] after the failure of the last one.
    probe: Option<R>,
    /// The keys to wake at the next answer, by their numbers.
    asleep: BTreeMap<u64, R>,
    /// The keys to wake now, by their numbers.
    waking: BTreeMap<u64, R>,
}

struct Waiting {
    /// The number of its last failure.
    number: u64,
    /// The earliest time that the server allows.
    not_before: Instant,
    /// The end of its own back-off.
    until: Instant,
    /// Whether it was woken before that end. It is not woken twice, because an answer may be none: a key that needs no
    /// request succeeds during an outage, too.
    woken: bool,
}

// === impl Outages ===

impl<R> Default for Outages<R> {
    fn default() -> Self {
        Self {
            any: AtomicBool::new(false),
            state: Mutex::new(State {
                keys: HashMap::new(),
                next: 0,
                probe: None,
                asleep: BTreeMap::new(),
                waking: BTreeMap::new(),
            }),
            answered: Notify::new(),
        }
    }
}

impl<R: RequestKey> Outages<R> {
    /// Settles an item that failed by an outage of the API server. Returns the time until its next try.
    ///
    /// Answers such as 503 cause no probes: they may be about one object, as those of a webhook that fails.
    pub(super) fn retry(
        &self,
        queue: &Queue<R>,
        item: Item<R>,
        cause: Cause,
        outage: ServerOutage,
    ) -> Duration {
        let key = R::clone(&item);
        let least = cause.wait_at_least().unwrap_or_default();
        let mut state = self.state.lock();
        // Before the item is settled: another worker may process the key from then on.
        self.any.store(true, Ordering::Release);
        let own = item.retry_because(cause).max(least);
        state.failed(&key, least, own);
        let Some((probe, delay)) = state.next_probe(&key, outage) else {
            return own;
        };
        let is_own = probe == key;
        requeue(queue, probe, delay);
        if is_own { own.min(delay) } else { own }
    }

    /// Notes that `key` ended, and not by an outage. If its last try did, the server answers again.
    pub(super) fn ended(&self, key: &R) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        let answered = state.ended(key);
        self.any.store(!state.keys.is_empty(), Ordering::Release);
        if answered {
            self.answered.notify_one();
        }
    }

    /// Wakes keys when the server answers again, until it is dropped.
    pub(super) async fn wake(&self, queue: &Queue<R>) -> Infallible {
        loop {
            self.answered.notified().await;
            let mut count = 0;
            while let Some(woken) = self.wake_some(queue) {
                count += woken;
                yield_now().await;
            }
            if count > 0 {
                tracing::info!(
                    keys = count,
                    "the API server answers again; keys in back-off are tried now"
                );
            }
        }
    }

    /// Wakes up to [`SLICE`] keys. Returns their number, and `None` if there was none left.
    fn wake_some(&self, queue: &Queue<R>) -> Option<usize> {
        let mut state = self.state.lock();
        if state.waking.is_empty() {
            return None;
        }
        let (now, mut count) = (Instant::now(), 0);
        for _ in 0..SLICE {
            let Some((number, key)) = state.waking.pop_first() else {
                break;
            };
            // A key that was tried meanwhile has ended, or has another number.
            let waiting = state.keys.get_mut(&key);
            let Some(waiting) = waiting.filter(|waiting| waiting.number == number) else {
                continue;
            };
            waiting.woken = true;
            let delay = waiting.not_before.saturating_duration_since(now);
            requeue(queue, key, delay);
            count += 1;
        }
        Some(count)
    }
}

// === impl State ===

impl<R: RequestKey> State<R> {
    fn failed(&mut self, key: &R, least: Duration, own: Duration) {
        let (now, number) = (Instant::now(), self.next);
        self.next += 1;
        let last = self.keys.remove(key);
        if let Some(last) = &last {
            self.asleep.remove(&last.number);
        }
        let woken = last.is_some_and(|last| last.woken && now < last.until);
        if !woken {
            self.asleep.insert(number, key.clone());
        }
        let waiting = Waiting {
            number,
            not_before: now + least,
            until: now + own,
            woken,
        };
        self.keys.insert(key.clone(), waiting);
    }

    /// The next probe, after `failed` failed, and the time until its try; `None` while another probe is on its way, and
    /// when the server can be reached.
    fn next_probe(&mut self, failed: &R, outage: ServerOutage) -> Option<(R, Duration)> {
        if self.probe.as_ref().is_some_and(|probe| probe != failed) {
            return None;
        }
        self.probe = None;
        if outage == ServerOutage::Failing {
            return None;
        }
        let longest_asleep = self.asleep.first_key_value();
        let probe = longest_asleep.map_or(failed, |(_, key)| key).clone();
        let waiting = self.keys.get(&probe)?;
        let least = waiting.not_before.saturating_duration_since(Instant::now());
        self.probe = Some(probe.clone());
        Some((probe, PROBE.max(least)))
    }

    /// Removes `key`. Returns whether there are keys to wake.
    fn ended(&mut self, key: &R) -> bool {
        let Some(last) = self.keys.remove(key) else {
            return false;
        };
        self.asleep.remove(&last.number);
        if self.probe.as_ref() == Some(key) {
            self.probe = None;
        }
        self.waking.append(&mut self.asleep);
        !self.waking.is_empty()
    }
}

/// Makes a key that waits in the queue ready after `delay`. It keeps its priority and its reasons.
fn requeue<R: RequestKey>(queue: &Queue<R>, key: R, delay: Duration) {
    let options = AddOptions::new().priority(i32::MIN).after(delay);
    queue.add_with(key, options);
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;

    /// A queue with one worker.
    struct Work {
        queue: Queue<String>,
        outages: Outages<String>,
    }

    impl Work {
        fn new<const N: usize>(keys: [&str; N]) -> Self {
            let queue = Queue::new();
            queue.add_all(keys.map(str::to_owned));
            Self {
                queue,
                outages: Outages::default(),
            }
        }

        /// Processes every ready key: it ends if `ends`, else it fails by `outage`.
        fn process(&self, outage: ServerOutage, ends: impl Fn(&str) -> bool) -> Vec<String> {
            let mut done = Vec::new();
            while let Some(item) = self.queue.try_get() {
                done.push(item.to_string());
                if ends(&item) {
                    self.outages.ended(&item);
                    item.forget();
                } else {
                    let cause = Cause::new("away");
                    self.outages.retry(&self.queue, item, cause, outage);
                }
            }
            done
        }

        /// The same for this many seconds, with wakes. Returns the keys with the milliseconds of their tries.
        async fn pass(
            &self,
            seconds: u64,
            outage: ServerOutage,
            ends: impl Fn(&str) -> bool,
        ) -> Vec<(u128, String)> {
            let begin = Instant::now();
            let mut tries = Vec::new();
            let work = async {
                while begin.elapsed() < Duration::from_secs(seconds) {
                    let at = begin.elapsed().as_millis();
                    tries.extend(self.process(outage, &ends).into_iter().map(|key| (at, key)));
                    sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                () = work => tries,
                never = self.outages.wake(&self.queue) => match never {},
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_probed_in_turn_and_all_are_tried_at_the_first_answer() {
        let work = Work::new(["a", "b", "c"]);
        // Their own back-off is at 5 ms · 2ⁿ: after the try at 20.5 s, the next one would be at 41 s.
        let tries = work.pass(40, ServerOutage::Unreachable, |_| false).await;
        let late: Vec<_> = tries.iter().filter(|(at, _)| *at > 21_000).collect();
        let keys: Vec<&str> = late.iter().map(|(_, key)| key.as_str()).collect();
        assert!(keys.len() >= 9, "{late:?}");
        for window in keys.windows(3) {
            let mut keys = window.to_vec();
            keys.sort_unstable();
            assert_eq!(keys, ["a", "b", "c"], "{late:?}");
        }
        let gaps = late.windows(2).map(|pair| pair[1].0 - pair[0].0);
        assert!(gaps.clone().all(|gap| gap <= 2005), "{late:?}");
        let tries = work.pass(10, ServerOutage::Unreachable, |_| true).await;
        let mut keys: Vec<&str> = tries.iter().map(|(_, key)| key.as_str()).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["a", "b", "c"], "each once: {tries:?}");
        let (first, last) = (tries[0].0, tries[2].0);
        assert!(first <= 2000 && last - first <= 5, "{tries:?}");
        assert!(work.outages.state.lock().keys.is_empty());
        assert!(!work.outages.any.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_woken_once_before_its_own_back_off_ends_however_often_others_succeed() {
        let keys = ["flaps", "a", "b"];
        let work = Work::new(keys);
        let own = Work::new(keys);
        let count = |tries: &[(u128, String)], key: &str| {
            let of_key = tries.iter().filter(|(_, name)| name == key);
            of_key.count()
        };
        let flapping = AtomicBool::new(false);
        let flaps = |key: &str| key == "flaps" && flapping.fetch_xor(true, Ordering::Relaxed);
        let mut tries = Vec::new();
        for _ in 0..200 {
            work.queue.add("flaps".into());
            tries.extend(work.pass(1, ServerOutage::Failing, flaps).await);
        }
        let alone = own.pass(200, ServerOutage::Failing, |_| false).await;
        assert!(count(&tries, "flaps") >= 200);
        for key in ["a", "b"] {
            let (tried, alone) = (count(&tries, key), count(&alone, key));
            assert!(tried <= 2 * alone, "{key}: {tried} and {alone}: {tries:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_key_is_woken_before_the_server_allows_it() {
        let work = Work::new(["a", "b"]);
        let minute = Duration::from_secs(60);
        let (first, second) = (work.queue.try_get().unwrap(), work.queue.try_get().unwrap());
        let fail = |item, cause, outage| work.outages.retry(&work.queue, item, cause, outage);
        fail(first, Cause::new("away"), ServerOutage::Unreachable);
        let busy = Cause::new("busy").retry_after(minute);
        assert_eq!(fail(second, busy, ServerOutage::Failing), minute);
        let tries = work.pass(59, ServerOutage::Unreachable, |_| true).await;
        assert_eq!(tries.len(), 1, "{tries:?}");
        assert_eq!(tries[0].1, "a");
        let tries = work.pass(2, ServerOutage::Unreachable, |_| true).await;
        assert_eq!(tries.len(), 1, "{tries:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_was_answered_meanwhile_is_not_woken() {
        let work = Work::new(["a", "b"]);
        work.process(ServerOutage::Unreachable, |_| false);
        advance(Duration::from_secs(1)).await;
        assert_eq!(work.process(ServerOutage::Unreachable, |_| true).len(), 2);
        // Both ended before the wake ran.
        assert_eq!(work.outages.wake_some(&work.queue), Some(0));
        assert_eq!(work.outages.wake_some(&work.queue), None);
        assert!(work.queue.is_empty());
    }
}

//! The times that this process remembers of each Service, besides the marks on it.
//!
//! All are of the monotonic clock: a clock of the day that is set back or forward lengthens no wait and shortens none. A
//! restart forgets them, which is safe: the next process compares every Service in full, and its waits begin again.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use reeve_controller::ObjectKey;
use tokio::time::Instant;

use crate::identity::Note;
use crate::model::LbId;

/// The times of all Services.
#[derive(Debug, Default)]
pub(crate) struct Recall {
    /// The first reconcile. A process that led before this one sends nothing after it.
    began: OnceLock<Instant>,
    services: Mutex<HashMap<ObjectKey, Times>>,
}

#[derive(Debug, Default)]
struct Times {
    /// The last full comparison whose changes are all made and whose marks are stored.
    compared: Option<Instant>,
    /// The end of the last creation that was sent, with or without an answer.
    sent: Option<Instant>,
    /// The first refusal of the token of a creation.
    mismatched: Option<Instant>,
    /// The begin of each wait for a load balancer that refuses changes.
    waits: BTreeMap<LbId, Instant>,
}

/// A creation that may be on its way to the cloud, until this is dropped: also by a reconcile that is given up.
#[derive(Debug)]
pub(crate) struct Creation<'a> {
    recall: &'a Recall,
    key: &'a ObjectKey,
}

// === impl Recall ===

impl Recall {
    /// A reconcile begins.
    pub(crate) fn begin(&self) {
        self.began.get_or_init(Instant::now);
    }

    /// The Service is gone, or another controller's.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.services.lock().remove(key);
    }

    /// Whether a full comparison is due: `period` after the last one, and after each one that was not completed.
    pub(crate) fn is_due(&self, key: &ObjectKey, period: Duration) -> bool {
        let compared = self.with(key, |times| times.compared);
        compared.is_none_or(|last| last.elapsed() >= period)
    }

    /// A full comparison begins. Its changes may be made in part, so another one is due unless this one is complete.
    pub(crate) fn compares(&self, key: &ObjectKey) {
        self.with(key, |times| times.compared = None);
    }

    /// A full comparison is complete.
    pub(crate) fn compared(&self, key: &ObjectKey) {
        self.with(key, |times| times.compared = Some(Instant::now()));
    }

    /// A creation is sent.
    pub(crate) fn creates<'a>(&'a self, key: &'a ObjectKey) -> Creation<'a> {
        Creation { recall: self, key }
    }

    /// The time until the search by tags shows the load balancer of a creation whose result is not known; `None` if `note`
    /// has no such creation, or the search would show it by now.
    ///
    /// The time begins with the last creation of this process, and with its first reconcile: until then another process may
    /// have sent one. The time in the note is that of a decision. The request may have waited long after it.
    pub(crate) fn unsettled(
        &self,
        key: &ObjectKey,
        note: &Note,
        visible_within: Duration,
    ) -> Option<Duration> {
        note.creating?;
        let began = *self.began.get_or_init(Instant::now);
        let sent = self.with(key, |times| times.sent);
        let since = sent.map_or(began, |sent| sent.max(began));
        let left = visible_within.checked_sub(since.elapsed());
        left.filter(|left| !left.is_zero())
    }

    /// The cloud refused the token of a creation.
    pub(crate) fn refused(&self, key: &ObjectKey) {
        self.with(key, |times| times.mismatched = Some(Instant::now()));
    }

    /// The time since the cloud refused the token, as far as this process knows.
    pub(crate) fn since_refusal(&self, key: &ObjectKey) -> Duration {
        let first = self.with(key, |times| {
            *times.mismatched.get_or_insert_with(Instant::now)
        });
        first.elapsed()
    }

    /// The time since the first look at a load balancer in this wait for it.
    pub(crate) fn waited(&self, key: &ObjectKey, id: &LbId) -> Duration {
        let now = Instant::now();
        let first = self.with(key, |times| *times.waits.entry(id.clone()).or_insert(now));
        first.elapsed()
    }

    /// The wait for a load balancer is over.
    pub(crate) fn waited_for(&self, key: &ObjectKey, id: &LbId) {
        self.with(key, |times| times.waits.remove(id));
    }

    /// No load balancer is waited for: those that were are gone.
    pub(crate) fn waits_for_none(&self, key: &ObjectKey) {
        self.with(key, |times| times.waits.clear());
    }

    fn with<T>(&self, key: &ObjectKey, read: impl FnOnce(&mut Times) -> T) -> T {
        let mut services = self.services.lock();
        match services.get_mut(key) {
            Some(times) => read(times),
            None => read(services.entry(key.clone()).or_default()),
        }
    }
}

// === impl Creation ===

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        self.recall
            .with(self.key, |times| times.sent = Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(30);

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn key() -> ObjectKey {
        ObjectKey::namespaced("default", "web")
    }

    fn creating(at: &str) -> Note {
        Note {
            creating: Some(at.parse().unwrap()),
            ..Note::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_is_unsettled_for_the_window_whatever_the_time_in_the_note() {
        for at in ["1971-01-01T00:00:00Z", "2999-01-01T00:00:00Z"] {
            let (recall, key, note) = (Recall::default(), key(), creating(at));
            recall.begin();
            assert_eq!(recall.unsettled(&key, &Note::default(), WINDOW), None);
            advance(second(10)).await;
            assert_eq!(recall.unsettled(&key, &note, WINDOW), Some(second(20)));
            advance(second(20)).await;
            assert_eq!(recall.unsettled(&key, &note, WINDOW), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_window_begins_when_the_last_creation_ended() {
        let (recall, key, note) = (Recall::default(), key(), creating("2026-01-01T00:00:00Z"));
        recall.begin();
        let sent = recall.creates(&key);
        // It waits for its turn, and the reconcile is given up.
        advance(second(300)).await;
        drop(sent);
        advance(second(10)).await;
        assert_eq!(recall.unsettled(&key, &note, WINDOW), Some(second(20)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_comparison_is_due_after_the_period_and_after_one_that_was_not_completed() {
        let (recall, key, period) = (Recall::default(), key(), second(600));
        assert!(recall.is_due(&key, period), "after the start");
        recall.compares(&key);
        recall.compared(&key);
        advance(second(599)).await;
        assert!(!recall.is_due(&key, period));
        advance(second(1)).await;
        assert!(recall.is_due(&key, period));
        recall.compared(&key);
        recall.compares(&key);
        assert!(recall.is_due(&key, period));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_of_a_token_counts_from_the_last_one_or_from_the_first_look() {
        let (recall, key) = (Recall::default(), key());
        assert_eq!(recall.since_refusal(&key), Duration::ZERO);
        advance(second(5)).await;
        assert_eq!(recall.since_refusal(&key), second(5));
        recall.refused(&key);
        assert_eq!(recall.since_refusal(&key), Duration::ZERO);
    }
}

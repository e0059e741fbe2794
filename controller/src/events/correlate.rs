//! The fate of an event: a new object, one more of a series, or nothing. No I/O.
//!
//! Two events with the same content for the same object are one event with a series (client-go: `tools/events`): the
//! second one writes `series.count` (once the first is stored), later ones are only counted, and the count is written
//! every [`REFRESH`] and once the series has been quiet for [`FINISH`]. Unlike in client-go's `tools/events` the note
//! is part of the content, or `kubectl describe` would keep showing the first one. So `tools/record` is the model for
//! notes that differ each time (a number, a name) and would each make an object: from the [`SIMILAR`]th note within
//! [`WINDOW`] on, they are one event, whose note begins with [`COMBINED`]. A token bucket per object limits the rest
//! (`tools/record`: [`BURST`] and [`REFILL`]).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

/// The interval between two writes of the count of a running series.
const REFRESH: Duration = Duration::from_secs(30 * 60);
/// The quiet time after which a series ends, at the next [`Correlator::due`]: an event before that goes on with it.
pub(super) const FINISH: Duration = Duration::from_secs(6 * 60);
/// The number of new events that an object may have at once.
const BURST: u32 = 25;
/// The time until an object may have one more.
const REFILL: Duration = Duration::from_secs(300);
/// The number of different notes from which on otherwise equal events are combined.
pub const SIMILAR: usize = 10;
/// The time without such an event after which its notes are forgotten.
const WINDOW: Duration = Duration::from_secs(600);
/// The begin of the note of a combined event.
pub const COMBINED: &str = "(combined from similar events): ";
/// The number of remembered series, notes and objects; the oldest are forgotten first.
const REMEMBERED: usize = 4096;
/// The number of notes or objects that are forgotten at once: to find one would cost a look at all of them for each event.
const FORGOTTEN: usize = REMEMBERED / 8;

/// The content that makes two events the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) object: ObjectIdentity,
    pub(crate) related: Option<ObjectIdentity>,
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) action: String,
    pub(crate) note: String,
    pub(crate) controller: String,
}

/// The identity of an event's object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectIdentity {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The action for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Create an event object of this name.
    Create,
    /// Write the count of the series into the event object that exists.
    Count(Count),
    /// Counted in memory; the series is written later.
    Later,
    /// The object has had too many events.
    Spam,
}

/// The count of a series, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    /// The name of the event object.
    pub(crate) name: String,
    pub(crate) count: i32,
    /// The time of the last event.
    pub(crate) at: Timestamp,
}

#[derive(Debug)]
struct Series {
    /// The place among those that end.
    place: Place,
    /// The name of the event object.
    name: String,
    /// The server has it: its count cannot be written before that.
    created: bool,
    count: i32,
    last: Instant,
    /// The time of the last event for its readers.
    at: Timestamp,
    written: Instant,
    written_count: i32,
    /// Of the recorder of the last event.
    dropped: Counter,
}

/// A count that is not written yet.
#[derive(Debug)]
pub(crate) struct Unwritten {
    pub(crate) identity: Identity,
    pub(crate) count: Count,
    /// Counts it if it is dropped.
    pub(crate) dropped: Counter,
}

/// The events that differ in their notes only.
#[derive(Debug)]
struct Similar {
    /// Hashes of the notes, at most one less than [`SIMILAR`].
    notes: BTreeSet<u64>,
    last: Instant,
    /// The note of the combined event whose series runs.
    combined: Option<String>,
}

/// The events that share a token bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Source {
    controller: String,
    object: ObjectIdentity,
    warning: bool,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

/// When a series began, and a number that no other one has.
type Place = (Instant, u64);

/// The memory of one recorder.
#[derive(Debug, Default)]
pub(crate) struct Correlator {
    series: HashMap<Identity, Series>,
    /// The order in which series end, for dropping them.
    ends: BTreeMap<Place, Identity>,
    sequence: u64,
    /// The unwritten counts of series that later ones pushed out, at most [`REMEMBERED`].
    pushed_out: Vec<Unwritten>,
    /// By content, without the note.
    similar: HashMap<Identity, Similar>,
    buckets: HashMap<Source, Bucket>,
}

// === impl Correlator ===

impl Correlator {
    /// Decides about one more event, which was recorded `at`; `name` is the name of the object that it would create.
    /// `dropped` counts what is dropped of its series.
    pub(crate) fn take(
        &mut self,
        identity: &Identity,
        name: &str,
        at: Timestamp,
        dropped: &Counter,
        now: Instant,
    ) -> Verdict {
        if let Some(series) = self.series.get_mut(identity) {
            series.count = series.count.saturating_add(1);
            series.last = now;
            series.at = at;
            series.dropped.clone_from(dropped);
            if series.written_count > 1 || !series.created {
                return Verdict::Later;
            }
            return Verdict::Count(series.write(now));
        }
        let source = Source {
            controller: identity.controller.clone(),
            object: identity.object.clone(),
            warning: identity.warning,
        };
        if !self.take_token(&source, now) {
            return Verdict::Spam;
        }
        self.remember(identity, name, at, dropped, now);
        Verdict::Create
    }

    /// Combines the event with others if too many differ in their notes only (client-go:
    /// `EventAggregator.EventAggregate`).
    pub(crate) fn combine(&mut self, identity: &mut Identity, now: Instant) {
        let group = Identity {
            note: String::new(),
            ..identity.clone()
        };
        if self.similar.len() >= REMEMBERED && !self.similar.contains_key(&group) {
            // The oldest.
            forget_first(&mut self.similar, |a, b| a.last.cmp(&b.last));
        }
        let similar = self.similar.entry(group.clone()).or_insert(Similar {
            notes: BTreeSet::new(),
            last: now,
            combined: None,
        });
        if now.duration_since(similar.last) > WINDOW {
            similar.notes.clear();
        }
        similar.last = now;
        similar.notes.insert(hash_of(&identity.note));
        if similar.notes.len() < SIMILAR {
            return;
        }
        // Any of them, so that their number does not grow.
        similar.notes.pop_first();
        let running = similar.combined.clone().filter(|note| {
            let combined = Identity {
                note: note.clone(),
                ..group
            };
            self.series.contains_key(&combined)
        });
        let note = running
            .unwrap_or_else(|| super::cut(&format!("{COMBINED}{}", identity.note), super::NOTE));
        similar.combined = Some(note.clone());
        identity.note = note;
    }

    /// The counts that are due to be written: of series that ended, and of those with an old written count.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Unwritten> {
        let mut due = std::mem::take(&mut self.pushed_out);
        let mut ended = Vec::new();
        // In the order of creation: never in that of a hash map.
        for (place, identity) in &self.ends {
            let Some(series) = self.series.get_mut(identity) else {
                ended.push(*place);
                continue;
            };
            let quiet = now.duration_since(series.last) >= FINISH;
            let stale = now.duration_since(series.written) >= REFRESH;
            if (quiet || stale) && series.is_unwritten() {
                due.push(series.unwritten(identity.clone(), now));
            }
            if quiet {
                ended.push(*place);
            }
        }
        for place in ended {
            if let Some(identity) = self.ends.remove(&place) {
                self.series.remove(&identity);
            }
        }
        self.similar
            .retain(|_, similar| now.duration_since(similar.last) <= WINDOW);
        self.buckets
            .retain(|_, bucket| bucket.level(now) < f64::from(BURST));
        due
    }

    /// The counts of all series that were not written.
    pub(crate) fn unwritten(&mut self, now: Instant) -> Vec<Unwritten> {
        let mut unwritten = std::mem::take(&mut self.pushed_out);
        for identity in self.ends.values() {
            if let Some(series) = self.series.get_mut(identity)
                && series.is_unwritten()
            {
                unwritten.push(series.unwritten(identity.clone(), now));
            }
        }
        unwritten
    }

    /// Marks that the server has the event object. Returns the count to write if more of its kind came meanwhile.
    pub(crate) fn created(&mut self, identity: &Identity, now: Instant) -> Option<Count> {
        let series = self.series.get_mut(identity)?;
        series.created = true;
        series.is_unwritten().then(|| series.write(now))
    }

    /// Gives the event object another name, because its name is taken.
    pub(crate) fn rename(&mut self, identity: &Identity, name: &str) {
        if let Some(series) = self.series.get_mut(identity) {
            name.clone_into(&mut series.name);
        }
    }

    /// Whether events of the kind are counted in another event object than that of this name: its series has ended.
    pub(crate) fn is_replaced(&self, identity: &Identity, name: &str) -> bool {
        let series = self.series.get(identity);
        series.is_some_and(|series| series.name != name)
    }

    /// Forgets the event object, which is gone: the next event of the kind makes a new one.
    pub(crate) fn forget(&mut self, identity: &Identity) {
        if let Some(series) = self.series.remove(identity) {
            self.ends.remove(&series.place);
        }
    }

    fn remember(
        &mut self,
        identity: &Identity,
        name: &str,
        at: Timestamp,
        dropped: &Counter,
        now: Instant,
    ) {
        self.forget(identity);
        if self.series.len() >= REMEMBERED
            && let Some((_, oldest)) = self.ends.pop_first()
        {
            let oldest = self.series.remove_entry(&oldest);
            if let Some((identity, mut series)) = oldest.filter(|(_, series)| series.is_unwritten())
            {
                if self.pushed_out.len() < REMEMBERED {
                    self.pushed_out.push(series.unwritten(identity, now));
                } else {
                    series.dropped.inc();
                }
            }
        }
        self.sequence += 1;
        let place = (now, self.sequence);
        self.ends.insert(place, identity.clone());
        let series = Series {
            place,
            name: name.to_owned(),
            created: false,
            count: 1,
            last: now,
            at,
            written: now,
            written_count: 1,
            dropped: dropped.clone(),
        };
        self.series.insert(identity.clone(), series);
    }

    fn take_token(&mut self, source: &Source, now: Instant) -> bool {
        if self.buckets.len() >= REMEMBERED && !self.buckets.contains_key(source) {
            // Full of objects that were busy lately: forgets those with the fullest buckets.
            forget_first(&mut self.buckets, |a, b| {
                b.level(now).total_cmp(&a.level(now))
            });
        }
        let bucket = self.buckets.entry(source.clone()).or_insert(Bucket {
            tokens: f64::from(BURST),
            filled: now,
        });
        bucket.tokens = bucket.level(now);
        bucket.filled = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

// === impl Series ===

impl Series {
    fn is_unwritten(&self) -> bool {
        self.created && self.count > self.written_count
    }

    /// The count, which is written `now`.
    fn write(&mut self, now: Instant) -> Count {
        self.written = now;
        self.written_count = self.count;
        Count {
            name: self.name.clone(),
            count: self.count,
            at: self.at,
        }
    }

    /// As [`Series::write`], for a series of `identity`.
    fn unwritten(&mut self, identity: Identity, now: Instant) -> Unwritten {
        let count = self.write(now);
        let dropped = self.dropped.clone();
        Unwritten {
            identity,
            count,
            dropped,
        }
    }
}

// === impl Bucket ===

impl Bucket {
    fn level(&self, now: Instant) -> f64 {
        let gained = now.duration_since(self.filled).as_secs_f64() / REFILL.as_secs_f64();
        (self.tokens + gained).min(f64::from(BURST))
    }
}

/// Removes [`FORGOTTEN`] entries, those first that come first in `order`, and of equal ones by their keys.
fn forget_first<K: Clone + Ord + Hash, V>(
    entries: &mut HashMap<K, V>,
    order: impl Fn(&V, &V) -> Ordering,
) {
    let mut sorted: Vec<(&K, &V)> = entries.iter().collect();
    sorted.select_nth_unstable_by(FORGOTTEN, |(one, a), (other, b)| {
        order(a, b).then_with(|| one.cmp(other))
    });
    let forgotten = &sorted[..FORGOTTEN];
    let forgotten: Vec<K> = forgotten.iter().map(|(key, _)| (*key).clone()).collect();
    for key in forgotten {
        entries.remove(&key);
    }
}

/// A hash that is the same for the same text in every process.
fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::events) fn identity(note: &str) -> Identity {
        Identity {
            object: ObjectIdentity {
                kind: "Pod".into(),
                name: "web".into(),
                ..ObjectIdentity::default()
            },
            related: None,
            warning: false,
            reason: "Started".into(),
            action: "Start".into(),
            note: note.into(),
            controller: "example.com/test".into(),
        }
    }

    fn take(correlator: &mut Correlator, identity: &Identity, name: &str, now: Instant) -> Verdict {
        let dropped = Counter::default();
        correlator.take(identity, name, Timestamp::UNIX_EPOCH, &dropped, now)
    }

    /// Without the counters.
    fn counts(unwritten: Vec<Unwritten>) -> Vec<(Identity, Count)> {
        let counts = unwritten.into_iter().map(|one| (one.identity, one.count));
        counts.collect()
    }

    /// The count of the event object `web.1`.
    fn count(count: i32) -> Count {
        Count {
            name: "web.1".into(),
            count,
            at: Timestamp::UNIX_EPOCH,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_of_a_kind_is_written_and_later_ones_are_counted() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        let one = identity("up");
        assert_eq!(take(&mut correlator, &one, "web.1", now), Verdict::Create);
        assert_eq!(correlator.created(&one, now), None);
        let second = Verdict::Count(count(2));
        assert_eq!(take(&mut correlator, &one, "web.2", now), second);
        for _ in 0..100 {
            assert_eq!(take(&mut correlator, &one, "web.3", now), Verdict::Later);
        }
        assert!(correlator.due(now).is_empty(), "nothing is due yet");
        let due = counts(correlator.due(now + FINISH));
        assert_eq!(due, [(one.clone(), count(102))]);
        assert!(correlator.due(now + FINISH * 2).is_empty(), "it ended");
        assert_eq!(
            take(&mut correlator, &one, "web.9", now + FINISH * 2),
            Verdict::Create
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_series_that_goes_on_is_written_every_half_hour() {
        let mut correlator = Correlator::default();
        let start = Instant::now();
        let one = identity("up");
        let mut writes = 0;
        for minute in 0..61 {
            let now = start + Duration::from_secs(60 * minute);
            let _ = take(&mut correlator, &one, "web.1", now);
            if minute == 0 {
                assert_eq!(correlator.created(&one, now), None);
            }
            writes += correlator.due(now).len();
        }
        assert_eq!(writes, 1, "half an hour after the second, once in the hour");
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_waits_until_the_server_has_the_event() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        let one = identity("up");
        assert_eq!(take(&mut correlator, &one, "web.1", now), Verdict::Create);
        for _ in 0..3 {
            assert_eq!(take(&mut correlator, &one, "web.2", now), Verdict::Later);
        }
        assert_eq!(correlator.created(&one, now), Some(count(4)));
        assert_eq!(take(&mut correlator, &one, "web.3", now), Verdict::Later);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_after_the_quiet_time_and_before_the_check_loses_no_count() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        let one = identity("up");
        assert_eq!(take(&mut correlator, &one, "web.1", now), Verdict::Create);
        assert_eq!(correlator.created(&one, now), None);
        for _ in 2..=10 {
            let _ = take(&mut correlator, &one, "web.2", now);
        }
        let later = now + FINISH;
        assert_eq!(take(&mut correlator, &one, "web.3", later), Verdict::Later);
        let due = counts(correlator.due(later + FINISH));
        assert_eq!(due, [(one, count(11))]);
    }

    #[tokio::test(start_paused = true)]
    async fn another_note_is_another_event() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        for note in ["up", "up again"] {
            assert_eq!(
                take(&mut correlator, &identity(note), "web.1", now),
                Verdict::Create
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_with_too_many_events_is_held_back_and_recovers() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        let created = (0..100)
            .filter(|i| {
                take(&mut correlator, &identity(&i.to_string()), "n", now) == Verdict::Create
            })
            .count();
        assert_eq!(created, 25);
        // One more event after five minutes, and not before.
        let later = now + Duration::from_secs(300);
        let early = later - Duration::from_millis(1);
        assert_eq!(
            take(&mut correlator, &identity("w"), "n", early),
            Verdict::Spam
        );
        assert_eq!(
            take(&mut correlator, &identity("x"), "n", later),
            Verdict::Create
        );
        assert_eq!(
            take(&mut correlator, &identity("y"), "n", later),
            Verdict::Spam
        );
    }

    #[tokio::test(start_paused = true)]
    async fn one_controllers_or_kind_of_events_do_not_hold_back_anothers() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        let mut all: Vec<Identity> = (0..=25).map(|i| identity(&i.to_string())).collect();
        let verdicts = |correlator: &mut Correlator, all: &[Identity]| {
            let last = all.iter().map(|one| take(correlator, one, "n", now)).last();
            last.unwrap()
        };
        assert_eq!(verdicts(&mut correlator, &all), Verdict::Spam);
        for one in &mut all {
            one.warning = true;
        }
        assert_eq!(verdicts(&mut correlator, &all[..1]), Verdict::Create);
        for one in &mut all {
            one.warning = false;
            one.controller = "example.com/other".into();
        }
        assert_eq!(verdicts(&mut correlator, &all[..1]), Verdict::Create);
    }

    /// client-go: `TestEventAggregatorByReasonFunc`, `TestEventCorrelator`.
    #[tokio::test(start_paused = true)]
    async fn notes_that_differ_each_time_are_combined_from_the_tenth_on() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        let combine = |correlator: &mut Correlator, note: &str, now| {
            let mut one = identity(note);
            correlator.combine(&mut one, now);
            let verdict = take(correlator, &one, "web.1", now);
            let _ = correlator.created(&one, now);
            (one.note, verdict)
        };
        for i in 1..10 {
            let (note, verdict) = combine(&mut correlator, &i.to_string(), now);
            assert_eq!((note, verdict), (i.to_string(), Verdict::Create));
        }
        let tenth = format!("{COMBINED}10");
        assert_eq!(
            combine(&mut correlator, "10", now),
            (tenth.clone(), Verdict::Create)
        );
        // Further events are its series.
        let (note, verdict) = combine(&mut correlator, "11", now);
        assert_eq!(note, tenth);
        assert!(
            matches!(verdict, Verdict::Count(Count { count: 2, .. })),
            "{verdict:?}"
        );
        assert_eq!(combine(&mut correlator, "12", now).1, Verdict::Later);
        // After its end, the next event keeps its own note.
        let later = now + FINISH;
        assert!(correlator.due(later).is_empty(), "all counts are written");
        assert_eq!(
            combine(&mut correlator, "13", later).0,
            format!("{COMBINED}13")
        );
        // Ten minutes later all is forgotten.
        let forgotten = later + WINDOW + Duration::from_secs(1);
        assert_eq!(combine(&mut correlator, "14", forgotten).0, "14");
        // Events with another reason are independent.
        let mut other = identity("15");
        other.reason = "Stopped".into();
        correlator.combine(&mut other, now);
        assert_eq!(other.note, "15");
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_notes_again_are_series_of_their_own() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        for i in 0..100 {
            let mut one = identity(&(i % 9).to_string());
            correlator.combine(&mut one, now);
            assert_eq!(one.note, (i % 9).to_string());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let mut correlator = Correlator::default();
        let start = Instant::now();
        let now = start + Duration::from_secs(5);
        for i in 0..4_196 {
            let now = start + Duration::from_millis(i);
            let mut one = identity("up");
            one.object.name = i.to_string();
            correlator.combine(&mut one, now);
            assert_eq!(take(&mut correlator, &one, "n", now), Verdict::Create);
        }
        assert_eq!(correlator.series.len(), 4_096);
        assert_eq!(correlator.ends.len(), 4_096);
        let left = 4_196 - FORGOTTEN;
        assert_eq!(correlator.buckets.len(), left);
        assert_eq!(correlator.similar.len(), left);
        let names = correlator.similar.keys();
        let oldest = names.filter_map(|group| group.object.name.parse::<usize>().ok());
        assert_eq!(oldest.min(), Some(FORGOTTEN), "the oldest are forgotten");
        correlator.due(now + WINDOW + Duration::from_secs(1));
        assert!(correlator.similar.is_empty() && correlator.series.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_count_of_a_series_that_is_pushed_out_is_written() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        let one = identity("up");
        assert_eq!(take(&mut correlator, &one, "web.1", now), Verdict::Create);
        assert_eq!(correlator.created(&one, now), None);
        for _ in 2..=5 {
            let _ = take(&mut correlator, &one, "web.2", now);
        }
        for i in 0..REMEMBERED {
            let mut other = identity("up");
            other.object.name = i.to_string();
            assert_eq!(take(&mut correlator, &other, "n", now), Verdict::Create);
        }
        assert!(!correlator.series.contains_key(&one));
        assert_eq!(counts(correlator.due(now)), [(one, count(5))]);
        assert!(correlator.unwritten(now).is_empty(), "it is written once");
    }
}

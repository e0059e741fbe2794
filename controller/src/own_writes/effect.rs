//! The writes of one reconcile or of one client, recorded as they are made, and whether a store has seen them.
//!
//! A reconcile that follows its own write must not read a cache from before it: it would decide the same thing again.
//! So the client of a [`Context`](crate::Context) records each write, and the controller holds the key back until the
//! caches show them. The rules, case by case:
//!
//! * **create, update, patch**: seen when the store holds the object at the answered resourceVersion or later, or has
//!   passed that version altogether (the object is outside its selector, or was deleted since);
//! * **a write whose answer has labels that the store does not select**: seen at once if the store lacks the object, or
//!   when it has dropped it. After own writes with other labels, the version is waited for;
//! * **a write that changes nothing** answers the version that the object already had, so it is seen at once;
//! * **a write that ends a deleted object** (it removed the last finalizer) is answered with the version before it, and
//!   counts as a delete;
//! * **delete**: seen when the store no longer holds the uid, and has reached the version of the own write before it,
//!   if any: a store that has not seen the create yet does not hold the object either. An object that waits for
//!   finalizers or for its grace period is answered with a new version, and counts as a change;
//! * **a failed write** that certainly did not happen is not recorded; one that **may have happened** (no answer, a
//!   server error, a cancelled call) is settled by one live read of the object before the next reconcile. If the object
//!   does not exist then, the write is seen when the store holds nothing, or an object that it did not hold at the time
//!   of that read: another client created it again. An own write before that counts as with a delete: the store has to
//!   reach its version, and not hold its uid any more;
//! * a **delete of many that may have happened**, even in part, is settled by one live list of their metadata: an
//!   object that a store holds and the server has not counts as deleted, an object that waits for its end as changed.
//!   Earlier own writes to objects there may be undone by it, and become unknown;
//! * a write to a kind without a cache is not waited for, nor a create without a name whose answer was lost; past a
//!   thousand objects the first are forgotten;
//! * past the **time-out** the reconcile runs anyway, and a metric counts it.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube_core::ObjectMeta;
use parking_lot::Mutex;
use reeve_informer::ObjectKey;

use reeve_client::{GroupKind, compare};

/// A bound on the distinct objects recorded; past it, the oldest records are dropped.
const MAX_NOTES: usize = 1024;

/// The first pause between two checks of the caches for own writes; it doubles.
pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(2);
/// The longest such pause.
pub(crate) const LAST_LOOK: Duration = Duration::from_millis(250);

/// The state of an object in the answer to an own write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) version: String,
    /// `None` if the answer had none, or earlier own states had others: a store may have to show those.
    pub(crate) labels: Option<Arc<BTreeMap<String, String>>>,
}

/// One own write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) kind: GroupKind,
    pub(crate) key: ObjectKey,
    pub(crate) effect: Effect,
}

/// The effect of a write on the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The object now has this version.
    Version { uid: Option<String>, state: State },
    /// The object with this uid is gone.
    Gone {
        uid: Option<String>,
        /// The state after an earlier own write. A store that has not reached it does not hold the object yet.
        after: Option<State>,
    },
    /// The server had no such object at the time of the live read.
    Absent {
        /// The uids that a store held just before, or that own writes were answered with: those objects are gone.
        held: Vec<Option<String>>,
        /// The state as in `Gone`.
        after: Option<State>,
    },
    /// The writes to several objects by one request, whose key has no name.
    Each(Vec<Write>),
    /// Unknown: it may have happened.
    Unknown {
        /// The effect of the own write before it, which a store may not have seen either.
        before: Option<Box<Self>>,
    },
}

/// The view of a store for one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The uid and version of the object it holds.
    pub(crate) object: Option<(Option<String>, Option<String>)>,
    /// The version up to which it has seen every change in its scope.
    pub(crate) through: Option<String>,
    /// Its label selector excludes the object as the write left it.
    pub(crate) left_out: bool,
}

/// The state of an object of an own write in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// It holds the object, so there will be an event when that is deleted.
    Shown,
    /// It has not reached the write.
    Behind,
    /// It has reached the write without the object, which is gone, or outside the selector.
    Passed,
    /// It holds another object of the name, made later: the own object is gone.
    Replaced,
}

/// The record of a client's writes.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    writes: Mutex<Vec<Write>>,
}

// === impl Notes ===

impl Notes {
    pub(crate) fn note(&self, mut write: Write) {
        let mut writes = self.writes.lock();
        if write.key.name.is_empty() {
            for known in writes.iter_mut().filter(|known| known.is_among(&write)) {
                let effect = std::mem::replace(&mut known.effect, Effect::UNKNOWN);
                known.effect = effect.then(Effect::UNKNOWN);
            }
        }
        let known = writes.iter().position(|known| known.is_of(&write));
        if let Some(known) = known {
            let known = writes.remove(known);
            write.effect = known.effect.then(write.effect);
        } else if writes.len() == MAX_NOTES {
            writes.remove(0);
        }
        writes.push(write);
    }

    /// The writes to objects of `kind` whose keys are `concerned`.
    pub(crate) fn of(
        &self,
        kind: &GroupKind,
        concerned: impl Fn(&ObjectKey) -> bool,
    ) -> Vec<Write> {
        let writes = self.writes.lock();
        let found = writes
            .iter()
            .filter(|write| write.kind == *kind && concerned(&write.key));
        found.cloned().collect()
    }

    /// Forgets `write`, unless its object was written again.
    pub(crate) fn forget(&self, write: &Write) {
        self.writes.lock().retain(|other| other != write);
    }

    /// Replaces `write` by `settled`, unless its object was written again.
    pub(crate) fn replace(&self, write: &Write, settled: &Write) {
        let mut writes = self.writes.lock();
        if let Some(known) = writes.iter_mut().find(|known| *known == write) {
            *known = settled.clone();
        }
    }

    /// Records that a write to `key` is under way; the guard settles it, or a drop of the guard makes it unknown.
    pub(crate) fn begin(self: &Arc<Self>, kind: GroupKind, key: ObjectKey) -> Begun {
        Begun {
            notes: Arc::clone(self),
            write: Some((kind, key)),
            many: false,
        }
    }

    pub(crate) fn take(&self) -> Vec<Write> {
        std::mem::take(&mut *self.writes.lock())
    }
}

impl Write {
    /// Whether both are to one object.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        self.kind == other.kind && self.key == other.key
    }

    /// Whether it is to an object of the place that the write `many` is to.
    fn is_among(&self, many: &Self) -> bool {
        self.kind == many.kind && self.key.namespace == many.key.namespace
    }

    /// Whether it may have happened, with an unknown effect.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.effect, Effect::Unknown { .. })
    }
}

/// A write under way. Dropped without an answer (the reconcile was cancelled), it is recorded as unknown.
#[derive(Debug)]
pub(crate) struct Begun {
    notes: Arc<Notes>,
    write: Option<(GroupKind, ObjectKey)>,
    /// It is to all objects of a place, and needs no name.
    many: bool,
}

// === impl Begun ===

impl Begun {
    /// Makes it a write to all objects of the place of its key.
    pub(crate) fn about_many(mut self) -> Self {
        self.many = true;
        self
    }

    pub(crate) fn is_about_many(&self) -> bool {
        self.many
    }

    /// The write had these effects. A create with a generated name gets the object's name only now.
    pub(crate) fn settle(mut self, effects: Vec<(ObjectKey, Effect)>) {
        if let Some((kind, _)) = self.write.take() {
            for (key, effect) in effects {
                let kind = kind.clone();
                self.notes.note(Write { kind, key, effect });
            }
        }
    }

    /// The write certainly did not happen.
    pub(crate) fn discard(mut self) {
        self.write = None;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some((kind, key)) = self.write.take()
            && (self.many || !key.name.is_empty())
        {
            self.notes.note(Write {
                kind,
                key,
                effect: Effect::UNKNOWN,
            });
        }
    }
}

// === impl State ===

impl State {
    /// This state of an object that was in the state `earlier` before.
    fn since(mut self, earlier: &Self) -> Self {
        if self.labels != earlier.labels {
            self.labels = None;
        }
        self
    }
}

// === impl Effect ===

impl Effect {
    /// The effect of a write answered with `meta`. A server without versions leaves nothing to wait for.
    pub(crate) fn of_written(meta: &ObjectMeta) -> Self {
        Self::Version {
            uid: meta.uid.clone(),
            state: State {
                version: meta.resource_version.clone().unwrap_or_default(),
                labels: Some(Arc::new(meta.labels.clone().unwrap_or_default())),
            },
        }
    }

    /// The last state in the answer to an own write.
    pub(crate) fn state(&self) -> Option<&State> {
        match self {
            Self::Version { state, .. } => Some(state),
            Self::Gone { after, .. } | Self::Absent { after, .. } => after.as_ref(),
            Self::Unknown { before } => before.as_ref()?.state(),
            Self::Each(_) => None,
        }
    }

    /// It may have happened, and no own write to the object was answered before.
    pub(crate) const UNKNOWN: Self = Self::Unknown { before: None };

    /// The effect to wait for after both; `later` was answered last, or may never be.
    pub(crate) fn then(self, later: Self) -> Self {
        let known = match self {
            Self::Unknown { before } => before,
            known => Some(Box::new(known)),
        };
        match (known, later) {
            (before, Self::Unknown { .. }) => Self::Unknown { before },
            (Some(known), later) => known.then_answered(later),
            (None, later) => later,
        }
    }

    fn then_answered(self, later: Self) -> Self {
        match (self, later) {
            // Two writes at once may be answered in the other order.
            (
                Self::Version { uid, state },
                Self::Version {
                    uid: of,
                    state: later,
                },
            ) if uid == of
                && compare(&state.version, &later.version) == Some(Ordering::Greater) =>
            {
                let state = state.since(&later);
                Self::Version { uid, state }
            }
            (earlier, Self::Version { uid, state }) => {
                let state = match earlier.state() {
                    Some(earlier) => state.since(earlier),
                    None => state,
                };
                Self::Version { uid, state }
            }
            (Self::Version { uid, state }, Self::Gone { uid: gone, after }) if uid == gone => {
                let after = match after {
                    Some(after) => after.since(&state),
                    None => state,
                };
                Self::Gone {
                    uid,
                    after: Some(after),
                }
            }
            (_, later) => later,
        }
    }

    /// The effect of this unknown write if the server has no such object, and stores held these uids just before.
    pub(crate) fn absent(&self, mut held: Vec<Option<String>>) -> Self {
        let before = match self {
            Self::Unknown { before } => before.as_deref(),
            known => Some(known),
        };
        let after = match before {
            Some(Self::Version { uid, state }) => {
                held.push(uid.clone());
                Some(state.clone()).filter(|state| !state.version.is_empty())
            }
            Some(Self::Gone { uid, after }) => {
                held.push(uid.clone());
                after.clone()
            }
            Some(Self::Absent { held: gone, after }) => {
                held.extend_from_slice(gone);
                after.clone()
            }
            Some(Self::Unknown { .. } | Self::Each(_)) | None => None,
        };
        Self::Absent { held, after }
    }

    /// Whether a store that shows `view` has seen it. Unknown effects are never seen: resolve them first. Check those
    /// of several writes one by one.
    pub(crate) fn is_seen(&self, view: &View) -> bool {
        let reached = |seen: &Option<String>, version: &str| {
            seen.as_deref().is_some_and(|seen| at_least(seen, version))
        };
        match self {
            Self::Unknown { .. } | Self::Each(_) => false,
            Self::Gone { after, .. } | Self::Absent { after, .. } if view.object.is_none() => {
                let reached = |after: &State| reached(&view.through, &after.version);
                view.left_out || after.as_ref().is_none_or(reached)
            }
            Self::Gone { uid, .. } => {
                let shown = view.object.as_ref();
                uid.is_some() && shown.is_none_or(|(held, _)| held != uid)
            }
            Self::Absent { held, .. } => {
                let shown = view.object.as_ref();
                shown.is_none_or(|(uid, _)| !held.contains(uid))
            }
            Self::Version { state, .. } if state.version.is_empty() => true,
            Self::Version { state, .. } => {
                let seen = match &view.object {
                    None => view.left_out,
                    Some((_, held)) => reached(held, &state.version),
                };
                seen || reached(&view.through, &state.version)
            }
        }
    }

    /// The state of the written object in a store that shows `view`. `None` if the store has nothing to show: the
    /// object may not exist (deleted, or the answer was lost), or the store excludes it.
    pub(crate) fn standing(&self, view: &View) -> Option<Standing> {
        let Self::Version { uid, state } = self else {
            return None;
        };
        let version = &state.version;
        let reached = |seen: Option<&String>| seen.is_some_and(|seen| at_least(seen, version));
        Some(match &view.object {
            Some((held, _)) if uid.is_none() || held == uid => Standing::Shown,
            Some((_, held)) if reached(held.as_ref()) => Standing::Replaced,
            None if view.left_out => return None,
            _ if reached(view.through.as_ref()) => Standing::Passed,
            _ => Standing::Behind,
        })
    }
}

/// Whether version `seen` is `wanted` or later. Versions that do not compare count as seen: the wait for an opaque one
/// would not end.
fn at_least(seen: &str, wanted: &str) -> bool {
    compare(seen, wanted) != Some(Ordering::Less)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> GroupKind {
        GroupKind::new("", "ConfigMap")
    }

    /// A state from an answer without labels.
    fn state(version: &str) -> State {
        State {
            version: version.into(),
            labels: None,
        }
    }

    fn version(version: &str) -> Effect {
        Effect::Version {
            uid: Some("u".into()),
            state: state(version),
        }
    }

    fn holds(uid: &str, version: &str) -> View {
        View {
            object: Some((Some(uid.into()), Some(version.into()))),
            ..View::default()
        }
    }

    fn through(version: &str) -> View {
        View {
            through: Some(version.into()),
            ..View::default()
        }
    }

    fn absent(held: &[&str]) -> Effect {
        Effect::Absent {
            held: held.iter().map(|uid| Some((*uid).to_owned())).collect(),
            after: None,
        }
    }

    #[test]
    fn each_kind_of_write_is_seen_when_the_store_shows_it() {
        let gone = Effect::Gone {
            uid: Some("u".into()),
            after: None,
        };
        let gone_after = Effect::Gone {
            uid: Some("u".into()),
            after: Some(state("10")),
        };
        for (case, effect, view, seen) in [
            ("older copy", version("10"), holds("u", "9"), false),
            (
                "a no-op keeps the version",
                version("9"),
                holds("u", "9"),
                true,
            ),
            ("same version", version("10"), holds("u", "10"), true),
            ("longer is later", version("99"), holds("u", "100"), true),
            ("made again since", version("10"), holds("v", "12"), true),
            ("absent, store behind", version("10"), through("9"), false),
            (
                "outside the selector, passed",
                version("10"),
                through("11"),
                true,
            ),
            ("nothing known", version("10"), View::default(), false),
            ("opaque fails open", version("abc"), holds("u", "9"), true),
            ("deleted, still held", gone.clone(), holds("u", "9"), false),
            ("deleted, absent", gone.clone(), View::default(), true),
            ("deleted, made again", gone, holds("v", "12"), true),
            (
                "deleted, our create not seen yet",
                gone_after.clone(),
                through("9"),
                false,
            ),
            ("deleted, both seen", gone_after, through("11"), true),
            ("not there, nothing shown", absent(&[]), through("9"), true),
            (
                "not there, still shown",
                absent(&["u"]),
                holds("u", "9"),
                false,
            ),
            (
                "not there, shown no more",
                absent(&["u"]),
                through("9"),
                true,
            ),
            (
                "not there, made again",
                absent(&["u"]),
                holds("v", "12"),
                true,
            ),
            (
                "not there, shown since",
                absent(&[]),
                holds("v", "12"),
                true,
            ),
            (
                "unknown is never seen",
                Effect::UNKNOWN,
                holds("u", "99"),
                false,
            ),
        ] {
            assert_eq!(effect.is_seen(&view), seen, "{case}");
        }
    }

    #[test]
    fn what_the_labels_leave_out_is_seen_unless_the_store_still_holds_an_older_state() {
        let left_out = |view: View| View {
            left_out: true,
            ..view
        };
        let gone = Effect::Gone {
            uid: Some("u".into()),
            after: Some(state("10")),
        };
        let absent = version("10").absent(vec![]);
        for (case, effect, view, seen) in [
            ("never selected", version("10"), through("9"), true),
            ("not filled", version("10"), View::default(), true),
            (
                "it leaves, still held",
                version("10"),
                holds("u", "9"),
                false,
            ),
            ("another is held", version("10"), holds("v", "9"), false),
            ("held, later", version("10"), holds("v", "11"), true),
            ("deleted", gone.clone(), through("9"), true),
            ("deleted, still held", gone, holds("u", "9"), false),
            ("not there", absent.clone(), through("9"), true),
            ("not there, still held", absent, holds("u", "9"), false),
            ("unknown", Effect::UNKNOWN, View::default(), false),
        ] {
            assert_eq!(effect.is_seen(&left_out(view)), seen, "{case}");
        }
        // No event of it will come, so nothing is followed.
        assert_eq!(version("10").standing(&left_out(through("9"))), None);
        let held = left_out(holds("u", "9"));
        assert_eq!(version("10").standing(&held), Some(Standing::Shown));
    }

    #[test]
    fn the_labels_of_a_write_count_if_those_of_the_writes_before_were_the_same() {
        let with = |version: &str, label: &str| {
            let labels = [(label.to_owned(), String::new())];
            Effect::Version {
                uid: Some("u".into()),
                state: State {
                    version: version.into(),
                    labels: Some(Arc::new(labels.into())),
                },
            }
        };
        let gone = || Effect::Gone {
            uid: Some("u".into()),
            after: None,
        };
        let known = |effect: Effect| effect.state().unwrap().labels.is_some();
        assert!(known(with("1", "a").then(with("2", "a"))));
        assert!(!known(with("1", "a").then(with("2", "b"))));
        assert!(!known(with("2", "a").then(with("1", "b"))), "crossed");
        assert!(!known(version("1").then(with("2", "a"))), "not shown");
        assert!(known(with("1", "a").then(gone())));
        assert!(!known(with("1", "a").then(with("2", "b")).then(gone())));
        let again = with("1", "a").then(gone()).then(with("3", "b"));
        assert!(!known(again), "the one before may still be shown");
        let lost = with("1", "a").then(Effect::UNKNOWN);
        assert!(known(lost.clone().then(with("2", "a"))));
        assert!(!known(lost.clone().then(with("2", "b"))));
        assert!(known(lost.absent(vec![])));
    }

    #[test]
    fn how_a_written_object_stands_in_a_store() {
        let at = |uid: &str, held: &str, through: &str| View {
            object: Some((Some(uid.into()), Some(held.into()))),
            through: Some(through.into()),
            left_out: false,
        };
        for (case, view, standing) in [
            ("shown", at("u", "10", "10"), Standing::Shown),
            ("an older state", at("u", "9", "9"), Standing::Shown),
            (
                "made again by another",
                at("v", "12", "12"),
                Standing::Replaced,
            ),
            ("the one before ours", at("t", "8", "9"), Standing::Behind),
            (
                "the one before ours, deleted unseen",
                at("t", "8", "12"),
                Standing::Passed,
            ),
            ("behind", through("9"), Standing::Behind),
            ("passed", through("10"), Standing::Passed),
            ("not filled", View::default(), Standing::Behind),
        ] {
            assert_eq!(version("10").standing(&view), Some(standing), "{case}");
        }
        let gone = Effect::Gone {
            uid: None,
            after: None,
        };
        assert_eq!(gone.standing(&through("10")), None);
        assert_eq!(Effect::UNKNOWN.standing(&through("10")), None);
    }

    #[test]
    fn a_write_dropped_without_an_answer_is_unknown() {
        let notes = Arc::new(Notes::default());
        let key = ObjectKey::namespaced("ns", "a");
        drop(notes.begin(kind(), key.clone()));
        notes
            .begin(kind(), ObjectKey::namespaced("ns", "b"))
            .discard();
        let writes = notes.take();
        assert_eq!(writes.len(), 1);
        assert_eq!(
            (&writes[0].key, &writes[0].effect),
            (&key, &Effect::UNKNOWN)
        );
    }

    #[test]
    fn the_last_write_to_a_key_is_the_one_waited_for() {
        let notes = Arc::new(Notes::default());
        let key = ObjectKey::namespaced("ns", "a");
        for number in ["3", "4"] {
            notes
                .begin(kind(), key.clone())
                .settle(vec![(key.clone(), version(number))]);
        }
        let writes = notes.take();
        assert_eq!(writes.len(), 1);
        assert_eq!(writes[0].effect, version("4"));
    }

    #[test]
    fn what_a_lost_write_left_alone_waits_for_the_write_before_it() {
        let notes = Notes::default();
        let key = ObjectKey::namespaced("ns", "a");
        let note = |effect| {
            notes.note(Write {
                kind: kind(),
                key: key.clone(),
                effect,
            });
        };
        note(version("10"));
        note(Effect::UNKNOWN);
        note(Effect::UNKNOWN);
        let mut write = notes.take().remove(0);
        assert!(matches!(write.effect, Effect::Unknown { .. }));
        write.effect = write.effect.absent(vec![Some("t".into())]);
        for (case, view, seen) in [
            ("not made yet", through("9"), false),
            ("the one before", holds("t", "8"), false),
            ("made", holds("u", "10"), false),
            ("deleted", through("11"), true),
            ("made again", holds("v", "12"), true),
        ] {
            assert_eq!(write.effect.is_seen(&view), seen, "{case}");
        }
        // After a second loss, all uids known to be gone stay so.
        notes.note(write);
        note(Effect::UNKNOWN);
        let again = notes.take().remove(0).effect.absent(vec![]);
        assert!(!again.is_seen(&through("9")) && !again.is_seen(&holds("u", "10")));
        // An answer settles the lost write before it.
        note(version("10"));
        note(Effect::UNKNOWN);
        note(Effect::Gone {
            uid: Some("u".into()),
            after: None,
        });
        let gone = Effect::Gone {
            uid: Some("u".into()),
            after: Some(state("10")),
        };
        assert_eq!(notes.take().remove(0).effect, gone);
    }

    #[test]
    fn answers_that_cross_leave_the_later_version_and_a_delete_comes_after_it() {
        let gone = |after: Option<&str>| Effect::Gone {
            uid: Some("u".into()),
            after: after.map(state),
        };
        assert_eq!(version("12").then(version("11")), version("12"));
        assert_eq!(version("11").then(version("12")), version("12"));
        assert_eq!(version("11").then(gone(None)), gone(Some("11")));
        let lost = Effect::Unknown {
            before: Some(Box::new(version("11"))),
        };
        assert_eq!(version("11").then(Effect::UNKNOWN), lost);
        let other = Effect::Version {
            uid: Some("v".into()),
            state: state("9"),
        };
        assert_eq!(version("11").then(other.clone()), other, "made again");
    }
}

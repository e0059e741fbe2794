//! The one set that every set engine follows, and the sources that it is the union of.
//!
//! Each source has entries of its own: the bans at each place that blocks name, and each list. A target stands while
//! one source has it, with the latest of their ends. An entry leaves by itself when its end is past.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::lifted::Lifted;
use super::set::{Difference, Entry, TargetSet, Until};
use crate::api::Place;
use crate::target::Target;

/// An end that moves by no more is the same: the end of a ban is known exactly only after its call, and consumers
/// need not be changed for that.
const SAME: u32 = 2;

/// A block's ban leaves by itself so many seconds after its end. Before that it is lifted, unless the operator cannot
/// read or write its object.
const GRACE: u32 = 5;

/// Entries that leave at once. A feed whose entries all end in one second must not hold up bans.
const MOST_ENDS: usize = 20_000;

/// Where entries come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Blocks whose bans stand at this place.
    Place(Place),
    /// The list of this name.
    List(Arc<str>),
}

/// Sources that are read from the API server together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Blocks.
    Blocks,
    /// Lists.
    Lists,
}

/// The union of all sources. Clones share it.
#[derive(Clone)]
pub struct Desired(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// The number of the last change, once every group was read.
    changes: watch::Sender<Option<u64>>,
}

#[derive(Default)]
struct State {
    union: TargetSet,
    sources: BTreeMap<Source, TargetSet>,
    /// Groups that were not read yet.
    unread: BTreeSet<Group>,
    lifted: Lifted,
    change: u64,
}

/// The union at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The targets.
    pub set: TargetSet,
    /// The number of its last change.
    pub change: u64,
}

/// What a change of one target came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The target.
    pub target: Target,
    /// Its end in the union; `None`: it is not in there.
    pub until: Option<Until>,
    /// Every view from this change on has it.
    pub change: u64,
}

// === impl Desired ===

impl Desired {
    /// No entries. It [`is_read`](Self::is_read) once each of `groups` was.
    #[must_use]
    pub fn new(groups: impl IntoIterator<Item = Group>) -> Self {
        let unread: BTreeSet<Group> = groups.into_iter().collect();
        let changes = watch::Sender::new(unread.is_empty().then_some(0));
        let state = State {
            unread,
            ..State::default()
        };
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            changes,
        }))
    }

    /// Whether every group was read. Before that consumers must not take a target out: it may be in the rest.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.0.changes.borrow().is_some()
    }

    /// Notified after each change, once every group was read; the value is the number of the change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Option<u64>> {
        self.0.changes.subscribe()
    }

    /// The union as it is now.
    #[must_use]
    pub fn view(&self) -> View {
        let state = self.0.state.lock();
        View {
            set: state.union.clone(),
            change: state.change,
        }
    }

    /// Adds a target to a source, or changes its end there, as a call does before its end is known exactly. An end that moves by two seconds at most stays.
    pub fn insert(&self, source: &Source, target: Target, until: Until) -> Changed {
        self.alter(|state| {
            let present = state.source(source).get(&target);
            let same = present.is_some_and(|it| it == until || it.distance(until) <= SAME);
            if !same {
                state.set(source, target, until);
            }
            state.changed(target)
        })
    }

    /// Adds a target to a source with exactly this end.
    pub fn set(&self, source: &Source, target: Target, until: Until) {
        self.alter(|state| state.set(source, target, until));
    }

    /// Sets exactly this end, if the source has the target.
    pub fn set_end(&self, source: &Source, target: Target, until: Until) {
        self.alter(|state| {
            let entries = state.sources.get(source);
            if entries.is_some_and(|it| it.get(&target).is_some()) {
                state.set(source, target, until);
            }
        });
    }

    /// Removes a target from a source.
    pub fn remove(&self, source: &Source, target: Target) -> Changed {
        self.alter(|state| {
            if state.take(source, &target) {
                state.settle(target);
            }
            state.changed(target)
        })
    }

    /// Removes a target from the sources of all places but those that `stands` accepts.
    pub fn keep(&self, target: Target, stands: impl Fn(&Place) -> bool) -> Changed {
        self.alter(|state| {
            let sources = state.sources.keys().filter(|source| match source {
                Source::Place(place) => !stands(place),
                Source::List(_) => false,
            });
            let sources: Vec<Source> = sources.cloned().collect();
            let mut taken = false;
            for source in &sources {
                taken |= state.take(source, &target);
            }
            if taken {
                state.settle(target);
            }
            state.changed(target)
        })
    }

    /// Replaces the entries of a source.
    pub fn replace(&self, source: &Source, entries: TargetSet) {
        self.alter(|state| state.replace(source, entries));
    }

    /// Replaces the bans of all blocks, and counts them as read.
    pub fn replace_blocks(&self, blocks: BTreeMap<Place, Vec<Entry>>) {
        self.alter(|state| {
            let places = state.sources.keys();
            let gone: Vec<Source> = places
                .filter(|source| matches!(source, Source::Place(it) if !blocks.contains_key(it)))
                .cloned()
                .collect();
            for (place, entries) in blocks {
                state.replace(&Source::Place(place), entries.into_iter().collect());
            }
            for source in gone {
                state.replace(&source, TargetSet::default());
            }
            state.unread.remove(&Group::Blocks);
        });
    }

    /// Counts a group as read.
    pub fn read(&self, group: Group) {
        self.alter(|state| {
            state.unread.remove(&group);
        });
    }

    /// Removes what ended by `now`, a bounded number of entries at most. Call it again while [`next_end`](Self::next_end) is past.
    pub fn expire(&self, now: Timestamp) {
        let now = Until::new(Some(now));
        self.alter(|state| {
            let mut ended: BTreeSet<Target> = BTreeSet::new();
            let mut left = MOST_ENDS;
            for (source, entries) in &mut state.sources {
                if left == 0 {
                    break;
                }
                let mut due = entries.ended(now);
                due.retain(|target| {
                    let until = entries.get(target);
                    until.is_some_and(|until| source.leaves_at(until) <= now)
                });
                due.truncate(left);
                left -= due.len();
                for target in due {
                    entries.remove(&target);
                    ended.insert(target);
                }
            }
            state.sources.retain(|_, entries| !entries.is_empty());
            for target in ended {
                // A later end is another source's, and stays.
                if state.union.get(&target).is_none_or(|until| until <= now) {
                    state.settle_ended(target);
                }
            }
        });
    }

    /// The targets that were lifted before their ends, with those ends, and are not in the union.
    #[must_use]
    pub fn lifted(&self, now: Timestamp) -> TargetSet {
        self.0.state.lock().lifted.at(Until::new(Some(now)))
    }

    /// Takes in lifts of an earlier run: `until` is how long they count.
    pub fn add_lifted(&self, targets: &[Target], until: Until) {
        let mut state = self.0.state.lock();
        for target in targets {
            if state.union.get(target).is_none() {
                state.lifted.add(*target, until);
            }
        }
    }

    /// When [`expire`](Self::expire) has something to do next; `None`: not until a change.
    #[must_use]
    pub fn next_end(&self) -> Option<Timestamp> {
        let state = self.0.state.lock();
        let ends = state
            .sources
            .iter()
            .filter_map(|(source, entries)| Some(source.leaves_at(entries.earliest()?)));
        ends.min().and_then(Until::at)
    }

    /// The entries of a source.
    #[must_use]
    pub fn entries(&self, source: &Source) -> TargetSet {
        let state = self.0.state.lock();
        state.sources.get(source).cloned().unwrap_or_default()
    }

    /// The number of entries of a source.
    #[must_use]
    pub fn count(&self, source: &Source) -> usize {
        let state = self.0.state.lock();
        state.sources.get(source).map_or(0, TargetSet::len)
    }

    fn alter<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.state.lock();
        let value = change(&mut state);
        let now = state.unread.is_empty().then_some(state.change);
        // Under the lock, so that an earlier change is not published after a later one.
        self.0.changes.send_if_modified(|published| {
            let news = *published != now;
            *published = now;
            news
        });
        value
    }
}

impl fmt::Debug for Desired {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.lock();
        formatter
            .debug_struct("Desired")
            .field("targets", &state.union.len())
            .field("sources", &state.sources.len())
            .field("change", &state.change)
            .finish_non_exhaustive()
    }
}

// === impl Source ===

impl Source {
    fn leaves_at(&self, until: Until) -> Until {
        match self {
            Self::Place(_) => until.later(GRACE),
            Self::List(_) => until,
        }
    }
}

// === impl State ===

impl State {
    fn source(&mut self, source: &Source) -> &mut TargetSet {
        self.sources.entry(source.clone()).or_default()
    }

    /// Takes a target out of a source, and forgets a source without targets. Returns whether it had it.
    fn take(&mut self, source: &Source, target: &Target) -> bool {
        let Some(entries) = self.sources.get_mut(source) else {
            return false;
        };
        let taken = entries.remove(target).is_some();
        if entries.is_empty() {
            self.sources.remove(source);
        }
        taken
    }

    fn replace(&mut self, source: &Source, entries: TargetSet) {
        let before = self.sources.remove(source).unwrap_or_default();
        if !entries.is_empty() {
            self.sources.insert(source.clone(), entries.clone());
        }
        for difference in before.differences(&entries) {
            self.moved(difference);
        }
    }

    /// Sets the end of a target in one source.
    fn set(&mut self, source: &Source, target: Target, until: Until) {
        let before = self.source(source).insert(target, until);
        if before != Some(until) {
            self.moved(Difference {
                target,
                before,
                after: Some(until),
            });
        }
    }

    /// One source has changed so. A later end, or a new target, needs no look at the other sources, which may be hundreds of
    /// lists.
    fn moved(&mut self, difference: Difference) {
        let later = difference.after > difference.before;
        match difference.after.filter(|_| later) {
            Some(until) => self.raise(difference.target, until),
            None => self.settle(difference.target),
        }
    }

    /// The union has `target` at least until `until`.
    fn raise(&mut self, target: Target, until: Until) {
        if self.union.get(&target).is_none_or(|it| it < until) {
            self.union.insert(target, until);
            self.lifted.remove(&target);
            self.change += 1;
        }
    }

    /// Sets the union's entry of `target` from all sources, and remembers a lift.
    fn settle(&mut self, target: Target) {
        let before = self.settle_union(target);
        match self.union.get(&target) {
            Some(_) => self.lifted.remove(&target),
            None => {
                if let Some(until) = before {
                    self.lifted.add(target, until);
                }
            }
        }
    }

    /// Sets the union's entry of `target` from all sources. Returns the earlier end.
    fn settle_union(&mut self, target: Target) -> Option<Until> {
        let ends = self.sources.values();
        let until = ends.filter_map(|entries| entries.get(&target)).max();
        let before = match until {
            Some(until) => self.union.insert(target, until),
            None => self.union.remove(&target),
        };
        self.change += u64::from(before != until);
        before
    }

    /// As [`settle_union`](Self::settle_union), for a target whose end is past in every source: only blocks may hold it a little longer,
    /// and there are few places beside many lists.
    fn settle_ended(&mut self, target: Target) {
        let mut places = self
            .sources
            .iter()
            .take_while(|(source, _)| matches!(source, Source::Place(_)));
        if places.any(|(_, entries)| entries.get(&target).is_some()) {
            self.settle_union(target);
        } else {
            let removed = self.union.remove(&target).is_some();
            self.change += u64::from(removed);
        }
    }

    fn changed(&self, target: Target) -> Changed {
        Changed {
            target,
            until: self.union.get(&target),
            change: self.change,
        }
    }
}

#[cfg(test)]
mod tests;

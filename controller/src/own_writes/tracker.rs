//! The writes of the keys of one controller that its caches have not shown yet, and the caches' view of a write.
//!
//! A key is held back until they show its writes ([`OwnWrites::hold`]). A sweep ([`OwnWrites::sweep`]) handles keys
//! that do not come back, about once a second while there are any:
//!
//! * a write that the caches show by now, or have not shown within the time-out, is forgotten. A write whose answer was
//!   lost waits ten minutes for its key, whose back-off may be longer than the time-out;
//! * an **own object that no cache ever showed** may be deleted unseen: a second list, or a history cut short, has
//!   neither its creation nor its deletion, so no event brings the key back. When a store has passed the version of the
//!   write without the object, one live read follows. If the object is gone, the key comes back; otherwise it is not
//!   selected, and no event of it will ever come.
//!
//! A write whose answer was lost is settled by one live read before its key continues. No worker waits for that read:
//! the key is put back until its time is over, and is woken by the answer. The reads run beside the workers
//! ([`OwnWrites::ask_for_lost`]).
//!
//! The reads of lost writes and those of the sweep share one line for each cluster, which lets eight a second through.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use reeve_client::GroupKind;
use reeve_informer::ObjectKey;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::asking::{Asking, LIVE_READ_LIMIT};
use super::cached::FOREVER;
use super::client::Client;
use super::effect::{self, Effect, FIRST_LOOK, LAST_LOOK, Standing, Write};
use crate::cache::{Caches, Store, scope_of};
use crate::debug::{KindReport, WritesReport, before};
use crate::reconcile::RequestKey;

/// The number of keys whose objects are followed because no cache shows them. Past it, an object that is deleted before any
/// watch shows it does not bring its key back.
const MOST_HIDDEN: usize = 16_384;

/// The number of objects of a key that are checked in the caches under the lock, before other keys have their turn.
pub(super) const LOOKS: usize = 256;

/// The writes of all keys of a controller.
pub(crate) struct OwnWrites<R> {
    /// The time-out of a key for its own writes.
    pub(super) limit: Duration,
    pub(super) noted: Mutex<Noted<R>>,
    /// Whether anything is recorded: most keys write nothing, and need not take the lock. Set under it.
    pub(super) any: AtomicBool,
    /// Wakes when a write is recorded.
    pub(super) news: Notify,
    /// Wakes when a key needs a live read of its lost writes.
    pub(super) questions: Notify,
}

/// A destination of writes: the caches of a cluster, and a client for live reads.
pub(crate) struct Place {
    pub(super) caches: Caches,
    pub(super) client: Client,
}

/// A write and its destination.
#[derive(Clone)]
pub(crate) struct Own {
    pub(super) place: Arc<Place>,
    pub(super) write: Write,
}

pub(super) struct Noted<R> {
    pub(super) unseen: HashMap<R, Unseen>,
    /// Objects written by a key that no cache has shown.
    pub(super) hidden: HashMap<R, Vec<Hidden>>,
    /// Held keys with lost writes that need a live read. Each key once.
    pub(super) asks: Vec<R>,
    /// The number of recorded runs: the number of the next.
    pub(super) runs: u64,
}

/// The writes that hold a key back.
pub(super) struct Unseen {
    pub(super) writes: Vec<Own>,
    pub(super) since: Instant,
    pub(super) look: Duration,
    /// The time since when the key is put back for them, and so will come.
    pub(super) held: Option<Instant>,
    /// The number of the run that made the writes.
    pub(super) run: u64,
    pub(super) asking: Asking,
    /// A live read of the lost ones is under way.
    pub(super) asked: bool,
}

pub(super) struct Hidden {
    pub(super) own: Own,
    pub(super) since: Instant,
    /// The time of the last live read of the object.
    pub(super) asked: Option<Instant>,
    /// A live read is under way.
    pub(super) asking: bool,
}

/// Whether a key may be reconciled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Its caches show what it wrote.
    Go,
    /// They do not: check again after this long.
    Wait(Duration),
    /// They do not in time; one of the writes is to this object.
    Late(ObjectKey),
}

// === impl Place ===

impl Place {
    pub(crate) fn new(caches: &Caches, client: &Client) -> Arc<Self> {
        Arc::new(Self {
            caches: caches.clone(),
            client: client.clone(),
        })
    }

    /// The writes made here.
    pub(crate) fn own(self: &Arc<Self>, writes: Vec<Write>) -> Vec<Own> {
        let own = |write| Own {
            place: Arc::clone(self),
            write,
        };
        writes.into_iter().map(own).collect()
    }
}

// === impl Own ===

impl Own {
    /// Whether both are writes to one object.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        self.write.is_of(&other.write) && self.place.caches.is(&other.place.caches)
    }

    /// Whether both are the same write.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.write == other.write && self.is_of(other)
    }

    /// Whether it may have happened, with an unknown effect.
    pub(super) fn is_lost(&self) -> bool {
        self.write.is_lost()
    }

    pub(super) fn is_covered(&self) -> bool {
        self.place.caches.covers(&self.write)
    }

    /// Whether the caches show it. Checks at most `looks` objects and counts `looks` down.
    pub(super) fn is_seen(&mut self, looks: &mut usize) -> bool {
        self.place.caches.drop_seen(&mut self.write, looks)
    }

    pub(super) fn standing(&self) -> Option<Standing> {
        self.place.caches.standing(&self.write)
    }
}

// === impl OwnWrites ===

impl<R: RequestKey> OwnWrites<R> {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit: limit.min(FOREVER),
            noted: Mutex::default(),
            any: AtomicBool::new(false),
            news: Notify::new(),
            questions: Notify::new(),
        }
    }

    /// Records the writes of the last run of `key`.
    pub(crate) fn remember(&self, key: &R, mut writes: Vec<Own>) {
        writes.retain(Own::is_covered);
        if writes.is_empty() {
            return;
        }
        let mut noted = self.noted.lock();
        follow(&mut noted, key, &writes);
        noted.runs += 1;
        let unseen = Unseen {
            writes,
            since: Instant::now(),
            look: FIRST_LOOK,
            held: None,
            run: noted.runs,
            asking: Asking::after(0),
            asked: false,
        };
        noted.unseen.insert(key.clone(), unseen);
        self.is_noted(noted);
    }

    /// Notifies of a record made under this lock.
    pub(super) fn is_noted(&self, noted: MutexGuard<'_, Noted<R>>) {
        self.any.store(true, Ordering::Release);
        drop(noted);
        self.news.notify_one();
    }

    /// Workers start: those before them, and their live reads, are gone. The keys come back with a full time-out from
    /// now on, because the caches may not have moved meanwhile.
    pub(crate) fn begin(&self) {
        let mut noted = self.noted.lock();
        noted.asks.clear();
        let now = Instant::now();
        for unseen in noted.unseen.values_mut() {
            (unseen.since, unseen.look) = (now, FIRST_LOOK);
            (unseen.held, unseen.asked) = (None, false);
        }
    }

    /// Whether `key`, with so many failures in a row, may be reconciled.
    pub(crate) fn hold(&self, key: &R, failures: u32) -> Hold {
        // The last run of this key was recorded before the queue could hand the key out again.
        if !self.any.load(Ordering::Acquire) {
            return Hold::Go;
        }
        let mut noted = self.noted.lock();
        let noted = &mut *noted;
        let Some(unseen) = noted.unseen.get_mut(key) else {
            return Self::go(noted, key, Hold::Go);
        };
        let now = Instant::now();
        let held = *unseen.held.get_or_insert_with(|| {
            unseen.asking = Asking::after(failures);
            now
        });
        let mut looks = LOOKS;
        while let Some(last) = unseen.writes.last_mut()
            && looks > 0
            && last.is_seen(&mut looks)
        {
            unseen.writes.pop();
        }
        let Some(last) = unseen.writes.last() else {
            noted.unseen.remove(key);
            return Self::go(noted, key, Hold::Go);
        };
        let left = self.limit.saturating_sub(now - unseen.since);
        let lost = unseen.writes.iter().any(Own::is_lost);
        // A key that comes late, after a long back-off, gets one live read all the same.
        let once = LIVE_READ_LIMIT.min(self.limit);
        let once = once.saturating_sub(now - held);
        let answers = lost && (unseen.asked || !unseen.asking.has_begun());
        let left = if answers { left.max(once) } else { left };
        if left.is_zero() {
            let last = last.write.key.clone();
            let late = noted.unseen.remove(key);
            let writes = late.map(|late| late.writes).unwrap_or_default();
            follow(noted, key, &writes);
            self.news.notify_one();
            return Self::go(noted, key, Hold::Late(last));
        }
        if looks == 0 {
            // The caches show the checked objects. Other keys first.
            return Hold::Wait(Duration::ZERO);
        }
        if lost && !unseen.asked && unseen.asking.is_due() {
            unseen.asked = true;
            noted.asks.push(key.clone());
            self.questions.notify_one();
        }
        if lost {
            // Only the answer lets it continue, and the answer wakes it.
            let pause = unseen.asking.pause(now);
            let pause = if unseen.asked { left } else { pause.min(left) };
            return Hold::Wait(pause);
        }
        let pause = unseen.look.min(left);
        unseen.look = (unseen.look * 2).min(LAST_LOOK);
        Hold::Wait(pause)
    }

    /// The next run of `key` sees the objects that the caches show now, so drops these.
    pub(super) fn go(noted: &mut Noted<R>, key: &R, hold: Hold) -> Hold {
        if let Some(hidden) = noted.hidden.get_mut(key) {
            hidden.retain(|hidden| hidden.own.standing() == Some(Standing::Behind));
            if hidden.is_empty() {
                noted.hidden.remove(key);
            }
        }
        hold
    }

    /// What is recorded now, for the controller of this name, at the time `now`.
    pub(crate) fn report(&self, controller: &str, now: Timestamp) -> WritesReport {
        let noted = self.noted.lock();
        let mut kinds: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for own in noted.unseen.values().flat_map(|unseen| &unseen.writes) {
            let (writes, unknown) = kinds.entry(own.write.kind.to_string()).or_default();
            *writes += 1;
            *unknown += usize::from(own.is_lost());
        }
        let oldest = noted.unseen.values().map(|unseen| unseen.since).min();
        let kinds = kinds.into_iter();
        WritesReport {
            controller: controller.to_owned(),
            keys: noted.unseen.len(),
            oldest: oldest.map(|since| before(now, since.elapsed())),
            limit_millis: u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX),
            hidden: noted.hidden.values().map(Vec::len).sum(),
            kinds: kinds
                .map(|(kind, (writes, unknown))| KindReport::new(kind, writes, unknown))
                .collect(),
        }
    }

    /// Whether nothing is recorded. Frees the memory then.
    pub(crate) fn is_empty(&self) -> bool {
        let mut noted = self.noted.lock();
        let empty = noted.unseen.is_empty() && noted.hidden.is_empty();
        if empty {
            // Keeps the number of runs: a late answer then matches none of the later records.
            let runs = noted.runs;
            *noted = Noted::default();
            noted.runs = runs;
            self.any.store(false, Ordering::Release);
        }
        empty
    }
}

/// Follows the written objects that no cache shows.
fn follow<R: RequestKey>(noted: &mut Noted<R>, key: &R, writes: &[Own]) {
    let mut hidden = noted.hidden.remove(key).unwrap_or_default();
    let since = Instant::now();
    for own in writes {
        if own.is_lost() {
            continue;
        }
        hidden.retain(|hidden| !hidden.own.is_of(own));
        let standing = own.standing();
        if standing.is_some_and(|standing| standing != Standing::Shown) {
            let own = own.clone();
            hidden.push(Hidden {
                own,
                since,
                asked: None,
                asking: false,
            });
        }
    }
    if !hidden.is_empty() && noted.hidden.len() < MOST_HIDDEN {
        noted.hidden.insert(key.clone(), hidden);
    }
}

impl<R> Default for Noted<R> {
    fn default() -> Self {
        Self {
            unseen: HashMap::new(),
            hidden: HashMap::new(),
            asks: Vec::new(),
            runs: 0,
        }
    }
}

// === impl Caches: their view of a write ===

impl Caches {
    /// Whether a cache holds the kind.
    pub(crate) fn holds(&self, kind: &GroupKind) -> bool {
        let slots = self.slots();
        slots.iter().any(|slot| slot.kind.is_of_objects(kind))
    }

    /// Whether an object is cached, judged by its kind and key.
    pub(crate) fn covers(&self, write: &Write) -> bool {
        self.holding(write)
            .iter()
            .any(|store| store.may_hold(&write.key))
    }

    /// As [`Caches::has_seen`]. For a write to many objects, drops those that are seen. Checks at most `looks` objects
    /// and counts `looks` down: call again to continue.
    pub(crate) fn drop_seen(&self, write: &mut Write, looks: &mut usize) -> bool {
        let Effect::Each(writes) = &mut write.effect else {
            *looks = looks.saturating_sub(1);
            return self.has_seen(write);
        };
        while let Some(last) = writes.last() {
            if *looks == 0 || !self.has_seen(last) {
                return false;
            }
            *looks -= 1;
            writes.pop();
        }
        true
    }

    /// Whether the caches show the effect of `write`; true for an object that is not cached, or not any more.
    pub(crate) fn has_seen(&self, write: &Write) -> bool {
        if let Effect::Each(writes) = &write.effect {
            return writes.iter().all(|write| self.has_seen(write));
        }
        self.holding(write)
            .iter()
            .filter(|store| store.may_hold(&write.key))
            .all(|store| write.effect.is_seen(&seen(store, write)))
    }

    /// The state of a write's object in the caches; `None` if no cache would hold it, or its existence is unknown.
    pub(crate) fn standing(&self, write: &Write) -> Option<Standing> {
        let holding = self.holding(write);
        let stores = holding.iter().filter(|store| store.may_hold(&write.key));
        stores
            .filter_map(|store| write.effect.standing(&seen(store, write)))
            .max()
    }

    /// The uids of the object of a write in the caches.
    pub(super) fn held(&self, write: &Write) -> Vec<Option<String>> {
        let holding = self.holding(write);
        let stores = holding.iter().filter(|store| store.may_hold(&write.key));
        stores
            .filter_map(|store| seen(store, write).object)
            .map(|(uid, _)| uid)
            .collect()
    }

    /// The stores that hold the objects of a write, in any version of the API.
    pub(super) fn holding(&self, write: &Write) -> Vec<Arc<Store>> {
        let slots = self.slots();
        slots
            .iter()
            .filter(|slot| slot.kind.is_of_objects(&write.kind))
            .filter_map(|slot| slot.bare().cloned())
            .collect()
    }
}

/// The view of a write's object in a store.
fn seen(store: &Store, write: &Write) -> effect::View {
    // Events in other namespaces are not evidence for this one.
    let through = store.resource_version_in(&scope_of(&write.key));
    let object = store.get(write.key.as_ref());
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    // Without decoding the object.
    let object = object.map(|row| (given(row.uid()), given(row.resource_version())));
    let labels = write.effect.state().and_then(|state| state.labels.as_ref());
    effect::View {
        object,
        through: (!through.is_empty()).then(|| through.as_str().to_owned()),
        left_out: labels.is_some_and(|labels| !store.selects(&write.key, labels)),
    }
}

//! Which blocks claim which targets, in this process: the neighbours of a decision.
//!
//! The cache of objects lags behind the calls of this process; this index does not. It is filled from the
//! objects' statuses when the process begins to lead, and follows its runs afterwards. It also has the time
//! of each ban's last assertion, and the ban that ends next: see [`Coverage::take_due`].

mod alarms;
mod claims;
mod overlaps;
mod places;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::alarms::Alarm;
use self::claims::{Claims, Number};
use self::overlaps::coordinates;
use crate::api::{Place, Standing};
use crate::guard::Scope;
use crate::target::Target;

/// The ban that one block claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What is banned.
    pub target: Target,
    /// Where. Claims at one place share it.
    pub place: Arc<Place>,
    /// Until when; `None`: indefinitely.
    pub until: Option<Timestamp>,
    /// When this process last asserted the ban.
    pub asserted: Option<Instant>,
    /// Whether the ban stands, by the records and calls so far: a first call may be in flight or failing.
    pub enforced: bool,
    /// The source of its block, see [`source_of`](crate::guard::source_of).
    pub source: Option<Arc<str>>,
    /// The gateway may have lost the ban.
    suspect: bool,
    /// A lift may have removed the ban since it was asserted, and its block was requested.
    rechecked: bool,
    /// It was admitted, and no record shows it yet.
    reserved: bool,
    /// The status of the block shows its ban.
    reported: bool,
}

/// Another block whose target overlaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// `namespace/name`.
    pub key: String,
    /// What it bans, and where.
    pub standing: Standing,
    /// Until when; `None`: indefinitely.
    pub until: Option<Timestamp>,
    /// Whether its status shows the ban, so that its end will be reported.
    pub reported: bool,
}

/// When a standing ban is sent to the engine again, against gateways that forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assert {
    /// Now: not yet since this process leads, or the last time is too long ago.
    Due,
    /// After this long.
    In(Duration),
}

/// What a run does to the claim of its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimChange {
    /// The calls may enforce `standing` from now on.
    Begin {
        /// The target, and the gateway.
        standing: Standing,
        /// The end of the ban; `None`: never.
        until: Option<Timestamp>,
        /// No record named the place for this block before: a claim that moves there was not enforced there.
        fresh: bool,
        /// The status shows a ban of the target.
        reported: bool,
    },
    /// The engine enforces `standing`.
    Confirm {
        /// The target, and the gateway.
        standing: Standing,
        /// The end of the ban; `None`: never.
        until: Option<Timestamp>,
    },
    /// A lift begins, and may not be finished.
    Lift,
    /// The block enforces nothing.
    Remove,
}

/// Family, first address, prefix length, number of the claim. The address is bytes, so that a position takes 24 bytes, not 48.
type Position = (bool, [u8; 16], u8, Number);

/// All claims, by block and by target.
#[derive(Debug, Default)]
pub struct Coverage {
    claims: Claims,
    /// Family, first address, prefix length, number: the targets in a range are one stretch of this order.
    order: BTreeSet<Position>,
    /// The places of the claims.
    places: HashSet<Arc<Place>>,
    /// How many claims there are of each family and prefix length.
    lengths: HashMap<(bool, u8), usize>,
    /// How many claims there are in each namespace, and from each source.
    namespaces: HashMap<Box<str>, usize>,
    sources: HashMap<Arc<str>, usize>,
    /// The places that records name and at which no call of a block can have taken effect.
    untouched: HashMap<Arc<str>, Vec<Place>>,
    /// When claims end.
    alarms: BTreeSet<Alarm>,
    /// Notified when the first alarm changes.
    changed: Arc<Notify>,
}

// === impl Claim ===

impl Claim {
    fn new(target: Target, place: Arc<Place>, until: Option<Timestamp>) -> Self {
        Self {
            target,
            place,
            until,
            asserted: None,
            enforced: false,
            source: None,
            suspect: false,
            rechecked: false,
            reserved: false,
            reported: false,
        }
    }

    /// What is banned, and where.
    #[must_use]
    pub fn standing(&self) -> Standing {
        Standing {
            target: self.target,
            place: Place::clone(&self.place),
        }
    }

    /// Whether this is the claim of `standing`.
    #[must_use]
    pub fn is(&self, standing: &Standing) -> bool {
        self.target == standing.target && *self.place == standing.place
    }
}

// === impl Coverage ===

impl Coverage {
    /// The claim of a block.
    #[must_use]
    pub fn claim(&self, key: &str) -> Option<&Claim> {
        self.claims.get(key)
    }

    /// Whether a block claims a ban that was not only admitted.
    #[must_use]
    pub fn claims_ban(&self, key: &str) -> bool {
        self.claim(key).is_some_and(|claim| !claim.reserved)
    }

    /// How many blocks claim something.
    #[must_use]
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// Whether no block claims anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.len() == 0
    }

    /// Changes the claim of a block at `at`. Returns the claim that is removed.
    pub fn apply(&mut self, key: &str, change: &ClaimChange, at: Instant) -> Option<Claim> {
        match change {
            ClaimChange::Begin {
                standing,
                until,
                fresh,
                reported,
            } => {
                let before = self.claims.get(key);
                let moves = before.is_some_and(|claim| *claim.place != standing.place);
                // The status of the decision may be one that this process has replaced.
                let known = before.is_some_and(|claim| claim.reported && claim.is(standing));
                self.set(key, standing.clone(), *until);
                self.recorded(key);
                self.report(key, *reported || known);
                if *fresh && moves {
                    self.untouched(key, &standing.place);
                }
            }
            ClaimChange::Confirm { standing, until } => {
                self.set(key, standing.clone(), *until);
                self.recorded(key);
                self.asserted(key, at);
            }
            ClaimChange::Lift => self.lifting(key),
            ClaimChange::Remove => return self.remove(key),
        }
        None
    }

    /// Counts a ban that was admitted, before it is recorded. It is nothing that a ban of another block may be left to: if the
    /// record fails, and the gateway is another one at the next try, nothing names this place.
    pub fn reserve(&mut self, key: &str, standing: Standing, until: Option<Timestamp>) {
        self.set(key, standing, until);
        if let Some(claim) = self.claims.get_mut(key) {
            claim.reserved = true;
        }
    }

    fn recorded(&mut self, key: &str) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.reserved = false;
        }
    }

    /// Sets the claim that the records of an active block show. The first assertion proves it.
    pub fn recall(&mut self, key: &str, standing: Standing, until: Option<Timestamp>) {
        self.set(key, standing, until);
        if let Some(claim) = self.claims.get_mut(key) {
            claim.enforced = true;
            claim.reported = true;
        }
    }

    /// Sets whether the status of a block shows the ban that it claims.
    pub fn report(&mut self, key: &str, reported: bool) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.reported = reported;
        }
    }

    /// Begins with the claims of `followed`, none of which is enforced until it is recalled. Without claims of its own only.
    pub fn adopt(&mut self, followed: Self) {
        if self.is_empty() {
            let changed = Arc::clone(&self.changed);
            *self = Self {
                changed,
                ..followed
            };
            self.changed.notify_one();
        }
    }

    /// Removes the claims that are not enforced.
    pub fn drop_unenforced(&mut self) {
        let unenforced = self.claims().filter(|(_, claim)| !claim.enforced);
        let keys: Vec<Arc<str>> = unenforced.map(|(key, _)| Arc::clone(key)).collect();
        for key in keys {
            self.remove(&key);
        }
    }

    /// Packs the orders: one that grew by single insertions has nodes that are half empty.
    pub fn pack(&mut self) {
        self.order = std::mem::take(&mut self.order).into_iter().collect();
        self.alarms = std::mem::take(&mut self.alarms).into_iter().collect();
    }

    /// Sets the claim of a block. The time of its assertion stays while its standing does.
    pub fn set(&mut self, key: &str, standing: Standing, until: Option<Timestamp>) {
        if let Some(number) = self.claims.number(key)
            && let Some(claim) = self.claims.at_mut(number)
            && claim.is(&standing)
        {
            let before = std::mem::replace(&mut claim.until, until);
            if before != until {
                self.disarm(number, before);
                self.arm(number, until);
            }
            return;
        }
        let before = self.take(key);
        let source = before.and_then(|claim| claim.source);
        *self.namespaces.entry(namespace(key).into()).or_default() += 1;
        let place = self.shared(standing.place);
        let claim = Claim::new(standing.target, place, until);
        let number = self.claims.insert(key.into(), claim);
        self.arm(number, until);
        self.order.insert(position(&standing.target, number));
        let (family, _, length) = coordinates(&standing.target);
        *self.lengths.entry((family, length)).or_default() += 1;
        if let Some(source) = source {
            self.attribute(key, &source);
        }
    }

    /// Sets the source that a claim counts for.
    pub fn attribute(&mut self, key: &str, source: &str) {
        let Some(claim) = self.claims.get_mut(key) else {
            return;
        };
        if claim.source.as_deref() == Some(source) {
            return;
        }
        let known = self.sources.get_key_value(source);
        let shared = known.map_or_else(|| source.into(), |(known, _)| Arc::clone(known));
        let before = claim.source.replace(Arc::clone(&shared));
        *self.sources.entry(shared).or_default() += 1;
        if let Some(before) = before {
            less(&mut self.sources, &before);
        }
    }

    /// How many claims there are in a scope.
    #[must_use]
    pub fn count(&self, scope: &Scope) -> usize {
        match scope {
            Scope::All => self.claims.len(),
            Scope::Namespace(name) => self.namespaces.get(&**name).copied().unwrap_or(0),
            Scope::Source(name) => self.sources.get(&**name).copied().unwrap_or(0),
            Scope::Engine { ipv6, .. } => self.of_family(*ipv6),
        }
    }

    /// All claims, in no order.
    pub fn claims(&self) -> impl Iterator<Item = (&Arc<str>, &Claim)> {
        self.claims.iter().map(|(_, key, claim)| (key, claim))
    }

    /// Removes the claim of a block.
    pub fn remove(&mut self, key: &str) -> Option<Claim> {
        self.untouched.remove(key);
        self.take(key)
    }

    fn take(&mut self, key: &str) -> Option<Claim> {
        let (number, key, claim) = self.claims.remove(key)?;
        self.disarm(number, claim.until);
        self.order.remove(&position(&claim.target, number));
        let (family, _, length) = coordinates(&claim.target);
        self.release(&claim.place);
        if let Some(count) = self.lengths.get_mut(&(family, length)) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&(family, length));
            }
        }
        less(&mut self.namespaces, namespace(&key));
        if let Some(source) = &claim.source {
            less(&mut self.sources, source);
        }
        Some(claim)
    }

    /// The engine took a block's ban at `at`.
    pub fn asserted(&mut self, key: &str, at: Instant) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.asserted = Some(at);
            claim.rechecked = false;
            claim.suspect = false;
            claim.enforced = true;
        }
    }

    /// Drops the time of a block's assertion: a lift begins, and may not be finished.
    pub fn lifting(&mut self, key: &str) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.asserted = None;
        }
    }

    /// When the ban of a block is due to be asserted at `place`, the configured gateway.
    #[must_use]
    pub fn assert(
        &self,
        key: &str,
        place: Option<&Place>,
        resync: Duration,
        now: Instant,
    ) -> Assert {
        // An assertion at an earlier gateway does not count here, though the intent may name this one already.
        let claim = self.claims.get(key);
        let here = claim.filter(|claim| place.is_none_or(|place| *claim.place == *place));
        let here = here.filter(|claim| !claim.suspect);
        let Some(asserted) = here.and_then(|claim| claim.asserted) else {
            return Assert::Due;
        };
        // A tenth early or late by key, or a burst of bans would be asserted as one burst each time.
        let spread = f64::from(fingerprint(key) % 200) / 1000.0 + 0.9;
        let due = asserted + resync.mul_f64(spread);
        match due.saturating_duration_since(now) {
            Duration::ZERO => Assert::Due,
            left => Assert::In(left),
        }
    }

    /// How many bans stand at each engine.
    #[must_use]
    pub fn by_engine(&self) -> BTreeMap<String, i64> {
        let mut counts = BTreeMap::new();
        for (_, claim) in self.claims().filter(|(_, claim)| claim.enforced) {
            *counts.entry(claim.place.engine.clone()).or_default() += 1;
        }
        counts
    }

    /// Drops every claim.
    pub fn clear(&mut self) {
        let changed = Arc::clone(&self.changed);
        *self = Self {
            changed,
            ..Self::default()
        };
    }
}

/// The neighbour that keeps `standing` banned for longest. One that is due itself keeps nothing: it is about to be lifted.
pub(super) fn kept_by<'a>(
    neighbours: &'a [Neighbour],
    standing: &Standing,
    now: Timestamp,
) -> Option<&'a Neighbour> {
    neighbours
        .iter()
        .filter(|neighbour| neighbour.standing == *standing)
        .filter(|neighbour| neighbour.until.is_none_or(|until| until > now))
        .max_by(|a, b| later(a.until, b.until))
}

/// Compares two ends, of which `None` is the latest.
pub(super) fn later(a: Option<Timestamp>, b: Option<Timestamp>) -> std::cmp::Ordering {
    a.is_none().cmp(&b.is_none()).then(a.cmp(&b))
}

/// A number that is the same for a key in every process.
pub(crate) fn fingerprint(key: &str) -> u32 {
    key.bytes().fold(2_166_136_261, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    })
}

fn position(target: &Target, number: Number) -> Position {
    let (family, first, length) = coordinates(target);
    (family, first.to_be_bytes(), length, number)
}

/// The namespace in `namespace/name`.
fn namespace(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

/// Counts one less, and forgets a count of zero.
fn less<K: std::hash::Hash + Eq + std::borrow::Borrow<str>>(
    counts: &mut HashMap<K, usize>,
    name: &str,
) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

//! What the page shows, as a document of bounded size.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::{ConditionStatus, IPBlock, IPBlockStatus, Phase, condition};
use crate::why::Entry;

/// The most rows of each table.
pub const MOST_ROWS: usize = 20;

/// The state of all blocks at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// When it was read.
    pub time: Timestamp,
    /// The replica that answers.
    pub replica: String,
    /// Whether it is the one that bans and lifts.
    pub leads: bool,
    /// How many blocks stand where.
    pub counts: Counts,
    /// The bans that end next, at most [`MOST_ROWS`].
    pub ending: Vec<Entry>,
    /// The blocks that fail longest, at most [`MOST_ROWS`].
    pub failing: Vec<Entry>,
    /// The latest bans, at most [`MOST_ROWS`].
    pub latest: Vec<Entry>,
    /// The configuration in force.
    pub configuration: Configuration,
}

/// How many blocks stand where. A block may count more than once: an active one may be due, and fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// All of them.
    pub blocks: usize,
    /// Enforced.
    pub active: usize,
    /// Enforced past their end.
    pub due: usize,
    /// Requested, and not enforced yet.
    pub pending: usize,
    /// Not as they should be: a ban or a lift is tried again, or waits.
    pub failing: usize,
    /// Not banned, by a rule.
    pub skipped: usize,
    /// Not banned, because they cannot be followed.
    pub failed: usize,
    /// Lifted.
    pub expired: usize,
    /// In deletion.
    pub deleting: usize,
}

/// The configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// The engine and its gateway; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The engines that follow the whole set of bans, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// What is wrong with it, each as a sentence.
    pub problems: Vec<String>,
    /// Oddities that are not errors.
    pub warnings: Vec<String>,
}

/// Sums up blocks one after another.
#[derive(Debug)]
pub(super) struct Summary {
    now: Timestamp,
    counts: Counts,
    ending: Least<(Timestamp, String)>,
    failing: Least<(Timestamp, String)>,
    latest: Least<(std::cmp::Reverse<Timestamp>, String)>,
}

/// The entries with the least keys.
#[derive(Debug)]
struct Least<K>(BTreeMap<K, Entry>);

// === impl Least ===

impl<K: Ord> Least<K> {
    fn add(&mut self, key: K, entry: impl FnOnce() -> Entry) {
        let full = self.0.len() >= MOST_ROWS;
        if full && self.0.last_key_value().is_some_and(|(last, _)| *last < key) {
            return;
        }
        self.0.insert(key, entry());
        if full {
            self.0.pop_last();
        }
    }

    fn into_rows(self) -> Vec<Entry> {
        self.0.into_values().collect()
    }
}

// === impl Summary ===

impl Summary {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            now,
            counts: Counts::default(),
            ending: Least(BTreeMap::new()),
            failing: Least(BTreeMap::new()),
            latest: Least(BTreeMap::new()),
        }
    }

    /// Takes a block into account.
    pub(super) fn add(&mut self, block: &IPBlock) {
        self.counts.blocks += 1;
        self.counts.deleting += usize::from(block.is_deleting());
        let status = block.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_ref());
        let entry = || Entry::of(block);
        let key = || block.key();
        match phase {
            None | Some(Phase::Pending) => self.counts.pending += 1,
            Some(Phase::Active) => {
                self.counts.active += 1;
                if let Some(until) = status.and_then(IPBlockStatus::expires_at) {
                    self.counts.due += usize::from(until <= self.now);
                    add(&mut self.ending, (until, key()), entry);
                }
                if let Some(began) = status.and_then(IPBlockStatus::blocked_at) {
                    add(&mut self.latest, (std::cmp::Reverse(began), key()), entry);
                }
            }
            Some(Phase::Expired) => self.counts.expired += 1,
            Some(Phase::Skipped) => self.counts.skipped += 1,
            Some(Phase::Failed) => self.counts.failed += 1,
            Some(Phase::Other(_)) => {}
        }
        if let Some(since) = failing_since(block) {
            self.counts.failing += 1;
            add(&mut self.failing, (since, key()), entry);
        }
    }

    pub(super) fn into_state(
        self,
        replica: &str,
        leads: bool,
        configuration: Configuration,
    ) -> State {
        State {
            time: self.now,
            replica: replica.to_owned(),
            leads,
            counts: self.counts,
            ending: self.ending.into_rows(),
            failing: self.failing.into_rows(),
            latest: self.latest.into_rows(),
            configuration,
        }
    }
}

/// Adds a block whose address can be read.
fn add<K: Ord>(rows: &mut Least<K>, key: K, entry: impl Fn() -> Option<Entry>) {
    // A block is decoded into an entry only if it may be among the rows.
    let full = rows.0.len() >= MOST_ROWS;
    if full && rows.0.last_key_value().is_some_and(|(last, _)| *last < key) {
        return;
    }
    if let Some(entry) = entry() {
        rows.add(key, || entry);
    }
}

/// Since when the operator tries again, or waits, for a block that is not settled.
fn failing_since(block: &IPBlock) -> Option<Timestamp> {
    let status = block.status.as_ref()?;
    let lifted = status.condition(condition::LIFTED);
    let ready = status.condition(condition::READY);
    let unsettled = matches!(status.phase, Some(Phase::Pending | Phase::Active));
    let fails = lifted
        .or_else(|| ready.filter(|_| unsettled))
        .filter(|condition| condition.status == ConditionStatus::False)?;
    fails.since()
}

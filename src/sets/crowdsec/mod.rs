//! The set as decisions of CrowdSec's local API, as its bouncers read it: unmodified ones enforce the operator's bans.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/decisions/stream?startup=true` | all decisions, and the position of the bouncer begins |
//! | `GET /v1/decisions/stream` | what is new and what is deleted since its last answer |
//! | `GET /v1/decisions?ip=…`, `?range=…` | the decisions about an address or a range; `null`: none |
//! | `HEAD` of both | the header |
//! | `POST /v1/usage-metrics` | accepted, and dropped |
//! | `GET /health` | `{"status":"up"}`, without a key |
//!
//! A bouncer is an API key, a User-Agent and the filters of its requests, at an address: two hosts may share a key. Its
//! position is the sets that its last answers led to, copies that share memory. Whether an answer arrived is not known,
//! so each answer has what differs from any of them: changes are sent three times, which changes nothing at a bouncer
//! that has them. A bouncer whose position is not known gets all decisions, and the lifts that are remembered as deleted.
//! The answer with all decisions is sent once; a restart of the bouncer makes up for one that was lost.
//!
//! A ban whose end moved is new only: some bouncers take in what is new before what is deleted, and would lift it. The
//! firewall bouncer deletes first, and its kernel sets may keep the time of an element that is there: it gets both.

mod decision;
mod surface;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::desired::Desired;
use super::freshness::Freshness;
use super::kind::{Capabilities, Change, Error, SetEngine};
use super::metrics::Metrics;
use super::set::TargetSet;
use crate::outbound::BoxFuture;
use crate::time::Time;

pub(super) use self::surface::CrowdSecSurface;

/// A bouncer counts as following for this long after its last request.
const FOLLOWS: Duration = Duration::from_secs(300);

/// A bouncer whose last answer is older is behind, if the decisions have changed since. Bouncers ask every 10 seconds.
const BEHIND: Duration = Duration::from_secs(60);

/// The position of a bouncer that asks no more is forgotten; it gets all decisions when it asks again.
const KEPT: Duration = Duration::from_secs(3600);

/// The most positions at once. Beyond them the one that was quiet for longest is forgotten.
const MOST: usize = 1024;

/// The most bytes of replaced entries that positions keep. A position that lags behind by more is forgotten, so that
/// bouncers that ask no more do not hold the lists of an hour.
const MOST_REPLACED: u64 = 128 * 1024 * 1024;

/// In how many answers a change is sent.
const REPEATED: usize = 3;

/// The decisions, and the positions of the bouncers.
#[derive(Debug)]
pub(super) struct CrowdSecEngine {
    name: String,
    state: Mutex<State>,
    time: Time,
    /// Has the lifts.
    desired: Desired,
    fresh: Freshness,
    ranges: bool,
    most_replaced: u64,
    metrics: Metrics,
}

/// The decisions at one moment. Positions share it.
#[derive(Debug, Default)]
struct Version {
    set: TargetSet,
    /// The bytes of entries that batches have replaced before this version: what lies between two versions is the most
    /// that the earlier one keeps in memory.
    replaced: u64,
}

#[derive(Debug, Default)]
struct State {
    current: Arc<Version>,
    ready: bool,
    /// It is not served any more.
    closed: bool,
    positions: HashMap<Bouncer, Position>,
}

/// A reader: the digest of its key, its User-Agent and its filters, and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Bouncer {
    digest: [u8; 16],
    address: IpAddr,
}

#[derive(Debug)]
struct Position {
    /// What its last answers led to, the latest at the back.
    sent: VecDeque<Arc<Version>>,
    /// When it asked.
    at: Instant,
    /// When it was answered.
    answered: Instant,
}

// === impl CrowdSecEngine ===

impl CrowdSecEngine {
    pub(super) fn new(name: &str, time: Time, desired: Desired, metrics: Metrics) -> Self {
        Self {
            name: name.to_owned(),
            state: Mutex::default(),
            time,
            desired,
            fresh: Freshness::default(),
            ranges: true,
            most_replaced: MOST_REPLACED,
            metrics,
        }
    }

    /// Without ranges they are left out.
    pub(super) fn with_ranges(mut self, ranges: bool) -> Self {
        self.ranges = ranges;
        self
    }

    /// Serves only while this replica follows the blocks.
    pub(super) fn while_fresh(mut self, fresh: Freshness) -> Self {
        self.fresh = fresh;
        self
    }

    /// The decisions now; `None`: they are not read yet, or out of date.
    fn current(&self) -> Option<Arc<Version>> {
        if self.fresh.is_stale() {
            return None;
        }
        let state = self.state.lock();
        state.ready.then(|| Arc::clone(&state.current))
    }

    /// What a bouncer may have, by its last answers; `None`: that is not known.
    fn position(&self, bouncer: &Bouncer) -> Option<Vec<Arc<Version>>> {
        let mut state = self.state.lock();
        let position = state.positions.get_mut(bouncer)?;
        position.at = Instant::now();
        Some(position.sent.iter().cloned().collect())
    }

    /// An answer that leads to `version` was written; `whole`: from nothing.
    fn advance(&self, bouncer: Bouncer, version: Arc<Version>, whole: bool) {
        let mut state = self.state.lock();
        if state.current.replaced - version.replaced > self.most_replaced {
            // The answer took too long.
            state.positions.remove(&bouncer);
            return;
        }
        let now = Instant::now();
        let positions = &mut state.positions;
        positions.retain(|_, position| now.duration_since(position.at) < KEPT);
        if positions.len() >= MOST && !positions.contains_key(&bouncer) {
            let quiet = positions.iter().min_by_key(|(_, position)| position.at);
            if let Some(quiet) = quiet.map(|(bouncer, _)| *bouncer) {
                positions.remove(&quiet);
            }
        }
        let position = positions.entry(bouncer).or_insert_with(|| Position {
            sent: VecDeque::new(),
            at: now,
            answered: now,
        });
        (position.at, position.answered) = (now, now);
        if whole {
            position.sent.clear();
        }
        if position.sent.len() >= REPEATED {
            position.sent.pop_front();
        }
        position.sent.push_back(version);
    }
}

impl SetEngine for CrowdSecEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            v6: true,
            ranges: self.ranges,
            ttl: true,
            most: None,
        }
    }

    fn collect(&self) -> Duration {
        // A batch costs its changes only, and each call waits for one.
        Duration::from_millis(5)
    }

    fn apply<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut state = self.state.lock();
            let before = &state.current;
            let replaced = before.replaced + before.set.replaced(&change.to);
            state.current = Arc::new(Version {
                set: change.to.clone(),
                replaced,
            });
            let lags = |position: &Position| {
                let oldest = position.sent.front();
                oldest.is_some_and(|it| replaced - it.replaced > self.most_replaced)
            };
            state.positions.retain(|_, position| !lags(position));
            Ok(())
        })
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<Option<TargetSet>, Error>> {
        Box::pin(async move { Ok(Some(self.state.lock().current.set.clone())) })
    }

    fn ready(&self) {
        self.state.lock().ready = true;
    }

    /// Counts the bouncers that asked lately: those that follow, and those that are behind.
    fn look(&self) {
        let state = self.state.lock();
        if state.closed {
            return;
        }
        let (mut current, mut behind) = (0, 0);
        for position in state.positions.values() {
            if position.at.elapsed() >= FOLLOWS {
                continue;
            }
            let lately = position.answered.elapsed() < BEHIND;
            let has = |it: &Arc<Version>| it.set == state.current.set;
            if lately || position.sent.back().is_some_and(has) {
                current += 1;
            } else {
                behind += 1;
            }
        }
        // Under the lock, so that nothing is counted after the end.
        self.metrics.agents(&self.name, "current", current);
        self.metrics.agents(&self.name, "behind", behind);
    }

    fn close(&self) {
        self.state.lock().closed = true;
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), Error>> {
        // It is not served any more.
        Box::pin(async { Ok(()) })
    }
}

#[cfg(test)]
mod tests;

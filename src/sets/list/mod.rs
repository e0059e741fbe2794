//! The set as a list over HTTP: for nginx, HAProxy, Envoy, firewalls, and agents on nodes.
//!
//! | request | answer |
//! |---|---|
//! | `GET /bans` | one target a line, sorted |
//! | `GET /bans?format=json` (or `Accept: application/json`) | `{"version","entries":[{"target","until"}]}` |
//! | `GET /bans?format=nginx` | `deny TARGET;` lines |
//! | `…?family=4`, `…?family=6` | one family only |
//! | `…?wait=30` with `If-None-Match` | answers when the list changes, or 304 after that many seconds |
//! | `…?format=json&since=VERSION` | `{"version","since","added","removed"}` while that version is known |
//! | `…` with the headers `X-IPBlock-Agent` and `X-IPBlock-Agent-Report` | takes the report of an agent too |
//! | `POST /bans/agents/NAME` | takes the report of an agent |
//!
//! The header `Date` is the time that ends are meant by, also while the wall clock of the operator's node is wrong.
//! `/bans` stands for the configured path. Until every block was read the answer is 503: an empty list would lift all. So
//! is that of a replica that does not lead and cannot follow the blocks.

mod agents;
mod document;
mod history;
mod surface;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::agents::{Agents, Report};
use self::document::Page;
use self::history::{Content, Family, Fingerprint, History, MOST_CHANGES};
use super::freshness::Freshness;
use super::kind::{Capabilities, Change, Error, SetEngine};
use super::metrics::Metrics;
use super::set::TargetSet;
use crate::outbound::BoxFuture;
use crate::time::Time;

pub(crate) use self::agents::STATES;
pub(super) use self::surface::ListSurface;

/// How many answers with changes are kept for other readers.
const WRITTEN: usize = 2;

/// Changes that are hashed before other tasks run.
const HASHED: usize = 1024;

/// The list, and its readers.
#[derive(Debug)]
pub(super) struct ListEngine {
    name: String,
    served: Mutex<Served>,
    /// The content's fingerprint; `None`: it was not filled yet.
    changed: watch::Sender<Option<Fingerprint>>,
    closing: CancellationToken,
    agents: Mutex<Agents>,
    time: Time,
    fresh: Freshness,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Served {
    set: TargetSet,
    fingerprint: Fingerprint,
    history: History,
    /// The last answers with changes, by version before and after: many readers wait for the same.
    written: VecDeque<(Family, [String; 2], Bytes)>,
}

// === impl Served ===

impl Served {
    /// The answer with what changed since a version, if that is known.
    fn changes(&mut self, family: Family, since: &str, version: &str) -> Option<Bytes> {
        let known = |(own, versions, _): &&(Family, [String; 2], Bytes)| {
            *own == family && versions[0] == since && versions[1] == version
        };
        if let Some((.., text)) = self.written.iter().find(known) {
            return Some(text.clone());
        }
        let changes = self.history.since(since, family, &self.fingerprint)?;
        let text = Bytes::from(document::changes_text(since, version, &changes));
        if self.written.len() >= WRITTEN {
            self.written.pop_front();
        }
        let versions = [since, version].map(str::to_owned);
        self.written.push_back((family, versions, text.clone()));
        Some(text)
    }
}

// === impl ListEngine ===

impl ListEngine {
    /// An empty list, which is not served before it is filled.
    pub(super) fn new(name: &str, time: Time, metrics: Metrics) -> Self {
        Self {
            name: name.to_owned(),
            served: Mutex::default(),
            changed: watch::Sender::new(None),
            closing: CancellationToken::new(),
            agents: Mutex::default(),
            time,
            fresh: Freshness::default(),
            metrics,
        }
    }

    /// Serves only while this replica follows the blocks.
    pub(super) fn while_fresh(mut self, fresh: Freshness) -> Self {
        self.fresh = fresh;
        self
    }

    /// The list as it is now; with the changes since a version, if a reader asks for them and they are known. `None`: it
    /// was not filled yet.
    fn page(&self, family: Family, content: Content, since: Option<&str>) -> Option<Page> {
        let mut served = self.served.lock();
        (*self.changed.borrow())?;
        let version = served.fingerprint.version(family, content);
        let changes = since.and_then(|since| served.changes(family, since, &version));
        Some(Page {
            version,
            set: served.set.clone(),
            family,
            now: self.time.now(),
            changes,
        })
    }

    /// Takes the report of an agent. Returns whether it was taken.
    fn report(&self, agent: &str, report: &Report) -> bool {
        self.agents.lock().report(agent, report, Instant::now())
    }
}

impl SetEngine for ListEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            v6: true,
            ranges: true,
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
            // Nothing else changes the fingerprint. Neither readers nor other tasks wait for the hashes of a large batch.
            let mut fingerprint = self.served.lock().fingerprint;
            let before = fingerprint.versions();
            // `None`: more than are remembered.
            let mut changes = Some(Vec::new());
            for (number, difference) in change.differences().enumerate() {
                fingerprint.change(&difference);
                if number == MOST_CHANGES {
                    changes = None;
                }
                if let Some(changes) = &mut changes {
                    changes.push(difference);
                }
                if number % HASHED == HASHED - 1 {
                    tokio::task::yield_now().await;
                }
            }
            let mut served = self.served.lock();
            // Before a reader has the next version: until it reports that, it is not behind.
            self.agents.lock().replace(before, Instant::now());
            served.fingerprint = fingerprint;
            served.history.push(before, changes);
            served.set = change.to.clone();
            self.changed.send_replace(Some(served.fingerprint));
            Ok(())
        })
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<Option<TargetSet>, Error>> {
        Box::pin(async move {
            let served = self.served.lock();
            Ok(Some(served.set.clone()))
        })
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), Error>> {
        // It is not served any more.
        Box::pin(async { Ok(()) })
    }

    /// Counts how many agents are current, behind and failed.
    fn look(&self) {
        let versions = self.served.lock().fingerprint.versions();
        let mut agents = self.agents.lock();
        // Its gauges are those of the next engine of the name by then.
        if self.closing.is_cancelled() {
            return;
        }
        let counts = agents.count(versions, Instant::now());
        for (state, count) in STATES.into_iter().zip(counts) {
            self.metrics.agents(&self.name, state, count);
        }
    }

    fn close(&self) {
        // Under the lock, so that nothing is counted after the end.
        let _agents = self.agents.lock();
        self.closing.cancel();
    }

    fn ready(&self) {
        let fingerprint = self.served.lock().fingerprint;
        self.changed.send_if_modified(|changed| {
            let news = changed.is_none();
            *changed = Some(fingerprint);
            news
        });
    }
}

#[cfg(test)]
mod tests;

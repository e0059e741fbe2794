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
//! | `POST /bans/agents/NAME` | takes the report of an agent |
//!
//! The header `Date` is the time that ends are meant by, also while the wall clock of the operator's node is wrong.
//! `/bans` stands for the configured path. Until every block was read the answer is 503: an empty list would lift all.

mod agents;
mod document;
mod history;
mod surface;

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::agents::{Agents, Report};
use self::document::Page;
use self::history::{Content, Family, Fingerprint, History};
use super::kind::{Capabilities, Change, Error, SetEngine};
use super::metrics::Metrics;
use super::set::TargetSet;
use crate::outbound::BoxFuture;
use crate::time::Time;

pub(crate) use self::agents::STATES;
pub(super) use self::surface::ListSurface;

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
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Served {
    set: TargetSet,
    fingerprint: Fingerprint,
    history: History,
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
            metrics,
        }
    }

    /// The list as it is now; with the changes since a version, if a reader asks for them and they are known. `None`: it
    /// was not filled yet.
    fn page(&self, family: Family, content: Content, since: Option<&str>) -> Option<Page> {
        let served = self.served.lock();
        (*self.changed.borrow())?;
        let fingerprint = &served.fingerprint;
        let changes = since.and_then(|version| {
            let changes = served.history.since(version, family, fingerprint)?;
            Some((version.to_owned(), changes))
        });
        Some(Page {
            version: fingerprint.version(family, content),
            set: served.set.clone(),
            family,
            now: self.time.now(),
            changes,
        })
    }

    /// Takes the report of an agent. Returns whether it was taken.
    fn report(&self, agent: &str, report: Report) -> bool {
        let taken = self.agents.lock().report(agent, report, Instant::now());
        self.count_agents();
        taken
    }

    /// Counts the agents and returns how many are current, behind and failed.
    fn count_agents(&self) -> agents::Counts {
        let fingerprint = self.served.lock().fingerprint;
        let families = [Family::Both, Family::V4, Family::V6];
        let versions = families.map(|family| fingerprint.version(family, Content::Entries));
        let counts = self.agents.lock().count(&versions, Instant::now());
        for (state, count) in STATES.into_iter().zip(counts) {
            self.metrics.agents(&self.name, state, count);
        }
        counts
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
        // A batch costs its changes only.
        Duration::from_millis(20)
    }

    fn apply<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let mut changes = Vec::new();
            change.each(|difference| changes.push(difference));
            let mut served = self.served.lock();
            let before = served.fingerprint;
            for difference in &changes {
                served.fingerprint.change(difference);
            }
            served.history.push(before, changes);
            served.set = change.to.clone();
            self.changed.send_replace(Some(served.fingerprint));
            drop(served);
            self.count_agents();
            Ok(())
        })
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<Option<TargetSet>, Error>> {
        Box::pin(async move {
            self.count_agents();
            let served = self.served.lock();
            Ok(Some(served.set.clone()))
        })
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), Error>> {
        // It is not served any more.
        Box::pin(async { Ok(()) })
    }

    fn close(&self) {
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

//! The log and the metrics of an elector.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use reeve_client::ObjectKey;

use crate::machine::{Lost, Report};
use crate::status::{SharedStatus, State};

/// The metrics of a program's electors, by the name of their lease, under the names of client-go and
/// controller-runtime. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ElectionFamilies {
    leads: Family<Label, Gauge>,
    slow_path: Family<Label, Counter>,
}

type Label = [(&'static str, String); 1];

/// The metrics of an elector: those of [`ElectionFamilies::of`], or the default, which no registry shows.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ElectionMetrics {
    /// `leader_election_master_status`.
    pub leads: Gauge,
    /// `leader_election_slowpath_total`: renewals that had to read first.
    pub slow_path: Counter,
}

/// Logs and counts what happens to one candidate.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) key: ObjectKey,
    pub(crate) identity: String,
    pub(crate) metrics: ElectionMetrics,
    pub(crate) status: SharedStatus,
    /// The last logged holder, to log each holder once.
    pub(crate) holder: String,
}

// === impl ElectionFamilies ===

impl ElectionFamilies {
    /// Shows these metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "leader_election_master_status",
            "1 while this process holds the lease, else 0",
            self.leads.clone(),
        );
        registry.register(
            "leader_election_slowpath",
            "Renewals of the lease that had to read it first, because writing it at once failed",
            self.slow_path.clone(),
        );
    }

    /// The metrics of the elector of `lease`, each present from now on, at zero.
    #[must_use]
    pub fn of(&self, lease: &str) -> ElectionMetrics {
        let label = label(lease);
        ElectionMetrics {
            leads: self.leads.get_or_create_owned(&label),
            slow_path: self.slow_path.get_or_create_owned(&label),
        }
    }

    /// Removes the series of `lease`.
    pub fn forget(&self, lease: &str) {
        let label = label(lease);
        self.leads.remove(&label);
        self.slow_path.remove(&label);
    }
}

fn label(lease: &str) -> Label {
    [("name", lease.to_owned())]
}

// === impl Journal ===

impl Journal {
    pub(crate) fn contends(&self) {
        self.status.enter(State::Candidate);
        tracing::info!(lease = %self.key, identity = %self.identity, "waiting for the lease");
    }

    /// The fence is closed.
    pub(crate) fn stops_leading(&self) {
        self.metrics.leads.set(0);
        self.status.enter(State::Idle);
    }

    /// A write took the lease or renewed it.
    pub(crate) fn renewed(&self) {
        self.status.renewed();
    }

    pub(crate) fn report(&mut self, report: Report) {
        self.show(&report);
        let lease = &self.key;
        match report {
            Report::Held { holder } if holder == self.holder => {}
            Report::Held { holder } => {
                tracing::info!(%lease, holder, "another candidate leads");
                self.holder = holder;
            }
            Report::WrittenFirst { cause } => {
                tracing::debug!(%lease, error = cause, "another candidate wrote the lease first");
            }
            Report::NotTaken { cause } => {
                tracing::warn!(%lease, error = cause, "could not take the lease");
            }
            Report::Leading => {
                self.metrics.leads.set(1);
                tracing::info!(%lease, identity = %self.identity, "leading");
            }
            Report::SlowPath { cause } => {
                self.metrics.slow_path.inc();
                tracing::debug!(%lease, error = cause, "renewing without reading failed");
            }
            Report::NotRenewed { cause } => {
                tracing::warn!(%lease, error = cause, "could not renew the lease");
            }
            Report::Lost(lost) => tracing::error!(%lease, cause = %lost, "leading ended"),
            Report::NotWatched { cause } => {
                tracing::debug!(%lease, error = cause, "could not watch the lease; reading it instead");
            }
            Report::Released => tracing::info!(%lease, "released the lease"),
            Report::NotReleased { cause } => {
                tracing::warn!(%lease, error = cause, "could not release the lease");
            }
            Report::ReleaseTooShort => tracing::warn!(
                %lease,
                "could not release the lease: a write in flight may arrive after the stop"
            ),
            Report::StillWorking => tracing::warn!(
                %lease,
                "could not release the lease: a worker or a write under it did not end; the lease expires by itself"
            ),
            Report::ReleaseTooSlow => tracing::warn!(%lease, "could not release the lease in time"),
        }
    }
    /// Shows the report in the status.
    fn show(&self, report: &Report) {
        let status = &self.status;
        match report {
            Report::Held { holder } => status.held_by(Some(holder)),
            Report::Leading => status.enter(State::Leading),
            Report::Lost(lost) => {
                status.enter(State::Lost);
                status.failed(&lost.to_string());
                if let Lost::Taken { holder } = lost {
                    status.held_by(Some(holder));
                }
            }
            Report::Released => status.held_by(None),
            Report::WrittenFirst { cause }
            | Report::NotTaken { cause }
            | Report::SlowPath { cause }
            | Report::NotRenewed { cause }
            | Report::NotWatched { cause }
            | Report::NotReleased { cause } => status.failed(cause),
            Report::ReleaseTooShort | Report::StillWorking | Report::ReleaseTooSlow => {}
        }
    }
}

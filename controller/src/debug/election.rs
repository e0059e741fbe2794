//! The state of each leader election, in a form that can be printed.

use std::sync::{Arc, Weak};

use jiff::Timestamp;
use parking_lot::Mutex;
use reeve_election::{SharedStatus, Status};
use serde::{Deserialize, Serialize};

/// The leases that this process contends for. Clones are one set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elections(Arc<Mutex<Vec<Weak<Candidate>>>>);

/// A lease that is shown until this is dropped.
#[derive(Debug)]
pub(crate) struct Candidate {
    controller: Option<String>,
    status: SharedStatus,
}

/// The state of this process as a candidate for a lease. [`Status`] documents each field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ElectionReport {
    /// `namespace/name` of the lease.
    pub lease: String,
    /// The controller of the lease, if it is not the manager's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// The identity of this process.
    pub identity: String,
    /// The state: `idle`, `candidate`, `leading`, `lost`.
    pub state: String,
    /// The time of the last change of state.
    pub since: Timestamp,
    /// The holder that was seen last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Renewals by this process.
    pub renewals: u64,
    /// The time of the last write that took or renewed the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_renewal: Option<Timestamp>,
    /// The last failed request, also if later ones succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ElectionError>,
}

/// A failed request for a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ElectionError {
    /// The error.
    pub message: String,
    /// Its time.
    pub since: Timestamp,
}

// === impl Elections ===

impl Elections {
    /// Shows `status`, of the manager's lease or of that of `controller`.
    pub(crate) fn add(&self, controller: Option<&str>, status: SharedStatus) -> Arc<Candidate> {
        let candidate = Arc::new(Candidate {
            controller: controller.map(str::to_owned),
            status,
        });
        let mut candidates = self.0.lock();
        candidates.retain(|candidate| candidate.strong_count() > 0);
        candidates.push(Arc::downgrade(&candidate));
        candidate
    }

    /// The state of each candidate, the manager's first, then by controller.
    pub(crate) fn report(&self) -> Vec<ElectionReport> {
        let candidates: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let mut reports: Vec<_> = candidates.iter().map(|one| one.report()).collect();
        reports.sort_by(|a, b| (&a.controller, &a.lease).cmp(&(&b.controller, &b.lease)));
        reports
    }
}

// === impl Candidate ===

impl Candidate {
    pub(crate) fn status(&self) -> &SharedStatus {
        &self.status
    }

    fn report(&self) -> ElectionReport {
        let status: Status = self.status.get();
        ElectionReport {
            lease: status.lease,
            controller: self.controller.clone(),
            identity: status.identity,
            state: status.state.to_string(),
            since: status.since,
            holder: status.holder,
            renewals: status.renewals,
            last_renewal: status.last_renewal,
            last_error: status.last_error.map(|error| ElectionError {
                message: error.message,
                since: error.at,
            }),
        }
    }
}

//! The state of each controller, in a form that can be printed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::lifecycle::Unavailable;

/// The state of a controller. Counters begin with the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerReport {
    /// The controller's name.
    pub name: String,
    /// The kind of the objects that it reconciles, as `Website (example.com/v1)`; unset if its requests are of another type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its state: `waiting`, `standby`, `syncing`, `running`, `stopping`
    /// ([`State`](crate::manager::State)). A controller that has ended is not shown.
    pub state: String,
    /// The time of its last change of state.
    pub since: Timestamp,
    /// Its workers; 0 once it has ended.
    pub workers: usize,
    /// Workers that reconcile now.
    pub busy: usize,
    /// Reconciles by result.
    pub reconciles: ReconcileCounts,
    /// Reconciles that panicked.
    pub panics: u64,
    /// Reconciles that were dropped at the controller's time-out.
    pub timeouts: u64,
    /// Keys that failed more often than they are retried.
    pub given_up: u64,
    /// Panics of handlers and predicates of its watches.
    pub watch_panics: u64,
    /// The end of the last reconcile without an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Timestamp>,
    /// The reconcile that has run for the longest time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_run: Option<RunReport>,
    /// Its watches, then its sources that have not finished, each in the order in which they were added.
    pub sources: Vec<SourceReport>,
}

/// Reconciles by result, as in `controller_runtime_reconcile_total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ReconcileCounts {
    /// Those that were done.
    pub success: u64,
    /// Those that failed.
    pub error: u64,
    /// Those that requested a retry with back-off.
    pub requeue: u64,
    /// Those that requested another run after a time.
    pub requeue_after: u64,
}

/// A reconcile that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunReport {
    /// Its key.
    pub key: String,
    /// Its begin.
    pub since: Timestamp,
}

/// A watch or another source of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SourceReport {
    /// The kind of the watch, as `Website (example.com/v1)`, or the name of the source.
    pub name: String,
    /// It is a watch.
    pub watch: bool,
    /// Its state.
    pub state: SourceState,
    /// The class of the failure, if it is not ready: see [`Unavailable::cause`](crate::manager::Unavailable::cause).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// The failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The state of a watch or source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SourceState {
    /// The handler of the watch has seen its first objects; the source is read.
    Ready,
    /// The controller does not lead: the cache of the watch is kept, and the source is not read.
    Standby,
    /// The server does not have the kind, and the watch is optional.
    Absent,
    /// It brings no requests: `cause` and `message` say why.
    NotReady,
}

// === impl ControllerReport ===

impl ControllerReport {
    /// Whether a reconcile runs for each worker.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.workers > 0 && self.busy >= self.workers
    }
}

// === impl ReconcileCounts ===

impl ReconcileCounts {
    pub(crate) fn new(success: u64, error: u64, requeue: u64, requeue_after: u64) -> Self {
        Self {
            success,
            error,
            requeue,
            requeue_after,
        }
    }
}

// === impl RunReport ===

impl RunReport {
    pub(crate) fn new(key: String, since: Timestamp) -> Self {
        Self { key, since }
    }
}

// === impl SourceReport ===

impl SourceReport {
    /// Of a watch or source with its `trouble`, if it has any; `None` while the controller does not lead.
    pub(crate) fn of(name: String, watch: bool, trouble: Option<Option<Unavailable>>) -> Self {
        let (state, trouble) = match trouble {
            None => (SourceState::Standby, None),
            Some(None) => (SourceState::Ready, None),
            Some(Some(trouble)) if trouble.optional => (SourceState::Absent, Some(trouble)),
            Some(Some(trouble)) => (SourceState::NotReady, Some(trouble)),
        };
        let (cause, message) = trouble.map_or_else(Default::default, |trouble| {
            (trouble.cause.to_owned(), trouble.message)
        });
        Self {
            name,
            watch,
            state,
            cause,
            message,
        }
    }
}

// === impl SourceState ===

impl SourceState {
    /// As in a sentence.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Standby => "standby",
            Self::Absent => "absent",
            Self::NotReady => "not ready",
        }
    }
}

//! The state of one watch: [`WatchHealth`].

use jiff::Timestamp;

use super::activity::Activity;
use reeve_client::ResourceVersion;
use reeve_client::transport::Scope;

/// The state of one watch of an informer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchHealth {
    /// The scope of the watch.
    pub scope: Scope,
    /// True once its first list is in the store.
    pub synced: bool,
    /// Its activity.
    pub activity: Activity,
    /// The time at which the activity began.
    pub since: Timestamp,
    /// The last failure, if it was not followed by success.
    pub failure: Option<Failure>,
    /// The last failure that is over.
    pub last_failure: Option<Failure>,
    /// The time of the last event, bookmark or list of this watch.
    pub last_heard: Option<Timestamp>,
    /// The version of what the store holds of the scope.
    pub resource_version: ResourceVersion,
    /// The number of lists and events that were refused because they were older than the store.
    pub stale: u64,
    /// The number of times that the server's history began again.
    pub epochs: u64,
}

/// The reason why an informer makes no progress.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The class: `connection`, `forbidden`, `not found`, `expired`, `decode`, `status` for other answers, …
    pub class: &'static str,
    /// The error.
    pub message: String,
    /// The time of the first failure in this row.
    pub since: Timestamp,
    /// The number of failures in this row.
    pub times: u32,
}

//! The state of each informer, in a form that can be printed.

use std::borrow::Cow;

use jiff::Timestamp;
use reeve_informer::{CacheHealth, Failure, Scope};
use serde::{Deserialize, Serialize};

/// The state of an informer. [`CacheHealth`] documents the meaning of each number.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InformerReport {
    /// The [cluster](crate::cluster) it watches, if that is not the manager's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The informer's name.
    pub name: String,
    /// The first list is in the store.
    pub synced: bool,
    /// The activity: `idle`, `listing`, `watching`, `backing off`, `missing`, `stopped`.
    pub activity: String,
    /// The begin of the activity.
    pub since: Timestamp,
    /// The last failure that was not followed by success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureReport>,
    /// The last failure that is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<FailureReport>,
    /// The time of the last answer or event of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heard: Option<Timestamp>,
    /// The time of the last change in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_change: Option<Timestamp>,
    /// The version of the store's content.
    pub resource_version: String,
    /// Objects in the store.
    pub objects: usize,
    /// Bytes of memory they take: exact for compact entries, a lower bound for typed ones.
    pub bytes: usize,
    /// Changes on their way into the store.
    pub queued: usize,
    /// Objects that cannot be read.
    pub quarantined: usize,
    /// Some of these objects.
    pub quarantined_objects: Vec<QuarantinedReport>,
    /// Versions of objects that did not decode when they were read.
    pub unreadable: u64,
    /// Lists and events that were older than the store.
    pub stale: u64,
    /// The number of times that the server's history began again.
    pub epochs: u64,
    /// The handlers of changes.
    pub handlers: Vec<HandlerReport>,
    /// The watches, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watches: Vec<WatchReport>,
}

/// The reason why an informer makes no progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FailureReport {
    /// `connection`, `status`, `expired`, …
    pub class: Cow<'static, str>,
    /// The error.
    pub message: String,
    /// The first time in this row.
    pub since: Timestamp,
    /// The number of failures in a row.
    pub times: u32,
}

/// An object that cannot be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct QuarantinedReport {
    /// The key.
    pub key: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The error.
    pub error: String,
    /// The names and types of its fields, never a value.
    pub outline: String,
}

/// The state of a handler.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct HandlerReport {
    /// Its name.
    pub name: String,
    /// It got all of the first list.
    pub synced: bool,
    /// Events that wait for it.
    pub backlog: usize,
    /// Events delivered to it.
    pub delivered: u64,
    /// Events it did not keep up with.
    pub dropped: u64,
    /// The number of its panics.
    pub panics: u64,
}

/// The state of one watch of an informer that has several.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct WatchReport {
    /// The namespace, or `*`.
    pub scope: String,
    /// Its first list is in the store.
    pub synced: bool,
    /// The activity.
    pub activity: String,
    /// The begin of the activity.
    pub since: Timestamp,
    /// The last failure that was not followed by success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureReport>,
    /// The version of its content in the store.
    pub resource_version: String,
}

// === impl InformerReport ===

impl InformerReport {
    /// The name in metrics: `pods`, or `edge/pods` of the cluster `edge`.
    #[must_use]
    pub fn full_name(&self) -> String {
        match &self.cluster {
            None => self.name.clone(),
            Some(cluster) => format!("{cluster}/{}", self.name),
        }
    }

    pub(super) fn of_cluster(mut self, cluster: &str) -> Self {
        self.cluster = Some(cluster.to_owned());
        self
    }
}

/// A report of each informer, by name, with at most `limit` objects in quarantine, handlers and watches each.
#[must_use]
pub fn informer_reports(health: &[CacheHealth], limit: usize) -> Vec<InformerReport> {
    let mut reports: Vec<_> = health.iter().map(|health| report(health, limit)).collect();
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    reports
}

fn report(health: &CacheHealth, limit: usize) -> InformerReport {
    let quarantined = health.quarantined.iter().take(limit);
    let handlers = health.handlers.iter().take(limit);
    let watches = health.watches.iter().filter(|_| health.watches.len() > 1);
    InformerReport {
        cluster: None,
        name: health.name.to_string(),
        synced: health.synced,
        activity: health.activity.to_string(),
        since: health.since,
        failure: health.failure.as_ref().map(failure),
        last_failure: health.last_failure.as_ref().map(failure),
        last_heard: health.last_heard,
        last_change: health.last_change,
        resource_version: health.resource_version.to_string(),
        objects: health.objects,
        bytes: health.bytes.total(),
        queued: health.queued,
        quarantined: health.quarantined_count,
        quarantined_objects: quarantined
            .map(|object| QuarantinedReport {
                key: object.key.to_string(),
                resource_version: object.resource_version.clone(),
                error: object.error.clone(),
                outline: object.outline.clone(),
            })
            .collect(),
        unreadable: health.unreadable,
        stale: health.stale,
        epochs: health.epochs,
        handlers: handlers
            .map(|handler| HandlerReport {
                name: handler.name.to_string(),
                synced: handler.synced,
                backlog: handler.backlog,
                delivered: handler.delivered,
                dropped: handler.dropped,
                panics: handler.panics,
            })
            .collect(),
        watches: watches
            .take(limit)
            .map(|watch| WatchReport {
                scope: match &watch.scope {
                    Scope::Cluster => "*".into(),
                    Scope::Namespace(namespace) => namespace.to_string(),
                },
                synced: watch.synced,
                activity: watch.activity.to_string(),
                since: watch.since,
                failure: watch.failure.as_ref().map(failure),
                resource_version: watch.resource_version.to_string(),
            })
            .collect(),
    }
}

fn failure(failure: &Failure) -> FailureReport {
    FailureReport {
        class: failure.class.into(),
        message: failure.message.clone(),
        since: failure.since,
        times: failure.times,
    }
}

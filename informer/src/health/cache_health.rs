//! The state of an informer: [`CacheHealth`].

use std::sync::Arc;

use jiff::Timestamp;

use super::activity::Activity;
use super::handler_health::HandlerHealth;
use super::quarantine::{DESCRIBED, Quarantine, Quarantined};
use super::watch_health::{Failure, WatchHealth};
use crate::indexer::StoreBytes;
use reeve_client::ResourceVersion;
use reeve_client::transport::Scope;

/// The state of one informer at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheHealth {
    /// The informer's name.
    pub name: Arc<str>,
    /// True once the first list is in the store. With a set of namespaces false again while a new namespace is listed.
    pub synced: bool,
    /// True once it was synced, whatever namespaces were added since.
    pub was_synced: bool,
    /// Its activity: of several watches, that of most concern.
    pub activity: Activity,
    /// The time at which the activity began.
    pub since: Timestamp,
    /// The last failure, if it was not followed by success.
    pub failure: Option<Failure>,
    /// The last failure that is over.
    pub last_failure: Option<Failure>,
    /// The time of the last event, bookmark or list. Of several watches it is that of the one that was silent for
    /// longest, and `None` while one has received nothing; [`CacheHealth::watches`] has the time of each.
    pub last_heard: Option<Timestamp>,
    /// The time of the last change in the store.
    pub last_change: Option<Timestamp>,
    /// The number of changes that wait between the reflectors and the store.
    pub queued: usize,
    /// The number of objects in the store.
    pub objects: usize,
    /// The memory that they take; for typed objects a lower bound ([`StoreBytes`]).
    pub bytes: StoreBytes,
    /// The version of the store's content.
    pub resource_version: ResourceVersion,
    /// Objects that cannot be read but have a name (at most 1,000).
    pub quarantined: Vec<Quarantined>,
    /// The number of objects that cannot be read. Of those without a name at most 1,000 are counted.
    pub quarantined_count: usize,
    /// The number of versions of objects in the store that did not decode on reading: in forms that are decoded on
    /// reading, as [`Compact`](crate::Compact), or when they were read as another type. Each version counts once.
    pub unreadable: u64,
    /// The number of lists and events that were refused because they were older than the store.
    pub stale: u64,
    /// The number of times that the server's history began again.
    pub epochs: u64,
    /// The handlers.
    pub handlers: Vec<HandlerHealth>,
    /// The watches: one, or one for each namespace of a set. The activity and failure above are those of most concern
    /// among the watches.
    pub watches: Vec<WatchHealth>,
}

// === impl CacheHealth ===

impl CacheHealth {
    /// The state of an informer that was made at `made` and has these watches. Fields that the watches cannot fill are
    /// empty.
    pub(crate) fn of(name: Arc<str>, made: Timestamp, watches: Vec<WatchHealth>) -> Self {
        // Among equal ones, the watch that has been so for longest.
        let worst = watches
            .iter()
            .max_by_key(|watch| (watch.activity.concern(), std::cmp::Reverse(watch.since)));
        let failing = watches.iter().filter_map(|watch| watch.failure.as_ref());
        let failed = watches
            .iter()
            .filter_map(|watch| watch.last_failure.as_ref());
        Self {
            name,
            synced: false,
            was_synced: false,
            activity: worst.map_or(Activity::Watching, |watch| watch.activity),
            since: worst.map_or(made, |watch| watch.since),
            failure: failing.min_by_key(|failure| failure.since).cloned(),
            last_failure: failed.max_by_key(|failure| failure.since).cloned(),
            last_change: None,
            last_heard: watches.iter().map(|watch| watch.last_heard).min().flatten(),
            queued: 0,
            objects: 0,
            bytes: StoreBytes::default(),
            resource_version: ResourceVersion::default(),
            quarantined: Vec::new(),
            quarantined_count: 0,
            unreadable: 0,
            stale: watches.iter().map(|watch| watch.stale).sum(),
            epochs: watches.iter().map(|watch| watch.epochs).sum(),
            handlers: Vec::new(),
            watches,
        }
    }

    pub(super) fn add_quarantined(&mut self, quarantine: &Quarantine) {
        let room = DESCRIBED.saturating_sub(self.quarantined.len());
        self.quarantined.extend(quarantine.described().take(room));
        self.quarantined_count += quarantine.len();
    }

    /// True if the store holds a complete state and follows it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.synced && matches!(self.activity, Activity::Watching | Activity::Listing)
    }

    /// One line that describes the problem, or `None` if there is none.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        if let Some(failure) = &self.failure {
            let place = self.place(|watch| watch.failure.is_some());
            return Some(format!(
                "{}{place}: failing {} since {}: {}",
                self.name,
                counted(failure.times, "time"),
                failure.since,
                failure.message
            ));
        }
        if !self.synced {
            let place = self.place(|watch| !watch.synced);
            return Some(format!(
                "{}{place}: not synced, {} since {}",
                self.name, self.activity, self.since
            ));
        }
        (self.quarantined_count > 0).then(|| {
            format!(
                "{}: {} cannot be read",
                self.name,
                counted(self.quarantined_count, "object")
            )
        })
    }
}

impl CacheHealth {
    /// The names of the watches for which `wanted` is true: the first three.
    fn place(&self, wanted: impl Fn(&WatchHealth) -> bool) -> String {
        if let []
        | [
            WatchHealth {
                scope: Scope::Cluster,
                ..
            },
        ] = &self.watches[..]
        {
            return String::new();
        }
        if let [
            WatchHealth {
                scope: Scope::Namespace(namespace),
                ..
            },
        ] = &self.watches[..]
            && self.name.contains(&format!(" in {namespace}"))
        {
            // The name of an informer of one namespace has it; that of an informer of a set has not.
            return String::new();
        }
        let mut names = self
            .watches
            .iter()
            .filter(|watch| wanted(watch))
            .map(|watch| match &watch.scope {
                Scope::Cluster => "all others",
                Scope::Namespace(name) => &**name,
            });
        let first: Vec<_> = names.by_ref().take(3).collect();
        let more = match names.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(" in {}{more}", first.join(", "))
    }
}

/// `1 time`, `2 times`.
fn counted<N: PartialEq + From<u8> + std::fmt::Display>(number: N, what: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {what}{plural}")
}

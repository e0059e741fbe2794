//! How an informer is doing, for readiness, metrics and people.

mod cell;
mod quarantine;

pub(crate) use cell::HealthCell;

use std::sync::Arc;

use jiff::Timestamp;

use crate::indexer::StoreBytes;
use crate::key::ObjectKey;
use crate::transport::Scope;
use crate::version::ResourceVersion;
use quarantine::{DESCRIBED, Quarantine};

/// What the informer is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// It was not started.
    #[default]
    Idle,
    /// It reads everything there is.
    Listing,
    /// It follows changes.
    Watching,
    /// It waits after a failure; what is in the store grows old.
    BackingOff,
    /// The server does not have the kind, as when its CRD was removed. What is in the store stays, and the server
    /// is asked now and then whether the kind is back.
    Missing,
    /// It ended.
    Stopped,
}

impl std::fmt::Display for Activity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Listing => "listing",
            Self::Watching => "watching",
            Self::BackingOff => "backing off",
            Self::Missing => "missing",
            Self::Stopped => "stopped",
        })
    }
}

/// The state of one informer at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheHealth {
    /// The informer's name.
    pub name: Arc<str>,
    /// True once the first list is in the store. With a set of namespaces false again while one that came is listed.
    pub synced: bool,
    /// True once it was synced, whatever namespaces came since.
    pub was_synced: bool,
    /// What it is doing.
    pub activity: Activity,
    /// Since when.
    pub since: Timestamp,
    /// The last failure, if it was not followed by success.
    pub failure: Option<Failure>,
    /// The last failure that is over.
    pub last_failure: Option<Failure>,
    /// When the API server was heard last (an event, a bookmark, a list). Of several watches it is the one that was
    /// silent for longest, and `None` while there is one that never heard anything: each has its own in
    /// [`CacheHealth::watches`].
    pub last_heard: Option<Timestamp>,
    /// When something in the store changed last.
    pub last_change: Option<Timestamp>,
    /// How many changes wait between the reflectors and the store.
    pub queued: usize,
    /// How many objects the store holds.
    pub objects: usize,
    /// How much memory they take; of typed objects a lower bound ([`StoreBytes`]).
    pub bytes: StoreBytes,
    /// The version of the store's content.
    pub resource_version: ResourceVersion,
    /// Objects that cannot be read, as far as they can be named (at most 1,000).
    pub quarantined: Vec<Quarantined>,
    /// How many objects cannot be read. Of those without a name at most 1,000 are counted.
    pub quarantined_count: usize,
    /// How many versions of objects are or were in the store and did not decode when somebody read them: of forms that
    /// are decoded on reading, as [`Compact`](crate::Compact), and of those that a reader wants as another type. Each
    /// counts once.
    pub unreadable: u64,
    /// How many lists and events were refused because they were older than what is known.
    pub stale: u64,
    /// How often the server's history began anew.
    pub epochs: u64,
    /// The handlers.
    pub handlers: Vec<HandlerHealth>,
    /// The watches: one, or one for each namespace of a set. What is said above of activity and failure is what
    /// gives most concern among theirs.
    pub watches: Vec<WatchHealth>,
}

/// The state of one watch of an informer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchHealth {
    /// Where it watches.
    pub scope: Scope,
    /// True once its first list is in the store.
    pub synced: bool,
    /// What it is doing.
    pub activity: Activity,
    /// Since when.
    pub since: Timestamp,
    /// The last failure, if it was not followed by success.
    pub failure: Option<Failure>,
    /// The last failure that is over.
    pub last_failure: Option<Failure>,
    /// When the API server was heard last on it.
    pub last_heard: Option<Timestamp>,
    /// The version of what the store holds of the scope.
    pub resource_version: ResourceVersion,
    /// How many lists and events were refused because they were older than what is known.
    pub stale: u64,
    /// How often the server's history began anew.
    pub epochs: u64,
}

/// Why an informer makes no progress.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The class: `connection`, `forbidden`, `not found`, `expired`, `decode`, `status` for other answers, …
    pub class: &'static str,
    /// What went wrong.
    pub message: String,
    /// When it happened first in this row.
    pub since: Timestamp,
    /// How often in a row.
    pub times: u32,
}

/// An object that the server sends and that cannot be read as its type. What the store held of it before
/// stays.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quarantined {
    /// Which object.
    pub key: ObjectKey,
    /// Its version.
    pub resource_version: Option<String>,
    /// What is wrong with it, without any of its content.
    pub error: String,
    /// What was sent: the names of its fields and the types of their values, never a value. Cut after 512
    /// bytes, without `managedFields`.
    pub outline: String,
}

/// The state of one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerHealth {
    /// The handler's name.
    pub name: Arc<str>,
    /// It was shown everything of the first list.
    pub synced: bool,
    /// How many events wait for it.
    pub backlog: usize,
    /// How many events it was given.
    pub delivered: u64,
    /// How many events were dropped because it did not keep up.
    pub dropped: u64,
    /// How often it panicked.
    pub panics: u64,
}

// === impl CacheHealth ===

impl CacheHealth {
    /// The state of an informer that was made at `made` and has these watches; what they do not know is left
    /// empty.
    pub(crate) fn of(name: Arc<str>, made: Timestamp, watches: Vec<WatchHealth>) -> Self {
        // Of equals, the one that has been so for longest.
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

    fn add_quarantined(&mut self, quarantine: &Quarantine) {
        let room = DESCRIBED.saturating_sub(self.quarantined.len());
        self.quarantined.extend(quarantine.described().take(room));
        self.quarantined_count += quarantine.len();
    }

    /// True if the store holds a complete state and follows it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.synced && matches!(self.activity, Activity::Watching | Activity::Listing)
    }

    /// One line that says what is wrong, or `None` if nothing is.
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
    /// Which of several watches `wanted` is true of: the first three by name.
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
            // An informer of one namespace is called so; one of a set that has one namespace now is not.
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

impl Activity {
    /// How much concern it gives, among the watches of one informer.
    fn concern(self) -> u8 {
        match self {
            Self::Watching => 0,
            Self::Stopped => 1,
            Self::Listing => 2,
            Self::Idle => 3,
            Self::Missing => 4,
            Self::BackingOff => 5,
        }
    }
}

//! Controllers: watches that name requests, a queue that holds them, workers that reconcile them.

mod back_off;
mod builder;
mod defaults;
mod figures;
#[cfg(doctest)]
mod impossible;
mod late_watch;
mod member;
mod outage;
mod panics;
mod reading;
mod run;
mod span;
mod sync;
#[cfg(test)]
mod tests;
mod watch;
mod watch_handle;
mod watching;
mod worker;

use std::fmt;

use reeve_clock::Clock;

pub use crate::lifecycle::WatchError;
pub use back_off::OUTAGE_BACK_OFF;
pub use builder::{BuildError, Builder, NoWatch, OneKind};
pub use defaults::Defaults;
pub use reeve_workqueue::LOW_PRIORITY;
pub use watch::Watch;
pub use watch_handle::{WatchGuard, WatchHandle};

use crate::cache::{CacheError, Caches};
use crate::client::Client;
use crate::debug::Queues;
use crate::events::Recorder;
use crate::leader_election::{self, Fence, Term};
use crate::lifecycle::Name;
use crate::lifecycle::Runnable;
use crate::metrics::Metrics;
use crate::reconcile::{Request, RequestKey};

/// The default wait of a key for its own writes to appear in the caches.
pub const OWN_WRITES_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// A controller, ready to be added to a [`Manager`](crate::Manager).
pub struct Controller {
    pub(crate) name: String,
    /// `None`: the manager's default.
    pub(crate) needs_leader_election: Option<bool>,
    /// A lease of its own.
    pub(crate) lease: Option<leader_election::Options>,
    pub(crate) prepare: Box<dyn FnOnce(Parts) -> Result<Runnable, CacheError> + Send>,
}

/// The parts of the manager that a controller uses.
pub(crate) struct Parts {
    pub(crate) clock: Clock,
    pub(crate) client: Client,
    /// The fence of its lease, if it elects.
    pub(crate) fence: Option<Fence>,
    pub(crate) caches: Caches,
    pub(crate) metrics: Metrics,
    pub(crate) queues: Queues,
    pub(crate) recorder: Recorder,
    pub(crate) defaults: Defaults,
    /// Whether this replica leads; `None` for a controller that runs on every replica.
    pub(crate) term: Option<Term>,
    /// Its name, taken while it lives.
    pub(crate) name: Name,
}

// === impl Controller ===

impl Controller {
    /// A controller of object keys. The name appears in logs, metrics and events, and is unique in a manager.
    pub fn builder(name: impl Into<String>) -> Builder<Request> {
        Builder::new(name.into())
    }

    /// A controller of requests of another type.
    pub fn typed<R: RequestKey>(name: impl Into<String>) -> Builder<R> {
        Builder::new(name.into())
    }

    /// The controller's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .field("needs_leader_election", &self.needs_leader_election)
            .finish_non_exhaustive()
    }
}

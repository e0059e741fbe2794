//! What a manager runs.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::status::{Ending, Inspect, Ticket};
use crate::leader_election::Fence;

/// When a runnable starts; they stop in the order [`Group::STOP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Group {
    /// HTTP servers: first up, last down.
    Servers,
    /// The writer of events.
    Events,
    /// What runs on every replica.
    Others,
    /// The elector of the manager.
    Election,
    /// Those of controllers with a lease of their own. Started beside them, and not before.
    Lease,
    /// What runs on the leader only.
    Leader,
}

// === impl Group ===

impl Group {
    /// What stops together, step by step. Workers first; the leases are given up when they have ended, while what runs
    /// on every replica ends; probes answer until the end.
    ///
    /// controller-runtime stops what runs on every replica first, and releases the lease last of all: so another
    /// replica waits for everything there. Here it may lead as soon as nothing of ours needs the lease.
    pub(crate) const STOP: [&[Self]; 4] = [
        &[Self::Leader],
        &[Self::Election, Self::Lease, Self::Others],
        &[Self::Events],
        &[Self::Servers],
    ];
}

type Run = Box<
    dyn FnOnce(Arc<Ticket>, CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> + Send,
>;

/// Contends for a lease until the token is cancelled, and gives it up. It is told of whom.
pub(crate) type Contend =
    Box<dyn FnOnce(Arc<Ticket>, CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Something a manager runs until it stops. On the leader only, unless said otherwise.
pub struct Runnable {
    pub(crate) name: String,
    pub(crate) group: Group,
    /// Whether it starts only when this replica leads. A controller of the group [`Group::Leader`] is started before,
    /// and waits by itself.
    pub(crate) waits_to_lead: bool,
    /// What to ask about it, if it is a controller.
    pub(crate) inspect: Option<Arc<dyn Inspect>>,
    /// What contends for the lease of its own, if it has one: beside it, and until it has ended.
    pub(crate) contend: Option<Contend>,
    pub(crate) run: Run,
}

/// A runnable that was added, and was not started.
pub(super) struct Planned {
    pub(super) runnable: Runnable,
    pub(super) ending: Ending,
    /// That of the lease it works under, if it is not a controller, whose workers know theirs.
    pub(super) fence: Option<Fence>,
}

// === impl Runnable ===

impl Runnable {
    /// Runs what `run` makes, given a token that is cancelled when it is to end.
    ///
    /// An `Ok` means it had nothing more to do, and the manager goes on. An `Err` brings the manager down.
    pub fn new<F, Fut, E>(name: impl Into<String>, run: F) -> Self
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        Self {
            waits_to_lead: true,
            ..Self::told(name, move |_, stop| {
                let future = run(stop);
                async move { future.await.map_err(Into::into) }
            })
        }
    }

    /// A runnable that tells its state itself, and waits by itself for what it needs.
    pub(crate) fn told<F, Fut>(name: impl Into<String>, run: F) -> Self
    where
        F: FnOnce(Arc<Ticket>, CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self {
            name: name.into(),
            group: Group::Leader,
            waits_to_lead: false,
            inspect: None,
            contend: None,
            run: Box::new(move |ticket, stop| Box::pin(run(ticket, stop))),
        }
    }

    /// Has `inspect` asked about it.
    pub(crate) fn inspected_by(mut self, inspect: Option<Arc<dyn Inspect>>) -> Self {
        self.inspect = inspect;
        self
    }

    /// Runs on every replica, once each cache is filled or known to be failing, or after the
    /// [`cache_sync_timeout`](super::Builder::cache_sync_timeout) of the manager.
    #[must_use]
    pub fn without_leader_election(self) -> Self {
        self.in_group(Group::Others)
    }

    /// Runs on every replica, before the caches are filled, and ends last: an HTTP server.
    #[must_use]
    pub fn as_server(self) -> Self {
        self.in_group(Group::Servers)
    }

    /// The runnable's name, for logs, health and errors.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn in_group(mut self, group: Group) -> Self {
        self.group = group;
        self.waits_to_lead &= group == Group::Leader;
        self
    }
}

impl fmt::Debug for Runnable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runnable")
            .field("name", &self.name)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

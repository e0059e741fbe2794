//! Runnables: the parts that a manager runs, and the groups in which they start and stop.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::inspect::Inspect;
use super::ticket::{Ending, Ticket};
use crate::server::Server;
use reeve_election::Fence;

/// The order in which runnables start. They stop in the order [`Group::STOP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Group {
    /// HTTP servers: first up, last down.
    Servers,
    /// Webhook servers and their certificates: they serve before the caches fill, because lists may need conversions, and
    /// end before the caches do, because handlers read them.
    #[cfg(feature = "webhook")]
    Webhooks,
    /// The writer of events.
    Events,
    /// Runnables of every replica.
    Others,
    /// The elector of the manager.
    Election,
    /// Electors of controllers with a lease of their own. Each starts beside its controller, not before.
    Lease,
    /// Runnables of the leader only.
    Leader,
}

// === impl Group ===

impl Group {
    /// Groups that stop together, step by step. Workers stop first. Leases are released after them, while the runnables
    /// of every replica end. Probes answer until the end.
    ///
    /// controller-runtime stops the runnables of every replica first and releases the lease last, so another replica
    /// waits for all of them. Here it may lead as soon as nothing in this process needs the lease.
    pub(crate) const STOP: &[&[Self]] = &[
        &[Self::Leader],
        &[Self::Election, Self::Lease, Self::Others],
        #[cfg(feature = "webhook")]
        &[Self::Webhooks],
        &[Self::Events],
        &[Self::Servers],
    ];
}

type Run = Box<
    dyn FnOnce(Arc<Ticket>, CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> + Send,
>;

/// Contends for the lease of the ticket's runnable until the token is cancelled, and releases it.
pub(crate) type Contend =
    Box<dyn FnOnce(Arc<Ticket>, CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// A part that a manager runs until it stops. By default it runs on the leader only.
pub struct Runnable {
    pub(crate) name: String,
    pub(crate) group: Group,
    /// Whether it starts only when this replica leads. A controller of the group [`Group::Leader`] starts before and
    /// waits by itself.
    pub(crate) waits_to_lead: bool,
    /// The controller's inspection, if it is a controller.
    pub(crate) inspect: Option<Arc<dyn Inspect>>,
    /// The elector of its own lease, if it has one. It runs beside it, until it has ended.
    pub(crate) contend: Option<Contend>,
    pub(crate) run: Run,
}

/// A runnable that was added and has not started.
pub(crate) struct Planned {
    pub(crate) runnable: Runnable,
    pub(crate) ending: Ending,
    /// The fence of its lease. `None` for a controller, whose workers hold theirs.
    pub(crate) fence: Option<Fence>,
}

// === impl Runnable ===

impl Runnable {
    /// Runs the future of `run`. Its token is cancelled when the runnable must end.
    ///
    /// `Ok` means that its work is done, and the manager goes on. `Err` stops the manager.
    pub fn new<F, Fut, E>(name: impl Into<String>, run: F) -> Self
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        Self {
            waits_to_lead: true,
            ..Self::reporting(name, move |_, stop| {
                let future = run(stop);
                async move { future.await.map_err(Into::into) }
            })
        }
    }

    /// A runnable that reports its state to its ticket and waits for leadership and caches by itself.
    pub(crate) fn reporting<F, Fut>(name: impl Into<String>, run: F) -> Self
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

    /// Sets the inspection of the controller.
    pub(crate) fn inspected_by(mut self, inspect: Option<Arc<dyn Inspect>>) -> Self {
        self.inspect = inspect;
        self
    }

    /// Runs `server` on every replica, from the start until everything else has ended.
    #[must_use]
    pub fn server(server: Server) -> Self {
        Self::server_when_leading(server).as_server()
    }

    /// Runs `server` while this replica leads. A server made by [`Server::later`] is bound at that time.
    #[must_use]
    pub fn server_when_leading(server: Server) -> Self {
        let name = format!("{} server", server.name());
        Self::new(name, move |stop| server.run(stop))
    }

    /// Runs on every replica, once each cache is filled or known to be failing, or after the
    /// [`cache_sync_timeout`](crate::manager::Builder::cache_sync_timeout) of the manager.
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

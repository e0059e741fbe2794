//! The handle of a runnable, which stops it while the manager goes on.

use std::fmt;
use std::sync::{Arc, Weak};

use super::state::{RunnableHealth, State};
use super::ticket::Ticket;

/// A runnable or a controller that was added to a manager. Dropping it changes nothing. Clones refer to the same
/// runnable.
#[derive(Clone)]
pub struct Handle {
    ticket: Arc<Ticket>,
    owner: Weak<dyn Owner>,
}

/// The manager that a runnable was added to.
pub(crate) trait Owner: Send + Sync {
    /// Drops the runnable of `ticket` if it has not started.
    fn discard(&self, ticket: &Arc<Ticket>);
}

// === impl Handle ===

impl Handle {
    pub(crate) fn new(ticket: Arc<Ticket>, owner: Weak<dyn Owner>) -> Self {
        Self { ticket, owner }
    }

    pub(crate) fn ticket(&self) -> &Arc<Ticket> {
        &self.ticket
    }

    /// The name of the runnable or controller.
    #[must_use]
    pub fn name(&self) -> &str {
        self.ticket.name()
    }

    /// Its current state.
    #[must_use]
    pub fn state(&self) -> State {
        self.ticket.state()
    }

    /// Its health.
    #[must_use]
    pub fn health(&self) -> RunnableHealth {
        self.ticket.health()
    }

    /// Requests a stop without waiting. A runnable that has not started never starts.
    pub fn request_stop(&self) {
        self.ticket.stop().cancel();
        if let Some(owner) = self.owner.upgrade() {
            owner.discard(&self.ticket);
        }
    }

    /// Requests a stop and returns when it has stopped: a controller when each worker has ended its reconcile, its
    /// handlers are removed from the informers and its name is free again. The manager goes on.
    ///
    /// The wait has no limit. The future may be dropped, and the stop goes on.
    pub async fn stop(&self) {
        self.request_stop();
        self.ended().await;
    }

    /// Returns when it has stopped or failed.
    pub async fn ended(&self) {
        self.ticket.ended().await;
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.ticket).finish()
    }
}

//! The user's end of a registered handler: [`HandlerHandle`].

use std::sync::Arc;

use super::listener::{Listener, Phase};
use crate::object::Stored;

/// A registered handler (client-go: `ResourceEventHandlerRegistration`). Dropping it does not remove the handler.
#[must_use = "keep it to know when the handler has synced, or to remove it"]
pub struct HandlerHandle<S: ?Sized> {
    listener: Arc<Listener<S>>,
}

/// The informer stopped, or the handler was removed, before it had synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("handler ended before it received all objects of the first list")]
pub struct HandlerEnded;

// === impl HandlerHandle ===

impl<S: Stored + ?Sized> HandlerHandle<S> {
    pub(crate) fn new(listener: Arc<Listener<S>>) -> Self {
        Self { listener }
    }

    /// True once the informer has synced and the handler received every object of the first list.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.listener.has_synced()
    }

    /// Returns when [`HandlerHandle::has_synced`] is true.
    ///
    /// # Errors
    /// [`HandlerEnded`] if it never will be.
    pub async fn wait_synced(&self) -> Result<(), HandlerEnded> {
        let (mut synced, mut phase) = (self.listener.synced(), self.listener.phase());
        tokio::select! {
            biased;
            Ok(_) = synced.wait_for(|synced| *synced) => Ok(()),
            _ = phase.wait_for(|phase| *phase == Phase::Ended) => Err(HandlerEnded),
        }
    }

    /// Removes the handler and drops its waiting events. A callback in flight may still run;
    /// [`HandlerHandle::remove`] waits for it.
    pub fn unregister(&self) {
        self.listener.close();
    }

    /// Removes the handler, and returns when its callbacks are over (client-go: `ShutDownEventHandler`). Removing it
    /// again has no effect.
    pub async fn remove(&self) {
        self.listener.close();
        let mut phase = self.listener.phase();
        // The sender lives in the listener, which this handle holds.
        let _ = phase.wait_for(|phase| *phase == Phase::Ended).await;
    }

    /// Delivers the waiting events, then removes the handler and returns. Events that come meanwhile are not delivered.
    /// If the informer stops first, the rest is dropped. A handler that has not begun, as before the informer runs, is
    /// removed at once.
    pub async fn drain(&self) {
        self.listener.drain();
        let mut phase = self.listener.phase();
        let _ = phase.wait_for(|phase| *phase == Phase::Ended).await;
    }

    /// The handler's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.listener.name
    }

    /// The number of events that were delivered to the handler.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.listener.delivered()
    }

    /// The number of events that wait for the handler.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.listener.backlog()
    }

    /// The number of panics of the handler.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.listener.panics()
    }
}

impl<S: Stored + ?Sized> std::fmt::Debug for HandlerHandle<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandlerHandle")
            .field("name", &self.listener.name)
            .field("synced", &self.has_synced())
            .field("backlog", &self.backlog())
            .finish()
    }
}

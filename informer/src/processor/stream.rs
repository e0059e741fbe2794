//! Events as a stream, for those who would rather ask than be told.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc;

use super::handle::HandlerHandle;
use super::handler::AsyncEventHandler;
use crate::event::Event;
use crate::object::Stored;

/// Every change, in its order, and first every object that was there. Ends when the informer stops.
///
/// What is not taken waits as the handler's [`Policy`](super::Policy) says, so a stream that is not polled
/// holds nothing up unless that policy is to block. Dropping the stream removes the handler.
#[must_use = "dropping it removes the handler"]
pub struct EventStream<S: Stored> {
    events: mpsc::Receiver<Event<S>>,
    handle: HandlerHandle<S>,
}

/// Puts events where the stream finds them.
pub(crate) struct Sender<S>(mpsc::Sender<Event<S>>);

/// How many events stand between a handler's queue and its stream.
const BETWEEN: usize = 64;

/// Both ends.
pub(crate) fn channel<S>() -> (Sender<S>, mpsc::Receiver<Event<S>>) {
    let (sender, receiver) = mpsc::channel(BETWEEN);
    (Sender(sender), receiver)
}

impl<S: Send + Sync + 'static> AsyncEventHandler<S> for Sender<S> {
    async fn handle(&self, event: Event<S>) {
        // The stream is gone, and the handler about to be.
        let _ = self.0.send(event).await;
    }
}

// === impl EventStream ===

impl<S: Stored> EventStream<S> {
    pub(crate) fn new(events: mpsc::Receiver<Event<S>>, handle: HandlerHandle<S>) -> Self {
        Self { events, handle }
    }

    /// The next event; `None` when the informer has stopped. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event<S>> {
        self.events.recv().await
    }

    /// Of the handler behind it: whether it has synced (everything of the first list is in the stream), how
    /// many events wait.
    pub fn handle(&self) -> &HandlerHandle<S> {
        &self.handle
    }
}

impl<S: Stored> Stream for EventStream<S> {
    type Item = Event<S>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event<S>>> {
        self.get_mut().events.poll_recv(cx)
    }
}

impl<S: Stored> Drop for EventStream<S> {
    fn drop(&mut self) {
        self.handle.unregister();
    }
}

impl<S: Stored> std::fmt::Debug for EventStream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream")
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

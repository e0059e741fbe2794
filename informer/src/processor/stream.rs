//! Events as a stream, in place of a handler: [`EventStream`].

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc;

use super::handle::HandlerHandle;
use super::handler::AsyncEventHandler;
use crate::event::Event;
use crate::object::Stored;

/// First every object of the store, then every change in order. Ends when the informer stops.
///
/// Events that are not taken wait under the handler's [`Policy`](super::Policy): a stream that is not polled holds up
/// the informer only if that policy is [`Block`](super::Policy::Block). Dropping the stream removes the handler.
#[must_use = "dropping it removes the handler"]
pub struct EventStream<S: Stored + ?Sized> {
    events: mpsc::Receiver<Event<S>>,
    handle: HandlerHandle<S>,
}

/// The handler that passes events to the stream.
pub(crate) struct Sender<S: ?Sized>(mpsc::Sender<Event<S>>);

/// The number of events between a handler's queue and its stream.
const BETWEEN: usize = 64;

/// Both ends.
pub(crate) fn channel<S: ?Sized>() -> (Sender<S>, mpsc::Receiver<Event<S>>) {
    let (sender, receiver) = mpsc::channel(BETWEEN);
    (Sender(sender), receiver)
}

impl<S: ?Sized + Send + Sync + 'static> AsyncEventHandler<S> for Sender<S> {
    async fn handle(&self, event: Event<S>) {
        // On an error the stream is gone, and the handler is about to be removed.
        let _ = self.0.send(event).await;
    }
}

// === impl EventStream ===

impl<S: Stored + ?Sized> EventStream<S> {
    pub(crate) fn new(events: mpsc::Receiver<Event<S>>, handle: HandlerHandle<S>) -> Self {
        Self { events, handle }
    }

    /// The next event; `None` when the informer has stopped. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event<S>> {
        self.events.recv().await
    }

    /// The handler behind the stream: its sync (everything of the first list is in the stream) and its backlog.
    pub fn handle(&self) -> &HandlerHandle<S> {
        &self.handle
    }
}

impl<S: Stored + ?Sized> Stream for EventStream<S> {
    type Item = Event<S>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event<S>>> {
        self.get_mut().events.poll_recv(cx)
    }
}

impl<S: Stored + ?Sized> Drop for EventStream<S> {
    fn drop(&mut self) {
        self.handle.unregister();
    }
}

impl<S: Stored + ?Sized> std::fmt::Debug for EventStream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream")
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

//! Requests that do not come from a watch: a channel, a stream, a timer.

use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// The shortest period of a timer: without end it would take a whole processor.
const SHORTEST: Duration = Duration::from_millis(1);

/// A request and how urgent it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted<R> {
    /// What to reconcile.
    pub request: R,
    /// Its priority; 0 if unset. [`LOW_PRIORITY`](reeve_workqueue::LOW_PRIORITY) lets changes of objects go first.
    pub priority: Option<i32>,
}

// === impl Wanted ===

impl<R> Wanted<R> {
    /// `request` at this priority.
    #[must_use]
    pub fn with_priority(request: R, priority: i32) -> Self {
        Self {
            request,
            priority: Some(priority),
        }
    }
}

impl<R> From<R> for Wanted<R> {
    fn from(request: R) -> Self {
        Self {
            request,
            priority: None,
        }
    }
}

/// Sends requests to a controller. Cheap to clone.
#[derive(Debug)]
pub struct Sender<R>(mpsc::Sender<Wanted<R>>);

/// The controller is gone, or (for [`Sender::try_send`]) does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The controller has stopped.
    #[error("the controller has stopped and takes no requests")]
    Stopped,
    /// The channel holds as many requests as it may.
    #[error("the channel of requests is full")]
    Full,
}

/// A channel of at most `capacity` requests on their way; the queue behind it holds each request once.
///
/// Give the stream to [`Builder::watches_source`](crate::controller::Builder::watches_source).
#[must_use]
pub fn channel<R: Send + 'static>(capacity: usize) -> (Sender<R>, BoxStream<'static, Wanted<R>>) {
    let (sender, mut receiver) = mpsc::channel(capacity.max(1));
    let stream = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
    (Sender(sender), Box::pin(stream))
}

// === impl Sender ===

impl<R> Sender<R> {
    /// Sends a request, waiting while the channel is full.
    ///
    /// # Errors
    /// When the controller has stopped.
    pub async fn send(&self, wanted: impl Into<Wanted<R>>) -> Result<(), SendError> {
        let sent = self.0.send(wanted.into()).await;
        sent.map_err(|_| SendError::Stopped)
    }

    /// Sends a request if there is room.
    ///
    /// # Errors
    /// When there is none, or the controller has stopped.
    pub fn try_send(&self, wanted: impl Into<Wanted<R>>) -> Result<(), SendError> {
        self.0.try_send(wanted.into()).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Stopped,
        })
    }
}

impl<R> Clone for Sender<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// `request`, every `period`: for what must be looked at though nothing tells that it changed. The first comes after
/// one period; one that comes while the last waits or runs is merged with it. A period of less than a millisecond is
/// one of a millisecond, and one that goes beyond all time never ends.
///
/// Give it to [`Builder::watches_source`](crate::controller::Builder::watches_source).
#[must_use]
pub fn every<R: Clone + Send + 'static>(
    period: Duration,
    request: R,
) -> BoxStream<'static, Wanted<R>> {
    let first = None::<Instant>;
    futures::stream::unfold((first, request), move |(last, request)| async move {
        let from = last.unwrap_or_else(Instant::now);
        let Some(next) = from.checked_add(period.max(SHORTEST)) else {
            return std::future::pending().await;
        };
        sleep_until(next).await;
        Some((Wanted::from(request.clone()), (Some(next), request)))
    })
    .boxed()
}

/// A stream of requests, as the builder keeps it.
pub(crate) fn boxed<R, S>(stream: S) -> BoxStream<'static, Wanted<R>>
where
    S: Stream + Send + 'static,
    S::Item: Into<Wanted<R>>,
    R: 'static,
{
    stream.map(Into::into).boxed()
}

//! Requests that do not come from a watch but from a channel, a stream, a timer, or any other [`Source`].
//!
//! # When a source fails
//! In controller-runtime a source that returns an error from its start stops its controller, and with it the manager; a
//! later end goes unnoticed. Here a fault is local, as that of an informer is: it degrades the controllers that have
//! this source. The check `controllers` of the readiness names the source and the cause, and so do
//! [`Handle::health`](crate::manager::Handle::health), the metric `reeve_controller_informer_unavailable` and one line
//! of the log; the controller's other watches and sources continue, and so do the other controllers.
//!
//! | what happens | cause | what follows |
//! |---|---|---|
//! | it is being started | `not started` | no worker starts before it is, as none starts before the caches are filled |
//! | its start is an error | `source failed` | it is started again, after a second, and ever more rarely, a minute at most |
//! | its stream yields an error | `source failed` | the same |
//! | its stream ends | `source ended` | the same; nothing with [`Source::finite`] |
//! | either panics | `source panicked` | the same |
//!
//! Only [`Source::starting`] can be started again. A stream passed by value is gone when it fails, and is reported
//! until the controller stops or [removes](crate::controller::WatchHandle::remove) it. With a
//! [`cache_sync_timeout`](crate::controller::Builder::cache_sync_timeout), a source that is not started in time
//! brings the manager down, as in controller-runtime.
//!
//! # On a standby
//! Sources are read while this replica leads, as in controller-runtime: a standby that took the messages of a queue
//! would never work on them. With [`Builder::warm_up`](crate::controller::Builder::warm_up) they are read from the
//! start. When a controller's own lease is lost, and at the stop, they are not read any more: a [`Source::starting`] is
//! dropped, and started again when the replica leads again; a stream passed by value is kept and not polled. So a
//! [`channel`] of a standby fills, and [`Sender::send`] waits.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tower::BoxError;

/// The shortest period of a timer: without end it would take a whole processor.
const SHORTEST: Duration = Duration::from_millis(1);

/// A request and its priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted<R> {
    /// The request.
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

/// The controller is gone, or (for [`Sender::try_send`]) too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The controller has stopped.
    #[error("the controller has stopped and accepts no requests")]
    Stopped,
    /// The channel holds as many requests as it may.
    #[error("the channel of requests is full")]
    Full,
}

/// A channel of at most `capacity` requests on their way; the queue behind it holds each request once. It is read
/// while the replica leads ([more](self#on-a-standby)): on a standby `capacity` requests fit in.
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
    /// Sends a request, waiting while the channel is full. On a standby that is until it leads.
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
    /// When there is no room, or the controller has stopped.
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

/// `request`, every `period`: for regular checks of state without events. The first comes after one period; one that
/// comes while the last waits or runs is merged with it, and so are those missed while the stream was not read. A
/// period of less than a millisecond counts as a millisecond, and one beyond all time never ends.
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
        // Missed requests come as one.
        let late = Instant::now().saturating_duration_since(next) >= period;
        let last = if late { Instant::now() } else { next };
        Some((Wanted::from(request.clone()), (Some(last), request)))
    })
    .boxed()
}

/// Requests of a source, and the error that ends them.
pub(crate) type Requests<R> = BoxStream<'static, Result<Wanted<R>, BoxError>>;
/// Starts a source; `None` when it was started and cannot be started again.
type Start<R> =
    Box<dyn FnMut() -> Option<BoxFuture<'static, Result<Requests<R>, BoxError>>> + Send>;

/// An origin of requests without a watch. A stream of them is one; [`Source::starting`] makes one that may fail and
/// begin again. Failures are described [above](self#when-a-source-fails).
#[must_use = "a source does nothing until it is added to a controller"]
pub struct Source<R> {
    pub(crate) name: Option<String>,
    pub(crate) finite: bool,
    /// It can be started more than once.
    pub(crate) restarts: bool,
    pub(crate) start: Start<R>,
}

// === impl Source ===

impl<R: Send + 'static> Source<R> {
    /// Calls `start` for the stream: when the controller begins to lead, and again when the stream has failed or ended.
    /// The controller's workers wait for the first start.
    pub fn starting<F, Fut, S, W, E>(mut start: F) -> Self
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Result<S, E>> + Send + 'static,
        S: Stream<Item = Result<W, E>> + Send + 'static,
        W: Into<Wanted<R>> + 'static,
        E: Into<BoxError> + 'static,
    {
        let mut source = Self::of(Box::new(move || {
            let started = start();
            Some(Box::pin(async move {
                let stream = started.await.map_err(Into::into)?;
                Ok(stream.map_ok(Into::into).map_err(Into::into).boxed())
            }))
        }));
        source.restarts = true;
        source
    }

    /// Sets the name in readiness, in health, in the log and in metrics; the default is `source 1`, `source 2`, … in
    /// the order of adding them to the controller.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Its end is not a fault: it has sent all its requests.
    pub fn finite(mut self) -> Self {
        self.finite = true;
        self
    }

    fn of(start: Start<R>) -> Self {
        Self {
            name: None,
            finite: false,
            restarts: false,
            start,
        }
    }
}

/// A stream of requests, which cannot be started again.
impl<R, S> From<S> for Source<R>
where
    R: Send + 'static,
    S: Stream + Send + 'static,
    S::Item: Into<Wanted<R>>,
{
    fn from(stream: S) -> Self {
        let mut stream = Some(stream);
        Self::of(Box::new(move || {
            let requests: Requests<R> = stream.take()?.map(|wanted| Ok(wanted.into())).boxed();
            Some(Box::pin(std::future::ready(Ok(requests))))
        }))
    }
}

impl<R> fmt::Debug for Source<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("name", &self.name)
            .field("finite", &self.finite)
            .finish_non_exhaustive()
    }
}

//! The interface of handlers: their traits, their options, and the filter.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::event::Event;
use crate::object::Stored;

/// Receives every change. It runs on a worker thread of the runtime, one event at a time, and should only record the
/// event (enqueue a key) and return.
///
/// Every `Fn(Event<S>)` is a handler.
pub trait EventHandler<S: ?Sized>: Send + Sync + 'static {
    /// Handles `event`. A panic is caught and counted, and costs this event only.
    fn handle(&self, event: Event<S>);
}

impl<S: ?Sized, F: Fn(Event<S>) + Send + Sync + 'static> EventHandler<S> for F {
    fn handle(&self, event: Event<S>) {
        self(event);
    }
}

/// Receives every change and may wait: one event at a time, in the handler's own task.
///
/// Meanwhile further events wait in its queue, under its [`Policy`]. Every `Fn(Event<S>) -> impl Future` is one.
/// Removing the handler, or stopping the informer, drops the future where it waits.
pub trait AsyncEventHandler<S: ?Sized>: Send + Sync + 'static {
    /// Handles `event`. A panic is caught and counted, and costs this event only.
    fn handle(&self, event: Event<S>) -> impl Future<Output = ()> + Send;
}

impl<S: ?Sized, F, R> AsyncEventHandler<S> for F
where
    F: Fn(Event<S>) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send,
{
    fn handle(&self, event: Event<S>) -> impl Future<Output = ()> + Send {
        self(event)
    }
}

/// The receiver of a listener's events.
pub(crate) enum Receiver<S: ?Sized> {
    Callback(Arc<dyn EventHandler<S>>),
    Task(Arc<dyn Asynchronous<S>>),
}

impl<S: ?Sized> Clone for Receiver<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Callback(handler) => Self::Callback(Arc::clone(handler)),
            Self::Task(handler) => Self::Task(Arc::clone(handler)),
        }
    }
}

/// [`AsyncEventHandler`] with its futures boxed.
pub(crate) trait Asynchronous<S: ?Sized>: Send + Sync {
    fn handle_boxed(&self, event: Event<S>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

impl<S: ?Sized + Send + Sync + 'static, H: AsyncEventHandler<S>> Asynchronous<S> for H {
    fn handle_boxed(&self, event: Event<S>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.handle(event))
    }
}

/// The reaction of a queue whose handler does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Past `bound` waiting events, the events of one object are merged. `Added`+`Updated` becomes `Added` of the new
    /// state. Two `Updated` become one, from the first old to the last new state. `Updated`+`Deleted` becomes `Deleted`,
    /// which keeps the old state of the update as [`seen`](Event::Deleted::seen). `Added`+`Deleted` becomes nothing: the
    /// handler never saw the object. `Deleted`+`Added` are both kept if the uid differs, and become one `Updated`
    /// otherwise. So at most `bound` events, and two for each object, wait. The default, with 1,024.
    Coalesce {
        /// The number of events that wait without being merged.
        bound: usize,
    },
    /// Past `bound` waiting events the informer stops until there is room. Every event is delivered, and a slow handler
    /// makes the store old for all readers. The queue may exceed the bound by one batch.
    Block {
        /// The number of events that may wait.
        bound: usize,
    },
    /// Past `bound` waiting events further ones are dropped and counted. Once the queue is empty, the handler receives
    /// the difference between the state that it saw last of each object concerned and the state in the store. Dropped
    /// events of a resync are delivered then, too, and not counted.
    DropToResync {
        /// The number of events that may wait.
        bound: usize,
    },
}

impl Default for Policy {
    fn default() -> Self {
        Self::Coalesce { bound: 1024 }
    }
}

/// The options of a handler.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct HandlerOptions {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) policy: Policy,
    pub(crate) resync: Option<Duration>,
    pub(crate) inline: bool,
}

// === impl HandlerOptions ===

impl HandlerOptions {
    /// The defaults: coalescing past 1,024 events, and the informer's resync period ([`Builder::resync`]; without one,
    /// never).
    ///
    /// [`Builder::resync`]: crate::Builder::resync
    pub fn new() -> Self {
        Self::default()
    }

    /// A name for logs, health and metrics. Default: the number of the handler.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The reaction of its queue when the handler does not keep up. Default: [`Policy::Coalesce`] past 1,024 events.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Runs the handler in the informer's task instead of a task of its own: for a handler that only records the event
    /// and returns.
    ///
    /// A change then wakes no other thread, which is most of its cost while changes are rare. The informer and its other
    /// handlers wait while this one runs, whatever its [`Policy`], and it must never wait for this informer. While it runs,
    /// [`last_sync_resource_version`](crate::SharedInformer::last_sync_resource_version) may still be the version before the event. An
    /// [`AsyncEventHandler`] and a stream keep a task of their own. Default: a task of its own (client-go: a goroutine
    /// for each listener).
    pub fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    /// Delivers every object again once in `period`, at least a second. Default: the informer's period, or never.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }
}

/// Passes events of objects that satisfy a condition to an [`EventHandler`] or an [`AsyncEventHandler`] (client-go:
/// `FilteringResourceEventHandler`).
///
/// An object that begins to satisfy the condition is added, and one that ceases to satisfy it is deleted. The condition
/// is evaluated on the state that the handler saw last. So a handler that is behind receives a deletion for each object
/// that it saw and that is gone, and none for an object that it never saw.
#[derive(Debug)]
pub struct Filtered<P, H> {
    condition: P,
    handler: H,
}

// === impl Filtered ===

impl<P, H> Filtered<P, H> {
    /// Passes events of objects that satisfy `condition` to `handler`.
    pub fn new(condition: P, handler: H) -> Self {
        Self { condition, handler }
    }

    #[cfg(test)]
    pub(crate) fn handler(&self) -> &H {
        &self.handler
    }

    /// The event for a handler that sees only objects that satisfy the condition; `None` if it concerns none of them.
    fn pass<S: Stored + ?Sized>(&self, event: Event<S>) -> Option<Event<S>>
    where
        P: Fn(&S) -> bool,
    {
        match event {
            Event::Updated { old, new, reason } => {
                match ((self.condition)(&old), (self.condition)(&new)) {
                    (true, true) => Some(Event::Updated { old, new, reason }),
                    (false, true) => Some(Event::Added {
                        object: new,
                        initial: false,
                    }),
                    (true, false) => Some(Event::Deleted {
                        key: old.key(),
                        last: Some(Arc::clone(&old)),
                        seen: Some(old),
                        tombstone: false,
                    }),
                    (false, false) => None,
                }
            }
            Event::Added { ref object, .. } => (self.condition)(object).then_some(event),
            Event::Deleted {
                key,
                last,
                seen,
                tombstone,
            } => {
                // An unknown state may have satisfied it, whatever the last state was: one deletion too many is better
                // than one too few.
                if !seen.as_ref().is_none_or(|seen| (self.condition)(seen)) {
                    return None;
                }
                // The handler gets no state that does not satisfy the condition.
                let last = last.filter(|last| (self.condition)(last));
                Some(Event::Deleted {
                    key,
                    last: last.or_else(|| seen.clone()),
                    seen,
                    tombstone,
                })
            }
        }
    }
}

impl<S, P, H> EventHandler<S> for Filtered<P, H>
where
    S: Stored + ?Sized,
    P: Fn(&S) -> bool + Send + Sync + 'static,
    H: EventHandler<S>,
{
    fn handle(&self, event: Event<S>) {
        if let Some(event) = self.pass(event) {
            self.handler.handle(event);
        }
    }
}

impl<S, P, H> AsyncEventHandler<S> for Filtered<P, H>
where
    S: Stored + ?Sized,
    P: Fn(&S) -> bool + Send + Sync + 'static,
    H: AsyncEventHandler<S>,
{
    async fn handle(&self, event: Event<S>) {
        if let Some(event) = self.pass(event) {
            self.handler.handle(event).await;
        }
    }
}

//! What users hand in: handlers and how they want to be told.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::event::Event;
use crate::object::Stored;

/// Is told of every change. It runs on a worker thread of the runtime, one event at a time: it should note
/// what happened (put a key into a queue) and return.
///
/// Every `Fn(Event<S>)` is a handler.
pub trait EventHandler<S>: Send + Sync + 'static {
    /// Takes note of `event`. A panic is caught and counted, and costs this event only.
    fn handle(&self, event: Event<S>);
}

impl<S, F: Fn(Event<S>) + Send + Sync + 'static> EventHandler<S> for F {
    fn handle(&self, event: Event<S>) {
        self(event);
    }
}

/// Is told of every change, and takes its time: one event at a time, in the handler's own task.
///
/// While it waits, what comes waits too, as its [`Policy`] says. Every `Fn(Event<S>) -> impl Future` is one.
/// Removing the handler, or stopping the informer, drops the future where it waits.
pub trait AsyncEventHandler<S>: Send + Sync + 'static {
    /// Takes note of `event`. A panic is caught and counted, and costs this event only.
    fn handle(&self, event: Event<S>) -> impl Future<Output = ()> + Send;
}

impl<S, F, R> AsyncEventHandler<S> for F
where
    F: Fn(Event<S>) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send,
{
    fn handle(&self, event: Event<S>) -> impl Future<Output = ()> + Send {
        self(event)
    }
}

/// Whom a listener tells.
pub(crate) enum Receiver<S> {
    Callback(Arc<dyn EventHandler<S>>),
    Task(Arc<dyn Asynchronous<S>>),
}

impl<S> Clone for Receiver<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Callback(handler) => Self::Callback(Arc::clone(handler)),
            Self::Task(handler) => Self::Task(Arc::clone(handler)),
        }
    }
}

/// [`AsyncEventHandler`] with its futures boxed.
pub(crate) trait Asynchronous<S>: Send + Sync {
    fn handle_boxed(&self, event: Event<S>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

impl<S: Send + Sync + 'static, H: AsyncEventHandler<S>> Asynchronous<S> for H {
    fn handle_boxed(&self, event: Event<S>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.handle(event))
    }
}

/// What happens when a handler does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Past `bound` waiting events, those of one object are merged: `Added`+`Updated` is `Added` of the new;
    /// two `Updated` are one from the first old to the last new; `Updated`+`Deleted` is `Deleted`, which keeps the
    /// old state of the update as [`seen`](Event::Deleted::seen);
    /// `Added`+`Deleted` is nothing, the handler never saw it; `Deleted`+`Added` are both kept when the uid
    /// differs, else one `Updated`. So at most `bound` events and two an object wait. The default, with 1,024.
    Coalesce {
        /// How many events wait as they came.
        bound: usize,
    },
    /// Past `bound` waiting events the informer stops until there is room: every event is seen, and a slow
    /// handler makes the store old for everyone. The queue may exceed the bound by one batch.
    Block {
        /// How many events may wait.
        bound: usize,
    },
    /// Past `bound` waiting events further ones are dropped and counted; when the handler has caught up it is
    /// told the difference between what it last saw of the objects concerned and what the store holds now. What a resync
    /// shows is told then, too, and not counted.
    DropToResync {
        /// How many events may wait.
        bound: usize,
    },
}

impl Default for Policy {
    fn default() -> Self {
        Self::Coalesce { bound: 1024 }
    }
}

/// How a handler wants to be told.
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
    /// The defaults: coalescing past 1,024 events, and the informer's resync period ([`Builder::resync`], never unless it
    /// is said).
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

    /// What happens when the handler does not keep up.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The handler runs in the informer's task, not in one of its own: for one that only takes a note and returns.
    ///
    /// No other thread is woken for a change, which is most of what a change costs while they are few. What the
    /// handler does keeps the informer and its other handlers waiting, whatever its [`Policy`]; and it must never
    /// wait for this informer. An [`AsyncEventHandler`] and a stream have a task of their own all the same.
    /// Default: a task of its own (client-go: a goroutine a listener).
    pub fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    /// Show every object again once in `period`, at least a second. Default: the informer's, or never.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }
}

/// Passes on what concerns objects that satisfy a condition (client-go: `FilteringResourceEventHandler`), to an
/// [`EventHandler`] or an [`AsyncEventHandler`].
///
/// An object that begins to satisfy it is added, one that ceases to is deleted. The condition is evaluated on the
/// state that the handler was shown last, so a handler that is behind gets a deletion for each object that it was
/// shown and that is gone, and none for an object that it was never shown.
#[derive(Debug)]
pub struct Filtered<P, H> {
    condition: P,
    handler: H,
}

// === impl Filtered ===

impl<P, H> Filtered<P, H> {
    /// Tells `handler` about objects that satisfy `condition`.
    pub fn new(condition: P, handler: H) -> Self {
        Self { condition, handler }
    }

    #[cfg(test)]
    pub(crate) fn handler(&self) -> &H {
        &self.handler
    }

    /// What a handler that sees only what satisfies the condition is told.
    fn pass<S: Stored>(&self, event: Event<S>) -> Option<Event<S>>
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
                // An unknown state may have satisfied it, whatever the last was: better one deletion too many than one
                // too few.
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
    S: Stored,
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
    S: Stored,
    P: Fn(&S) -> bool + Send + Sync + 'static,
    H: AsyncEventHandler<S>,
{
    async fn handle(&self, event: Event<S>) {
        if let Some(event) = self.pass(event) {
            self.handler.handle(event).await;
        }
    }
}

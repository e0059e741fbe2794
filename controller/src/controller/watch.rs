//! The watches of a controller: a kind, the predicates that let its events through, the handler that names requests.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use reeve_informer::{Event, HandlerOptions, Policy};
use reeve_workqueue::{AddOptions, Queue};
use tokio_util::sync::CancellationToken;

use super::panics::Panics;
use crate::cache::{CacheError, Caches, Kind, Registration, View};
use crate::client::key_of;
use crate::cluster::Cluster;
use crate::handler::{Handler, Watched};
use crate::predicate::{Filter, MetaEvent, Predicate};
use crate::reconcile::{Request, RequestKey};

/// The predicates of all watches of a controller.
pub(super) type Filters = Arc<[Box<dyn Filter>]>;
/// Starts to fill the cache of a watch.
type Ask<R> = Box<dyn FnOnce(Caches, &Filters) -> Result<Attach<R>, CacheError> + Send>;
/// Registers the handler of a watch, which adds to the queue. Called each time the replica begins to lead.
type Attach<R> = Box<dyn Fn(&Target<'_, R>) -> Registration + Send + Sync>;

/// The controller that a handler adds requests to.
pub(super) struct Target<'a, R> {
    /// The name of the controller.
    pub(super) name: &'a str,
    pub(super) queue: &'a Queue<R>,
    pub(super) panics: &'a Arc<Panics>,
    /// Cancelled when the watch is removed.
    pub(super) removed: &'a CancellationToken,
}

/// A watch with its kind erased.
pub(crate) struct AnyWatch<R> {
    kind: Kind,
    ask: Ask<R>,
    /// The caches, if they are another cluster's.
    others: Option<Caches>,
    /// Whether the controller starts without it while the server does not have the kind.
    optional: bool,
}

/// A watch whose cache fills, whether or not its handler is registered.
pub(super) struct Asked<R> {
    pub(super) kind: Kind,
    pub(super) attach: Attach<R>,
    pub(super) caches: Caches,
    pub(super) optional: bool,
}

/// A watch for a controller that was added to a manager ([`Handle::watch`](crate::manager::Handle::watch)): the
/// objects that `V` shows, and requests of type `R`. The counterpart of
/// [`Builder::watches_view`](super::Builder::watches_view) and of the options that follow it.
#[must_use = "a watch does nothing until it is added to a controller"]
pub struct Watch<V, R: RequestKey = Request> {
    close: Close<V, R>,
    predicates: Vec<Box<dyn Predicate<V>>>,
    others: Option<Caches>,
    optional: bool,
}

/// Builds the watch from its options.
type Close<V, R> =
    Box<dyn FnOnce(Vec<Box<dyn Predicate<V>>>, Option<Caches>, bool) -> AnyWatch<R> + Send>;

// === impl AnyWatch ===

impl<R: RequestKey> AnyWatch<R> {
    /// A watch through `view` by `handler`, for the events that all `predicates` allow; in the caches of another
    /// cluster if there are `others`.
    pub(super) fn new<V, H>(
        view: View<V>,
        handler: H,
        predicates: Vec<Box<dyn Predicate<V>>>,
        others: Option<Caches>,
        optional: bool,
    ) -> Self
    where
        V: Watched,
        H: Handler<V, R>,
    {
        let kind = view.kind().clone();
        let ask: Ask<R> = Box::new(move |caches, filters| {
            let interest = caches.watch(&view, !optional)?;
            let filters = Filters::clone(filters);
            let (handler, predicates) = (Arc::new(handler), Arc::new(predicates));
            let attach: Attach<R> = Box::new(move |target| {
                let (queue, filters) = (target.queue.clone(), Filters::clone(&filters));
                let (handler, predicates) = (Arc::clone(&handler), Arc::clone(&predicates));
                let (panics, removed) = (Arc::clone(target.panics), target.removed.clone());
                // The handler adds keys to the queue and returns. It receives every state, because a reconcile may have read
                // one from the store before its event came: merged with the next, it would wake no owner of its own.
                let options = HandlerOptions::new()
                    .name(target.name)
                    .policy(Policy::Block { bound: 1024 })
                    .inline();
                caches.register(interest.clone(), &view, options, move |event| {
                    if !is_allowed(&panics, &filters, &predicates, &event)
                        || enqueue(&queue, &*handler, &event)
                    {
                        return;
                    }
                    let (queue, handler) = (queue.clone(), Arc::clone(&handler));
                    let removed = removed.clone();
                    let object = event.object().map(|object| key_of(object.meta()));
                    let again =
                        move || removed.is_cancelled() || enqueue(&queue, &*handler, &event);
                    panics.of_handler(object, Box::new(again));
                })
            });
            Ok(attach)
        });
        Self {
            kind,
            ask,
            others,
            optional,
        }
    }

    /// Starts to fill the cache before the handler is registered.
    pub(super) fn ask(self, caches: &Caches, filters: &Filters) -> Result<Asked<R>, CacheError> {
        let caches = self.others.unwrap_or_else(|| caches.clone());
        Ok(Asked {
            kind: self.kind,
            attach: (self.ask)(caches.clone(), filters)?,
            caches,
            optional: self.optional,
        })
    }
}

#[cfg(test)]
impl<R: RequestKey> AnyWatch<R> {
    /// Calls `hook` between the request for the cache and the registration of the handler.
    fn after_asking(self, hook: impl FnOnce() + Send + 'static) -> Self {
        let ask = self.ask;
        let ask: Ask<R> = Box::new(move |caches, filters| {
            let attach = ask(caches, filters)?;
            hook();
            Ok(attach)
        });
        Self { ask, ..self }
    }
}

/// Whether all filters and predicates allow `event`. A panic allows it: a reconcile too many costs less than a missed
/// one.
fn is_allowed<K: Watched>(
    panics: &Panics,
    filters: &Filters,
    predicates: &[Box<dyn Predicate<K>>],
    event: &Event<K>,
) -> bool {
    let judge = || {
        let meta = MetaEvent::of(event);
        filters.iter().all(|filter| filter.passes(&meta))
            && predicates.iter().all(|predicate| predicate.allows(event))
    };
    catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|_| {
        let object = event.object().map(|object| key_of(object.meta()));
        panics.of_predicate(object.as_ref());
        true
    })
}

/// Adds the requests of `handler` for `event`, at the handler's priority. False if the handler panicked.
fn enqueue<K: Watched, R: RequestKey>(
    queue: &Queue<R>,
    handler: &impl Handler<K, R>,
    event: &Event<K>,
) -> bool {
    let add = || {
        let mut options = AddOptions::new()
            .priority(handler.priority(event).unwrap_or_default())
            .reason(handler.reason(event));
        let delay = handler.delay(event);
        if !delay.is_zero() {
            options = options.after(delay);
        }
        handler.requests(event, &mut |request| queue.add_with(request, options));
    };
    catch_unwind(AssertUnwindSafe(add)).is_ok()
}

// === impl Watch ===

impl<V: Watched, R: RequestKey> Watch<V, R> {
    /// Watches the objects that `view` shows and adds the requests of `handler`.
    pub fn new(view: View<V>, handler: impl Handler<V, R>) -> Self {
        Self {
            close: Box::new(move |predicates, others, optional| {
                AnyWatch::new(view, handler, predicates, others, optional)
            }),
            predicates: Vec::new(),
            others: None,
            optional: false,
        }
    }

    /// Handles only events that `predicate` allows. All predicates and the controller's event filters must allow an
    /// event.
    pub fn with_predicate(mut self, predicate: impl Predicate<V>) -> Self {
        self.predicates.push(Box::new(predicate));
        self
    }

    /// Watches in another cluster.
    pub fn in_cluster(mut self, cluster: &Cluster) -> Self {
        self.others = Some(cluster.caches().clone());
        self
    }

    /// Lets the controller run while the server does not have the kind
    /// ([`Builder::optional`](super::Builder::optional)).
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// As [`AnyWatch::after_asking`].
    #[cfg(test)]
    pub(super) fn after_asking(mut self, hook: impl FnOnce() + Send + 'static) -> Self {
        let close = self.close;
        self.close = Box::new(move |predicates, others, optional| {
            close(predicates, others, optional).after_asking(hook)
        });
        self
    }

    pub(crate) fn close(self) -> AnyWatch<R> {
        (self.close)(self.predicates, self.others, self.optional)
    }
}

impl<V, R: RequestKey> fmt::Debug for Watch<V, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("predicates", &self.predicates.len())
            .field("optional", &self.optional)
            .finish_non_exhaustive()
    }
}

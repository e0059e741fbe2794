//! The watches of a controller: a kind, the predicates that let its events through, the handler that names requests.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use reeve_informer::{Event, HandlerOptions};
use reeve_workqueue::{AddOptions, LOW_PRIORITY, Queue};

use crate::cache::{CacheError, Caches, Registration, View};
use crate::client::key_of;
use crate::cluster::Cluster;
use crate::handler::{Handler, Watched, is_unchanged};
use crate::predicate::{Filter, MetaEvent, Predicate};
use crate::reconcile::{Request, RequestKey};

/// The predicates of all watches of a controller.
pub(super) type Filters = Arc<[Box<dyn Filter>]>;
/// Asks for the cache of a watch.
type Ask<R> = Box<dyn FnOnce(Caches, &Filters) -> Result<Attach<R>, CacheError> + Send>;
/// Registers the handler of a watch, which adds to the queue; each time the replica begins to lead.
type Attach<R> = Box<dyn Fn(&str, &Queue<R>) -> Registration + Send + Sync>;

/// A watch with its kind erased.
pub(crate) struct AnyWatch<R> {
    ask: Ask<R>,
    /// Those of another cluster.
    others: Option<Caches>,
    /// The controller starts without it while the server does not have the kind.
    optional: bool,
}

/// A watch whose cache fills, whether or not its handler is registered.
pub(super) struct Asked<R> {
    pub(super) attach: Attach<R>,
    pub(super) caches: Caches,
    pub(super) optional: bool,
}

/// A watch for a controller that was added to a manager ([`Handle::watch`](crate::manager::Handle::watch)): the
/// objects that `V` shows, and requests of type `R`. It is what [`Builder::watches_view`](super::Builder::watches_view)
/// and what is said after it are for one that was not.
#[must_use = "a watch does nothing until a controller is given it"]
pub struct Watch<V, R: RequestKey = Request> {
    close: Close<V, R>,
    predicates: Vec<Box<dyn Predicate<V>>>,
    others: Option<Caches>,
    optional: bool,
}

/// Makes the watch, when all is said.
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
        let ask: Ask<R> = Box::new(move |caches, filters| {
            let interest = caches.watch(&view, !optional)?;
            let filters = Filters::clone(filters);
            let (handler, predicates) = (Arc::new(handler), Arc::new(predicates));
            let attach: Attach<R> = Box::new(move |name, queue| {
                let (queue, filters) = (queue.clone(), Filters::clone(&filters));
                let (handler, predicates) = (Arc::clone(&handler), Arc::clone(&predicates));
                // It puts keys into the queue and returns.
                let options = HandlerOptions::new().name(name).inline();
                let controller = name.to_owned();
                caches.register(interest.clone(), &view, options, move |event| {
                    if is_allowed(&controller, &filters, &predicates, &event) {
                        enqueue(&queue, &*handler, &event);
                    }
                })
            });
            Ok(attach)
        });
        Self {
            ask,
            others,
            optional,
        }
    }

    /// Asks for the cache, so that it fills before the handler is registered.
    pub(super) fn ask(self, caches: &Caches, filters: &Filters) -> Result<Asked<R>, CacheError> {
        let caches = self.others.unwrap_or_else(|| caches.clone());
        Ok(Asked {
            attach: (self.ask)(caches.clone(), filters)?,
            caches,
            optional: self.optional,
        })
    }
}

/// Whether all filters and predicates allow `event`. If one panics they do: a reconcile too many costs less than one that
/// is missing until the object changes again.
fn is_allowed<K: Watched>(
    controller: &str,
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
        tracing::error!(
            controller,
            object = object.map(tracing::field::display),
            "a predicate panicked; the event is handled as if it were allowed"
        );
        true
    })
}

/// Adds what `handler` names for `event`; what is no news at low priority.
fn enqueue<K: Watched, R: RequestKey>(
    queue: &Queue<R>,
    handler: &impl Handler<K, R>,
    event: &Event<K>,
) {
    let options = AddOptions {
        priority: is_unchanged(event).then_some(LOW_PRIORITY),
        reason: Some(handler.reason(event)),
        ..AddOptions::default()
    };
    handler.requests(event, &mut |request| queue.add_with(request, options));
}

// === impl Watch ===

impl<V: Watched, R: RequestKey> Watch<V, R> {
    /// Watches what `view` shows and requests what `handler` names.
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

    /// Handles only events that `predicate` allows. Several must all allow it, and the controller's event filters.
    pub fn with_predicate(mut self, predicate: impl Predicate<V>) -> Self {
        self.predicates.push(Box::new(predicate));
        self
    }

    /// In another cluster.
    pub fn in_cluster(mut self, cluster: &Cluster) -> Self {
        self.others = Some(cluster.caches().clone());
        self
    }

    /// Does without the kind while the server does not have it ([`Builder::optional`](super::Builder::optional)).
    pub fn optional(mut self) -> Self {
        self.optional = true;
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

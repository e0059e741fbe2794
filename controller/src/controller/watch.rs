//! The watches of a controller: a kind, the predicates that let its events through, the handler that names requests.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reeve_informer::{Activity, CacheHealth, Event};
use reeve_workqueue::{AddOptions, LOW_PRIORITY, Queue, Reason};
use tokio::time::sleep;

use crate::cache::{CacheError, Caches, Registration, View};
use crate::handler::{Handler, Watched, is_unchanged};
use crate::manager::{Inspect, Unavailable};
use crate::predicate::{Filter, MetaEvent, Predicate};
use crate::reconcile::RequestKey;

/// How often it is looked whether the server has an optional kind, while the workers wait to start.
const LOOK: Duration = Duration::from_millis(100);

/// The predicates of all watches of a controller.
pub(super) type Filters = Arc<[Box<dyn Filter>]>;
/// Asks for the cache of a watch.
type Ask<R> = Box<dyn FnOnce(&Caches, &Filters) -> Result<Attach<R>, CacheError> + Send>;
/// Registers the handler of a watch, which adds to the queue; each time the replica begins to lead.
type Attach<R> = Box<dyn Fn(&str, &Queue<R>) -> Registration + Send + Sync>;

/// A watch with its kind erased.
pub(super) struct Watch<R> {
    ask: Ask<R>,
    /// The controller starts without it while the server does not have the kind.
    optional: bool,
}

/// A watch whose cache fills, whether or not its handler is registered.
pub(super) struct Asked<R> {
    attach: Attach<R>,
    optional: bool,
}

/// The watches of a running controller.
pub(super) struct Watching<R: RequestKey> {
    queue: Queue<R>,
    registered: Mutex<Vec<Arc<Registered>>>,
}

/// A handler that is registered.
struct Registered {
    registration: Registration,
    optional: bool,
}

// === impl Watch ===

impl<R: RequestKey> Watch<R> {
    /// A watch through `view` by `handler`, for the events that all `predicates` allow; in the caches of another
    /// cluster if there are `others`.
    pub(super) fn new<V, H>(
        view: View<V>,
        handler: H,
        predicates: Vec<Box<dyn Predicate<V>>>,
        others: Option<Caches>,
        changed: Reason,
        optional: bool,
    ) -> Self
    where
        V: Watched,
        H: Handler<V, R>,
    {
        let ask: Ask<R> = Box::new(move |caches, filters| {
            let caches = others.unwrap_or_else(|| caches.clone());
            let interest = caches.watch(&view, !optional)?;
            let filters = Filters::clone(filters);
            let (handler, predicates) = (Arc::new(handler), Arc::new(predicates));
            let attach: Attach<R> = Box::new(move |name, queue| {
                let (queue, filters) = (queue.clone(), Filters::clone(&filters));
                let (handler, predicates) = (Arc::clone(&handler), Arc::clone(&predicates));
                caches.register(interest.clone(), &view, name, move |event| {
                    let meta = MetaEvent::of(&event);
                    if filters.iter().all(|filter| filter.passes(&meta))
                        && predicates.iter().all(|predicate| predicate.allows(&event))
                    {
                        enqueue(&queue, &*handler, &event, changed);
                    }
                })
            });
            Ok(attach)
        });
        Self { ask, optional }
    }

    /// Asks for the cache, so that it fills before the handler is registered.
    pub(super) fn ask(self, caches: &Caches, filters: &Filters) -> Result<Asked<R>, CacheError> {
        Ok(Asked {
            attach: (self.ask)(caches, filters)?,
            optional: self.optional,
        })
    }
}

/// Adds what `handler` names for `event`; what is no news at low priority.
fn enqueue<K: Watched, R: RequestKey>(
    queue: &Queue<R>,
    handler: &impl Handler<K, R>,
    event: &Event<K>,
    changed: Reason,
) {
    let unchanged = is_unchanged(event);
    let reason = match event {
        _ if matches!(changed, Reason::Owner) => Reason::Owner,
        Event::Added { .. } => Reason::Added,
        Event::Updated { .. } if unchanged => Reason::Resync,
        Event::Updated { .. } => changed,
        Event::Deleted { .. } => Reason::Deleted,
    };
    let options = AddOptions {
        priority: unchanged.then_some(LOW_PRIORITY),
        reason: Some(reason),
        ..AddOptions::default()
    };
    handler.requests(event, &mut |request| queue.add_with(request, options));
}

// === impl Watching ===

impl<R: RequestKey> Watching<R> {
    pub(super) fn new(queue: Queue<R>) -> Self {
        Self {
            queue,
            registered: Mutex::default(),
        }
    }

    /// Registers every handler, which are then told of every object there is.
    pub(super) fn attach(&self, name: &str, watches: &[Asked<R>]) {
        for watch in watches {
            let registration = (watch.attach)(name, &self.queue);
            self.registered.lock().push(Arc::new(Registered {
                registration,
                optional: watch.optional,
            }));
        }
    }

    /// Returns when every handler has seen its first objects; those of an optional kind that the server does not have
    /// are not waited for.
    pub(super) async fn synced(&self) {
        for registered in self.all() {
            let waited = registered.registration.synced();
            if !registered.optional {
                waited.await;
                continue;
            }
            tokio::select! {
                biased;
                () = waited => {}
                () = registered.missing() => {}
            }
        }
    }

    /// Takes every handler away, and returns when none of them runs any more.
    pub(super) async fn detach(&self) {
        let all = std::mem::take(&mut *self.registered.lock());
        for registered in all {
            registered.registration.remove().await;
        }
    }

    fn all(&self) -> Vec<Arc<Registered>> {
        self.registered.lock().clone()
    }
}

impl<R: RequestKey> Inspect for Watching<R> {
    fn unavailable(&self) -> Vec<Unavailable> {
        let all = self.all();
        all.iter()
            .filter_map(|registered| registered.trouble())
            .collect()
    }

    fn at_work(&self) -> Vec<String> {
        let snapshot = self.queue.snapshot_of(10);
        let running = snapshot
            .items
            .iter()
            .filter_map(|item| match item.standing {
                reeve_workqueue::Standing::InFlight { running, .. } => {
                    Some(format!("{} for {} s", item.item, running.as_secs()))
                }
                _ => None,
            });
        running.collect()
    }
}

// === impl Registered ===

impl Registered {
    /// Returns when the server does not have the kind.
    async fn missing(&self) {
        while self.registration.health().activity != Activity::Missing {
            sleep(LOOK).await;
        }
    }

    /// Why the handler has not seen its first objects.
    fn trouble(&self) -> Option<Unavailable> {
        if self.registration.is_synced() {
            return None;
        }
        let health = self.registration.health();
        let cause = match &health.failure {
            _ if health.activity == Activity::Missing => "not found",
            Some(failure) => failure.class,
            None => "not synced",
        };
        let message = health.trouble().unwrap_or_else(|| waiting(&health));
        Some(Unavailable {
            optional: self.optional && health.activity == Activity::Missing,
            informer: health.name,
            cause,
            message,
        })
    }
}

/// The informer is well; the handler has not come through its first objects.
fn waiting(health: &CacheHealth) -> String {
    format!("{}: {} objects to be shown", health.name, health.objects)
}

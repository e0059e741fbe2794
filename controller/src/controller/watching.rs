//! What a controller watches: what was said before it was added, and what was added since.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use reeve_informer::{Activity, CacheHealth};
use reeve_workqueue::Queue;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::reading::{Gauge, Reading};
use super::watch::{AnyWatch, Asked, Filters};
use crate::cache::{CacheError, Caches, Registration};
use crate::manager::{Inspect, Unavailable};
use crate::reconcile::RequestKey;
use crate::source::Source;

/// How often it is looked whether the server has an optional kind, while the workers wait to start.
const LOOK: Duration = Duration::from_millis(100);

/// Why a controller did not take a watch or a source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// It is a runnable, and not a controller; or one that has stopped.
    #[error("{0} takes no watches: it is no controller, or has stopped")]
    NoController(String),
    /// The controller's requests are of another type.
    #[error("{0} takes no watches that name requests of another type than its own")]
    OtherRequests(String),
    /// The kind cannot be cached as the watch wants it.
    #[error("the watch was not added to {controller}: {source}")]
    Cache {
        /// The controller.
        controller: String,
        /// Why not.
        source: CacheError,
    },
}

/// What is added to a controller, its type of requests erased on the way.
pub(crate) enum Late<R> {
    Watch(AnyWatch<R>),
    Source(Source<R>),
}

/// The watches of a controller, from when it is added to when it ends.
pub(super) struct Watching<R: RequestKey> {
    name: Arc<str>,
    queue: Queue<R>,
    caches: Caches,
    filters: Filters,
    state: Mutex<State<R>>,
    /// A watch was registered, or a source added, while others were.
    news: Notify,
    /// A source was added.
    sources: Notify,
    /// Whether the sources are read.
    reads: watch::Sender<bool>,
}

struct State<R: RequestKey> {
    /// In the order in which they were added.
    watches: Vec<Entry<R>>,
    stage: Stage,
    /// Those registered since the others were, whose first objects nobody waits for yet.
    late: VecDeque<Member>,
    /// How every source is doing that has not finished.
    gauges: Vec<(Id, Arc<Gauge>)>,
    /// Sources that nobody reads yet.
    sources: Vec<Reading<R>>,
    /// How many watches and sources were added, and how many of them are sources.
    added: u64,
    sources_added: usize,
}

/// A watch or a source of one controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(u64);

/// A watch that is asked for, and its handler while that is registered.
struct Entry<R> {
    id: Id,
    asked: Asked<R>,
    registered: Option<Arc<Registered>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The caches fill, and no handler is registered.
    Apart,
    /// Every handler is registered.
    Attached,
    /// The controller has ended.
    Over,
}

/// What names requests: a watch or a source.
#[derive(Clone)]
pub(super) enum Member {
    Watch(Arc<Registered>),
    Source(Arc<Gauge>),
}

/// A handler that is registered.
pub(super) struct Registered {
    registration: Registration,
    optional: bool,
    /// Cancelled when the handler is taken away.
    removed: CancellationToken,
}

// === impl Watching ===

impl<R: RequestKey> Watching<R> {
    /// None yet. Those that are added fill their caches in `caches`, unless they are for another cluster.
    pub(super) fn new(name: &str, queue: Queue<R>, caches: Caches, filters: Filters) -> Self {
        Self {
            name: name.into(),
            queue,
            caches,
            filters,
            state: Mutex::new(State {
                watches: Vec::new(),
                stage: Stage::Apart,
                late: VecDeque::new(),
                gauges: Vec::new(),
                sources: Vec::new(),
                added: 0,
                sources_added: 0,
            }),
            news: Notify::new(),
            sources: Notify::new(),
            reads: watch::Sender::new(false),
        }
    }

    /// Asks for the cache of `watch`, and registers its handler if those of the others are. `None` if the controller
    /// has ended.
    ///
    /// # Errors
    /// When the kind cannot be cached as the watch wants it.
    pub(super) fn add(&self, watch: AnyWatch<R>) -> Result<Option<Id>, CacheError> {
        let asked = watch.ask(&self.caches, &self.filters)?;
        let mut state = self.state.lock();
        let registered = match state.stage {
            Stage::Apart => None,
            Stage::Attached => {
                let registered = self.register(&asked);
                let late = Member::Watch(Arc::clone(&registered));
                state.late.push_back(late);
                self.news.notify_one();
                Some(registered)
            }
            Stage::Over => return Ok(None),
        };
        let id = state.next_id();
        state.watches.push(Entry {
            id,
            asked,
            registered,
        });
        Ok(Some(id))
    }

    /// Has `source` read. `None` if the controller has ended.
    pub(super) fn add_source(&self, source: Source<R>) -> Option<Id> {
        let mut state = self.state.lock();
        if state.stage == Stage::Over {
            return None;
        }
        state.sources_added += 1;
        let reading = Reading::new(source, state.sources_added);
        if state.stage == Stage::Attached {
            state.late.push_back(Member::Source(reading.gauge()));
            self.news.notify_one();
        }
        let id = state.next_id();
        state.gauges.push((id, reading.gauge()));
        state.sources.push(reading);
        self.sources.notify_one();
        Some(id)
    }

    /// How many sources are kept, and how many that came late nobody has waited for.
    #[cfg(test)]
    pub(super) fn sources_known(&self) -> usize {
        let state = self.state.lock();
        state.gauges.len() + state.late.len()
    }

    /// Whether the sources are read.
    pub(super) fn reads(&self) -> watch::Receiver<bool> {
        self.reads.subscribe()
    }

    /// There is nothing to say of this source any more.
    pub(super) fn forget(&self, gauge: &Arc<Gauge>) {
        gauge.remove();
        let is_other = |(_, known): &(Id, Arc<Gauge>)| !Arc::ptr_eq(known, gauge);
        self.state.lock().gauges.retain(is_other);
        self.forget_late();
    }

    /// Forgets what was removed before anybody waited for it.
    fn forget_late(&self) {
        let over: VecDeque<Member> = {
            let mut state = self.state.lock();
            let all = std::mem::take(&mut state.late).into_iter();
            let (over, left) = all.partition(Member::is_removed);
            state.late = left;
            over
        };
        // Outside of the lock.
        drop(over);
    }

    /// Takes those watches away that `which` names, and returns the future that ends when no handler of them runs any
    /// more. Whether or not that is polled, they are gone.
    fn take_watches(&self, which: impl Fn(&Entry<R>) -> bool) -> BoxFuture<'static, ()> {
        let taken: Vec<Entry<R>> = {
            let mut state = self.state.lock();
            state.watches.extract_if(.., |entry| which(entry)).collect()
        };
        // Outside of the lock: what is dropped there may take others.
        let registered = taken.into_iter().filter_map(|entry| entry.registered);
        let registered: Vec<_> = registered.collect();
        for registered in &registered {
            registered.removed.cancel();
            registered.registration.unregister();
        }
        self.forget_late();
        Box::pin(async move {
            let removed = registered.iter().map(|one| one.registration.remove());
            join_all(removed).await;
        })
    }

    /// The sources that nobody reads yet, as soon as there are any. For one reader.
    pub(super) async fn next_sources(&self) -> Vec<Reading<R>> {
        loop {
            let sources = std::mem::take(&mut self.state.lock().sources);
            if !sources.is_empty() {
                return sources;
            }
            self.sources.notified().await;
        }
    }

    /// The next watch or source that came after the others, and that somebody is to wait for. For one waiter.
    pub(super) async fn next_late(&self) -> Member {
        loop {
            let late = self.state.lock().late.pop_front();
            if let Some(late) = late {
                return late;
            }
            self.news.notified().await;
        }
    }

    /// Registers every handler, which are then told of every object there is, and has the sources read.
    pub(super) fn attach(&self) {
        let mut state = self.state.lock();
        if state.stage == Stage::Apart {
            state.stage = Stage::Attached;
            for entry in &mut state.watches {
                entry.registered = Some(self.register(&entry.asked));
            }
            self.reads.send_replace(true);
        }
    }

    fn register(&self, asked: &Asked<R>) -> Arc<Registered> {
        Arc::new(Registered {
            registration: (asked.attach)(&self.name, &self.queue),
            optional: asked.optional,
            removed: CancellationToken::new(),
        })
    }

    /// Returns when every handler has seen its first objects and every source was started, those that come meanwhile
    /// too; handlers of an optional kind that the server does not have are not waited for.
    pub(super) async fn synced(&self) {
        while let Some(member) = self.next_apart() {
            member.attached().await;
        }
    }

    fn next_apart(&self) -> Option<Member> {
        let all = self.all();
        all.into_iter().find(|member| !member.is_attached())
    }

    /// Takes every handler away, has no source read, and returns the future that ends when no handler runs any more.
    /// Whether or not that is polled, they are gone.
    pub(super) fn detach(&self) -> BoxFuture<'static, ()> {
        self.leave(Stage::Apart)
    }

    /// As [`Watching::detach`], and forgets all watches and sources.
    pub(super) fn end(&self) -> BoxFuture<'static, ()> {
        self.leave(Stage::Over)
    }

    fn leave(&self, stage: Stage) -> BoxFuture<'static, ()> {
        let (registered, over) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            state.stage = stage;
            state.late.clear();
            self.reads.send_replace(false);
            let registered: Vec<Arc<Registered>> = state
                .watches
                .iter_mut()
                .filter_map(|entry| entry.registered.take())
                .collect();
            let over = (stage == Stage::Over).then(|| {
                (
                    std::mem::take(&mut state.watches),
                    std::mem::take(&mut state.sources),
                    std::mem::take(&mut state.gauges),
                )
            });
            (registered, over)
        };
        // Outside of the lock: what is dropped there may take others.
        drop(over);
        for registered in &registered {
            registered.registration.unregister();
        }
        Box::pin(async move {
            for registered in registered {
                registered.registration.remove().await;
            }
        })
    }

    /// What is to be ready now: of a standby, none of the sources.
    pub(super) fn all(&self) -> Vec<Member> {
        let state = self.state.lock();
        let registered = state.watches.iter();
        let registered = registered.filter_map(|entry| entry.registered.clone());
        let read = state.stage == Stage::Attached;
        let sources = state.gauges.iter().filter(|_| read);
        let sources = sources.map(|(_, gauge)| Member::Source(Arc::clone(gauge)));
        registered.map(Member::Watch).chain(sources).collect()
    }
}

impl<R: RequestKey> State<R> {
    fn next_id(&mut self) -> Id {
        self.added += 1;
        Id(self.added)
    }
}

impl<R: RequestKey> Inspect for Watching<R> {
    fn unavailable(&self) -> Vec<Unavailable> {
        let all = self.all();
        all.iter().filter_map(Member::trouble).collect()
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

    fn take(&self, late: Box<dyn Any + Send>) -> Result<Id, WatchError> {
        let name = || String::from(&*self.name);
        let Ok(late) = late.downcast::<Late<R>>() else {
            return Err(WatchError::OtherRequests(name()));
        };
        let taken = match *late {
            Late::Watch(watch) => self.add(watch).map_err(|source| WatchError::Cache {
                controller: name(),
                source,
            })?,
            Late::Source(source) => self.add_source(source),
        };
        taken.ok_or_else(|| WatchError::NoController(name()))
    }

    fn remove(&self, id: Id) -> BoxFuture<'static, ()> {
        let (source, unread) = {
            let mut state = self.state.lock();
            let place = state.gauges.iter().position(|(known, _)| *known == id);
            let source = place.map(|place| state.gauges.remove(place).1);
            let is_it = |gauge| source.as_ref().is_some_and(|it| Arc::ptr_eq(it, &gauge));
            let unread = state.sources.iter().position(|it| is_it(it.gauge()));
            let unread = unread.map(|place| state.sources.remove(place));
            (source, unread)
        };
        // Outside of the lock: what is dropped there may take others.
        drop(unread);
        if let Some(source) = source {
            self.forget(&source);
        }
        self.take_watches(|entry| entry.id == id)
    }

    fn leave_caches(&self, caches: &Caches) -> BoxFuture<'static, ()> {
        self.take_watches(|entry| entry.asked.caches.is(caches))
    }
}

// === impl Member ===

impl Member {
    /// Returns when a watch has seen its first objects, or does without; or when a source was started.
    pub(super) async fn attached(&self) {
        match self {
            Self::Watch(registered) => registered.attached().await,
            Self::Source(gauge) => gauge.started().await,
        }
    }

    fn is_attached(&self) -> bool {
        match self {
            Self::Watch(registered) => registered.is_attached(),
            Self::Source(gauge) => gauge.is_started(),
        }
    }

    fn is_removed(&self) -> bool {
        match self {
            Self::Watch(registered) => registered.removed.is_cancelled(),
            Self::Source(gauge) => gauge.is_removed(),
        }
    }

    /// Why it names no requests.
    pub(super) fn trouble(&self) -> Option<Unavailable> {
        match self {
            Self::Watch(registered) => registered.trouble(),
            Self::Source(gauge) => gauge.trouble(),
        }
    }
}

// === impl Registered ===

impl Registered {
    /// Returns when the handler has seen its first objects or is taken away, or the kind is optional and the server does
    /// not have it.
    async fn attached(&self) {
        tokio::select! {
            biased;
            () = self.removed.cancelled() => {}
            () = self.registration.wait_synced() => {}
            () = self.missing(), if self.optional => {}
        }
    }

    fn is_attached(&self) -> bool {
        let missing = || self.registration.health().activity == Activity::Missing;
        self.registration.has_synced() || (self.optional && missing())
    }

    /// Returns when the server does not have the kind.
    async fn missing(&self) {
        while self.registration.health().activity != Activity::Missing {
            sleep(LOOK).await;
        }
    }

    /// Why the handler has not seen its first objects.
    fn trouble(&self) -> Option<Unavailable> {
        if self.registration.has_synced() || self.removed.is_cancelled() {
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

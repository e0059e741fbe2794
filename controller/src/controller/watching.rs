//! What a controller watches: what was said before it was added, and what was added since.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reeve_informer::{Activity, CacheHealth};
use reeve_workqueue::Queue;
use tokio::sync::Notify;
use tokio::time::sleep;

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
}

struct State<R: RequestKey> {
    /// Every watch, in the order in which they were added.
    asked: Vec<Asked<R>>,
    stage: Stage,
    registered: Vec<Arc<Registered>>,
    /// Those registered since the others were, whose first objects nobody waits for yet.
    late: VecDeque<Member>,
    /// How every source is doing.
    gauges: Vec<Arc<Gauge>>,
    /// Sources that nobody reads yet.
    sources: Vec<Reading<R>>,
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
                asked: Vec::new(),
                stage: Stage::Apart,
                registered: Vec::new(),
                late: VecDeque::new(),
                gauges: Vec::new(),
                sources: Vec::new(),
            }),
            news: Notify::new(),
            sources: Notify::new(),
        }
    }

    /// Asks for the cache of `watch`, and registers its handler if those of the others are. False if the controller
    /// has ended.
    ///
    /// # Errors
    /// When the kind cannot be cached as the watch wants it.
    pub(super) fn add(&self, watch: AnyWatch<R>) -> Result<bool, CacheError> {
        let asked = watch.ask(&self.caches, &self.filters)?;
        let mut state = self.state.lock();
        match state.stage {
            Stage::Apart => {}
            Stage::Attached => {
                let registered = self.register(&asked);
                state.registered.push(Arc::clone(&registered));
                state.late.push_back(Member::Watch(registered));
                self.news.notify_one();
            }
            Stage::Over => return Ok(false),
        }
        state.asked.push(asked);
        Ok(true)
    }

    /// Has `source` read. False if the controller has ended.
    pub(super) fn add_source(&self, source: Source<R>) -> bool {
        let mut state = self.state.lock();
        if state.stage == Stage::Over {
            return false;
        }
        let reading = Reading::new(source, state.gauges.len() + 1);
        if state.stage == Stage::Attached {
            state.late.push_back(Member::Source(reading.gauge()));
            self.news.notify_one();
        }
        state.gauges.push(reading.gauge());
        state.sources.push(reading);
        self.sources.notify_one();
        true
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

    /// Registers every handler, which are then told of every object there is.
    pub(super) fn attach(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.stage == Stage::Apart {
            state.stage = Stage::Attached;
            let registered = state.asked.iter().map(|asked| self.register(asked));
            state.registered.extend(registered);
        }
    }

    fn register(&self, asked: &Asked<R>) -> Arc<Registered> {
        Arc::new(Registered {
            registration: (asked.attach)(&self.name, &self.queue),
            optional: asked.optional,
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

    /// Takes every handler away, and returns when none of them runs any more.
    pub(super) async fn detach(&self) {
        self.leave(Stage::Apart).await;
    }

    /// As [`Watching::detach`], for ever.
    pub(super) async fn end(&self) {
        self.leave(Stage::Over).await;
    }

    async fn leave(&self, stage: Stage) {
        let (registered, over) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            state.stage = stage;
            state.late.clear();
            let none = (Vec::new(), Vec::new());
            let over = match stage {
                Stage::Over => (
                    std::mem::take(&mut state.asked),
                    std::mem::take(&mut state.sources),
                ),
                Stage::Apart | Stage::Attached => none,
            };
            (std::mem::take(&mut state.registered), over)
        };
        // Outside of the lock: what is dropped there may take others.
        drop(over);
        for registered in registered {
            registered.registration.remove().await;
        }
    }

    fn all(&self) -> Vec<Member> {
        let state = self.state.lock();
        let watches = state.registered.iter().cloned().map(Member::Watch);
        let sources = state.gauges.iter().cloned().map(Member::Source);
        watches.chain(sources).collect()
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

    fn take(&self, late: Box<dyn Any + Send>) -> Result<(), WatchError> {
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
        if taken {
            Ok(())
        } else {
            Err(WatchError::NoController(name()))
        }
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
    /// Returns when the handler has seen its first objects, or the kind is optional and the server does not have it.
    async fn attached(&self) {
        let synced = self.registration.wait_synced();
        if !self.optional {
            return synced.await;
        }
        tokio::select! {
            biased;
            () = synced => {}
            () = self.missing() => {}
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
        if self.registration.has_synced() {
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

//! Watches and sources of a controller: those of its builder, and those added later.

use std::any::Any;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use reeve_workqueue::Queue;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::figures::Figures;
use super::member::{Member, Registered};
use super::panics::Panics;
use super::reading::{Gauge, Reading};
use super::watch::{AnyWatch, Asked, Filters, Target};
use crate::cache::{CacheError, Caches};
use crate::debug::{ControllerReport, SourceReport, WritesReport};
use crate::lifecycle::{Id, Inspect, Unavailable, WatchError};
use crate::reconcile::RequestKey;
use crate::source::Source;

/// An addition to a controller. `Inspect::take` passes it with its request type erased.
pub(crate) enum Late<R> {
    Watch(AnyWatch<R>),
    Source(Source<R>),
}

/// The watches and sources of a controller, from its addition to its end.
pub(super) struct Watching<R: RequestKey> {
    name: Arc<str>,
    queue: Queue<R>,
    caches: Caches,
    filters: Filters,
    figures: Figures<R>,
    panics: Arc<Panics>,
    state: Mutex<State<R>>,
    /// Notified when a watch or a source is added while the others are attached.
    news: Notify,
    /// Notified when a source is added.
    sources: Notify,
    /// Whether the sources are read.
    reads: watch::Sender<bool>,
}

struct State<R: RequestKey> {
    /// In the order in which they were added.
    watches: Vec<Entry<R>>,
    stage: Stage,
    /// Members added after the others were attached, for which no wait has begun.
    late: VecDeque<Member>,
    /// The states of the sources that have not finished.
    gauges: Vec<(Id, Arc<Gauge>)>,
    /// Sources without a reader yet.
    sources: Vec<Reading<R>>,
    /// The number of watches and sources added so far, and of sources among them.
    added: u64,
    sources_added: usize,
}

/// A watch whose cache fills, and its handler while that is registered.
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

// === impl Watching ===

impl<R: RequestKey> Watching<R> {
    /// No watches yet. Each added watch fills its cache in `caches`, or in those of its cluster.
    pub(super) fn new(
        name: &str,
        queue: Queue<R>,
        caches: Caches,
        filters: Filters,
        figures: Figures<R>,
    ) -> Self {
        let panics = figures.metrics.watch_panics.clone();
        Self {
            name: name.into(),
            queue,
            caches,
            filters,
            figures,
            panics: Arc::new(Panics::new(name, panics)),
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

    /// Starts to fill the cache of `watch`, and registers its handler if the others are registered. `None` if the
    /// controller has ended.
    ///
    /// # Errors
    /// When the kind cannot be cached as the watch requires, or the cluster of the watch was removed.
    pub(super) fn add(&self, watch: AnyWatch<R>) -> Result<Option<Id>, CacheError> {
        let asked = watch.ask(&self.caches, &self.filters)?;
        let mut state = self.state.lock();
        // Under the lock: a removal that marks the caches later finds the watch here.
        asked.caches.check_removed()?;
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

    /// Adds `source`, which is then read. `None` if the controller has ended.
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

    /// The number of sources kept, plus that of late members for which no wait has begun.
    #[cfg(test)]
    pub(super) fn sources_known(&self) -> usize {
        let state = self.state.lock();
        state.gauges.len() + state.late.len()
    }

    /// Whether the sources are read.
    pub(super) fn reads(&self) -> watch::Receiver<bool> {
        self.reads.subscribe()
    }

    /// Drops the state of a source that has finished or is removed.
    pub(super) fn forget(&self, gauge: &Arc<Gauge>) {
        gauge.remove();
        let is_other = |(_, known): &(Id, Arc<Gauge>)| !Arc::ptr_eq(known, gauge);
        self.state.lock().gauges.retain(is_other);
        self.forget_late();
    }

    /// Drops late members that were removed before a wait for them began.
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

    /// Removes the watches that match `which`, and returns a future that ends when none of their handlers runs. They
    /// are removed even if it is not polled.
    fn take_watches(&self, which: impl Fn(&Entry<R>) -> bool) -> BoxFuture<'static, ()> {
        let taken: Vec<Entry<R>> = {
            let mut state = self.state.lock();
            state.watches.extract_if(.., |entry| which(entry)).collect()
        };
        // Outside of the lock: dropped values may take other locks.
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

    /// Waits for sources without a reader, and returns them. For one caller.
    pub(super) async fn next_sources(&self) -> Vec<Reading<R>> {
        loop {
            let sources = std::mem::take(&mut self.state.lock().sources);
            if !sources.is_empty() {
                return sources;
            }
            self.sources.notified().await;
        }
    }

    /// Waits for the next late member, and returns it. For one caller.
    pub(super) async fn next_late(&self) -> Member {
        loop {
            let late = self.state.lock().late.pop_front();
            if let Some(late) = late {
                return late;
            }
            self.news.notified().await;
        }
    }

    /// Registers every handler, which then receives every existing object, and starts the reading of the sources.
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
        let removed = CancellationToken::new();
        let target = Target {
            name: &self.name,
            queue: &self.queue,
            panics: &self.panics,
            removed: &removed,
        };
        Arc::new(Registered {
            registration: (asked.attach)(&target),
            optional: asked.optional,
            removed,
        })
    }

    /// Returns when every handler has seen its first objects and every source has started, also those added meanwhile.
    /// Does not wait for handlers of an optional kind that the server does not have.
    pub(super) async fn synced(&self) {
        while let Some(member) = self.next_apart() {
            member.attached().await;
        }
    }

    fn next_apart(&self) -> Option<Member> {
        let all = self.all();
        all.into_iter().find(|member| !member.is_attached())
    }

    /// Removes every handler, stops the reading of the sources, and returns a future that ends when no handler runs.
    /// They are removed even if it is not polled.
    pub(super) fn detach(&self) -> BoxFuture<'static, ()> {
        self.leave(Stage::Apart)
    }

    /// As [`Watching::detach`], and drops all watches and sources.
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
        // Outside of the lock: dropped values may take other locks.
        drop(over);
        for registered in &registered {
            registered.registration.unregister();
        }
        self.panics.clear();
        let panics = Arc::clone(&self.panics);
        Box::pin(async move {
            for registered in registered {
                registered.registration.remove().await;
            }
            // Those of handlers that ran until now.
            panics.clear();
        })
    }

    /// Delivers events again to handlers that panicked at them, until it is dropped.
    pub(super) async fn handle_again(&self) -> Infallible {
        self.panics.run().await
    }

    /// The members that must be ready now; on a standby without the sources.
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
    /// The watches, then the sources that have not finished.
    fn sources(&self) -> Vec<SourceReport> {
        let watches = self.watches.iter().map(|entry| {
            let Entry {
                asked, registered, ..
            } = entry;
            let trouble = registered.as_ref().map(|registered| registered.trouble());
            SourceReport::of(asked.kind.to_string(), true, trouble)
        });
        let read = self.stage == Stage::Attached;
        let sources = self.gauges.iter().map(|(_, gauge)| {
            SourceReport::of(
                gauge.name().to_owned(),
                false,
                read.then(|| gauge.trouble()),
            )
        });
        watches.chain(sources).collect()
    }

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
        let running = snapshot.items.iter().filter_map(|item| match item.status {
            reeve_workqueue::ItemStatus::InFlight { running, .. } => {
                Some(format!("{} for {} s", item.item, running.as_secs()))
            }
            _ => None,
        });
        running.collect()
    }

    fn report(&self) -> ControllerReport {
        let sources = self.state.lock().sources();
        ControllerReport {
            sources,
            ..self.figures.report(&self.name, &self.queue)
        }
    }

    fn own_writes(&self) -> Option<WritesReport> {
        self.figures.writes(&self.name)
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
        // Outside of the lock: dropped values may take other locks.
        drop(unread);
        if let Some(source) = source {
            self.forget(&source);
        }
        self.take_watches(|entry| entry.id == id)
    }

    fn leave_caches(&self, caches: &Caches) -> BoxFuture<'static, ()> {
        self.take_watches(|entry| entry.asked.caches.is(caches))
    }

    fn leave_removed(&self) {
        drop(self.take_watches(|entry| entry.asked.caches.check_removed().is_err()));
    }
}

//! The factory: [`InformerFactory`].

use std::any::{Any, TypeId};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use indexmap::IndexMap;
use kube_client::Client;
use kube_core::Resource;
use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::builder::{FactoryBuilder, Recipe};
use crate::health::CacheHealth;
use crate::informer::{Builder, NamespaceSet, SharedInformer};
use crate::object::{EntryType, Form, Stored};
use crate::use_count::UseCount;
use reeve_client::transport::{Endpoint, Scope, Selection};

/// Makes informers, shares them and runs them (client-go: `SharedInformerFactory`). A clone is another handle to the
/// same factory.
///
/// # How long an informer lives
///
/// It runs from [`InformerFactory::start`] on, or, if it is requested later, at once. It is in use while there is a
/// clone of it, a [`Lister`](crate::Lister) of it, or a handler that was not removed. After its last use it runs on for
/// the linger (30 s by default), so that a request for it finds its cache; then it stops, and its memory is freed.
/// [`InformerFactory::stop`] stops one informer whether it is in use or not, [`InformerFactory::shutdown`] stops all,
/// and so does dropping the last handle of the factory.
#[derive(Clone)]
pub struct InformerFactory {
    inner: Arc<Inner>,
}

struct Inner {
    recipe: Recipe,
    stop: CancellationToken,
    state: Mutex<State>,
}

struct State {
    /// In the order of their first requests, so that they start in the same order in every run.
    informers: IndexMap<Key, Entry>,
    tasks: Vec<AbortOnDropHandle<()>>,
    /// The tasks that are not over, also of informers that were removed.
    running: UseCount,
    /// The runtime of the informers, once they are started.
    runtime: Option<Handle>,
    shut_down: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: Endpoint,
    selection: Selection,
    namespaces: Option<NamespaceSet>,
    form: (TypeId, TypeId),
}

struct Entry {
    /// A [`SharedInformer`] that does not count as a use.
    informer: Box<dyn Any + Send + Sync>,
    erased: Arc<dyn Erased>,
    users: UseCount,
    stop: CancellationToken,
    /// Cancelled when its task is over; `None` before it is started.
    ended: Option<CancellationToken>,
}

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An informer of any kind.
trait Erased: Send + Sync {
    fn run(&self, stop: CancellationToken) -> BoxFuture;
    fn synced(&self) -> BoxFuture;
    fn has_synced(&self) -> bool;
    fn is_stopped(&self) -> bool;
    /// Stops it, unless it has run.
    fn end_unless_run(&self);
    fn health(&self) -> CacheHealth;
}

// === impl State ===

impl State {
    /// The existing informer.
    fn known<S: Stored + ?Sized>(&self, key: &Key) -> Option<SharedInformer<S>> {
        let entry = self.informers.get(key)?;
        if entry.erased.is_stopped() {
            return None;
        }
        let informer = entry.informer.downcast_ref()?;
        Some(SharedInformer::used(informer, entry.users.begin()))
    }

    /// The tasks of informers that have none.
    fn new_tasks(&mut self, factory: &Arc<Inner>) -> Vec<BoxFuture> {
        let mut tasks = Vec::new();
        let waiting = self.informers.iter_mut();
        for (key, entry) in waiting.filter(|(_, entry)| entry.ended.is_none()) {
            let ended = entry.ended.insert(CancellationToken::new()).clone();
            let run = entry.erased.run(entry.stop.clone());
            let unused = unused(
                Arc::downgrade(factory),
                key.clone(),
                entry.users.clone(),
                entry.stop.clone(),
            );
            // Not made in the task, which may be dropped before it is polled.
            let held = (ended.drop_guard(), self.running.begin());
            let task: BoxFuture = Box::pin(async move {
                let _held = held;
                tokio::select! {
                    biased;
                    () = run => {}
                    () = unused => {}
                }
            });
            tasks.push(task);
        }
        tasks
    }
}

/// The caches that did not sync, and the reasons.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("caches not synced: {}", .waiting.join("; "))]
pub struct NotSynced {
    /// One line for each.
    pub waiting: Vec<String>,
}

// === impl InformerFactory ===

impl InformerFactory {
    /// A factory with the defaults of [`InformerFactory::builder`], and without informers.
    #[must_use]
    pub fn new(client: Client, clock: Clock) -> Self {
        Self::builder(client).clock(clock).build()
    }

    /// Begins a factory.
    pub fn builder(client: Client) -> FactoryBuilder {
        FactoryBuilder::new(client)
    }

    pub(super) fn from_recipe(recipe: Recipe) -> Self {
        Self {
            inner: Arc::new(Inner {
                recipe,
                stop: CancellationToken::new(),
                state: Mutex::new(State {
                    informers: IndexMap::new(),
                    tasks: Vec::new(),
                    running: UseCount::none(),
                    runtime: None,
                    shut_down: false,
                }),
            }),
        }
    }

    /// The informer for `K` and `selection`; the same one for each call.
    #[must_use]
    pub fn informer<K>(&self, selection: Selection) -> SharedInformer<K>
    where
        K: Form + Resource,
        K::DynamicType: Default,
    {
        self.informer_for(Endpoint::of::<K>(), selection)
    }

    /// The informer for the kind at `endpoint` in the form `S`.
    #[must_use]
    pub fn informer_for<S: Form>(
        &self,
        endpoint: Endpoint,
        selection: Selection,
    ) -> SharedInformer<S> {
        let entry_type = EntryType::known();
        self.shared(entry_type, endpoint, selection, None, |builder| builder)
    }

    /// The informer for the kind at `endpoint` in the form `S`, in the namespaces of a set, which may change while
    /// it runs; the same one for each call with this set. The scope of `selection` has no effect.
    #[must_use]
    pub fn informer_within<S: Form>(
        &self,
        endpoint: Endpoint,
        namespaces: &NamespaceSet,
        selection: Selection,
    ) -> SharedInformer<S> {
        let scope = Scope::Cluster;
        self.shared(
            EntryType::known(),
            endpoint,
            Selection { scope, ..selection },
            Some(namespaces.clone()),
            |builder| builder,
        )
    }

    /// The informer for the kind at `endpoint` in the form `S`: with `selection`, or, given `namespaces`, in those of
    /// the set. If there is none yet, it is made with the settings of the factory and then those of `configure`; a
    /// selection or namespaces set there are not kept. Two calls at once may both make an informer, of which one is
    /// used.
    #[must_use]
    pub fn informer_with<S: Form>(
        &self,
        endpoint: Endpoint,
        selection: Selection,
        namespaces: Option<&NamespaceSet>,
        configure: impl FnOnce(Builder<S>) -> Builder<S>,
    ) -> SharedInformer<S> {
        let entry_type = EntryType::known();
        self.informer_of(entry_type, endpoint, selection, namespaces, configure)
    }

    /// As [`InformerFactory::informer_with`], for entries of a type that is a value. The functions of
    /// [`FactoryBuilder::configure`](super::FactoryBuilder::configure) are for typed entries: `configure` here sets what they would.
    #[must_use]
    pub fn informer_of<S: Stored + ?Sized>(
        &self,
        entry_type: EntryType<S>,
        endpoint: Endpoint,
        selection: Selection,
        namespaces: Option<&NamespaceSet>,
        configure: impl FnOnce(Builder<S>) -> Builder<S>,
    ) -> SharedInformer<S> {
        let scope = match namespaces {
            Some(_) => Scope::Cluster,
            None => selection.scope,
        };
        self.shared(
            entry_type,
            endpoint,
            Selection { scope, ..selection },
            namespaces.cloned(),
            configure,
        )
    }

    fn shared<S: Stored + ?Sized>(
        &self,
        entry_type: EntryType<S>,
        endpoint: Endpoint,
        selection: Selection,
        namespaces: Option<NamespaceSet>,
        configure: impl FnOnce(Builder<S>) -> Builder<S>,
    ) -> SharedInformer<S> {
        let key = Key {
            kind: endpoint.clone(),
            selection: selection.clone(),
            namespaces: namespaces.clone(),
            form: entry_type.id(),
        };
        let known = self.inner.state.lock().known(&key);
        if let Some(known) = known {
            return known;
        }
        // Not under the lock: `configure` is the user's, and may request another informer of this factory.
        let informer = self
            .inner
            .recipe
            .make(entry_type, endpoint, selection, namespaces, configure);
        let mut state = self.inner.state.lock();
        if let Some(known) = state.known(&key) {
            drop(state);
            return known;
        }
        let entry = Entry {
            informer: Box::new(informer.clone()),
            erased: Arc::new(informer.clone()),
            users: UseCount::none(),
            stop: self.inner.stop.child_token(),
            ended: None,
        };
        let used = SharedInformer::used(&informer, entry.users.begin());
        let ended = state.informers.insert(key, entry);
        let shut_down = state.shut_down;
        drop(state);
        drop(ended);
        if shut_down {
            drop(informer.end_unless_run());
        }
        self.start_new();
        used
    }

    /// Starts all informers; those that are requested later start at once. A second call has no effect, nor has a call
    /// after [`InformerFactory::shutdown`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self) {
        self.inner.state.lock().runtime = Some(Handle::current());
        self.start_new();
    }

    fn start_new(&self) {
        let (runtime, tasks) = {
            let mut state = self.inner.state.lock();
            let runtime = state.runtime.clone().filter(|_| !state.shut_down);
            let Some(runtime) = runtime else { return };
            state.tasks.retain(|task| !task.is_finished());
            (runtime, state.new_tasks(&self.inner))
        };
        // Not under the lock: a runtime that ends drops the new tasks, and handlers with them.
        let tasks: Vec<_> = tasks
            .into_iter()
            .map(|task| AbortOnDropHandle::new(runtime.spawn(task)))
            .collect();
        self.inner.state.lock().tasks.extend(tasks);
    }

    /// Returns when every informer requested so far has synced, or which have not by `deadline` (client-go:
    /// `WaitForCacheSync`).
    ///
    /// # Errors
    /// [`NotSynced`] with a line for each informer that has not synced: it is late, was not started, or ended.
    pub async fn wait_for_cache_sync(&self, deadline: Duration) -> Result<(), NotSynced> {
        let informers: Vec<_> = {
            let state = self.inner.state.lock();
            state
                .informers
                .values()
                .map(|entry| Arc::clone(&entry.erased))
                .collect()
        };
        let all = async {
            for informer in &informers {
                informer.synced().await;
            }
        };
        let _ = tokio::time::timeout(deadline, all).await;
        let waiting: Vec<_> = informers
            .iter()
            .filter(|informer| !informer.has_synced())
            .map(|informer| {
                let health = informer.health();
                health.trouble().unwrap_or_else(|| health.name.to_string())
            })
            .collect();
        if waiting.is_empty() {
            Ok(())
        } else {
            Err(NotSynced { waiting })
        }
    }

    /// The health of each informer, in the order of their first requests.
    #[must_use]
    pub fn health(&self) -> Vec<CacheHealth> {
        let state = self.inner.state.lock();
        state
            .informers
            .values()
            .map(|entry| entry.erased.health())
            .collect()
    }

    /// Stops `informer` for all its users, and returns when none of its tasks runs any more. A request for its kind and
    /// selection after that makes a new one. Has no effect on an informer that is not of this factory, or has stopped.
    pub async fn stop<S: Stored + ?Sized>(&self, informer: &SharedInformer<S>) {
        let entry = {
            let mut state = self.inner.state.lock();
            let place = state.informers.values().position(|entry| {
                let known = entry.informer.downcast_ref::<SharedInformer<S>>();
                known.is_some_and(|known| known.is(informer))
            });
            place.and_then(|place| state.informers.shift_remove_index(place))
        };
        if let Some((_, entry)) = entry {
            entry.stop.cancel();
            match entry.ended {
                Some(ended) => ended.cancelled().await,
                None => entry.erased.end_unless_run(),
            }
        }
    }

    /// Stops all informers, and returns when none of their tasks runs any more. Informers that are requested after that
    /// are stopped from the beginning.
    pub async fn shutdown(&self) {
        let (informers, running) = self.shut_down();
        for informer in informers {
            informer.end_unless_run();
        }
        running.gone_for(Duration::ZERO).await;
    }

    /// As [`InformerFactory::shutdown`], at once: the tasks are dropped where they are.
    pub fn abort(&self) {
        let (informers, _) = self.shut_down();
        let tasks = std::mem::take(&mut self.inner.state.lock().tasks);
        drop(tasks);
        for informer in informers {
            informer.end_unless_run();
        }
    }

    /// Prevents further starts, and stops all running informers. Returns the informers that were not started, and the count
    /// of the tasks that are not over.
    fn shut_down(&self) -> (Vec<Arc<dyn Erased>>, UseCount) {
        let mut state = self.inner.state.lock();
        state.shut_down = true;
        self.inner.stop.cancel();
        let entries = state.informers.values();
        let waiting = entries.filter(|entry| entry.ended.is_none());
        let informers = waiting.map(|entry| Arc::clone(&entry.erased)).collect();
        (informers, state.running.clone())
    }
}

/// Stops an informer that was not in use for the linger, and removes it. Never returns: the task ends when the informer
/// has ended.
async fn unused(factory: Weak<Inner>, key: Key, users: UseCount, stop: CancellationToken) {
    let Some(linger) = factory.upgrade().map(|factory| factory.recipe.linger) else {
        return;
    };
    loop {
        users.gone_for(linger).await;
        let Some(factory) = factory.upgrade() else {
            return;
        };
        let mut state = factory.state.lock();
        // Under this lock no use of it can begin.
        if users.is_empty() {
            // The entry of this key may be its successor already.
            let known = state.informers.get(&key);
            if known.is_some_and(|entry| entry.users.are(&users)) {
                state.informers.shift_remove(&key);
            }
            stop.cancel();
            break;
        }
    }
    std::future::pending::<()>().await;
}

impl std::fmt::Debug for InformerFactory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InformerFactory")
            .field(
                "informers",
                &self.inner.state.lock().informers.keys().collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}

impl<S: Stored + ?Sized> Erased for SharedInformer<S> {
    fn run(&self, stop: CancellationToken) -> BoxFuture {
        let informer = self.clone();
        // Made here and not in the future, which may be dropped before it is polled.
        let end = self.end_unless_run();
        Box::pin(async move {
            let _end = end;
            if let Err(error) = SharedInformer::run(&informer, stop).await {
                // It was started outside of the factory: it works, and its owner stops it.
                tracing::debug!(%error, "not started by the factory");
            }
        })
    }

    fn synced(&self) -> BoxFuture {
        let informer = self.clone();
        Box::pin(async move {
            // A stopped informer is reported as not synced by the caller.
            let _ = informer.wait_synced().await;
        })
    }

    fn has_synced(&self) -> bool {
        SharedInformer::has_synced(self)
    }

    fn is_stopped(&self) -> bool {
        SharedInformer::is_stopped(self)
    }

    fn end_unless_run(&self) {
        drop(SharedInformer::end_unless_run(self));
    }

    fn health(&self) -> CacheHealth {
        SharedInformer::health(self)
    }
}

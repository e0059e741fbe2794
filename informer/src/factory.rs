//! One informer for each kind, scope and selector, however many ask for it.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kube_client::Client;
use kube_core::Resource;
use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::entry::Stored;
use crate::health::CacheHealth;
use crate::informer::{Builder, SharedInformer};
use crate::metrics::Metrics;
use crate::reflector::ReflectorOptions;
use crate::transport::{Endpoint, Selection};

/// Makes informers and runs them (client-go: `SharedInformerFactory`). Cloning gives another handle to the
/// same.
///
/// Informers end when [`InformerFactory::shutdown`] is called or the last handle is dropped.
#[derive(Clone)]
pub struct InformerFactory {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    clock: Clock,
    options: ReflectorOptions,
    resync: Option<Duration>,
    metrics: Option<Arc<dyn Metrics>>,
    stop: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In the order of their keys, so that starting them is the same in every run.
    informers: BTreeMap<Key, Entry>,
    tasks: JoinSet<()>,
    shut_down: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    path: String,
    selection: Selection,
    entry: TypeId,
}

struct Entry {
    informer: Box<dyn Any + Send + Sync>,
    erased: Arc<dyn Erased>,
    started: bool,
}

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An informer of any kind.
trait Erased: Send + Sync {
    fn run(&self, stop: CancellationToken) -> BoxFuture;
    fn synced(&self) -> BoxFuture;
    fn has_synced(&self) -> bool;
    fn health(&self) -> CacheHealth;
}

/// Caches that did not sync, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("caches not synced: {}", .waiting.join("; "))]
pub struct NotSynced {
    /// One line for each.
    pub waiting: Vec<String>,
}

// === impl InformerFactory ===

impl InformerFactory {
    /// A factory without informers.
    #[must_use]
    pub fn new(client: Client, clock: Clock) -> Self {
        Self::with_options(client, clock, ReflectorOptions::default(), None, None)
    }

    /// A factory whose informers list and watch as `options` say, show handlers every object again once in
    /// `resync`, and measure into `metrics`.
    #[must_use]
    pub fn with_options(
        client: Client,
        clock: Clock,
        options: ReflectorOptions,
        resync: Option<Duration>,
        metrics: Option<Arc<dyn Metrics>>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                clock,
                options,
                resync,
                metrics,
                stop: CancellationToken::new(),
                state: Mutex::new(State::default()),
            }),
        }
    }

    /// The informer for `K` and `selection`; the same one for all who ask. It runs after the next
    /// [`InformerFactory::start`].
    #[must_use]
    pub fn informer<K>(&self, selection: Selection) -> SharedInformer<K>
    where
        K: Stored + Resource,
        K::DynamicType: Default,
    {
        self.informer_for(Endpoint::of::<K>(), selection)
    }

    /// The informer for the kind at `endpoint` in the form `S`.
    #[must_use]
    pub fn informer_for<S: Stored>(
        &self,
        endpoint: Endpoint,
        selection: Selection,
    ) -> SharedInformer<S> {
        self.informer_with(endpoint, selection, |builder| builder)
    }

    /// The informer for the kind at `endpoint` in the form `S`; if it is new, `configure` may set more of it
    /// (a transform, its name).
    #[must_use]
    pub fn informer_with<S: Stored>(
        &self,
        endpoint: Endpoint,
        selection: Selection,
        configure: impl FnOnce(Builder<S>) -> Builder<S>,
    ) -> SharedInformer<S> {
        let key = Key {
            path: endpoint.path(&selection.scope),
            selection: selection.clone(),
            entry: TypeId::of::<S>(),
        };
        let mut state = self.inner.state.lock();
        let known = state.informers.get(&key);
        if let Some(informer) =
            known.and_then(|entry| entry.informer.downcast_ref::<SharedInformer<S>>())
        {
            return informer.clone();
        }
        let mut builder = SharedInformer::<S>::builder_for(self.inner.client.clone(), endpoint)
            .selection(selection)
            .clock(self.inner.clock.clone())
            .reflector(self.inner.options);
        if let Some(period) = self.inner.resync {
            builder = builder.resync(period);
        }
        if let Some(metrics) = &self.inner.metrics {
            builder = builder.metrics(Arc::clone(metrics));
        }
        let informer = configure(builder).build();
        let entry = Entry {
            informer: Box::new(informer.clone()),
            erased: Arc::new(informer.clone()),
            started: false,
        };
        state.informers.insert(key, entry);
        informer
    }

    /// Starts the informers that do not run yet. Call it again after asking for more. After
    /// [`InformerFactory::shutdown`] it does nothing.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self) {
        let mut state = self.inner.state.lock();
        let State {
            informers,
            tasks,
            shut_down,
        } = &mut *state;
        if *shut_down {
            return;
        }
        while tasks.try_join_next().is_some() {}
        for entry in informers.values_mut().filter(|entry| !entry.started) {
            entry.started = true;
            tasks.spawn(entry.erased.run(self.inner.stop.child_token()));
        }
    }

    /// Returns when every informer asked for so far has synced, or says which have not by `deadline`.
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

    /// How each informer is doing.
    #[must_use]
    pub fn health(&self) -> Vec<CacheHealth> {
        let state = self.inner.state.lock();
        state
            .informers
            .values()
            .map(|entry| entry.erased.health())
            .collect()
    }

    /// Stops all informers, and returns when none of their tasks runs any more.
    pub async fn shutdown(&self) {
        self.inner.stop.cancel();
        let mut tasks = {
            let mut state = self.inner.state.lock();
            state.shut_down = true;
            std::mem::take(&mut state.tasks)
        };
        while tasks.join_next().await.is_some() {}
    }
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

impl<S: Stored> Erased for SharedInformer<S> {
    fn run(&self, stop: CancellationToken) -> BoxFuture {
        let informer = self.clone();
        Box::pin(async move {
            if let Err(error) = SharedInformer::run(&informer, stop).await {
                // Someone runs it already: it works, and its own owner ends it.
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

    fn health(&self) -> CacheHealth {
        SharedInformer::health(self)
    }
}

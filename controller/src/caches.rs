//! The caches of a manager: one informer for each kind, shared by all its controllers.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use parking_lot::Mutex;
use reeve_clock::Clock;
use reeve_informer::{
    CacheHealth, Event, HandlerHandle, HandlerOptions, InformerFactory, Lister, MetricsProvider,
    ObjectKey, Scope, Selection, SharedInformer,
};
use tokio::time::{sleep, timeout};

use crate::client::writes::{Effect, View, Write};
use crate::client::{self, Client, Object};
use crate::handler::is_namespaced;

/// How often the start looks whether caches are filled.
const LOOK: Duration = Duration::from_millis(20);
/// How long a cache that was filled may fail before readiness says so.
const TOLERATED: SignedDuration = SignedDuration::from_secs(30);

/// No cache holds this kind.
#[derive(Debug, thiserror::Error)]
#[error(
    "{kind} is not cached: watch it in a controller, or ask for it with Caches::informer before the start"
)]
pub struct NotCached {
    /// The kind.
    pub kind: String,
}

/// The caches of one manager. Cheap to clone; clones are the same caches.
#[derive(Clone)]
pub struct Caches {
    shared: Arc<Shared>,
}

struct Shared {
    factory: InformerFactory,
    clock: Clock,
    namespace: Option<String>,
    /// In the order they were asked for.
    kinds: Mutex<Vec<Kind>>,
}

/// The informer of one kind, and what is asked of it without knowing the kind.
struct Kind {
    id: TypeId,
    informer: Box<dyn Any + Send + Sync>,
    cache: Arc<dyn Cache>,
}

/// An informer with its kind erased.
trait Cache: Send + Sync {
    fn health(&self) -> CacheHealth;
    /// Whether an object of this key would be in it, as far as the key tells.
    fn covers(&self, key: &ObjectKey) -> bool;
    fn view(&self, key: &ObjectKey) -> View;
    fn live<'a>(
        &'a self,
        client: &'a Client,
        key: &'a ObjectKey,
    ) -> BoxFuture<'a, Result<Effect, client::Error>>;
}

/// A handler that is registered with an informer. Dropping it takes the handler away.
pub(crate) struct Registration {
    cache: Arc<dyn Cache>,
    handle: Box<dyn Handle>,
}

trait Handle: Send + Sync {
    fn is_synced(&self) -> bool;
    fn synced(&self) -> BoxFuture<'_, ()>;
    fn unregister(&self);
}

// === impl Caches ===

impl Caches {
    pub(crate) fn new(
        client: kube_client::Client,
        clock: Clock,
        namespace: Option<String>,
        resync: Option<Duration>,
        metrics: Arc<dyn MetricsProvider>,
    ) -> Self {
        let mut factory = InformerFactory::builder(client)
            .clock(clock.clone())
            .metrics(metrics);
        if let Some(period) = resync {
            factory = factory.resync(period);
        }
        let factory = factory.build();
        Self {
            shared: Arc::new(Shared {
                factory,
                clock,
                namespace,
                kinds: Mutex::default(),
            }),
        }
    }

    /// The informer of kind `K`, made if there is none yet: of the manager's namespace, or of the whole cluster.
    /// It starts with the manager; made later, with the next runnable or controller that is added.
    #[must_use]
    pub fn informer<K: Object>(&self) -> SharedInformer<K> {
        let scope = match &self.shared.namespace {
            Some(namespace) if is_namespaced::<K>() => Scope::namespace(namespace.as_str()),
            _ => Scope::Cluster,
        };
        self.informer_of(Selection {
            scope,
            ..Selection::default()
        })
    }

    /// The informer of kind `K` with this selection, if there is none of the kind yet; else the one there is. So
    /// call it before a controller watches the kind.
    #[must_use]
    pub fn informer_of<K: Object>(&self, selection: Selection) -> SharedInformer<K> {
        let mut kinds = self.shared.kinds.lock();
        let known = kinds.iter().find(|kind| kind.id == TypeId::of::<K>());
        if let Some(informer) =
            known.and_then(|kind| kind.informer.downcast_ref::<SharedInformer<K>>())
        {
            return informer.clone();
        }
        let informer = self.shared.factory.informer::<K>(selection);
        kinds.push(Kind {
            id: TypeId::of::<K>(),
            informer: Box::new(informer.clone()),
            cache: Arc::new(informer.clone()),
        });
        informer
    }

    /// Reads of kind `K`.
    ///
    /// # Errors
    /// When there is no informer of the kind.
    pub fn lister<K: Object>(&self) -> Result<Lister<K>, NotCached> {
        let kinds = self.shared.kinds.lock();
        let informer = kinds
            .iter()
            .find(|kind| kind.id == TypeId::of::<K>())
            .and_then(|kind| kind.informer.downcast_ref::<SharedInformer<K>>());
        match informer {
            Some(informer) => Ok(informer.lister()),
            None => Err(NotCached {
                kind: K::kind(&()).into_owned(),
            }),
        }
    }

    /// How each cache is doing.
    #[must_use]
    pub fn health(&self) -> Vec<CacheHealth> {
        self.shared.factory.health()
    }

    /// Whether every cache is filled and kept up to date. A failure shorter than 30 s is let pass.
    ///
    /// # Errors
    /// A line for each that is not, with the cause.
    pub fn check(&self) -> Result<(), String> {
        let now = self.shared.clock.now();
        let problems: Vec<String> = self
            .health()
            .iter()
            .filter(|health| {
                let failure = health.failure.as_ref();
                !health.synced
                    || failure.is_some_and(|failure| now.duration_since(failure.since) > TOLERATED)
            })
            .filter_map(CacheHealth::trouble)
            .collect();
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("; "))
        }
    }

    /// Starts what has not started.
    pub(crate) fn start(&self) {
        self.shared.factory.start();
    }

    /// Returns when every cache is filled, or is known to be failing, or `limit` is over. A kind that cannot be
    /// listed costs the controllers that read it, not the others.
    pub(crate) async fn settled(&self, limit: Duration) {
        let settled = async {
            while !self
                .health()
                .iter()
                .all(|health| health.synced || health.failure.is_some())
            {
                sleep(LOOK).await;
            }
        };
        let in_time = timeout(limit, settled).await.is_ok();
        if let Err(problems) = self.check() {
            tracing::warn!(in_time, problems, "going on without some caches");
        }
    }

    /// Stops every informer, and returns when they have.
    pub(crate) async fn stop(&self) {
        self.shared.factory.shutdown().await;
    }

    /// Stops every informer without waiting for it.
    pub(crate) fn abort(&self) {
        // The first poll cancels them and takes their tasks; dropping the future drops those.
        let _ = self.shared.factory.shutdown().now_or_never();
    }

    /// Registers `handle` with the informer of kind `K`.
    pub(crate) fn register<K: Object>(
        &self,
        name: &str,
        handle: impl Fn(Event<K>) + Send + Sync + 'static,
    ) -> Registration {
        let informer = self.informer::<K>();
        let options = HandlerOptions::new().name(name);
        let handle = match informer.add_handler(handle, options) {
            Ok(handle) => Some(handle),
            Err(stopped) => {
                tracing::debug!(%stopped, "a handler comes too late");
                None
            }
        };
        Registration {
            cache: Arc::new(informer),
            handle: Box::new(handle),
        }
    }

    /// Whether an object is cached, as far as its kind and key tell.
    pub(crate) fn covers(&self, write: &Write) -> bool {
        self.cache(write.kind)
            .is_some_and(|cache| cache.covers(&write.key))
    }

    /// Whether the cache shows what `write` did; true for a kind that is not cached.
    pub(crate) fn has_seen(&self, write: &Write) -> bool {
        self.cache(write.kind)
            .is_none_or(|cache| write.effect.is_seen(&cache.view(&write.key)))
    }

    /// Asks the server what became of a write whose answer was lost. `None` when it does not answer either.
    pub(crate) async fn ask(
        &self,
        client: &Client,
        write: &Write,
        limit: Duration,
    ) -> Option<Effect> {
        let cache = self.cache(write.kind)?;
        let client = client
            .clone()
            .with_deadline(limit.min(Duration::from_secs(5)));
        match cache.live(&client, &write.key).await {
            Ok(effect) => Some(effect),
            Err(error) => {
                tracing::debug!(key = %write.key, %error, "a write may have happened; the server does not say");
                None
            }
        }
    }

    fn cache(&self, kind: TypeId) -> Option<Arc<dyn Cache>> {
        let kinds = self.shared.kinds.lock();
        let found = kinds.iter().find(|other| other.id == kind)?;
        Some(Arc::clone(&found.cache))
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches")
            .field("factory", &self.shared.factory)
            .finish_non_exhaustive()
    }
}

// === impl Registration ===

impl Registration {
    /// Returns when the handler has seen every object of the first list.
    pub(crate) async fn synced(&self) {
        self.handle.synced().await;
    }

    /// What the handler still waits for, and why.
    pub(crate) fn waits_for(&self) -> Option<String> {
        if self.handle.is_synced() {
            return None;
        }
        let health = self.cache.health();
        Some(health.trouble().unwrap_or_else(|| health.name.to_string()))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.handle.unregister();
    }
}

impl<K: Object> Handle for Option<HandlerHandle<K>> {
    fn is_synced(&self) -> bool {
        self.as_ref().is_some_and(HandlerHandle::is_synced)
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        async {
            let synced = match self {
                Some(handle) => handle.has_synced().await.is_ok(),
                None => false,
            };
            if !synced {
                // The informer has stopped: so will whoever waits.
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }

    fn unregister(&self) {
        if let Some(handle) = self {
            handle.unregister();
        }
    }
}

impl<K: Object> Cache for SharedInformer<K> {
    fn health(&self) -> CacheHealth {
        Self::health(self)
    }

    fn covers(&self, key: &ObjectKey) -> bool {
        let Selection { scope, fields, .. } = self.selection();
        let in_scope = match scope {
            Scope::Cluster => true,
            Scope::Namespace(namespace) => key.namespace.as_ref() == Some(namespace),
        };
        let named = fields.strip_prefix("metadata.name=");
        in_scope && named.is_none_or(|name| name == &*key.name)
    }

    fn view(&self, key: &ObjectKey) -> View {
        let through = self.last_sync_resource_version();
        View {
            object: self.lister().get(key).ok().flatten().map(|object| {
                let meta = object.meta();
                (meta.uid.clone(), meta.resource_version.clone())
            }),
            through: (!through.is_empty()).then(|| through.as_str().to_owned()),
        }
    }

    fn live<'a>(
        &'a self,
        client: &'a Client,
        key: &'a ObjectKey,
    ) -> BoxFuture<'a, Result<Effect, client::Error>> {
        async {
            let meta = client::optional(client.get_metadata::<K>(key).await)?;
            Ok(meta.map_or(Effect::Gone { uid: None }, |meta| Effect::of_written(&meta)))
        }
        .boxed()
    }
}

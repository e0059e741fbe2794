//! The controller by hand: a factory, two listers, a work queue, workers.
//!
//! Handlers only put keys into the queue. A worker takes a key, reads the present state from the listers, decides,
//! writes, and settles the key.

use std::collections::HashMap;
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use kube_core::Resource;
use parking_lot::Mutex;
use reeve_controller::events::Recorder;
use reeve_controller::{Client, Manager, Runnable, client, manager};
use reeve_informer::{
    Endpoint, Event, Form, HandlerHandle, HandlerOptions, InformerFactory, Lister, MutationCache,
    ObjectKey, Selection, SharedInformer, Stored,
};
use reeve_workqueue::{Item, OnDrop, Queue};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::act::{Acted, STALE, act, give_up};
use crate::desired::Defaults;
use crate::plan::plan;
use crate::{NAME, Settings};

/// The delay until a written key is checked again when the cache does not show the write yet. If the Ingress was deleted
/// before the cache showed it, there is no event to enqueue the key. Usually the event of the write comes earlier, and
/// the check finds nothing to do.
const UNSEEN: Duration = Duration::from_secs(5);
/// How often the log names what the start waits for.
const REPORT: Duration = Duration::from_secs(30);
/// The maximum number of written Ingresses to keep until the watch shows them.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// The controller.
struct Controller {
    client: Client,
    events: Recorder,
    service_informer: SharedInformer<Service>,
    ingress_informer: SharedInformer<Ingress>,
    services: Lister<Service>,
    /// The Ingresses that the watch has shown.
    stored: Lister<Ingress>,
    /// The same with own writes on top, from the moment of the write until the watch shows them.
    ingresses: MutationCache<Ingress>,
    queue: Queue<ObjectKey>,
    workers: usize,
    max_retry: u32,
    /// How often in succession the API server refused a key. Outages do not count.
    refusals: Mutex<HashMap<ObjectKey, u32>>,
    defaults: Defaults,
}

/// Adds the informers, which run on every replica, and the controller, which runs on the leader.
pub(crate) fn add(manager: &Manager, settings: &Settings) -> Result<(), manager::Error> {
    let factory = InformerFactory::builder(manager.client().kube().clone())
        .clock(manager.clock().clone())
        .metrics(manager.metrics().informers())
        .build();
    let checked = factory.clone();
    manager.health().ready().add("informers by hand", move || {
        let waits = checked.health().into_iter().filter(|health| !health.synced);
        match waits
            .map(|health| health.trouble().unwrap_or_default())
            .next()
        {
            None => Ok(()),
            Some(trouble) => Err(trouble),
        }
    });
    let controller = Arc::new(Controller::new(manager, &factory, settings));
    manager.add(
        Runnable::new("informers", |stop| run_informers(factory, stop)).without_leader_election(),
    )?;
    manager.add(Runnable::new(NAME, |stop| controller.run(stop)))?;
    Ok(())
}

/// Starts the informers, logs when they are synced, and stops them at the end.
async fn run_informers(
    factory: InformerFactory,
    stop: CancellationToken,
) -> Result<(), Infallible> {
    factory.start();
    let synced = async {
        while let Err(waiting) = factory.wait_for_cache_sync(REPORT).await {
            tracing::warn!(%waiting, "still starting");
        }
        tracing::info!("start success");
    };
    // `None` if the stop came first.
    let _ = stop.run_until_cancelled(synced).await;
    stop.cancelled().await;
    factory.shutdown().await;
    Ok(())
}

// === impl Controller ===

impl Controller {
    fn new(manager: &Manager, factory: &InformerFactory, settings: &Settings) -> Self {
        let service_informer = informer::<Service>(manager, factory);
        let ingress_informer = informer::<Ingress>(manager, factory);
        let queue = Queue::builder()
            .name("ingressManager")
            .clock(manager.clock().clone())
            // A worker that panics has not settled its key.
            .on_drop(OnDrop::Retry)
            .metrics(manager.metrics().queues())
            .build();
        Self {
            client: manager.leader_client(),
            events: manager.recorder(NAME),
            services: service_informer.lister(),
            stored: ingress_informer.lister(),
            ingresses: MutationCache::new(ingress_informer.lister())
                .include_adds()
                .capacity(REMEMBERED),
            service_informer,
            ingress_informer,
            queue,
            workers: settings.workers,
            max_retry: settings.max_retry,
            refusals: Mutex::default(),
            defaults: settings.defaults.clone(),
        }
    }

    /// Handles events and works on keys until `stop`.
    async fn run(self: Arc<Self>, stop: CancellationToken) -> Result<(), Infallible> {
        // Both handlers have all objects before the first decision.
        let started = stop.run_until_cancelled(async {
            let (services, ingresses) = (self.handle_services(), self.handle_ingresses());
            let synced = (synced(services).await, synced(ingresses).await);
            matches!(synced, (true, true))
        });
        if started.await != Some(true) {
            return Ok(());
        }
        let mut workers = JoinSet::new();
        for _ in 0..self.workers {
            workers.spawn(Arc::clone(&self).work());
        }
        let stopped = async {
            stop.cancelled().await;
            // No new keys; those that are ready are still processed.
            self.queue.shut_down();
        };
        let ended = async {
            while let Some(ended) = workers.join_next().await {
                if let Err(error) = ended {
                    tracing::error!(%error, "worker ended; starting another one");
                    workers.spawn(Arc::clone(&self).work());
                }
            }
        };
        tokio::join!(stopped, ended);
        Ok(())
    }

    fn handle_services(&self) -> Option<HandlerHandle<Service>> {
        let queue = self.queue.clone();
        let handle = move |event: Event<Service>| match event {
            // A resync, or a change that was reverted.
            Event::Updated { old, new, .. } if old == new => {}
            event => queue.add(event.key()),
        };
        self.service_informer
            .add_handler(handle, HandlerOptions::new().name(NAME))
            .ok()
    }

    /// An Ingress has the name of its Service, so it has the same key. Events of all Ingresses count, also of those with
    /// another owner: one of them may block the name, and its deletion frees it.
    fn handle_ingresses(&self) -> Option<HandlerHandle<Ingress>> {
        let queue = self.queue.clone();
        let handle = move |event: Event<Ingress>| queue.add(event.key());
        self.ingress_informer
            .add_handler(handle, HandlerOptions::new().name(NAME))
            .ok()
    }

    /// A worker: processes keys until the queue has shut down and is empty.
    async fn work(self: Arc<Self>) {
        while let Some(item) = self.queue.get().await {
            self.process(item).await;
        }
    }

    async fn process(&self, item: Item<ObjectKey>) {
        let synced = self.sync(&item).await;
        if synced.is_ok() {
            self.refusals.lock().remove(&*item);
        }
        match synced {
            // Earlier failures do not count any more.
            Ok(Acted::Done | Acted::Wrote(_)) if self.shows_what_was_written(&item) => {
                item.forget();
            }
            Ok(Acted::Done | Acted::Wrote(_)) => item.requeue_after(UNSEEN),
            Ok(Acted::Stale) => item.requeue_after(STALE),
            // During an outage retries continue, because no event would enqueue the key when the server is back.
            Err(error) if !error.is_outage() && self.refused(&item) > self.max_retry => {
                self.refusals.lock().remove(&*item);
                let service = self.services.get(&item);
                tracing::error!(key = %*item, %error, "gave up the key until the next event");
                give_up(&self.events, service.as_deref(), &error);
                item.forget();
            }
            Err(error) => {
                tracing::warn!(key = %*item, attempt = item.attempts(), %error, "sync failed; trying again");
                item.retry();
            }
        }
    }

    /// Counts a refusal, and returns the number of earlier ones.
    fn refused(&self, key: &ObjectKey) -> u32 {
        let mut refusals = self.refusals.lock();
        let count = refusals.entry(key.clone()).or_default();
        let before = *count;
        *count += 1;
        before
    }

    /// Whether the store shows the last write to the Ingress.
    fn shows_what_was_written(&self, key: &ObjectKey) -> bool {
        let version = |ingress: Option<Arc<Ingress>>| {
            ingress.and_then(|ingress| ingress.metadata.resource_version.clone())
        };
        version(self.ingresses.get(key)) == version(self.stored.get(key))
    }

    /// Brings the Ingress of one name to the state that its Service requests.
    async fn sync(&self, key: &ObjectKey) -> Result<Acted, client::Error> {
        let service = self.services.get(key);
        let ingress = self.ingresses.get(key);
        let step = plan(service.as_deref(), ingress.as_deref(), &self.defaults);
        let acted = act(&self.client, &self.events, key, service.as_deref(), step).await?;
        if let Acted::Wrote(ingress) = &acted {
            self.ingresses.mutated(Arc::new(Ingress::clone(ingress)));
        }
        Ok(acted)
    }
}

/// The informer of a kind in the namespaces that the manager watches.
fn informer<K>(manager: &Manager, factory: &InformerFactory) -> SharedInformer<K>
where
    K: Form + Resource,
    K::DynamicType: Default,
{
    let namespaces = manager.caches().namespaces();
    factory.informer_within(Endpoint::of::<K>(), namespaces, Selection::default())
}

async fn synced<K: Stored>(handle: Option<HandlerHandle<K>>) -> bool {
    match handle {
        Some(handle) => handle.wait_synced().await.is_ok(),
        None => false,
    }
}

//! The controller put together by hand: a factory, two listers, a work queue, workers.
//!
//! This is what the parts do, one after the other: handlers put keys into the queue and nothing else; a worker takes a
//! key, reads what is true now from the listers, decides, writes, and settles the key.

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
    Endpoint, Event, HandlerHandle, HandlerOptions, InformerFactory, Lister, MutationCache,
    ObjectKey, Selection, SharedInformer, Stored,
};
use reeve_workqueue::{Item, OnDrop, Queue};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::act::{Acted, STALE, act, give_up};
use crate::desired::Defaults;
use crate::plan::plan;
use crate::{NAME, Settings};

/// When a key is looked at again that was written and that the cache does not show yet. If the Ingress was deleted
/// before the cache ever showed it, there is no event to bring the key back. Usually the event of the write comes
/// first, and nothing is left to do.
const UNSEEN: Duration = Duration::from_secs(5);
/// How often is said what the start waits for.
const REPORT: Duration = Duration::from_secs(30);
/// How many Ingresses are remembered that were written and that the watch has not shown yet.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// The controller.
struct Controller {
    client: Client,
    events: Recorder,
    service_informer: SharedInformer<Service>,
    ingress_informer: SharedInformer<Ingress>,
    services: Lister<Service>,
    /// What the watch has shown.
    stored: Lister<Ingress>,
    /// What was written is read back from the moment it was written, not from when the watch shows it.
    ingresses: MutationCache<Ingress>,
    queue: Queue<ObjectKey>,
    workers: usize,
    max_retry: u32,
    /// How often in a row the API server refused a key. Outages do not count.
    refusals: Mutex<HashMap<ObjectKey, u32>>,
    defaults: Defaults,
}

/// Adds the informers, on every replica, and the controller, on the one that leads.
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

/// Starts the informers, says when they hold what there is, and stops them at the end.
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
    // `None` when the stop came first.
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
            // A worker that panics has not brought its key to an end.
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
        // Both have seen what there is before anything is decided.
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
            // No new keys; those that are ready are worked on still.
            self.queue.shut_down();
        };
        let ended = async {
            while let Some(ended) = workers.join_next().await {
                if let Err(error) = ended {
                    tracing::error!(%error, "a worker ended, and another one takes its place");
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
            // Shown again, or changed and changed back.
            Event::Updated { old, new, .. } if old == new => {}
            event => queue.add(event.key()),
        };
        self.service_informer
            .add_handler(handle, HandlerOptions::new().name(NAME))
            .ok()
    }

    /// An Ingress has the name of its Service, so its key is that of the Service. All of them are looked at, also those
    /// of others: one of them may be in the way, and then be gone.
    fn handle_ingresses(&self) -> Option<HandlerHandle<Ingress>> {
        let queue = self.queue.clone();
        let handle = move |event: Event<Ingress>| queue.add(event.key());
        self.ingress_informer
            .add_handler(handle, HandlerOptions::new().name(NAME))
            .ok()
    }

    /// A worker: takes keys until there are no more.
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
            // The failures before do not count any more.
            Ok(Acted::Done | Acted::Wrote(_)) if self.shows_what_was_written(&item) => {
                item.forget();
            }
            Ok(Acted::Done | Acted::Wrote(_)) => item.requeue_after(UNSEEN),
            Ok(Acted::Stale) => item.requeue_after(STALE),
            // A server that is away is waited for, for when it is back no event would bring the key back.
            Err(error) if !error.is_outage() && self.refused(&item) > self.max_retry => {
                self.refusals.lock().remove(&*item);
                let service = self.services.get(&item);
                tracing::error!(key = %*item, %error, "given up until something changes");
                give_up(&self.events, service.as_deref(), &error);
                item.forget();
            }
            Err(error) => {
                tracing::warn!(key = %*item, attempt = item.attempts(), %error, "will be tried again");
                item.retry();
            }
        }
    }

    /// Counts a refusal; how many there were before it.
    fn refused(&self, key: &ObjectKey) -> u32 {
        let mut refusals = self.refusals.lock();
        let count = refusals.entry(key.clone()).or_default();
        let before = *count;
        *count += 1;
        before
    }

    /// Whether the store has come to what was last written to the Ingress.
    fn shows_what_was_written(&self, key: &ObjectKey) -> bool {
        let version = |ingress: Option<Arc<Ingress>>| {
            ingress.and_then(|ingress| ingress.metadata.resource_version.clone())
        };
        version(self.ingresses.get(key)) == version(self.stored.get(key))
    }

    /// Brings the Ingress of one name to what its Service asks for.
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
    K: Stored + Resource,
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

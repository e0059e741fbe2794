//! The controller by hand: an informer factory, two listers, a work queue, workers.
//!
//! Handlers only put keys into the queue. A worker takes a key, reads the present state from the listers, and settles the
//! key. The manager brings what `main` of the original sets up: client, recorder of Events, signals.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube_core::{Resource, ResourceExt};
use reeve_controller::events::Recorder;
use reeve_controller::{Client, Manager, Runnable, owner};
use reeve_informer::{
    Event, HandlerOptions, InformerFactory, Lister, ObjectKey, Selection, SharedInformer,
};
use reeve_workqueue::{Item, ItemExponentialFailure, MaxOf, OnDrop, Queue, TokenBucket};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::sync::{SyncError, sync};
use crate::{Error, Foo, NAME};

/// The number of Foos that are synced at once.
const WORKERS: usize = 2;
/// How often the log names what the start waits for.
const REPORT: Duration = Duration::from_secs(30);

struct Controller {
    client: Client,
    events: Recorder,
    factory: InformerFactory,
    foos: Lister<Foo>,
    deployments: Lister<Deployment>,
    queue: Queue<ObjectKey>,
}

/// Adds the controller to `manager`.
pub(crate) fn add(manager: &Manager) -> Result<(), Error> {
    let controller = Arc::new(Controller::new(manager));
    manager.add(Runnable::new(NAME, |stop| controller.run(stop)))?;
    Ok(())
}

// === impl Controller ===

impl Controller {
    fn new(manager: &Manager) -> Self {
        let factory = InformerFactory::builder(manager.client().kube().clone())
            .clock(manager.clock().clone())
            .metrics(manager.metrics().informers())
            .build();
        let foos: SharedInformer<Foo> = factory.informer(Selection::default());
        let deployments: SharedInformer<Deployment> = factory.informer(Selection::default());
        let limiter = MaxOf::new()
            .and(ItemExponentialFailure::new(
                Duration::from_millis(5),
                Duration::from_secs(1000),
            ))
            .and(TokenBucket::new(50.0, 300));
        let queue = Queue::builder()
            .name("Foos")
            .clock(manager.clock().clone())
            .rate_limiter(limiter)
            // A worker that panics has not settled its key.
            .on_drop(OnDrop::Retry)
            .metrics(manager.metrics().queues())
            .build();
        handle_foos(&foos, queue.clone());
        handle_deployments(&deployments, foos.lister(), queue.clone());
        Self {
            client: manager.leader_client(),
            events: manager.recorder(NAME),
            foos: foos.lister(),
            deployments: deployments.lister(),
            factory,
            queue,
        }
    }

    /// Fills the caches, then works on keys until `stop`.
    async fn run(self: Arc<Self>, stop: CancellationToken) -> Result<(), Infallible> {
        self.factory.start();
        let synced = async {
            while let Err(waiting) = self.factory.wait_for_cache_sync(REPORT).await {
                tracing::warn!(%waiting, "still starting");
            }
        };
        if stop.run_until_cancelled(synced).await.is_some() {
            let mut workers = JoinSet::new();
            for _ in 0..WORKERS {
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
        }
        self.factory.shutdown().await;
        Ok(())
    }

    /// A worker: processes keys until the queue has shut down and is empty.
    async fn work(self: Arc<Self>) {
        while let Some(item) = self.queue.get().await {
            self.process(item).await;
        }
    }

    async fn process(&self, item: Item<ObjectKey>) {
        match self.sync(&item).await {
            // Earlier failures do not count any more.
            Ok(()) => item.forget(),
            Err(error) => {
                tracing::warn!(key = %*item, %error, "sync failed; trying again");
                item.retry();
            }
        }
    }

    async fn sync(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(foo) = self.foos.get(key) else {
            // It is gone, and the garbage collector deletes its Deployment.
            return Ok(());
        };
        let name = &foo.spec.deployment_name;
        let deployment = self.deployments.get_named(key.namespace.as_deref(), name);
        sync(&self.client, &self.events, &foo, deployment.as_deref()).await
    }
}

/// Each event of a Foo enqueues it.
fn handle_foos(foos: &SharedInformer<Foo>, queue: Queue<ObjectKey>) {
    let handle = move |event: Event<Foo>| queue.add(event.key());
    // The only error is that of a stopped informer, which delivers nothing.
    let _ = foos.add_handler(handle, HandlerOptions::new().name("foos"));
}

/// Each event of a Deployment enqueues the Foo that controls it.
fn handle_deployments(
    deployments: &SharedInformer<Deployment>,
    foos: Lister<Foo>,
    queue: Queue<ObjectKey>,
) {
    let handle = move |event: Event<Deployment>| {
        // Of a deletion this is the last known state, also if no watch showed the deletion.
        let Some(deployment) = event.object() else {
            return;
        };
        let owner =
            owner::controller_of(&**deployment).filter(|owner| owner.kind == Foo::kind(&()));
        let foo =
            owner.and_then(|owner| foos.get_named(deployment.namespace().as_deref(), &owner.name));
        if let Some(foo) = foo {
            queue.add(ObjectKey::of(&*foo));
        }
    };
    let _ = deployments.add_handler(handle, HandlerOptions::new().name("deployments"));
}

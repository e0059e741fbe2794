//! `ctrlcold`, `ctrlburst`, `ctrlwrite`: a manager with one controller that reads the object.

use std::sync::Arc;
use std::thread;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_core::Resource;
use peer_measure::control::Server;
use peer_measure::reconcile::{self, Progress};
use peer_measure::{Flags, Outcome as Measured, Stop};
use peer_objects::IpBlock;
use reeve_controller::client::{Object, Patch};
use reeve_controller::{Context, Controller, Manager, Outcome, Request};
use reeve_informer::Stored as _;
use tokio_util::sync::CancellationToken;

use crate::queue::runtime;

/// A manager that runs on a thread until this value is dropped.
struct Running {
    stop: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
}

pub(crate) fn run(flags: &Flags) -> Measured {
    match flags.text("kind", "configmaps").as_str() {
        "configmaps" => reconcile::run(flags, start::<ConfigMap>),
        "ipblocks" => reconcile::run(flags, start::<IpBlock>),
        "pods" => reconcile::run(flags, start::<Pod>),
        other => Err(Stop::wrong(format!(
            "-kind={other}: configmaps, ipblocks or pods"
        ))),
    }
}

fn start<K>(server: &Server, workers: usize, progress: Arc<Progress>) -> Running
where
    K: Object + Resource<DynamicType = ()>,
{
    let stop = CancellationToken::new();
    let (address, stopped) = (server.objects.clone(), stop.clone());
    let thread = thread::spawn(move || {
        runtime(2).block_on(async {
            let client = peer_objects::client(&address);
            let manager = Manager::builder(client).build().await.expect("a manager");
            let status: Arc<serde_json::Value> =
                Arc::new(serde_json::from_str(reconcile::STATUS).expect("JSON"));
            let reconciler =
                reeve_controller::reconcile::function(move |ctx: Context, request: Request| {
                    let (progress, status) = (Arc::clone(&progress), Arc::clone(&status));
                    async move {
                        if let Some(object) = ctx.lister::<K>()?.get(&request)? {
                            let version = object.resource_version().parse().unwrap_or(0);
                            progress.note(&request.name, version);
                            if progress.is_to_be_written(version) {
                                let patch = Patch::merge(&*status);
                                ctx.client().patch_status::<K>(&request, patch).await?;
                            }
                        }
                        Ok::<_, reeve_controller::reconcile::Error>(Outcome::done())
                    }
                });
            let controller = Controller::builder("peers")
                .for_kind::<K>()
                .workers(workers)
                .complete(reconciler)
                .expect("a controller");
            manager
                .add_controller(controller)
                .expect("a manager that has not started");
            manager.run(stopped).await.expect("a manager that runs");
        });
    });
    Running {
        stop,
        thread: Some(thread),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a manager that ends");
        }
    }
}

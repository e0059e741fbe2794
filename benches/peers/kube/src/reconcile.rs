//! `ctrlcold`, `ctrlburst`, `ctrlwrite`: `Controller`, which hands the object to the reconciler.

use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_client::api::{Patch, PatchParams};
use kube_client::{Api, Client};
use kube_core::Resource;
use kube_runtime::controller::{self, Action, Controller};
use kube_runtime::watcher;
use peer_measure::control::Server;
use peer_measure::reconcile::{self, Progress};
use peer_measure::{Flags, Outcome, Stop};
use peer_objects::IpBlock;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use crate::queue::runtime;

pub(crate) fn run(flags: &Flags) -> Outcome {
    match flags.text("kind", "configmaps").as_str() {
        "configmaps" => reconcile::run(flags, start::<ConfigMap>),
        "ipblocks" => reconcile::run(flags, start::<IpBlock>),
        "pods" => reconcile::run(flags, start::<Pod>),
        other => Err(Stop::wrong(format!(
            "-kind={other}: configmaps, ipblocks or pods"
        ))),
    }
}

/// The shared state of reconciles.
struct Work {
    progress: Arc<Progress>,
    client: Client,
    status: serde_json::Value,
}

async fn reconcile_one<K>(object: Arc<K>, work: Arc<Work>) -> Result<Action, kube_client::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let (name, version) = (
        peer_objects::name(&*object),
        peer_objects::version(&*object),
    );
    work.progress.note(&name, version);
    if work.progress.is_to_be_written(version) {
        let namespace = object.meta().namespace.as_deref().unwrap_or_default();
        let api: Api<K> = Api::namespaced(work.client.clone(), namespace);
        let patch = Patch::Merge(&work.status);
        api.patch_status(&name, &PatchParams::default(), &patch)
            .await?;
    }
    Ok(Action::await_change())
}

/// Runs until the returned value is dropped.
fn start<K>(server: &Server, workers: usize, progress: Arc<Progress>) -> Runtime
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let runtime = runtime(2);
    let entered = runtime.enter();
    let client = peer_objects::client(&server.objects);
    let api: Api<K> = Api::all(client.clone());
    let status = serde_json::from_str(reconcile::STATUS).expect("JSON");
    let workers = u16::try_from(workers).expect("fewer workers");
    let controller = Controller::new(api, watcher::Config::default())
        .with_config(controller::Config::default().concurrency(workers))
        .run(
            reconcile_one,
            |_, error, _| panic!("the server refused a write: {error}"),
            Arc::new(Work {
                progress,
                client,
                status,
            }),
        );
    runtime.spawn(controller.for_each(|_| ready(())));
    drop(entered);
    runtime
}

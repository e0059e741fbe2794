//! `ctrlcold`, `ctrlburst`: `Controller`, which hands the object to the reconciler.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_client::Api;
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

/// Runs until what is returned is dropped.
fn start<K>(server: &Server, workers: usize, progress: Arc<Progress>) -> Runtime
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let runtime = runtime(2);
    let entered = runtime.enter();
    let api: Api<K> = Api::all(peer_objects::client(&server.address));
    let workers = u16::try_from(workers).expect("fewer workers");
    let controller = Controller::new(api, watcher::Config::default())
        .with_config(controller::Config::default().concurrency(workers))
        .run(
            |object: Arc<K>, progress: Arc<Progress>| {
                progress.note(
                    &peer_objects::name(&*object),
                    peer_objects::version(&*object),
                );
                ready(Ok(Action::await_change()))
            },
            |_, error: &Infallible, _| match *error {},
            progress,
        );
    runtime.spawn(controller.for_each(|_| ready(())));
    drop(entered);
    runtime
}

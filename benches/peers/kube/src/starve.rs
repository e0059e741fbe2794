//! `starve`: the applier, which is `Controller` without its watches, on objects that all exist.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::ObjectMeta;
use kube_runtime::controller::{self, Action};
use kube_runtime::reflector::{self, ObjectRef, store::Writer};
use kube_runtime::watcher;
use peer_measure::starve::Runs;
use peer_measure::{Flags, Outcome};

use crate::queue::runtime;

pub(crate) fn run(flags: &Flags) -> Outcome {
    let runs = Arc::new(Runs::of(flags)?);
    let threads: u16 = flags.get("threads", 1)?;
    let runtime = runtime(usize::from(threads));
    runs.measure(|keys| runtime.block_on(reconcile(keys, threads, Arc::clone(&runs))))
}

async fn reconcile(keys: Vec<Arc<str>>, concurrency: u16, runs: Arc<Runs>) {
    let (store, writer) = reflector::store::<ConfigMap>();
    fill(writer, &keys);
    let references: Vec<ObjectRef<ConfigMap>> = store
        .state()
        .iter()
        .map(|object| ObjectRef::from_obj(object.as_ref()))
        .collect();
    // Never ends, because the applier ends with its queue.
    let queue = stream::iter(references).chain(stream::pending());
    let config = controller::Config::default().concurrency(concurrency);
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let results = controller::applier(
        |object: Arc<ConfigMap>, _: Arc<()>| {
            let (runs, stop) = (Arc::clone(&runs), stop.clone());
            Box::pin(async move {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                if !runs.note(name) {
                    stop.send_replace(true);
                    return std::future::pending().await;
                }
                if let Some(work) = runs.work() {
                    tokio::time::sleep(work).await;
                }
                Ok(Action::requeue(Duration::ZERO))
            })
        },
        |_, error: &std::convert::Infallible, _| match *error {},
        Arc::new(()),
        store,
        queue.map(Ok::<_, std::convert::Infallible>),
        config,
    );
    let reconciles = results.for_each(|_| std::future::ready(()));
    tokio::select! {
        () = reconciles => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
}

/// An object for each key; its name is the end of the key.
fn fill(mut writer: Writer<ConfigMap>, keys: &[Arc<str>]) {
    writer.apply_watcher_event(&watcher::Event::Init);
    for key in keys {
        let (namespace, name) = key.split_once('/').expect("a key with a namespace");
        let object = ConfigMap {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        writer.apply_watcher_event(&watcher::Event::InitApply(object));
    }
    writer.apply_watcher_event(&watcher::Event::InitDone);
    // From here on the store is only read.
    std::mem::forget(writer);
}

//! `sync`, `steady`, `latency`, `get`, `listns`, `relist`: kube-runtime's watcher and reflector.
//!
//! `-peer=kube` stores the type, `kube-meta` its metadata, `kube-dyn` a `DynamicObject`.

use std::fmt::Debug;
use std::future::ready;
use std::hash::Hash;

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_client::Api;
use kube_core::metadata::PartialObjectMeta;
use kube_core::{DynamicObject, Resource};
use kube_runtime::WatchStreamExt;
use kube_runtime::reflector::{self, ObjectRef, Store};
use kube_runtime::watcher::{self, Event};
use peer_measure::informer::{self, Cache, Setup};
use peer_measure::{Flags, Outcome, Stop};
use peer_objects::{IpBlock, Object};
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::queue::runtime;

/// The bounds that kube-runtime has for a kind.
trait Kind: Resource + Object + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

impl<K: Resource + Object + Clone + Debug + DeserializeOwned + Send + Sync + 'static> Kind for K {}

/// A running reflector.
struct Running<K: Kind>
where
    K::DynamicType: Hash + Eq + Clone + Send + Sync,
{
    store: Store<K>,
    kind: K::DynamicType,
    /// `None` when it has ended.
    run: Option<JoinHandle<()>>,
    runtime: Runtime,
}

pub(crate) fn run(flags: &Flags) -> Outcome {
    match flags.text("kind", "configmaps").as_str() {
        "configmaps" => run_kind::<ConfigMap>(flags),
        "ipblocks" => run_kind::<IpBlock>(flags),
        "pods" => run_kind::<Pod>(flags),
        other => Err(Stop::wrong(format!(
            "-kind={other}: configmaps, ipblocks or pods"
        ))),
    }
}

fn run_kind<K: Kind + Resource<DynamicType = (), Scope = NamespaceResourceScope>>(
    flags: &Flags,
) -> Outcome {
    match flags.peer.as_str() {
        "kube" => informer::run(flags, |setup| Running::<K>::start(setup, ())),
        "kube-meta" => informer::run(flags, |setup| {
            Running::<PartialObjectMeta<K>>::start(setup, ())
        }),
        "kube-dyn" => {
            let resource = peer_objects::resource::<K>();
            informer::run(flags, |setup| {
                Running::<DynamicObject>::start(setup, resource.clone())
            })
        }
        _ => Err(Stop::unknown(flags)),
    }
}

// === impl Running ===

impl<K: Kind> Running<K>
where
    K::DynamicType: Hash + Eq + Clone + Send + Sync,
{
    fn start(setup: Setup, kind: K::DynamicType) -> Self {
        let runtime = runtime(2);
        let entered = runtime.enter();
        let client = peer_objects::client(&setup.server.objects);
        let api: Api<K> = Api::all_with(client, &kind);
        let mut config = watcher::Config::default();
        if setup.streaming {
            config = config.streaming_lists();
        }
        let writer = reflector::store::Writer::new(kind.clone());
        let store = writer.as_reader();
        // With the back-off that the examples have; without it a failure is retried at once.
        let events = watcher::watcher(api, config).default_backoff();
        let run = runtime.spawn(reflector::reflector(writer, events).for_each(move |event| {
            // 410 is a failure that the watcher recovers from.
            if let Ok(Event::Apply(object) | Event::InitApply(object)) = event {
                for handler in &setup.handlers {
                    handler.note(|| object.stamp());
                }
            }
            ready(())
        }));
        drop(entered);
        Self {
            store,
            kind,
            run: Some(run),
            runtime,
        }
    }
}

impl<K: Kind> Drop for Running<K>
where
    K::DynamicType: Hash + Eq + Clone + Send + Sync,
{
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            run.abort();
            // The task was aborted, so the result is that error.
            let _ = self.runtime.block_on(run);
        }
    }
}

impl<K: Kind> Cache for Running<K>
where
    K::DynamicType: Hash + Eq + Clone + Send + Sync,
{
    type Key = ObjectRef<K>;

    fn wait_synced(&self) {
        let synced = self.runtime.block_on(self.store.wait_until_ready());
        synced.expect("a reflector that runs");
    }

    fn count(&self) -> usize {
        self.store.len()
    }

    fn key(&self, namespace: &str, name: &str) -> ObjectRef<K> {
        ObjectRef::new_with(name, self.kind.clone()).within(namespace)
    }

    fn get(&self, key: &ObjectRef<K>) -> bool {
        self.store.get(key).is_some()
    }

    fn version(&self, key: &ObjectRef<K>) -> u64 {
        self.store
            .get(key)
            .map_or(0, |object| peer_objects::version(&*object))
    }

    fn list(&self, namespace: &str) -> usize {
        let there = |object: &K| object.meta().namespace.as_deref() == Some(namespace);
        self.store.state_filter(there).len()
    }
}

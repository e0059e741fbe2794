//! `sync`, `steady`, `latency`, `get`, `listns`, `relist`: the shared informer.
//!
//! `-peer=ours` stores the type, `ours-meta` its metadata, `ours-dyn` a `DynamicObject`, `ours-compact` the bytes.
//! With `-json` or `-protobuf` at the end of the name objects come so, whatever is the default.
//! `ours-borrowed` stores the type, and `get` borrows the object.

use std::hint::black_box;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_core::metadata::PartialObjectMeta;
use kube_core::{DynamicObject, Resource};
use peer_measure::informer::{self, Cache, Setup, Tally};
use peer_measure::{Flags, Outcome, Stop};
use peer_objects::{IpBlock, Object};
use reeve_informer::{
    Compact, Endpoint, Event, Form, HandlerOptions, Lister, ObjectKey, Policy, ReflectorOptions,
    SharedInformer,
};
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::queue::runtime;

/// The end of the name of a peer that reads JSON, or protobuf, whatever is the default.
const JSON: &str = "-json";
const PROTOBUF: &str = "-protobuf";

/// A running informer.
struct Running<S: Form> {
    /// `get` borrows the object from the store.
    borrows: bool,
    informer: SharedInformer<S>,
    lister: Lister<S>,
    stop: CancellationToken,
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

fn run_kind<K>(flags: &Flags) -> Outcome
where
    K: Form + DeserializeOwned + Resource<DynamicType = ()> + Object,
{
    match flags.peer.trim_end_matches(JSON).trim_end_matches(PROTOBUF) {
        "ours" | "ours-borrowed" => {
            run_as::<K>(flags, &Endpoint::of::<K>(), |object| object.stamp())
        }
        "ours-meta" => {
            let endpoint = Endpoint::of::<PartialObjectMeta<K>>();
            run_as::<PartialObjectMeta<K>>(flags, &endpoint, |object| object.stamp())
        }
        "ours-dyn" => {
            let resource = peer_objects::resource::<K>();
            let endpoint = Endpoint::for_type::<DynamicObject>(&resource);
            run_as::<DynamicObject>(flags, &endpoint, |object| object.stamp())
        }
        "ours-compact" => run_as::<Compact<K>>(flags, &Endpoint::of::<K>(), |object| {
            object.typed().ok()?.stamp()
        }),
        _ => Err(Stop::unknown(flags)),
    }
}

/// `stamp` reads the time of the last change from an object.
fn run_as<S: Form>(
    flags: &Flags,
    endpoint: &Endpoint,
    stamp: fn(&Arc<S>) -> Option<u64>,
) -> Outcome {
    let options = match flags.peer.as_str() {
        peer if peer.ends_with(JSON) => ReflectorOptions::new().protobuf(false),
        peer if peer.ends_with(PROTOBUF) => ReflectorOptions::new().protobuf(true),
        _ => ReflectorOptions::new(),
    };
    informer::run(flags, |setup| {
        let mut running = Running::<S>::start(setup, options, endpoint.clone(), stamp);
        running.borrows = flags.peer == "ours-borrowed";
        running
    })
}

// === impl Running ===

impl<S: Form> Running<S> {
    fn start(
        setup: Setup,
        options: ReflectorOptions,
        endpoint: Endpoint,
        stamp: fn(&Arc<S>) -> Option<u64>,
    ) -> Self {
        let runtime = runtime(2);
        let entered = runtime.enter();
        let options = options.streaming(setup.streaming);
        let client = peer_objects::client(&setup.server.objects);
        let informer = SharedInformer::<S>::builder_for(client, endpoint)
            .reflector(options)
            .build();
        for tally in setup.handlers {
            // Every event is delivered, as with the peers; the default merges those of one object. The handler only counts them.
            let options = HandlerOptions::new()
                .policy(Policy::Block { bound: 1024 })
                .inline();
            let handler = informer.add_handler(handler(tally, stamp), options);
            let _handle = handler.expect("an informer that has not stopped");
        }
        let stop = CancellationToken::new();
        let run = runtime.spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            async move {
                informer
                    .run(stop)
                    .await
                    .expect("an informer that runs once");
            }
        });
        drop(entered);
        Self {
            borrows: false,
            lister: informer.lister(),
            informer,
            stop,
            run: Some(run),
            runtime,
        }
    }
}

fn handler<S: Form>(
    tally: Arc<Tally>,
    stamp: fn(&Arc<S>) -> Option<u64>,
) -> impl Fn(Event<S>) + Send + Sync + 'static {
    move |event| {
        if let Some(object) = event.object() {
            tally.note(|| stamp(object));
        }
    }
}

impl<S: Form> Drop for Running<S> {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(run) = self.run.take() {
            self.runtime.block_on(run).expect("an informer that ends");
        }
    }
}

impl<S: Form> Cache for Running<S> {
    type Key = ObjectKey;

    fn wait_synced(&self) {
        let synced = self.runtime.block_on(self.informer.wait_synced());
        synced.expect("an informer that runs");
    }

    fn count(&self) -> usize {
        self.lister.len()
    }

    fn key(&self, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::namespaced(namespace, name)
    }

    fn get(&self, key: &ObjectKey) -> bool {
        if self.borrows {
            return self
                .lister
                .with(key, |object| {
                    black_box(object);
                })
                .is_some();
        }
        self.lister.get(key).is_some()
    }

    fn version(&self, key: &ObjectKey) -> u64 {
        let object = self.lister.get(key);
        object.map_or(0, |object| object.resource_version().parse().unwrap_or(0))
    }

    fn list(&self, namespace: &str) -> usize {
        self.lister.namespace(namespace).len()
    }
}

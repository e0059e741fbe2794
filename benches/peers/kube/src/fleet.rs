//! `fleet`: many reflectors with one client and one runtime.

use std::future::ready;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Api;
use kube_runtime::WatchStreamExt;
use kube_runtime::reflector::{self, Store};
use kube_runtime::watcher;
use peer_measure::control::Server;
use peer_measure::fleet::{self, Fleet};
use peer_measure::{Flags, Outcome};
use tokio::runtime::Runtime;

use crate::queue::runtime;

/// The running reflectors, which end with the runtime.
struct Running {
    stores: Vec<Store<ConfigMap>>,
    runtime: Runtime,
}

pub(crate) fn run(flags: &Flags) -> Outcome {
    fleet::run(flags, Running::start)
}

// === impl Running ===

impl Running {
    fn start(server: &Server, count: usize, streaming: bool) -> Self {
        let runtime = runtime(2);
        let entered = runtime.enter();
        let client = peer_objects::client(&server.objects);
        let mut config = watcher::Config::default();
        if streaming {
            config = config.streaming_lists();
        }
        let stores = (0..count).map(|_| {
            let api: Api<ConfigMap> = Api::all(client.clone());
            let writer = reflector::store::Writer::default();
            let store = writer.as_reader();
            let events = watcher::watcher(api, config.clone()).default_backoff();
            runtime.spawn(reflector::reflector(writer, events).for_each(|_| ready(())));
            store
        });
        let stores = stores.collect();
        drop(entered);
        Self { stores, runtime }
    }
}

impl Fleet for Running {
    fn wait_synced(&self) {
        for store in &self.stores {
            let synced = self.runtime.block_on(store.wait_until_ready());
            synced.expect("a reflector that runs");
        }
    }

    fn counts(&self) -> Vec<usize> {
        self.stores.iter().map(Store::len).collect()
    }
}

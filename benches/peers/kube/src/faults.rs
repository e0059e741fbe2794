//! `faults`: watcher, back-off, reflector and stream, chained as in kube-rs's README.

use std::future::ready;
use std::process::ExitCode;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{Api, Client};
use kube_runtime::reflector::{self, Store};
use kube_runtime::{WatchStreamExt, watcher};
use peer_faults::Follower;
use tokio::task::JoinHandle;

struct Reflected {
    store: Store<ConfigMap>,
    running: JoinHandle<()>,
}

pub(crate) fn main() -> std::io::Result<ExitCode> {
    peer_faults::main(Reflected::start)
}

// === impl Reflected ===

impl Reflected {
    fn start(client: Client, streaming: bool) -> Self {
        let mut config = watcher::Config::default();
        if streaming {
            config = config.streaming_lists();
        }
        let (store, writer) = reflector::store();
        let objects = watcher(Api::<ConfigMap>::all(client), config)
            .default_backoff()
            .reflect(writer)
            .applied_objects();
        // The stream reports errors and continues.
        let running = tokio::spawn(objects.for_each(|_| ready(())));
        Self { store, running }
    }
}

impl Follower for Reflected {
    fn contents(&self) -> Vec<String> {
        let mut contents: Vec<_> = self
            .store
            .state()
            .iter()
            .map(|object| {
                let metadata = &object.metadata;
                let name = metadata.name.as_deref().unwrap_or_default();
                let version = metadata.resource_version.as_deref().unwrap_or_default();
                format!("{name}@{version}")
            })
            .collect();
        contents.sort();
        contents
    }
}

impl Drop for Reflected {
    fn drop(&mut self) {
        self.running.abort();
    }
}

//! `faults`: the shared informer with its defaults.

use std::process::ExitCode;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use peer_faults::Follower;
use reeve_informer::{SharedInformer, Stored};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

struct Informed {
    informer: SharedInformer<ConfigMap>,
    running: JoinHandle<()>,
}

pub(crate) fn main() -> std::io::Result<ExitCode> {
    // The informer tries streaming lists by default, and works without them.
    peer_faults::main(|client, _| Informed::start(client))
}

// === impl Informed ===

impl Informed {
    fn start(client: Client) -> Self {
        let informer = SharedInformer::<ConfigMap>::builder(client).build();
        let running = tokio::spawn({
            let informer = informer.clone();
            async move {
                // `run` fails only at a second call.
                let _ = informer.run(CancellationToken::new()).await;
            }
        });
        Self { informer, running }
    }
}

impl Follower for Informed {
    fn contents(&self) -> Vec<String> {
        let mut contents: Vec<_> = self
            .informer
            .lister()
            .list()
            .iter()
            .map(|object| format!("{}@{}", object.name(), object.resource_version()))
            .collect();
        contents.sort();
        contents
    }
}

impl Drop for Informed {
    fn drop(&mut self) {
        self.running.abort();
    }
}

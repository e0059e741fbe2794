//! `fleet`: many shared informers with one client and one runtime.

use k8s_openapi::api::core::v1::ConfigMap;
use peer_measure::control::Server;
use peer_measure::fleet::{self, Fleet};
use peer_measure::{Flags, Outcome};
use reeve_informer::{ReflectorOptions, RunningInformer, SharedInformer};
use tokio::runtime::Runtime;

use crate::queue::runtime;

/// The running informers.
struct Running {
    informers: Vec<(SharedInformer<ConfigMap>, RunningInformer)>,
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
        let informers = (0..count).map(|_| {
            let informer = SharedInformer::<ConfigMap>::builder(client.clone())
                .reflector(ReflectorOptions::new().streaming(streaming))
                .build();
            let running = informer.spawn();
            (informer, running)
        });
        let informers = informers.collect();
        drop(entered);
        Self { informers, runtime }
    }
}

impl Fleet for Running {
    fn wait_synced(&self) {
        for (informer, _) in &self.informers {
            let synced = self.runtime.block_on(informer.wait_synced());
            synced.expect("an informer that runs");
        }
    }

    fn counts(&self) -> Vec<usize> {
        let informers = self.informers.iter();
        informers
            .map(|(informer, _)| informer.lister().len())
            .collect()
    }
}

//! `restart`: shared informers, one for each namespace, with the client that this project recommends.

use k8s_openapi::api::core::v1::ConfigMap;
use peer_measure::restart::{self, Changes, Setup};
use peer_measure::{Flags, Outcome};
use peer_objects::Object;
use reeve_informer::connect::{self, Location, Options};
use reeve_informer::{Event, HandlerOptions, Policy, RunningInformer, Scope, SharedInformer};
use tokio::runtime::Runtime;

use crate::queue::runtime;

pub(crate) fn run(flags: &Flags) -> Outcome {
    restart::run(flags, start)
}

/// The running informers, which end before their runtime.
fn start(setup: Setup) -> (Vec<RunningInformer>, Runtime) {
    let runtime = runtime(2);
    let running = runtime.block_on(async {
        let location = Location::new().kubeconfig(&setup.kubeconfig);
        let options = Options::new().user_agent("peer-ours");
        let client = connect::locate(&location, &options).await;
        let client = client.expect("a kubeconfig");
        let running = setup.namespaces.into_iter().map(|namespace| {
            let informer = SharedInformer::<ConfigMap>::builder(client.clone())
                .scope(Scope::namespace(namespace))
                .build();
            let changes = Changes::new(&setup.handler);
            let count = move |event: Event<ConfigMap>| {
                if let Some(object) = event.object() {
                    changes.note(object.stamp());
                }
            };
            let options = HandlerOptions::new().policy(Policy::Block { bound: 1024 });
            let added = informer.add_handler(count, options.inline());
            let _handle = added.expect("an informer that has not stopped");
            informer.spawn()
        });
        running.collect()
    });
    (running, runtime)
}

//! `restart`: reflectors, one for each namespace, with kube-client's own client.

use std::future::ready;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Api, Client, Config};
use kube_runtime::WatchStreamExt;
use kube_runtime::reflector;
use kube_runtime::watcher::{self, Event};
use peer_measure::restart::{self, Changes, Setup};
use peer_measure::{Flags, Outcome};
use peer_objects::Object;
use tokio::runtime::Runtime;

use crate::queue::runtime;

pub(crate) fn run(flags: &Flags) -> Outcome {
    restart::run(flags, start)
}

/// The reflectors end with their runtime.
fn start(setup: Setup) -> Runtime {
    let runtime = runtime(2);
    runtime.block_on(async {
        let kubeconfig = Kubeconfig::read_from(&setup.kubeconfig).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.expect("a kubeconfig of one server");
        let agent = "peer-kube".parse().expect("a header");
        config.headers.push((http::header::USER_AGENT, agent));
        let client = Client::try_from(config).expect("a client");
        for namespace in &setup.namespaces {
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            let writer = reflector::store::Writer::default();
            let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
            let changes = Changes::new(&setup.handler);
            tokio::spawn(reflector::reflector(writer, events).for_each(move |event| {
                if let Ok(Event::Apply(object) | Event::InitApply(object)) = event {
                    changes.note(object.stamp());
                }
                ready(())
            }));
        }
    });
    runtime
}

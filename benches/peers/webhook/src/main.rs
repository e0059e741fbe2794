//! This project's webhook server (`-peer=ours`), which `peer-load` starts and measures: `webhooks -port=… -certificates=…`.
//!
//! It is a program of its own, because the allocator of `peer-ours` counts, and because it shows the memory of a program that
//! has only webhooks. Allocator and runtime are the defaults of a Rust program.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube_core::Resource;
use peer_measure::{Flags, Stop};
use prometheus_client::registry::Registry;
use reeve_webhook::admission::{Mutation, Request, Verdict};
use reeve_webhook::{Metrics, Server, Webhook};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    match Flags::of_process("ours").and_then(|flags| serve(&flags)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Skip(why) | Stop::Wrong(why)) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// Serves the two handlers for Pods and Deployments, with the defaults of the server and its metrics, until the process is
/// killed.
fn serve(flags: &Flags) -> Result<(), Stop> {
    if flags.scenario != "webhooks" {
        return Err(Stop::unknown(flags));
    }
    let port = flags.get("port", 0)?;
    let certificates = flags.text("certificates", "");
    let mut registry = Registry::default();
    let server = Server::at(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .certificate_directory(certificates)
        .metrics(Metrics::register(&mut registry))
        .webhooks([lock::<Pod>(), lock::<Deployment>()])
        .webhooks([team::<Pod>(), team::<Deployment>()]);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Stop::wrong(error.to_string()))?;
    runtime.block_on(async {
        let bound = server.bind().await;
        let bound = bound.map_err(|error| Stop::wrong(error.to_string()))?;
        let served = bound.run(CancellationToken::new()).await;
        served.map_err(|error| Stop::wrong(error.to_string()))
    })
}

/// Denies objects with the label `locked`.
fn lock<K>() -> Webhook
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
{
    Webhook::validating("lock.example.com", |request: Request<K>| async move {
        let labels = request
            .object
            .as_ref()
            .and_then(|object| object.meta().labels.as_ref());
        let locked = labels.and_then(|labels| labels.get("locked"));
        if locked.is_some_and(|locked| locked == "true") {
            return Verdict::deny("the object is locked");
        }
        Verdict::allow()
    })
}

/// Adds the label `team`.
fn team<K>() -> Webhook
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Serialize + Send + 'static,
{
    Webhook::mutating("team.example.com", |mut request: Request<K>| async move {
        let Some(mut object) = request.object.take() else {
            return Mutation::unchanged();
        };
        let labels = object.meta_mut().labels.get_or_insert_default();
        labels.insert("team".to_owned(), "a".to_owned());
        Mutation::changed(object)
    })
}

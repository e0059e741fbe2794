//! Requests and keeps metadata only: `cargo run -p reeve-informer --example metadata_only [-- --cluster]`.
#![allow(clippy::print_stdout, reason = "it is a program that prints")]

mod somewhere;

use std::error::Error;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::metadata::PartialObjectMeta;
use reeve_informer::{SharedInformer, Stored};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let somewhere = somewhere::Somewhere::find().await?;
    let informer =
        SharedInformer::<PartialObjectMeta<ConfigMap>>::builder(somewhere.client.clone()).build();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    informer.wait_synced().await?;
    for object in informer.lister().list() {
        let team = object.label("team").unwrap_or("none");
        println!(
            "{} at version {}: {team}",
            object.key(),
            object.resource_version()
        );
    }
    stop.cancel();
    running.await??;
    Ok(())
}

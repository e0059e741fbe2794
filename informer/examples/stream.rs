//! Events as a stream: `cargo run -p reeve-informer --example stream [-- --cluster]`.
#![allow(clippy::print_stdout, reason = "it is a program that prints")]

mod somewhere;

use std::error::Error;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use reeve_informer::{HandlerOptions, SharedInformer};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let somewhere = somewhere::Somewhere::find().await?;
    let informer = SharedInformer::<ConfigMap>::builder(somewhere.client.clone()).build();
    let stop = CancellationToken::new();
    let events = informer.stream(HandlerOptions::new())?;
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    informer.wait_synced().await?;
    somewhere.stir().await?;
    let mut changes = events
        .filter(|event| std::future::ready(!event.is_initial()))
        .take(2);
    while let Some(event) = changes.next().await {
        println!("{}", event.key());
    }
    stop.cancel();
    running.await??;
    Ok(())
}

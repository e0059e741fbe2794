//! A cache with an index: `cargo run -p reeve-informer --example index [-- --cluster]`.
#![allow(clippy::print_stdout, reason = "it is a program that prints")]

mod somewhere;

use std::error::Error;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_informer::{SharedInformer, Stored};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let somewhere = somewhere::Somewhere::find().await?;
    let informer = SharedInformer::<ConfigMap>::builder(somewhere.client.clone()).build();
    informer.add_indexer("by-team", |map| {
        Ok(map.label("team").into_iter().map(Into::into).collect())
    })?;
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    informer.wait_synced().await?;
    for team in informer.indexer().index_values("by-team")? {
        let maps = informer.lister().by_index("by-team", &team)?;
        let names: Vec<&str> = maps.iter().map(|map| map.name()).collect();
        println!("{team}: {}", names.join(", "));
    }
    stop.cancel();
    running.await??;
    Ok(())
}

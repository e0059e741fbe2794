//! Prints the present objects, then each change: `cargo run -p reeve-informer --example print_events [-- --cluster]`.
#![allow(clippy::print_stdout, reason = "it is a program that prints")]

mod somewhere;

use std::error::Error;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_informer::{Event, HandlerOptions, SharedInformer, Stored};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let somewhere = somewhere::Somewhere::find().await?;
    let informer = SharedInformer::<ConfigMap>::builder(somewhere.client.clone()).build();
    let print = |event: Event<ConfigMap>| match event {
        Event::Added { object, initial } => {
            println!(
                "added {}{}",
                object.key(),
                if initial { " (it was there)" } else { "" }
            );
        }
        Event::Updated { old, new, reason } => {
            let versions = (old.resource_version(), new.resource_version());
            println!(
                "updated {} from {} to {} ({reason:?})",
                new.key(),
                versions.0,
                versions.1
            );
        }
        Event::Deleted { key, .. } => println!("deleted {key}"),
    };
    let handle = informer.add_handler(print, HandlerOptions::new().name("print"))?;
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    handle.wait_synced().await?;
    println!("synced: {} objects", informer.lister().len());
    somewhere.stir().await?;
    if somewhere.server.is_some() {
        // The last of the changes made above.
        while handle.delivered() < 5 {
            tokio::task::yield_now().await;
        }
    } else {
        tokio::signal::ctrl_c().await?;
    }
    stop.cancel();
    running.await??;
    Ok(())
}

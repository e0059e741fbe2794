//! A handler with its own state, a filter, and a policy for when it is slow:
//! `cargo run -p reeve-informer --example custom_handler [-- --cluster]`.
#![allow(clippy::print_stdout, reason = "it is a program that prints")]

mod somewhere;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_informer::{
    Event, EventHandler, Filtered, HandlerOptions, Policy, SharedInformer, Stored,
};
use tokio_util::sync::CancellationToken;

/// Counts the objects of each namespace.
#[derive(Clone, Default)]
struct Census(Arc<Mutex<BTreeMap<String, usize>>>);

impl EventHandler<ConfigMap> for Census {
    fn handle(&self, event: Event<ConfigMap>) {
        let key = event.key();
        let mut census = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = census
            .entry(key.namespace.as_deref().unwrap_or_default().to_owned())
            .or_default();
        match event {
            Event::Added { .. } => *count += 1,
            Event::Deleted { .. } => *count -= 1,
            Event::Updated { .. } => {}
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let somewhere = somewhere::Somewhere::find().await?;
    let informer = SharedInformer::<ConfigMap>::builder(somewhere.client.clone()).build();
    let census = Census::default();
    let of_a_team = |map: &ConfigMap| map.label("team").is_some();
    let options = HandlerOptions::new()
        .name("census")
        .policy(Policy::Coalesce { bound: 100 });
    let handle = informer.add_handler(Filtered::new(of_a_team, census.clone()), options)?;
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    handle.wait_synced().await?;
    println!(
        "{:?}",
        census.0.lock().unwrap_or_else(PoisonError::into_inner)
    );
    handle.remove().await;
    stop.cancel();
    running.await??;
    Ok(())
}

//! The informer and the queue without the controller runtime: prints each ConfigMap that changed, once a change burst,
//! and again a minute later.
//!
//! ```text
//! cargo run --manifest-path examples/embed/Cargo.toml      # with KUBECONFIG set
//! ```

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_clock::Clock;
use reeve_informer::{Event, HandlerOptions, ObjectKey, SharedInformer, connect};
use reeve_workqueue::Queue;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // It leaves retrying to the informer, and notices a dead connection.
    let client = connect::infer(&connect::Options::new()).await?;
    let queue: Queue<ObjectKey> = Queue::builder()
        .name("config-maps")
        .clock(Clock::system())
        .build();
    let informer = SharedInformer::<ConfigMap>::builder(client).build();

    // Handlers only note which object changed.
    let adds = queue.clone();
    let handle = informer.add_handler(
        move |event: Event<ConfigMap>| adds.add(event.key()),
        HandlerOptions::new(),
    )?;

    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    handle.wait_synced().await?;

    // A worker reads the present state of whatever it is handed.
    let (lister, work) = (informer.lister(), queue.clone());
    let worker = tokio::spawn(async move {
        while let Some(key) = work.get().await {
            match lister.get(&key) {
                Some(map) => {
                    println!(
                        "{} has {} keys",
                        *key,
                        map.data.as_ref().map_or(0, |data| data.len())
                    );
                    key.requeue_after(Duration::from_secs(60));
                }
                None => {
                    println!("{} is gone", *key);
                    key.forget();
                }
            }
        }
    });

    tokio::signal::ctrl_c().await?;
    stop.cancel();
    running.await??;
    queue.shut_down_with_drain().await;
    worker.await?;
    Ok(())
}

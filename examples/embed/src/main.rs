//! The client, leader election, the informer and the queue without the controller runtime. The replica that holds the
//! lease prints each changed ConfigMap, once for a burst of changes, and again every minute.
//!
//! ```text
//! cargo run --manifest-path examples/embed/Cargo.toml      # with KUBECONFIG set
//! ```

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_client::{Client, connect};
use reeve_clock::Clock;
use reeve_election::{Elector, Options};
use reeve_informer::{Event, HandlerOptions, ObjectKey, SharedInformer};
use reeve_workqueue::Queue;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The client leaves retries to the informer and the elector, and detects a dead connection.
    let kube = connect::infer(&connect::Options::new().user_agent("embed/0.1")).await?;
    let clock = Clock::system();
    let queue: Queue<ObjectKey> = Queue::builder()
        .name("config-maps")
        .clock(clock.clone())
        .build();
    let informer = SharedInformer::<ConfigMap>::builder(kube.clone()).build();

    // Handlers only enqueue the key of the changed object.
    let adds = queue.clone();
    let handle = informer.add_handler(
        move |event: Event<ConfigMap>| adds.add(event.key()),
        HandlerOptions::new(),
    )?;

    // Every replica follows the server, so another one can take over at once.
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    handle.wait_synced().await?;

    // A worker reads the present state of each key that it gets.
    let (lister, work) = (informer.lister(), queue.clone());
    let worker = async move {
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
    };

    // The worker runs on the replica that holds the lease, until Ctrl-C or until the lease is lost.
    let options = Options::new("default", "embed");
    let elector = Elector::new(Client::new(kube), options, clock)?;
    let mut leading = tokio::spawn(elector.run(stop.clone(), worker));
    let led = tokio::select! {
        signal = tokio::signal::ctrl_c() => {
            signal?;
            stop.cancel();
            (&mut leading).await?
        }
        led = &mut leading => led?,
    };
    stop.cancel();
    queue.shut_down();
    running.await??;
    led?;
    Ok(())
}

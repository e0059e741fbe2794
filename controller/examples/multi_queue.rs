//! Two controllers of one kind, each with its own queue: `cargo run -p reeve-controller --example multi_queue`.
//!
//! A quick one records every change at once. A slow one calls another system, one request at a time, and never more
//! often than that system allows. A wait of one does not delay the other. The API server is in this process. The program
//! prints the time of each controller and the metrics of its queue, and ends by itself.
#![allow(clippy::print_stdout, reason = "this program prints")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_apiserver::ApiServer;
use reeve_controller::{Context, Controller, Manager, Outcome, Request, predicate, reconcile};
use reeve_workqueue::{ItemExponentialFailure, MaxOf, TokenBucket};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// The number of objects.
const OBJECTS: usize = 40;

/// Waits until `count` has reached `wanted`.
async fn reached(count: &AtomicUsize, wanted: usize) {
    while count.load(Ordering::Relaxed) < wanted {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Counts its requests, each after `delay`; with `refuses`, some requests fail the first time.
fn counting(
    count: &Arc<AtomicUsize>,
    delay: Duration,
    refuses: bool,
) -> impl reconcile::Reconciler<Request> + use<> {
    let count = Arc::clone(count);
    reconcile::function(move |ctx: Context, request: Request| {
        let count = Arc::clone(&count);
        async move {
            sleep(delay).await;
            if refuses && ctx.attempt() == 0 && request.name.ends_with(['0', '4', '8']) {
                return Err(reconcile::Error::message("the other system is busy"));
            }
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Outcome::done())
        }
    })
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::builder().start().await?;
    let manager = Manager::builder(server.client()).build().await?;
    let (quick, slow) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());

    // Many workers, and no wait.
    let notes = Controller::builder("notes")
        .for_kind::<ConfigMap>()
        .with_predicate(predicate::resource_version_changed())
        .workers(8)
        .complete(counting(&quick, Duration::ZERO, false))?;
    // One at a time. A failed request waits 20 ms and longer, and there are at most 50 retries a second.
    let calls = Controller::builder("calls")
        .for_kind::<ConfigMap>()
        .with_predicate(predicate::resource_version_changed())
        .workers(1)
        .rate_limiter(
            MaxOf::new()
                .and(ItemExponentialFailure::new(
                    Duration::from_millis(20),
                    Duration::from_secs(60),
                ))
                .and(TokenBucket::new(50.0, 1)),
        )
        .complete(counting(&slow, Duration::from_millis(5), true))?;
    manager.add_controller(notes)?;
    let calls = manager.add_controller(calls)?;

    let stop = CancellationToken::new();
    let begin = Instant::now();
    let work = async {
        for number in 0..OBJECTS {
            let name = format!("map-{number:02}");
            let map = json!({"metadata": {"name": name, "namespace": "default"}});
            let map: ConfigMap = serde_json::from_value(map)?;
            manager.client().create(&map).await?;
        }
        reached(&quick, OBJECTS).await;
        println!("notes: {OBJECTS} objects in {:?}", begin.elapsed());
        let behind = OBJECTS.saturating_sub(slow.load(Ordering::Relaxed));
        println!("calls: {behind} still to do");
        reached(&slow, OBJECTS).await;
        println!("calls: {OBJECTS} objects in {:?}", begin.elapsed());
        // One controller is removed, the other one stays.
        calls.stop().await;
        println!("calls: {}", calls.state());
        for runnable in manager.runnables() {
            println!("{}: {}", runnable.name, runnable.state);
        }
        let metrics = manager.metrics().encode();
        for line in metrics.lines() {
            if line.starts_with("workqueue_adds_total") || line.starts_with("workqueue_retries") {
                println!("{line}");
            }
        }
        stop.cancel();
        Ok::<_, Box<dyn Error>>(())
    };
    let (run, work) = tokio::join!(manager.run(stop.clone()), work);
    run?;
    work
}

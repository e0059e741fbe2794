//! Two controllers of one kind, each with a queue of its own: a quick one that notes every change at once, and a slow one
//! that asks another system, one request at a time, and never more often than that allows:
//! `cargo run -p reeve-controller --example multi_queue`.
//!
//! What one of them waits for does not hold up the other. It runs against an API server in this process, prints how
//! long each took and what its queue counted, and ends by itself.
#![allow(clippy::print_stdout, reason = "it is a program that prints")]

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

/// How many objects there are.
const OBJECTS: usize = 40;

/// Waits until `count` has come to `wanted`.
async fn reached(count: &AtomicUsize, wanted: usize) {
    while count.load(Ordering::Relaxed) < wanted {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Counts what it is asked to do, after `delay`; if it `refuses`, some requests are refused at first.
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

    // Many workers, and no waiting.
    let notes = Controller::builder("notes")
        .for_kind::<ConfigMap>()
        .with_predicate(predicate::resource_version_changed())
        .workers(8)
        .complete(counting(&quick, Duration::ZERO, false))?;
    // One at a time; what is refused waits 20 ms and longer, and all retries together come 50 times a second at most.
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
        // One of them goes, the other stays.
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

//! A controller with sources outside of Kubernetes (a channel, a stream, a timer) and with its own type of request:
//! `cargo run -p reeve-controller --example external_source`.
//!
//! It keeps the numbers of meters in a ConfigMap. Meters report through a channel, like a webhook or a message queue. A
//! stream reports meters that were removed. A timer requests the sum from time to time. Nothing is lost when reports
//! come faster than they are processed: the queue holds each request once. The API server is in this process, and the
//! program ends by itself.
#![allow(clippy::print_stdout, reason = "this program prints")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_apiserver::ApiServer;
use reeve_controller::client::Patch;
use reeve_controller::source::{self, Source, Wanted};
use reeve_controller::{Context, Controller, Manager, ObjectKey, Outcome, Reconciler, reconcile};
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// A request. It names the work and does not carry new data, so two equal requests are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    /// Write the number of this meter.
    Meter(&'static str),
    /// Write the sum of all.
    Sum,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meter(name) => write!(f, "meter {name}"),
            Self::Sum => f.write_str("sum"),
        }
    }
}

/// The numbers of the meters: the present state, which reconciles read.
type Meters = Arc<Mutex<BTreeMap<&'static str, u64>>>;

struct Keeper {
    meters: Meters,
    into: ObjectKey,
}

impl Reconciler<Work> for Keeper {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, work: Work) -> Result<Outcome, Self::Error> {
        let shown = {
            let meters = self.meters.lock();
            match work {
                Work::Meter(name) => json!({name: meters.get(name).map(u64::to_string)}),
                Work::Sum => json!({"sum": meters.values().sum::<u64>().to_string()}),
            }
        };
        println!("{work}: {shown} ({:?})", ctx.reasons());
        let patch = Patch::merge(json!({"data": shown}));
        let write = ctx.client().patch::<ConfigMap>(&self.into, patch);
        write.await?;
        Ok(Outcome::done())
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::builder().start().await?;
    let manager = Manager::builder(server.client()).build().await?;
    let into = ObjectKey::namespaced("default", "meters");
    let map = json!({"metadata": {"name": "meters", "namespace": "default"}});
    let map: ConfigMap = serde_json::from_value(map)?;
    manager.client().create(&map).await?;

    let meters = Meters::default();
    let (reports, requests) = source::channel::<Work>(16);
    let once = stream::iter([Wanted::with_priority(Work::Meter("removed"), -10)]);
    let keeper = Controller::typed::<Work>("keeper")
        .watches_source(requests)
        // A stream of requests that run once, after all others.
        .watches_source(Source::from(once).finite())
        .watches_source(source::every(Duration::from_millis(200), Work::Sum))
        .complete(Keeper {
            meters: Arc::clone(&meters),
            into: into.clone(),
        })?;
    manager.add_controller(keeper)?;

    let stop = CancellationToken::new();
    let work = async {
        for round in 1..=100u64 {
            for name in ["east", "west"] {
                meters.lock().insert(name, round);
                reports.send(Work::Meter(name)).await?;
            }
        }
        // Until the sum, which the timer requests, is written.
        let data = loop {
            let map = manager.client().get::<ConfigMap>(&into).await?;
            let data = map.data.unwrap_or_default();
            if data.get("sum").is_some_and(|sum| sum == "200") {
                break data;
            }
            sleep(Duration::from_millis(10)).await;
        };
        println!("{data:?}");
        stop.cancel();
        Ok::<_, Box<dyn Error>>(())
    };
    let (run, work) = tokio::join!(manager.run(stop.clone()), work);
    run?;
    work
}

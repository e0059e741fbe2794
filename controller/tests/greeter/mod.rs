//! A small controller that the suites run: it greets, guards with a finalizer, and says so in Events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::{Patch, PatchParams};
use parking_lot::Mutex;
use reeve_clock::Clock;
use reeve_controller::events::EventType;
use reeve_controller::{
    Client, Context, Controller, Manager, ObjectKey, Outcome, Reconciler, Request, finalizer,
    leader_election, manager, reconcile,
};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// The finalizer of the greeter.
pub(crate) const FINALIZER: &str = "example.com/greeting";

/// The key of a ConfigMap in `default`.
pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

/// Writes `data.greeting` for `data.name`, guards the object with a finalizer, and counts its writes.
#[derive(Clone, Default)]
pub(crate) struct Greeter {
    /// What each run decided to write.
    pub(crate) writes: Arc<Mutex<Vec<String>>>,
}

impl Reconciler for Greeter {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, Self::Error> {
        let Some(map) = ctx.lister::<ConfigMap>()?.get(&request)? else {
            return Ok(Outcome::done());
        };
        let data = map.data.clone().unwrap_or_default();
        let Some(name) = data.get("name") else {
            return Ok(Outcome::done());
        };
        let wrote = AtomicBool::new(false);
        let write = |what: &str| {
            wrote.store(true, Ordering::Relaxed);
            self.writes.lock().push(format!("{what} {}", request.name));
        };
        let patch = async |patch: serde_json::Value| {
            let patch = Patch::Merge(patch);
            let params = PatchParams::default();
            ctx.client()
                .patch::<ConfigMap, _>(&request, &params, &patch)
                .await
        };
        if finalizer::is_deleting(&*map) {
            if let Some(removed) = finalizer::remove_patch(&*map, FINALIZER) {
                write("release");
                patch(removed).await?;
                ctx.events()
                    .event(&*map, EventType::Normal, "Released", "Release", "farewell");
            }
            return Ok(Outcome::done());
        }
        if let Some(added) = finalizer::add_patch(&*map, FINALIZER) {
            write("guard");
            patch(added).await?;
        }
        let greeting = format!("Hello {name}");
        if data.get("greeting") != Some(&greeting) {
            write("greet");
            patch(json!({"data": {"greeting": greeting}})).await?;
            ctx.events()
                .event(&*map, EventType::Normal, "Greeted", "Greet", greeting);
        }
        // Soon after a write: so that the key would certainly overtake it.
        let again = if wrote.load(Ordering::Relaxed) {
            Duration::from_millis(1)
        } else {
            Duration::from_secs(60)
        };
        Ok(Outcome::requeue_after(again).with_priority(1))
    }
}

/// A manager that runs.
pub(crate) struct Running {
    pub(crate) manager: Manager,
    pub(crate) stop: CancellationToken,
    pub(crate) run: JoinHandle<Result<(), manager::Error>>,
}

impl Running {
    /// Starts a manager with a greeter.
    pub(crate) async fn start(
        client: kube_client::Client,
        clock: &Clock,
        greeter: Greeter,
        lease: Option<leader_election::Options>,
    ) -> Self {
        let mut builder = Manager::builder(client)
            .clock(clock.clone())
            .namespace("default");
        if let Some(lease) = lease {
            builder = builder.leader_election(lease);
        }
        let manager = builder.build().await.unwrap();
        let controller = Controller::builder("greeter")
            .for_kind::<ConfigMap>()
            .workers(4)
            .complete(greeter)
            .unwrap();
        manager.add_controller(controller).unwrap();
        let stop = CancellationToken::new();
        let (running, token) = (manager.clone(), stop.clone());
        let run = tokio::spawn(async move { running.run(token).await });
        Self { manager, stop, run }
    }

    /// Stops it and waits.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.run.await.unwrap().unwrap();
    }

    /// The value of the first metric line that starts with `name`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.manager.metrics().encode();
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default();
        line.rsplit(' ')
            .next()
            .and_then(|value| value.parse().ok())
            .unwrap_or(f64::NAN)
    }
}

/// Creates a ConfigMap to greet.
pub(crate) async fn create(client: &Client, name: &str) {
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": name}, "data": {"name": name}}))
    .unwrap();
    client.create(&map).await.unwrap();
}

/// The greeting, if it is there.
pub(crate) async fn greeting(client: &Client, name: &str) -> Option<String> {
    let map = client.get::<ConfigMap>(&key(name)).await.ok()?;
    map.data?.get("greeting").cloned()
}

/// Lets up to ten virtual minutes pass until the greeting is there.
pub(crate) async fn greeted(client: &Client, name: &str) {
    let end = Instant::now() + Duration::from_secs(600);
    while greeting(client, name).await.is_none() {
        assert!(Instant::now() < end, "{name} was never greeted");
        sleep(Duration::from_millis(20)).await;
    }
}

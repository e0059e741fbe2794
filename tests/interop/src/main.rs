//! Contends for a Lease with a [`Manager`], and writes an object for as long as its client lets it: the counterpart of
//! `contender/main.go`, with the same flags (`-name=value`).
//!
//! Beside a well-behaved controller there is a stubborn task, which took the controller's client and writes with it
//! all the time, until the process ends: only the fence of the client holds it back.
//!
//! Standard output has a line for each event: `leading`, `lost`, and at the end `refused N`.

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_core::params::Patch;
use reeve_controller::client::{Error, connect};
use reeve_controller::source::Source;
use reeve_controller::{
    Client, Context, Controller, Manager, ObjectKey, Outcome, Reconciler, leader_election,
    reconcile,
};
use serde_json::json;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long a write waits for its answer.
const ANSWER: Duration = Duration::from_secs(1);
/// How long the stubborn task goes on after the manager has ended: it may be waiting for an answer then, and is to try once
/// more.
const STUBBORN: Duration = Duration::from_millis(1500);

/// Writes the leader's identity.
#[derive(Clone)]
struct Writer {
    identity: String,
    object: ObjectKey,
    count: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    /// The client of the controller, once it had one.
    client: Arc<OnceLock<Client>>,
}

// === impl Writer ===

impl Writer {
    async fn write(&self, client: &Client) -> Result<(), Error> {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let data = json!({"data": {"leader": self.identity, "count": count.to_string()}});
        let patch = Patch::Merge(data);
        let write = client.patch::<ConfigMap>(&self.object, &patch);
        let result = write.await.map(|_| ());
        if matches!(result, Err(Error::NotLeader { .. })) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    async fn stubbornly(self) {
        loop {
            if let Some(client) = self.client.get() {
                let _ = self.write(client).await;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Reconciler<u32> for Writer {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, _: u32) -> Result<Outcome, Self::Error> {
        let client = self.client.get_or_init(|| {
            let client = ctx.client().clone();
            client.with_deadline(ANSWER)
        });
        self.write(client).await?;
        Ok(Outcome::requeue_after(Duration::from_millis(20)))
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::INFO)
        .init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), BoxError> {
    let flags = Flags::of(std::env::args().skip(1))?;
    let kubeconfig = Kubeconfig::read_from(flags.text("kubeconfig")?)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = connect::connect(config, &connect::Options::new())?;
    let (namespace, identity) = (flags.text("namespace")?, flags.text("identity")?);
    let lease = leader_election::Options::new(namespace, flags.text("lease")?)
        .identity(identity)
        .lease_duration(flags.duration("lease-duration")?)
        .renew_deadline(flags.duration("renew-deadline")?)
        .retry_period(flags.duration("retry-period")?);
    let manager = Manager::builder(client)
        .namespace(namespace)
        .leader_election(lease)
        .grace_period(Duration::from_secs(3))
        .build()
        .await?;
    let writer = Writer {
        identity: identity.to_owned(),
        object: ObjectKey::namespaced(namespace, flags.text("object")?),
        count: Arc::default(),
        refused: Arc::default(),
        client: Arc::default(),
    };
    let controller = Controller::typed::<u32>("writer")
        .watches_source(Source::from(stream::iter(0..4)).finite())
        .workers(4)
        .own_writes_timeout(Duration::ZERO)
        .complete(writer.clone())?;
    manager.add_controller(controller)?;

    let mut leading = manager.leading();
    let _told = AbortOnDropHandle::new(tokio::spawn(async move {
        while leading.changed().await.is_ok() {
            say(if *leading.borrow() { "leading" } else { "lost" });
        }
    }));
    let _stubborn = AbortOnDropHandle::new(tokio::spawn(writer.clone().stubbornly()));
    let result = manager.run_until_signal().await;
    sleep(STUBBORN).await;
    say(&format!(
        "refused {}",
        writer.refused.load(Ordering::Relaxed)
    ));
    Ok(result?)
}

/// A line on standard output, lost if it is closed.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// `-name=value`, as Go's flag package takes them.
struct Flags(HashMap<String, String>);

// === impl Flags ===

impl Flags {
    fn of(arguments: impl Iterator<Item = String>) -> Result<Self, BoxError> {
        let mut flags = HashMap::from([
            ("namespace".to_owned(), "default".to_owned()),
            ("lease".to_owned(), "contended".to_owned()),
            ("object".to_owned(), "work".to_owned()),
            ("lease-duration".to_owned(), "15s".to_owned()),
            ("renew-deadline".to_owned(), "10s".to_owned()),
            ("retry-period".to_owned(), "2s".to_owned()),
        ]);
        for argument in arguments {
            let flag = argument.trim_start_matches('-').split_once('=');
            let (name, value) = flag.ok_or_else(|| format!("{argument} is not -name=value"))?;
            flags.insert(name.to_owned(), value.to_owned());
        }
        Ok(Self(flags))
    }

    fn text(&self, name: &str) -> Result<&str, BoxError> {
        let value = self.0.get(name).filter(|value| !value.is_empty());
        Ok(value.ok_or_else(|| format!("-{name}=… is missing"))?)
    }

    /// A number with `ms` or `s` behind it.
    fn duration(&self, name: &str) -> Result<Duration, BoxError> {
        let text = self.text(name)?;
        let (number, unit) = match text.strip_suffix("ms") {
            Some(number) => (number, 1),
            None => (text.strip_suffix('s').unwrap_or(text), 1000),
        };
        Ok(Duration::from_millis(number.parse::<u64>()? * unit))
    }
}

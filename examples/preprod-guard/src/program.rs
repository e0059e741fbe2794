//! The running guard: informers, webhooks, certificates and the detector under one manager.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Event;
use kube_core::{DynamicObject, GroupVersionKind};
use parking_lot::RwLock;
use reeve_client::Client;
use reeve_clock::Clock;
use reeve_controller::cache::{CacheOptions, Caches, KindOptions, Selected};
use reeve_controller::{Manager, Runnable, manager};
use reeve_webhook::certificates::Rotation;
use reeve_webhook::{LINGER, Server};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::config::Config;
use crate::detector::{Detector, Journal, RECORD_LABEL};
use crate::install;
use crate::kinds::{self, Watched};
use crate::live::Live;
use crate::metrics::Metrics;
use crate::sink::Log;
use crate::state::State;
use crate::watch::Watch;
use crate::webhook::Guard;

/// The memory for bodies of calls in work, in MiB. An object in memory is several times as large as its bytes, and the
/// Deployment has 512 MiB.
const MEBIBYTES_OF_BODIES: usize = 32;

/// The most calls in work. A further one gets 429, and the API server sends it again.
const MOST_CALLS: usize = 64;

/// The time after which the first lists are late.
const LATE_LISTS: Duration = Duration::from_secs(10);

/// An error of any part.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The settings of a running guard.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The configuration.
    pub config: Arc<Config>,
    /// The directory with `tls.crt` and `tls.key`. `None`: the guard makes its certificates and keeps them in a Secret.
    pub tls: Option<PathBuf>,
    /// Further names and addresses of the certificate that the guard makes.
    pub names: Vec<String>,
    /// The authorities of the API server's client certificate in PEM. `None`: the webhooks answer every client. With them,
    /// `/readyz` on the webhook port needs a certificate, too; `/readyz/webhooks` on the port of the probes does not.
    pub client_authorities: Option<PathBuf>,
    /// The time of decisions and records. Default: the system's.
    pub clock: Clock,
    /// The file of the audit log. `None`: the standard output.
    pub audit: Option<PathBuf>,
    /// Added to the time of the age rule, for demonstrations.
    pub later: SignedDuration,
    /// The time that the webhooks go on after the start of a stop. Default: [`LINGER`].
    pub linger: Duration,
    /// The interval of two looks at certificates. `None`: that of [`Rotation`].
    pub certificates_every: Option<Duration>,
}

// === impl Settings ===

impl Settings {
    /// The defaults with this configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config: Arc::new(config),
            tls: None,
            names: Vec::new(),
            client_authorities: None,
            clock: Clock::system(),
            audit: None,
            later: SignedDuration::ZERO,
            linger: LINGER,
            certificates_every: None,
        }
    }
}

/// Builds the manager of a guard: webhooks on `server`, requests of their own through `client`.
///
/// # Errors
/// When the audit log cannot be opened, or the servers cannot be bound.
pub async fn build(
    builder: manager::Builder,
    server: Server,
    client: Client,
    settings: Settings,
) -> Result<Manager, BoxError> {
    let config = settings.config;
    let state = Arc::new(RwLock::new(State::default()));
    let metrics = Metrics::default();
    let patience = Duration::from_secs(config.patience);
    let (detector, records) = Detector::new(patience, metrics.clone());

    let clock = settings.clock;
    let (time, later) = (clock.clone(), settings.later);
    let now = move || {
        time.now()
            .saturating_add(later)
            .unwrap_or_else(|_| time.now())
    };
    let log = Log::open(settings.audit, metrics.clone())?;
    let reopen = log.reopening();
    let guard = Guard::new(Arc::clone(&config), Arc::clone(&state), now, move |line| {
        log.write(line.line());
    });
    let guard = guard
        .reading(Live::new(client.clone()))
        .detecting(Arc::clone(&detector))
        .counting(metrics.clone());

    let mut server = server
        .webhooks(guard.webhooks())
        .linger(settings.linger)
        .memory(MEBIBYTES_OF_BODIES)
        .most_calls(MOST_CALLS);
    if let Some(file) = settings.client_authorities {
        server = server.client_authorities(file);
    }
    // Readiness is gained once: while watches fail, the rules that need no cache still decide.
    let (view, gained) = (Arc::clone(&state), OnceLock::new());
    server.readiness().checks().add("caches", move || {
        if gained.get().is_some() || view.read().synced {
            gained.get_or_init(|| ());
            return Ok(());
        }
        Err("the first lists are not complete; the log names the kinds".to_owned())
    });
    // Records of all replicas, and no other Events.
    let records_only = Selected::new().labels(RECORD_LABEL);
    let events = KindOptions::new().in_namespace(config.namespace.as_str(), records_only);
    let mut options = CacheOptions::new().for_kind::<Event>(events);
    let kinds = kinds::all(&config);
    for kind in kinds.iter().filter(|kind| kind.watched == Watched::Whole) {
        let resource = &kind.resource;
        let gvk = GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind);
        options = options.for_gvk(gvk, KindOptions::new().transform_dynamic(shorten));
    }
    let mut builder = builder.cache(options);
    if let Some(directory) = settings.tls {
        server = server.certificate_directory(directory);
    } else {
        let (config, names) = (Arc::clone(&config), settings.names);
        let every = settings.certificates_every;
        builder = builder.webhook_certificates(move |client| {
            let mut rotation = Rotation::new(client, &config.namespace, &config.service);
            for name in install::names(&config) {
                rotation = rotation.validating(name);
            }
            rotation = names.into_iter().fold(rotation, Rotation::name);
            every.into_iter().fold(rotation, Rotation::every)
        });
    }
    let manager = builder.webhooks(server).build().await?;
    manager
        .metrics()
        .register(|registry| metrics.register(registry));

    let watch = Watch::new(manager.caches(), &kinds, &config, &state, &detector)?;
    let journal = Journal::new(client, clock, &config.namespace, &config.service);
    let detecting = Runnable::new("detector", move |stop| async move {
        detector.run(records, journal, stop).await;
        Ok::<(), BoxError>(())
    });
    let health = manager.caches().clone();
    let watching = Runnable::new("watch", move |stop| async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok::<(), BoxError>(()),
            () = waiting(&health) => Ok(()),
            () = watch.follow(&config, || health.check()) => Ok(()),
        }
    });
    let reopening = Runnable::new("audit log", move |stop| async move {
        let mut hangups = signal(SignalKind::hangup())?;
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok::<(), BoxError>(()),
                _ = hangups.recv() => reopen(),
            }
        }
    });
    // The webhooks record until their linger time is over, and servers end after them.
    manager.add(detecting.as_server())?;
    manager.add(watching.as_server())?;
    manager.add(reopening.as_server())?;
    Ok(manager)
}

/// Logs the kinds whose first lists are late: the guard is not ready, and a probe does not have the reason. Does not return.
async fn waiting(caches: &Caches) {
    loop {
        sleep(LATE_LISTS).await;
        let late: Vec<String> = caches
            .health()
            .iter()
            .filter(|one| !one.synced)
            .map(|one| one.trouble().unwrap_or_default())
            .collect();
        if !late.is_empty() {
            tracing::warn!(late = late.join("; "), "the first lists are not complete");
        }
    }
}

/// Removes what no rule reads, before an object is kept.
fn shorten(object: &mut DynamicObject) {
    object.metadata.annotations = None;
    object.metadata.managed_fields = None;
    if let Some(fields) = object.data.as_object_mut() {
        fields.remove("status");
    }
}

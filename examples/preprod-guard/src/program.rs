//! The running guard: informers, webhooks, certificates and the detector under one manager.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Event;
use parking_lot::{Mutex, RwLock};
use reeve_client::Client;
use reeve_clock::Clock;
use reeve_controller::cache::{CacheOptions, KindOptions, Selected};
use reeve_controller::{Manager, Runnable, manager};
use reeve_webhook::certificates::Rotation;
use reeve_webhook::{LINGER, Server};

use crate::config::Config;
use crate::detector::{Detector, Journal, RECORD_LABEL};
use crate::install;
use crate::kinds;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::state::State;
use crate::watch::Watch;
use crate::webhook::Guard;

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
    /// The file of the audit log. `None`: the standard output.
    pub audit: Option<PathBuf>,
    /// Added to the time of the age rule, for demonstrations.
    pub later: SignedDuration,
    /// The time that the webhooks go on after the begin of a stop. Default: [`LINGER`].
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

    let clock = Clock::system();
    let (time, later) = (clock.clone(), settings.later);
    let now = move || {
        time.now()
            .saturating_add(later)
            .unwrap_or_else(|_| time.now())
    };
    let sink = Mutex::new(log(settings.audit)?);
    let guard = Guard::new(
        Arc::clone(&config),
        Arc::clone(&state),
        now,
        move |record| {
            if let Err(error) = writeln!(sink.lock(), "{}", record.line()) {
                tracing::error!(%error, "could not write a line of the audit log");
            }
        },
    );
    let guard = guard
        .reading(Live::new(client.clone()))
        .detecting(Arc::clone(&detector))
        .counting(metrics.clone());

    let mut server = server.webhooks(guard.webhooks()).linger(settings.linger);
    let view = Arc::clone(&state);
    server.readiness().checks().add("caches", move || {
        if view.read().synced {
            return Ok(());
        }
        Err("the first lists are not complete".to_owned())
    });
    // Records of all replicas, and no other Events.
    let records_only = Selected::new().labels(RECORD_LABEL);
    let events = KindOptions::new().in_namespace(config.namespace.as_str(), records_only);
    let mut builder = builder.cache(CacheOptions::new().for_kind::<Event>(events));
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

    let kinds = kinds::all(&config);
    let watch = Watch::new(manager.caches(), &kinds, &config, &state, &detector)?;
    let journal = Journal::new(client, clock, &config.namespace, &config.service);
    let detecting = Runnable::new("detector", move |stop| async move {
        detector.run(records, journal, stop).await;
        Ok::<(), BoxError>(())
    });
    let watching = Runnable::new("watch", move |stop| async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok::<(), BoxError>(()),
            () = watch.synced(&config) => {}
        }
        // The informers end with their registrations.
        stop.cancelled().await;
        Ok(())
    });
    manager.add(detecting.without_leader_election())?;
    manager.add(watching.as_server())?;
    Ok(manager)
}

/// The writer of the audit log.
fn log(file: Option<PathBuf>) -> io::Result<Box<dyn Write + Send>> {
    let open = |path: PathBuf| -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(path)
    };
    Ok(match file {
        Some(path) => Box::new(open(path)?),
        None => Box::new(io::stdout()),
    })
}

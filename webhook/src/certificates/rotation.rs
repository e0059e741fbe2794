//! The rotation: how it is set up, and how it runs.

mod look;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use reeve_client::{Client, ObjectKey};
use reeve_clock::{Clock, LONGEST};
use reeve_serve::certificates::Certificates;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::machine::Memory;
use super::material::Material;
use super::notice::LogOnly;
use super::targets::Target;
use super::{Journal, Lifetimes, RotationMetrics};

/// The default interval of two looks at the Secret and the configurations.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Certificates that a program makes and renews by itself, kept in a Secret that all replicas share.
///
/// ```no_run
/// use reeve_client::Client;
/// use reeve_webhook::Server;
/// use reeve_webhook::certificates::Rotation;
/// use tokio_util::sync::CancellationToken;
///
/// # async fn example(client: Client, stop: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
/// let rotation = Rotation::new(client, "hbox", "guard").validating("guard").conversion("websites.example.com");
/// let server = Server::at(([0, 0, 0, 0], 9443).into()).rotation(&rotation).bind().await?;
/// let (served, ()) = tokio::join!(server.run(stop.clone()), rotation.run(stop));
/// served?;
/// # Ok(())
/// # }
/// ```
///
/// See the [module](crate::certificates) for the steps, the rights and the faults.
#[must_use = "a rotation does nothing until it runs"]
pub struct Rotation {
    client: Client,
    service: ObjectKey,
    secret: ObjectKey,
    names: Vec<String>,
    targets: Vec<Target>,
    lifetimes: Lifetimes,
    interval: Duration,
    clock: Clock,
    journal: Arc<dyn Journal>,
    metrics: RotationMetrics,
    certificates: Certificates,
    status: Arc<Mutex<Status>>,
    memory: Memory,
    known: Option<Material>,
    /// The problems of the last look, which are not recorded again, and those of this one.
    last_problems: BTreeSet<String>,
    problems: BTreeSet<String>,
    /// The present look met an error, which readiness shows.
    has_failed: bool,
    warned: Option<Timestamp>,
}

/// What readiness reports.
#[derive(Debug)]
struct Status {
    ready: bool,
    problem: String,
}

// === impl Rotation ===

impl Rotation {
    /// Certificates for the Service `service` in `namespace`, in the Secret `SERVICE-webhook-certificates` there. Configurations are
    /// added with the functions below.
    pub fn new(client: Client, namespace: &str, service: &str) -> Self {
        let names = ["svc", "svc.cluster.local"].map(|end| format!("{service}.{namespace}.{end}"));
        let clock = Clock::system();
        Self {
            client,
            service: ObjectKey::namespaced(namespace, service),
            secret: ObjectKey::namespaced(namespace, format!("{service}-webhook-certificates")),
            names: names.into(),
            targets: Vec::new(),
            lifetimes: Lifetimes::default(),
            interval: LOOK_EVERY,
            clock,
            journal: Arc::new(LogOnly),
            metrics: RotationMetrics::default(),
            certificates: Certificates::pending(),
            status: Arc::new(Mutex::new(Status {
                ready: false,
                problem: "the Secret was not read yet".to_owned(),
            })),
            memory: Memory::default(),
            known: None,
            last_problems: BTreeSet::new(),
            problems: BTreeSet::new(),
            has_failed: false,
            warned: None,
        }
    }

    /// Names another Secret in the same namespace. It may exist, empty.
    pub fn secret(mut self, name: &str) -> Self {
        let namespace = self.service.namespace.clone().unwrap_or_default();
        self.secret = ObjectKey::namespaced(namespace, name);
        self
    }

    /// Adds a name or an address to the certificate, for a configuration with a `url`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Keeps the bundle of a ValidatingWebhookConfiguration true: in each entry that leads to the Service, or to a `url` with
    /// one of the [names](Rotation::name).
    pub fn validating(mut self, name: impl Into<String>) -> Self {
        self.targets.push(Target::validating(name.into()));
        self
    }

    /// The same for a MutatingWebhookConfiguration.
    pub fn mutating(mut self, name: impl Into<String>) -> Self {
        self.targets.push(Target::mutating(name.into()));
        self
    }

    /// The same for the conversion of a CustomResourceDefinition, by its name: `websites.example.com`.
    pub fn conversion(mut self, name: impl Into<String>) -> Self {
        self.targets.push(Target::conversion(name.into()));
        self
    }

    /// Sets the times. Default: [`Lifetimes::default`].
    pub fn lifetimes(mut self, lifetimes: Lifetimes) -> Self {
        self.lifetimes = lifetimes;
        self
    }

    /// Sets the interval of the looks. Default: [`LOOK_EVERY`]. A look is a request for the Secret and one for each
    /// configuration, of each replica; a shorter interval repairs sooner. At least 100 ms.
    pub fn every(mut self, interval: Duration) -> Self {
        self.interval = interval.clamp(Duration::from_millis(100), LONGEST);
        self
    }

    /// Takes wall time and randomness from `clock`. Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Records what happens in `journal`, besides the log.
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = journal;
        self
    }

    /// Shows the ends of the certificates in `metrics`.
    pub fn metrics(mut self, metrics: RotationMetrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// The certificate for a server. There is none until the first look.
    #[must_use]
    pub fn certificates(&self) -> Certificates {
        self.certificates.clone()
    }

    /// A check for readiness: it passes once the certificate was trusted by every configuration, for the time of
    /// [`Lifetimes::propagation`], and from then on. The Secret records that, so a replica that starts later is ready at its
    /// first look.
    pub fn check(&self) -> impl Fn() -> Result<(), String> + Send + Sync + use<> {
        let status = Arc::clone(&self.status);
        move || {
            let status = status.lock();
            if status.ready {
                Ok(())
            } else {
                Err(status.problem.clone())
            }
        }
    }

    /// Looks again and again until `stop`, see [`Rotation::every`]. It runs on every replica.
    pub async fn run(mut self, stop: CancellationToken) {
        let looking = async {
            loop {
                self.look().await;
                // Replicas do not look at the same moments.
                sleep(self.clock.random().jitter(self.interval, 0.1)).await;
            }
        };
        let _: Option<()> = stop.run_until_cancelled(looking).await;
    }
}

impl fmt::Debug for Rotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rotation")
            .field("service", &self.service)
            .field("secret", &self.secret)
            .field("names", &self.names)
            .field("targets", &self.targets)
            .field("lifetimes", &self.lifetimes)
            .finish_non_exhaustive()
    }
}

//! The rotation at work: reads the Secret and the configurations, has the machine decide, and performs it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;
use reeve_client::{Client, Error as ClientError, ObjectKey, optional};
use reeve_clock::Clock;
use reeve_serve::certificates::Certificates;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::contents::Id;
use super::machine::{Bundle, Bundles, Decision, Found, Memory, Now, Write};
use super::material::{Material, Problem, Terms};
use super::notice::LogOnly;
use super::targets::{Seen, Server, Target};
use super::{Journal, Lifetimes, Notice, RotationMetrics};

/// The default interval of two looks at the Secret and the configurations.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Writes of one look: a first start has one, a restored Secret another.
const MOST_WRITES: usize = 4;

/// The label of the Secret, so that no other Secret is changed.
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "reeve-webhook");

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
    warned: Option<Timestamp>,
}

/// What readiness reports.
#[derive(Debug)]
struct Status {
    ready: bool,
    problem: String,
}

/// The reason why a look failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("Secret {secret}: {problem}")]
    Content { secret: ObjectKey, problem: Problem },
    #[error(
        "Secret {0} has data and not the label {label}={value}: name another Secret, or delete it",
        label = LABEL.0, value = LABEL.1
    )]
    Foreign(ObjectKey),
    #[error("the certificate was refused: {0}")]
    Refused(#[from] reeve_serve::certificates::Error),
}

/// The Secret as it was read.
struct Read {
    /// The object, if it exists.
    object: Option<Secret>,
    found: Found,
    material: Option<Material>,
    problem: Option<Problem>,
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
    /// configuration, of each replica; a shorter interval repairs sooner.
    pub fn every(mut self, interval: Duration) -> Self {
        self.interval = interval;
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

    /// Looks once, and does what there is to do.
    async fn look(&mut self) {
        for _ in 0..MOST_WRITES {
            match self.step().await {
                Ok(true) => {}
                Ok(false) => break,
                // Another replica was faster; its write is seen next.
                Err(Error::Client(error)) if error.is_conflict() || error.is_already_exists() => {}
                Err(error) => {
                    self.failed(&error.to_string());
                    break;
                }
            }
        }
        self.last_problems = std::mem::take(&mut self.problems);
        self.warn_before_the_end();
    }

    /// One decision. Returns whether the Secret was written.
    async fn step(&mut self) -> Result<bool, Error> {
        // The configurations first: one that changes after that is not written with an older Secret.
        let (seen, bundles) = self.configurations().await;
        let read = self.read().await?;
        let now = Now {
            wall: self.clock.now(),
            elapsed: self.clock.since_boot(),
        };
        let decision = self
            .memory
            .decide(now, &read.found, &bundles, &self.lifetimes);
        if let Some(material) = &read.material
            && self.memory.known.as_ref() == Some(&material.contents)
        {
            self.known = Some(material.clone());
        }
        if decision.adopt {
            self.adopt()?;
        }
        self.show();
        if decision.inject {
            self.inject(&seen, read.material.as_ref()).await;
        }
        let Decision {
            write: Some(write), ..
        } = decision
        else {
            if let (Some(problem), None) = (&read.problem, &self.known) {
                let notice = Notice::Unusable(problem.to_string());
                self.once(&notice);
            }
            return Ok(false);
        };
        self.write(&write, &read, &seen, now.wall).await?;
        Ok(true)
    }

    /// Reads every configuration. One that cannot be read makes the bundles incomplete.
    async fn configurations(&mut self) -> (Vec<Seen>, Bundles) {
        let mut all = Vec::new();
        let mut complete = true;
        for target in self.targets.clone() {
            let server = Server {
                service: &self.service,
                names: &self.names,
            };
            match target.read(&self.client, server).await {
                Ok(Some(seen)) if !seen.entries.is_empty() => all.push(seen),
                Ok(_) => self.once(&Notice::NotFound(target.to_string())),
                Err(error) => {
                    complete = false;
                    self.failed(&error.to_string());
                }
            }
        }
        let entries = all.iter().flat_map(|seen| {
            seen.entries.iter().map(|entry| Bundle {
                configuration: seen.target().to_string(),
                authorities: entry.bundle.clone(),
            })
        });
        let entries = entries.collect();
        (all, Bundles { entries, complete })
    }

    async fn read(&self) -> Result<Read, Error> {
        let Some(object) = optional(self.client.get::<Secret>(&self.secret).await)? else {
            return Ok(Read {
                object: None,
                found: Found::Missing,
                material: None,
                problem: None,
            });
        };
        let data = object.data.clone().unwrap_or_default();
        let labels = object.metadata.labels.as_ref();
        let own = labels
            .and_then(|labels| labels.get(LABEL.0))
            .is_some_and(|value| value == LABEL.1);
        if !own && !data.is_empty() {
            return Err(Error::Foreign(self.secret.clone()));
        }
        let object = Some(object);
        if data.is_empty() {
            let (found, material, problem) = (Found::Unusable, None, None);
            return Ok(Read {
                object,
                found,
                material,
                problem,
            });
        }
        Ok(match Material::read(&data, &self.names) {
            Ok(material) => Read {
                object,
                found: Found::Contents(material.contents.clone()),
                material: Some(material),
                problem: None,
            },
            Err(problem) => Read {
                object,
                found: Found::Unusable,
                material: None,
                problem: Some(problem),
            },
        })
    }

    /// Serves the leaf of the known contents.
    fn adopt(&mut self) -> Result<(), Error> {
        let Some(known) = &self.known else {
            return Ok(());
        };
        let (leaf, key) = known.pair().map_err(|problem| self.content(problem))?;
        self.certificates.replace(vec![leaf], key)?;
        let expires = known.contents.leaf.expires;
        tracing::info!(secret = %self.secret, %expires, "another certificate is in use");
        Ok(())
    }

    /// Brings the bundle into the configurations. A configuration that changed meanwhile is read again at the next look.
    async fn inject(&mut self, seen: &[Seen], material: Option<&Material>) {
        let Some(material) = material else { return };
        let bundle: BTreeSet<Id> = material
            .contents
            .bundle
            .iter()
            .map(|authority| authority.id)
            .collect();
        let pem = material.bundle_pem();
        for seen in seen {
            match seen.inject(&self.client, &bundle, &pem).await {
                Ok(true) => self.record(&Notice::Injected(seen.target().to_string())),
                Ok(false) => {}
                Err(error) if error.is_conflict() => {}
                // A failed `test` of a JSON patch is a 422, too: then the configuration has another version now.
                Err(error) if error.is_invalid() && !seen.is_current(&self.client).await => {}
                Err(error) => self.failed(&error.to_string()),
            }
        }
    }

    async fn write(
        &mut self,
        write: &Write,
        read: &Read,
        seen: &[Seen],
        now: Timestamp,
    ) -> Result<(), Error> {
        let entries = seen.iter().flat_map(|seen| &seen.entries);
        let trusted = entries.flat_map(|entry| &entry.authorities);
        let trusted: Vec<_> = trusted.cloned().collect();
        let random = self.clock.random().next_u64();
        let next = Material::next(
            write,
            read.material.as_ref(),
            self.known.as_ref(),
            &Terms {
                names: &self.names,
                lifetimes: &self.lifetimes,
                trusted: &trusted,
            },
            now,
            random,
        );
        let next = next.map_err(|problem| self.content(problem))?;
        let exists = read.object.is_some();
        let mut secret = read.object.clone().unwrap_or_default();
        secret.metadata.name = Some(self.secret.name.to_string());
        secret.metadata.namespace = self.secret.namespace.as_deref().map(str::to_owned);
        let labels = secret.metadata.labels.get_or_insert_default();
        labels.insert(LABEL.0.to_owned(), LABEL.1.to_owned());
        // Keys of others stay.
        secret.data.get_or_insert_default().extend(next.data());
        // An update names the version that was read, so the slower of two replicas conflicts.
        if exists {
            self.client.update(&secret).await?;
        } else {
            self.client.create(&secret).await?;
        }
        let notice = match write {
            Write::Create => Notice::Created,
            Write::Confirm(..) => Notice::Confirmed,
            Write::Announce => Notice::Announced,
            Write::Issue => Notice::Issued,
            Write::Retire(_) => Notice::Retired,
            Write::Restore { .. } => Notice::Restored(match (&read.object, &read.problem) {
                (None, _) => "the Secret was deleted".to_owned(),
                (Some(_), Some(problem)) => format!("the Secret was damaged: {problem}"),
                (Some(_), None) if read.material.is_none() => "the Secret was emptied".to_owned(),
                (Some(_), None) => "the Secret was rolled back".to_owned(),
            }),
        };
        self.record(&notice);
        Ok(())
    }

    /// Shows ends and readiness.
    fn show(&self) {
        let served = self.memory.served;
        if let (Some(known), Some(leaf)) = (&self.memory.known, served) {
            let signer = known.authority(known.signer);
            self.metrics.show(
                leaf.expires,
                signer.map_or(leaf.expires, |signer| signer.expires),
            );
        }
        let mut status = self.status.lock();
        status.ready = self.memory.ready && self.certificates.is_loaded();
        if !status.ready && served.is_some() {
            "the configurations do not trust the certificate long enough yet"
                .clone_into(&mut status.problem);
        }
    }

    /// Warns once a day when the leaf in use has less than a sixth of its life left: it should have been replaced at a third.
    fn warn_before_the_end(&mut self) {
        let Some(leaf) = self.memory.served else {
            return;
        };
        let now = self.clock.now();
        let left = leaf.expires.duration_since(now);
        if left >= leaf.expires.duration_since(leaf.issued) / 6 {
            return;
        }
        let day = SignedDuration::from_hours(24);
        if self
            .warned
            .is_none_or(|warned| now.duration_since(warned) >= day || warned > now)
        {
            self.warned = Some(now);
            self.record(&Notice::ExpiresSoon(leaf.expires.to_string()));
        }
    }

    fn failed(&mut self, problem: &str) {
        self.metrics.errors.inc();
        {
            let mut status = self.status.lock();
            problem.clone_into(&mut status.problem);
        }
        self.once(&Notice::Failed(problem.to_owned()));
    }

    /// Records a problem unless the last look had it, too.
    fn once(&mut self, notice: &Notice) {
        let text = notice.to_string();
        let again = self.last_problems.contains(&text);
        if self.problems.insert(text) && !again {
            self.record(notice);
        }
    }

    fn record(&self, notice: &Notice) {
        let (secret, reason) = (&self.secret, notice.reason());
        if notice.is_warning() {
            tracing::warn!(%secret, reason, "{notice}");
        } else {
            tracing::info!(%secret, reason, "{notice}");
        }
        self.journal.record(secret, notice);
    }

    fn content(&self, problem: Problem) -> Error {
        let secret = self.secret.clone();
        Error::Content { secret, problem }
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

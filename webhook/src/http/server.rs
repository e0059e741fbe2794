//! The server and its configuration.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reeve_clock::Clock;
use reeve_serve::certificates::{self, Certificates};
use reeve_serve::http::{Budget, CancellationToken, Handler, Limits, Router, Server as HttpServer};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::call::{Shared, Target};
use super::{Error, Metrics, Readiness, deadline};
use crate::admission::Webhook;
use crate::conversion::Conversion;

/// The default limit of the body of an admission review, in bytes: 7 MiB. A review of an update has two objects of at most
/// 3 MiB, the limit of kube-apiserver (controller-runtime: the same).
pub const BODY_LIMIT: usize = 7 * 1024 * 1024;

/// The default limit of the body of a conversion review, in bytes. It has all objects of a list.
pub const CONVERSION_BODY_LIMIT: usize = 64 * 1024 * 1024;

/// The default of the most calls in work. A further one gets 429, and kube-apiserver sends it again after a second.
pub const MOST_CALLS: usize = 256;

/// The default time that a server goes on after its stop began, with `/readyz` failing: other parts of the cluster need it
/// to take its address out of the Service.
pub const LINGER: Duration = Duration::from_secs(15);

/// The default of the memory for bodies in MiB.
const MEMORY: usize = 256;

/// The default time that calls in work have when the server stops: as long as the API server waits.
const DRAIN: Duration = deadline::LONGEST;

/// The certificate of a webhook server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Certificate {
    /// A self-signed one for `localhost`, made at the start: for tests.
    SelfSigned,
    /// These PEM files, read again when they change.
    Files {
        /// The certificate and its chain.
        chain: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// Certificates that the program has or renews.
    Ready(Certificates),
}

/// A webhook server: its webhooks, its certificate and its limits.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::Pod;
/// use reeve_webhook::admission::{Request, Verdict};
/// use reeve_webhook::{Server, Webhook};
/// use tokio_util::sync::CancellationToken;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let guard = Webhook::validating("guard.example.com", |_: Request<Pod>| async { Verdict::allow() });
/// let server = Server::at(([0, 0, 0, 0], 9443).into())
///     .certificate_directory("/tmp/k8s-webhook-server/serving-certs")
///     .webhook(guard)
///     .bind()
///     .await?;
/// server.run(CancellationToken::new()).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a server does nothing until it is bound and runs"]
#[derive(Clone, Debug)]
pub struct Server {
    address: SocketAddr,
    certificate: Certificate,
    client_authorities: Option<PathBuf>,
    http2: bool,
    targets: Vec<Target>,
    limits: Limits,
    body_limit: usize,
    conversion_body_limit: usize,
    most_calls: usize,
    memory: usize,
    linger: Duration,
    stop_within: Option<Duration>,
    metrics: Metrics,
    certificate_metrics: certificates::Metrics,
    readiness: Readiness,
    clock: Clock,
}

/// A server that is bound and does not serve yet.
#[must_use = "a bound server does nothing until it runs"]
#[derive(Debug)]
pub struct Bound {
    server: HttpServer,
    address: SocketAddr,
    certificates: Certificates,
    readiness: Readiness,
    linger: Duration,
}

// === impl Server ===

impl Server {
    /// A server on `address`, with a [self-signed certificate](Certificate::SelfSigned) until another is set. Port 0 takes a
    /// free one; controller-runtime's is 9443.
    pub fn at(address: SocketAddr) -> Self {
        let limits = Limits::default()
            .answer_timeout(deadline::LONGEST + Duration::from_secs(2))
            .streams(1000)
            .given_up(1000)
            .drain(DRAIN);
        Self {
            address,
            certificate: Certificate::SelfSigned,
            client_authorities: None,
            http2: true,
            targets: Vec::new(),
            limits,
            body_limit: BODY_LIMIT,
            conversion_body_limit: CONVERSION_BODY_LIMIT,
            most_calls: MOST_CALLS,
            memory: MEMORY,
            linger: LINGER,
            stop_within: None,
            metrics: Metrics::default(),
            certificate_metrics: certificates::Metrics::default(),
            readiness: Readiness::new(),
            clock: Clock::system(),
        }
    }

    /// Adds a webhook.
    pub fn webhook(mut self, webhook: Webhook) -> Self {
        self.targets.push(Target::Admission(webhook));
        self
    }

    /// Adds several webhooks.
    pub fn webhooks(self, webhooks: impl IntoIterator<Item = Webhook>) -> Self {
        webhooks.into_iter().fold(self, Self::webhook)
    }

    /// Adds a conversion.
    pub fn conversion<H>(mut self, conversion: Conversion<H>) -> Self {
        self.targets.push(Target::Conversion(conversion.erased()));
        self
    }

    /// Sets the certificate.
    pub fn certificate(mut self, certificate: Certificate) -> Self {
        self.certificate = certificate;
        self
    }

    /// Takes the certificate from `tls.crt` and `tls.key` in a directory, such as a mounted Secret.
    pub fn certificate_directory(self, directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        self.certificate(Certificate::Files {
            chain: directory.join("tls.crt"),
            key: directory.join("tls.key"),
        })
    }

    /// Serves the certificates of `rotation`, which the program runs beside the server. The readiness of the server waits
    /// until every configuration trusts them.
    #[cfg(feature = "rotation")]
    pub fn rotation(self, rotation: &crate::certificates::Rotation) -> Self {
        self.readiness.checks().add("certificate", rotation.check());
        self.certificate(Certificate::Ready(rotation.certificates()))
    }

    /// Accepts only clients with a certificate that one of the authorities in this PEM file signed: the API server, if its
    /// configuration names a certificate for webhooks (controller-runtime: `ClientCAName`). `/readyz` needs one, too.
    pub fn client_authorities(mut self, file: impl Into<PathBuf>) -> Self {
        self.client_authorities = Some(file.into());
        self
    }

    /// Whether to offer HTTP/2. Default: it is offered, because kube-apiserver sends all calls of a webhook over one
    /// connection then; each call is a task of its own.
    pub fn http2(mut self, offered: bool) -> Self {
        self.http2 = offered;
        self
    }

    /// Changes the limits of connections. They begin as those of [`Limits`] with 32 s for an answer, 1,000 requests of a
    /// connection at once, and 30 s to drain: `limits(|limits| limits.connections(64))`.
    pub fn limits(mut self, change: impl FnOnce(Limits) -> Limits) -> Self {
        self.limits = change(self.limits);
        self
    }

    /// Sets the limit of the body of an admission review in bytes. Default: [`BODY_LIMIT`]. A longer one gets 413.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Sets the limit of the body of a conversion review in bytes. Default: [`CONVERSION_BODY_LIMIT`].
    pub fn conversion_body_limit(mut self, bytes: usize) -> Self {
        self.conversion_body_limit = bytes;
        self
    }

    /// Sets the most calls in work, at least one. Default: [`MOST_CALLS`]. A further call gets 429 with `Retry-After: 1`.
    pub fn most_calls(mut self, calls: usize) -> Self {
        self.most_calls = calls.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets the memory for the bodies of all calls in work, in MiB. Default: 256. A call beyond it gets 429.
    pub fn memory(mut self, mebibytes: usize) -> Self {
        self.memory = mebibytes;
        self
    }

    /// Sets the time that the server goes on after its stop began. Default: [`LINGER`]. Its Pod needs a
    /// `terminationGracePeriodSeconds` above the sum of this time and the one to drain, which only slow calls use, or a
    /// limit of both: [`Server::stop_within`].
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Limits the whole stop: at most two thirds of `time` to [linger](Server::linger), and the rest, at most the time to
    /// drain, for calls in work. With the defaults 45 s change nothing; with 9 s the server goes on for 6 s, and calls have 3 s.
    /// Default: no limit. Without a manager, set it some seconds below the `terminationGracePeriodSeconds` of the Pod, which
    /// is 30 s by default. A manager sets it from its grace period.
    pub fn stop_within(mut self, time: Duration) -> Self {
        self.stop_within = Some(self.stop_within.map_or(time, |other| other.min(time)));
        self
    }

    /// Counts into `metrics`.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Counts the reads of certificate files in `metrics`.
    pub fn certificate_metrics(mut self, metrics: certificates::Metrics) -> Self {
        self.certificate_metrics = metrics;
        self
    }

    /// Takes wall time from `clock`, for a self-signed certificate. Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The readiness of the server, for more checks.
    #[must_use]
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// The webhooks and conversions as one handler, without a server: for a server of the program
    /// (controller-runtime: `StandaloneWebhook`). It also answers `/readyz`.
    ///
    /// # Errors
    /// When two of them have one path.
    pub fn handler(&self) -> Result<Handler, Error> {
        let shared = self.shared();
        let health = self.readiness.health().handler();
        let mut router = Router::new()
            .with("/readyz", Arc::clone(&health))?
            .with("/readyz/", health)?;
        for target in &self.targets {
            let limit = match target {
                Target::Admission(_) => self.body_limit,
                Target::Conversion(_) => self.conversion_body_limit,
            };
            let path = target.path().to_owned();
            let handler = target.clone().handler(shared.clone(), limit);
            router = router.with(path, handler)?;
        }
        Ok(router.into_handler())
    }

    /// The server without a socket, a certificate and limits of bodies, for tests: see [`InProcess`](crate::testing::InProcess).
    ///
    /// # Errors
    /// When two webhooks have one path.
    #[cfg(feature = "testing")]
    pub fn in_process(&self) -> Result<crate::testing::InProcess, Error> {
        self.handler()?;
        let targets = self.targets.clone();
        Ok(crate::testing::InProcess::new(targets, self.shared()))
    }

    /// What the calls of one server share.
    fn shared(&self) -> Shared {
        Shared {
            metrics: self.metrics.clone(),
            places: Arc::new(Semaphore::new(self.most_calls)),
            budget: Budget::mebibytes(self.memory),
        }
    }

    /// The time to linger, and the limits with the time to drain.
    fn stop(&self) -> (Duration, Limits) {
        let limits = self.limits;
        let Some(time) = self.stop_within else {
            return (self.linger, limits);
        };
        let linger = self.linger.min(time / 3 * 2);
        let drain = limits.drain.min(time.saturating_sub(linger));
        (linger, limits.drain(drain))
    }

    /// Loads the certificate and binds the address.
    ///
    /// # Errors
    /// When the address cannot be bound, the certificate cannot be used, or two webhooks have one path.
    pub async fn bind(self) -> Result<Bound, Error> {
        let handler = self.handler()?;
        let (linger, limits) = self.stop();
        let mut certificates = match self.certificate {
            Certificate::SelfSigned => Certificates::self_signed(&self.clock)?,
            Certificate::Files { chain, key } => Certificates::from_files(chain, key).await?,
            Certificate::Ready(certificates) => certificates,
        };
        if let Some(file) = self.client_authorities {
            certificates = certificates.with_client_authorities(file).await?;
        }
        let certificates = certificates.counted_in(&self.certificate_metrics);
        let server = HttpServer::bind("webhook", self.address, handler)
            .await?
            .limits(limits)
            .task_per_request()
            .tls(certificates.clone(), self.http2)?;
        Ok(Bound {
            address: server.local_addr()?,
            server,
            certificates,
            readiness: self.readiness,
            linger,
        })
    }
}

// === impl Bound ===

impl Bound {
    /// The address, with the port that was chosen.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The readiness of the server.
    #[must_use]
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// The certificate of the server.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Serves until `stop`. Then `/readyz` fails, the server goes on for its [linger](Server::linger), and closes: clients
    /// of HTTP/2 get a GOAWAY, and calls in work are answered. [`Server::stop_within`] limits both times.
    ///
    /// # Errors
    /// When the server fails.
    pub async fn run(self, stop: CancellationToken) -> io::Result<()> {
        let end = CancellationToken::new();
        let serving = self.server.run(end.clone());
        tokio::pin!(serving);
        let stopping = async {
            stop.cancelled().await;
            self.readiness.stop();
            sleep(self.linger).await;
        };
        tokio::select! {
            biased;
            result = &mut serving => return result,
            () = stopping => end.cancel(),
        }
        serving.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_stop_leaves_a_third_for_calls_in_work() {
        let seconds = Duration::from_secs;
        let stop = |server: Server| {
            let (linger, limits) = server.stop();
            (linger, limits.drain)
        };
        let server = || Server::at(([127, 0, 0, 1], 0).into());
        for (within, expected) in [
            (None, (15, 30)),
            (Some(60), (15, 30)),
            (Some(45), (15, 30)),
            (Some(27), (15, 12)),
            (Some(9), (6, 3)),
            (Some(0), (0, 0)),
        ] {
            let server = match within {
                Some(within) => server().stop_within(seconds(within)),
                None => server(),
            };
            let expected = (seconds(expected.0), seconds(expected.1));
            assert_eq!(stop(server), expected, "{within:?}");
        }
        // What is shorter already stays, and the smaller of two limits counts.
        let short = server()
            .linger(seconds(1))
            .limits(|limits| limits.drain(seconds(2)));
        assert_eq!(
            stop(short.stop_within(seconds(30))),
            (seconds(1), seconds(2))
        );
        let twice = server().stop_within(seconds(9)).stop_within(seconds(30));
        assert_eq!(stop(twice), (seconds(6), seconds(3)));
    }
}

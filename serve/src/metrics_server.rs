//! The metrics server: `/metrics`, debug pages and routes of the program on one address, behind TLS and a filter.
//!
//! controller-runtime: `metrics/server.Options`.
//!
//! Without the feature `tls`, `bind` refuses a [secure](MetricsServer::secure) server with an error that names the feature.
//!
//! ```
//! use reeve_serve::metrics::handler;
//! use reeve_serve::metrics_server::{Certificate, MetricsServer, Parts};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let metrics = handler(|| "# EOF\n".to_owned());
//! let server = MetricsServer::at(([0, 0, 0, 0], 8443).into()).secure(Certificate::SelfSigned);
//! let server = server.bind(Parts::new(metrics, reeve_clock::Clock::system())).await?;
//! # Ok(())
//! # }
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reeve_clock::Clock;

use crate::access::{Access, Reviewer};
#[cfg(feature = "tls")]
use crate::certificates::{self, Certificates};
use crate::debug::{self, Control, Page, Pages};
use crate::http::{Handler, Limits, RouteError, Router, Server};

/// Time for an answer of a protected server, which waits for reviews.
const PROTECTED_ANSWER: Duration = Duration::from_secs(30);

/// The configuration of a metrics server.
#[must_use]
#[derive(Clone)]
pub struct MetricsServer {
    address: SocketAddr,
    /// The certificate of HTTPS.
    secure: Option<Certificate>,
    http2: bool,
    client_authorities: Option<PathBuf>,
    protected: bool,
    pages: Pages,
    more: Vec<(String, Handler)>,
    limits: Limits,
}

/// The parts of a metrics server that the program has, and not its configuration.
#[must_use]
pub struct Parts {
    metrics: Handler,
    clock: Clock,
    pages: Vec<Page>,
    controls: Vec<Control>,
    reviewer: Option<Arc<dyn Reviewer>>,
    #[cfg(feature = "tls")]
    certificates: certificates::Metrics,
}

/// The certificate of a metrics server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Certificate {
    /// A self-signed one.
    SelfSigned,
    /// These PEM files, read again when they change.
    Files {
        /// The certificate and its chain.
        chain: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// Certificates that the program has.
    #[cfg(feature = "tls")]
    Ready(Certificates),
}

// === impl Certificate ===

#[cfg(feature = "tls")]
impl Certificate {
    async fn load(self, clock: &Clock) -> Result<Certificates, certificates::Error> {
        match self {
            Self::SelfSigned => Certificates::self_signed(clock),
            Self::Files { chain, key } => Certificates::from_files(chain, key).await,
            Self::Ready(certificates) => Ok(certificates),
        }
    }
}

// === impl MetricsServer ===

impl MetricsServer {
    /// Plain HTTP on `address`: `/metrics` for every client, debug pages for [`Pages::Local`]. Port 0 takes a free one.
    pub fn at(address: SocketAddr) -> Self {
        Self {
            address,
            secure: None,
            http2: false,
            client_authorities: None,
            protected: false,
            pages: Pages::default(),
            more: Vec::new(),
            limits: Limits::default(),
        }
    }

    /// Serves HTTPS (controller-runtime: `SecureServing`), without HTTP/2 unless [`MetricsServer::http2`] is set.
    pub fn secure(mut self, certificate: Certificate) -> Self {
        self.secure = Some(certificate);
        self
    }

    /// Whether to offer HTTP/2 over HTTPS (kubebuilder: `--enable-http2`, off). Of no effect in plain HTTP.
    pub fn http2(mut self, offered: bool) -> Self {
        self.http2 = offered;
        self
    }

    /// Accepts only clients with a certificate that one of the authorities in this PEM file signed; see
    /// [`Certificates::with_client_authorities`]. It needs [`MetricsServer::secure`]. Clients of a
    /// [protected](MetricsServer::protected) server still need a token. (controller-runtime: `TLSOpts` with `ClientAuth` and
    /// `ClientCAs`.)
    pub fn client_authorities(mut self, file: impl Into<PathBuf>) -> Self {
        self.client_authorities = Some(file.into());
        self
    }

    /// Puts the filter of [`access`](crate::access) in front of all paths. Debug pages are then served to every user that may
    /// get them. An answer may take 30 s, since a review is tried again when it fails.
    pub fn protected(mut self) -> Self {
        self.protected = true;
        self
    }

    /// Sets the clients that may get the debug pages without the filter.
    pub fn debug_pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }

    /// Adds a route, as [`Router::with`] does (controller-runtime: `ExtraHandlers`).
    pub fn handler(mut self, path: impl Into<String>, handler: Handler) -> Self {
        self.more.push((path.into(), handler));
        self
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Binds the address, and puts the server together.
    ///
    /// # Errors
    /// When the address cannot be bound, the certificate or the authorities cannot be used, clients need certificates
    /// and the server is without HTTPS, the server is protected and `parts` has no reviewer, or two handlers have one path.
    /// Without the feature `tls`, also when the server is [secure](MetricsServer::secure).
    pub async fn bind(self, parts: Parts) -> Result<Server, Error> {
        let mut handler = self.router(&parts)?.into_handler();
        let mut limits = self.limits;
        if self.secure.is_none() && self.client_authorities.is_some() {
            return Err(Error::Plain);
        }
        #[cfg(not(feature = "tls"))]
        if self.secure.is_some() {
            return Err(Error::NoTls);
        }
        if self.protected {
            if self.secure.is_none() && !self.address.ip().is_loopback() {
                tracing::warn!(
                    "the metrics server takes tokens over plain HTTP: anyone on the network can read and use them"
                );
            }
            let reviewer = parts.reviewer.ok_or(Error::NoReviewer)?;
            handler = Access::shared(reviewer, parts.clock.clone()).protect(handler);
            limits.answer_timeout = limits.answer_timeout.max(PROTECTED_ANSWER);
        }
        let server = Server::bind("metrics", self.address, handler).await?;
        #[cfg(feature = "tls")]
        let server = match self.secure {
            None => server,
            Some(certificate) => {
                let mut certificates = certificate.load(&parts.clock).await?;
                if let Some(file) = self.client_authorities {
                    certificates = certificates.with_client_authorities(file).await?;
                }
                server.tls(certificates.counted_in(&parts.certificates), self.http2)?
            }
        };
        Ok(server.limits(limits))
    }

    fn router(&self, parts: &Parts) -> Result<Router, RouteError> {
        let mut router = Router::new().with("/metrics", Arc::clone(&parts.metrics))?;
        for (path, handler) in debug::routes(&parts.pages, self.pages, self.protected) {
            router = router.with(path, handler)?;
        }
        let controls = parts.controls.iter();
        for (path, handler) in
            controls.filter_map(|control| control.route(self.pages, self.protected))
        {
            router = router.with(path, handler)?;
        }
        for (path, handler) in &self.more {
            router = router.with(path.as_str(), Arc::clone(handler))?;
        }
        Ok(router)
    }
}

// === impl Parts ===

impl Parts {
    /// Parts with the handler of `/metrics`, and no others.
    pub fn new(metrics: Handler, clock: Clock) -> Self {
        Self {
            metrics,
            clock,
            pages: Vec::new(),
            controls: Vec::new(),
            reviewer: None,
            #[cfg(feature = "tls")]
            certificates: certificates::Metrics::default(),
        }
    }

    /// Sets the debug pages.
    pub fn pages(mut self, pages: Vec<Page>) -> Self {
        self.pages = pages;
        self
    }

    /// Sets the settings that are changed while the program runs.
    pub fn controls(mut self, controls: Vec<Control>) -> Self {
        self.controls = controls;
        self
    }

    /// Sets the reviewer that a [protected](MetricsServer::protected) server uses.
    pub fn reviewer(mut self, reviewer: Arc<dyn Reviewer>) -> Self {
        self.reviewer = Some(reviewer);
        self
    }

    /// Counts the reads of certificates in `metrics`.
    #[cfg(feature = "tls")]
    pub fn certificates(mut self, metrics: certificates::Metrics) -> Self {
        self.certificates = metrics;
        self
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("pages", &self.pages)
            .field("controls", &self.controls)
            .field("reviewer", &self.reviewer.is_some())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for MetricsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetricsServer")
            .field("address", &self.address)
            .field("secure", &self.secure)
            .field("http2", &self.http2)
            .field("client_authorities", &self.client_authorities)
            .field("protected", &self.protected)
            .field("pages", &self.pages)
            .finish_non_exhaustive()
    }
}

/// Why a metrics server cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be bound.
    #[error(transparent)]
    Bind(#[from] std::io::Error),
    /// The certificate cannot be used.
    #[cfg(feature = "tls")]
    #[error("the metrics server: {0}")]
    Certificate(#[from] certificates::Error),
    /// The server is secure, and the program is built without the feature `tls`.
    #[error(
        "the metrics server: HTTPS needs the feature `tls` of reeve-serve, with which this program was not built"
    )]
    NoTls,
    /// Clients need certificates, and the server is without HTTPS.
    #[error("the metrics server: authorities of clients need HTTPS")]
    Plain,
    /// The server is protected, and there is no reviewer.
    #[error("the metrics server: a protected server needs a reviewer")]
    NoReviewer,
    /// Two handlers have one path.
    #[error("the metrics server: {0}")]
    Route(#[from] RouteError),
}

//! What the metrics server of a manager serves, and to whom.
//!
//! `/metrics`, the pages of [`debug`], and handlers of the program's own, on one address.
//! controller-runtime: `metrics/server.Options`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use reeve_clock::Clock;

use crate::access::Access;
use crate::certificates::{self, Certificates};
use crate::client::Client;
use crate::debug::{self, Pages};
use crate::metrics::Metrics;
use crate::server::{Handler, Limits, RouteError, Router, Server};

/// How long an answer of a protected server may take.
const PROTECTED_ANSWER: Duration = Duration::from_secs(30);

/// The metrics server of a manager; see [`manager::Builder::metrics_server`](crate::manager::Builder::metrics_server).
#[must_use]
#[derive(Clone)]
pub struct MetricsServer {
    address: SocketAddr,
    /// HTTPS, with this.
    secure: Option<Certificate>,
    http2: bool,
    client_authorities: Option<PathBuf>,
    protected: bool,
    pages: Pages,
    more: Vec<(String, Handler)>,
    limits: Limits,
}

/// The certificate of a metrics server.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// One that nobody signed.
    SelfSigned,
    /// These PEM files, read again when they change.
    Files {
        /// The certificate and its chain.
        chain: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// These, which the program has.
    Ready(Certificates),
}

// === impl Certificate ===

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
    /// Plain HTTP on `address`, `/metrics` for everybody, the pages of [`debug`] for [`Pages::Local`]. Port 0
    /// takes a free one.
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

    /// Serves HTTPS (controller-runtime: `SecureServing`), without HTTP/2 unless [`MetricsServer::http2`] says so.
    pub fn secure(mut self, certificate: Certificate) -> Self {
        self.secure = Some(certificate);
        self
    }

    /// Whether to offer HTTP/2 over HTTPS (kubebuilder: `--enable-http2`, off). Of no effect in plain HTTP.
    pub fn http2(mut self, offered: bool) -> Self {
        self.http2 = offered;
        self
    }

    /// Takes connections only of clients with a certificate that one of the authorities in this PEM file signed; see
    /// [`Certificates::with_client_authorities`]. It needs [`MetricsServer::secure`], and comes before
    /// [`MetricsServer::protected`]: who has a certificate still needs a token then. (controller-runtime: `TLSOpts` with
    /// `ClientAuth` and `ClientCAs`.)
    pub fn client_authorities(mut self, file: impl Into<PathBuf>) -> Self {
        self.client_authorities = Some(file.into());
        self
    }

    /// Lets in only who the API server says may come in: see [`access`](crate::access). All paths are protected, and the
    /// pages of [`debug`] are served to all who may. An answer may take 30 s then, for the API server is asked again
    /// when it fails.
    pub fn protected(mut self) -> Self {
        self.protected = true;
        self
    }

    /// Who may see `/debug/queues` and `/debug/informers`.
    pub fn debug_pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }

    /// Serves `path`, too, as [`Router::with`] does (controller-runtime: `ExtraHandlers`).
    pub fn handler(mut self, path: impl Into<String>, handler: Handler) -> Self {
        self.more.push((path.into(), handler));
        self
    }

    /// Sets other limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Binds it.
    ///
    /// # Errors
    /// When the address cannot be bound, the certificate or the authorities cannot be used, clients are to have
    /// certificates without HTTPS, or two handlers want one path.
    pub(crate) async fn bind(
        self,
        metrics: &Metrics,
        client: Client,
        sources: &debug::Sources,
    ) -> Result<Server, Error> {
        let mut handler = self.router(metrics, sources)?.into_handler();
        let mut limits = self.limits;
        if self.secure.is_none() && self.client_authorities.is_some() {
            return Err(Error::Plain);
        }
        if self.protected {
            if self.secure.is_none() && !self.address.ip().is_loopback() {
                tracing::warn!(
                    "the metrics server asks for tokens over plain HTTP: whoever listens can use them"
                );
            }
            handler = Access::new(client, sources.clock.clone()).protect(handler);
            limits.answer_timeout = limits.answer_timeout.max(PROTECTED_ANSWER);
        }
        let mut server = Server::bind("metrics", self.address, handler).await?;
        if let Some(certificate) = self.secure {
            let mut certificates = certificate.load(&sources.clock).await?;
            if let Some(file) = self.client_authorities {
                certificates = certificates.with_client_authorities(file).await?;
            }
            server = server.tls(certificates.counted_in(metrics), self.http2)?;
        }
        Ok(server.limits(limits))
    }

    fn router(&self, metrics: &Metrics, sources: &debug::Sources) -> Result<Router, RouteError> {
        let mut router = Router::new().with("/metrics", metrics.handler())?;
        for (path, handler) in sources.handlers(self.pages, self.protected) {
            router = router.with(path, handler)?;
        }
        for (path, handler) in &self.more {
            router = router.with(path.as_str(), handler.clone())?;
        }
        Ok(router)
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
    #[error("the metrics server: {0}")]
    Certificate(#[from] certificates::Error),
    /// Clients are to have certificates, and it is plain HTTP.
    #[error("the metrics server: authorities of clients need HTTPS")]
    Plain,
    /// Two handlers want one path.
    #[error("the metrics server: {0}")]
    Route(#[from] RouteError),
}

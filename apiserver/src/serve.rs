//! The server on a socket: HTTP/1.1 and HTTP/2, plain or over TLS.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reeve_serve::certificates::Certificates;
use reeve_serve::http::{Body, CancellationToken, Handler, Limits, Server, hang_up, listen};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::identity::Authority;
use crate::kubeconfig::{Access, kubeconfig};
use crate::service::Service;
use crate::tls::{Tls, TlsError};
use crate::user_certificate::UserCertificate;

/// Pause before a listener that could not be opened again is tried once more.
const LISTEN_PAUSE: Duration = Duration::from_millis(100);

/// The reason why an address is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// No certificate could be made.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A served address. Dropping it stops serving there.
pub struct Serving {
    address: SocketAddr,
    is_secure: bool,
    authority: Option<(String, Arc<Authority>)>,
    token: Option<String>,
    stop: CancellationToken,
    task: Option<tokio::task::JoinHandle<()>>,
}

/// How an address is served.
pub(crate) enum Transport {
    /// HTTP.
    Plain,
    /// HTTPS, with a certificate of the authority of the server.
    OwnAuthority,
    /// HTTPS, with certificates and authorities of clients from elsewhere.
    #[cfg(feature = "program")]
    Certificates(Certificates),
}

// === impl Serving ===

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Serving {
    pub(crate) async fn start(
        service: Service,
        address: SocketAddr,
        transport: Transport,
        token: Option<String>,
    ) -> Result<Self, ServeError> {
        let core = service.core();
        let bind = |source| ServeError::Bind { address, source };
        let listener = listen(address).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let (authority, certificates) = match transport {
            Transport::Plain => (None, None),
            Transport::OwnAuthority => {
                let authority = core.identity.authority().map_err(TlsError::from)?;
                let tls = Tls::generate(address.ip(), &core.options.tls_san, &authority)?;
                let authority = (tls.authority, Arc::new(authority));
                (Some(authority), Some(tls.certificates))
            }
            #[cfg(feature = "program")]
            Transport::Certificates(certificates) => (None, Some(certificates)),
        };
        let is_secure = certificates.is_some();
        // Refuses a certificate that is not usable before the task starts.
        let server = server(&service, listener, certificates.as_ref())?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(service, server, address, certificates, stop.clone()));
        Ok(Self {
            address,
            is_secure,
            authority,
            token,
            stop,
            task: Some(task),
        })
    }

    /// The address, with the port that was chosen.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// `http://…` or `https://…`. For the address of all interfaces (`0.0.0.0`, `[::]`), to which no client can connect
    /// everywhere, it has loopback.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        format!("{scheme}://{address}")
    }

    /// The token of the administrator, where requests need one.
    #[cfg(feature = "program")]
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The certificate authority for clients to trust, PEM; `None` without TLS.
    #[must_use]
    pub fn certificate_authority(&self) -> Option<&str> {
        self.authority.as_ref().map(|(pem, _)| pem.as_str())
    }

    /// A certificate that makes its holder the user `user`, in `group`: an identity as most clusters give to people. It is
    /// valid for this address only, unless the server has a data directory; `None` without TLS.
    ///
    /// # Errors
    /// When it cannot be made, as for a name that a certificate cannot have.
    pub fn user_certificate(
        &self,
        user: &str,
        group: Option<&str>,
    ) -> Result<Option<UserCertificate>, TlsError> {
        let Some((_, authority)) = &self.authority else {
            return Ok(None);
        };
        Ok(Some(UserCertificate::issue(user, group, authority)?))
    }

    /// A kubeconfig for the administrator at this address.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_with(self.token.as_deref())
    }

    /// A kubeconfig for this address with a bearer token, or without credentials.
    #[must_use]
    pub fn kubeconfig_with(&self, token: Option<&str>) -> String {
        kubeconfig(&Access {
            url: &self.url(),
            authority: self.certificate_authority(),
            token,
            certificate: None,
        })
    }

    /// A kubeconfig for this address with a client certificate.
    #[must_use]
    pub fn kubeconfig_of(&self, certificate: &UserCertificate) -> String {
        kubeconfig(&Access {
            url: &self.url(),
            authority: self.certificate_authority(),
            token: None,
            certificate: Some(certificate),
        })
    }

    /// Stops serving: no new connections, open requests have two seconds, watches end at once.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            // The task ends by itself; an error means that it was aborted.
            let _ = task.await;
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Within the limits of a real server, where it has them: its header of 1 MiB, its 250 requests at once over HTTP/2, its
/// 90 s for an idle connection.
fn limits() -> Limits {
    Limits::default()
        .header_timeout(Duration::from_secs(30))
        .idle(Duration::from_secs(90))
        .header_bytes(1024 * 1024)
        .headers(100)
        // Watches, and the faults of a test, have no time limit.
        .answer_timeout(Duration::MAX)
        .connections(4096)
        .streams(250)
        // Clients that are tested against slow answers cancel many requests.
        .given_up(1000)
        .drain(Duration::from_secs(2))
}

fn server(
    service: &Service,
    listener: TcpListener,
    certificates: Option<&Certificates>,
) -> Result<Server, TlsError> {
    let service = service.clone();
    let handler: Handler = Arc::new(move |request| {
        let answer = service.clone().answer(request);
        Box::pin(async move {
            match answer.await {
                Ok(answer) => answer.map(Body::pieces),
                Err(error) => {
                    tracing::debug!(%error, "closed without an answer");
                    hang_up()
                }
            }
        })
    });
    let server = Server::on("API", listener, handler).limits(limits());
    match certificates {
        Some(certificates) => Ok(server.tls(certificates.clone(), true)?),
        None => Ok(server.plain_http2()),
    }
}

/// Serves while the API server is up; closes the socket while it is down.
async fn run(
    service: Service,
    first: Server,
    address: SocketAddr,
    certificates: Option<Certificates>,
    stop: CancellationToken,
) {
    let core = service.core();
    let mut up = core.up.subscribe();
    let mut next = Some(first);
    loop {
        let open = match next.take() {
            Some(server) => server,
            None => tokio::select! {
                biased;
                () = stop.cancelled() => return,
                server = reopen(&service, address, certificates.as_ref()) => server,
            },
        };
        {
            let closing = CancellationToken::new();
            let serving = open.run(closing.clone());
            tokio::pin!(serving);
            let stopped = tokio::select! {
                biased;
                () = stop.cancelled() => true,
                () = becomes(&mut up, false) => false,
                _ = serving.as_mut() => return,
            };
            if stopped {
                closing.cancel();
                core.close_watches();
                // The listener was bound before, so nothing can fail.
                let _ = serving.await;
                return;
            }
            // Dropping the future breaks its connections, as if the process had been killed.
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = becomes(&mut up, true) => {}
        }
    }
}

/// Listens at the same address again.
async fn reopen(
    service: &Service,
    address: SocketAddr,
    certificates: Option<&Certificates>,
) -> Server {
    loop {
        let opened = listen(address).map_err(|source| ServeError::Bind { address, source });
        match opened.and_then(|listener| Ok(server(service, listener, certificates)?)) {
            Ok(server) => return server,
            Err(error) => {
                tracing::warn!(%error, "trying again");
                sleep(LISTEN_PAUSE).await;
            }
        }
    }
}

/// Waits for a switch. A switch that was dropped counts as set.
async fn becomes(switch: &mut watch::Receiver<bool>, to: bool) {
    let _ = switch.wait_for(|value| *value == to).await;
}

//! The server on a socket: HTTP/1.1 and HTTP/2, plain or over TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::core::Core;
use crate::kubeconfig::{Access, kubeconfig};
use crate::service::Service;
use crate::tls::{Tls, TlsError};

/// How long a client may take to send the head of a request, or its TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// How long open requests may go on when the server stops.
const GRACE: Duration = Duration::from_secs(2);

/// Why an address is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// No certificate could be made.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// An address that is served. Dropping it stops serving there.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    authority: Option<String>,
    token: Option<String>,
    stop: watch::Sender<bool>,
    task: Option<tokio::task::JoinHandle<()>>,
}

// === impl Serving ===

impl Serving {
    pub(crate) async fn start(
        core: Arc<Core>,
        address: SocketAddr,
        tls: bool,
        token: Option<String>,
    ) -> Result<Self, ServeError> {
        let listener = bind(address).await?;
        let address = listener
            .local_addr()
            .map_err(|source| ServeError::Bind { address, source })?;
        let tls = if tls {
            let authority = core.identity.authority().map_err(TlsError::from)?;
            Some(Tls::generate(address.ip(), &authority)?)
        } else {
            None
        };
        let authority = tls.as_ref().map(|tls| tls.authority.clone());
        let stop = watch::Sender::new(false);
        let task = tokio::spawn(run(core, listener, address, tls, stop.subscribe()));
        Ok(Self {
            address,
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

    /// `http://…` or `https://…`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.authority.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.address)
    }

    /// The certificate authority that clients are to trust, PEM; `None` without TLS.
    #[must_use]
    pub fn certificate_authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// A kubeconfig that reaches the server here as its administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_with(self.token.as_deref())
    }

    /// A kubeconfig that reaches the server here with a bearer token, or without credentials.
    #[must_use]
    pub fn kubeconfig_with(&self, token: Option<&str>) -> String {
        kubeconfig(&Access {
            url: &self.url(),
            authority: self.authority.as_deref(),
            token,
        })
    }

    /// Stops serving: no new connections, open requests have two seconds, watches end at once.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
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

async fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ServeError::Bind { address, source })
}

/// Serves while the server is up; closes the socket while it is down.
async fn run(
    core: Arc<Core>,
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    mut stop: watch::Receiver<bool>,
) {
    let mut up = core.up.subscribe();
    let mut listener = Some(listener);
    loop {
        let open = match listener.take() {
            Some(listener) => listener,
            None => match bind(address).await {
                Ok(listener) => listener,
                Err(error) => {
                    tracing::warn!(%error, "trying again");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let mut connections = JoinSet::new();
        let (closing, closed) = watch::channel(false);
        let stopped = loop {
            tokio::select! {
                biased;
                () = becomes(&mut stop, true) => break true,
                () = becomes(&mut up, false) => break false,
                Some(_) = connections.join_next() => {}
                accepted = open.accept() => match accepted {
                    Ok((stream, _)) => {
                        let service = Service::new(core.clone());
                        connections.spawn(connection(stream, tls.clone(), service, closed.clone()));
                    }
                    // Out of file descriptors, or a client that left: give it time.
                    Err(_) => sleep(Duration::from_millis(10)).await,
                },
            }
        };
        drop(open);
        closing.send_replace(true);
        if stopped {
            core.close_watches();
            let _ = timeout(GRACE, async {
                while connections.join_next().await.is_some() {}
            })
            .await;
            return;
        }
        // The server is down as if it had been killed: connections break.
        connections.shutdown().await;
        tokio::select! {
            biased;
            () = becomes(&mut stop, true) => return,
            () = becomes(&mut up, true) => {}
        }
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<Tls>,
    service: Service,
    closed: watch::Receiver<bool>,
) {
    // Small frames of a watch must not wait for one another.
    let _ = stream.set_nodelay(true);
    match tls {
        None => speak(stream, service, closed).await,
        Some(tls) => match timeout(HANDSHAKE, tls.acceptor.accept(stream)).await {
            Ok(Ok(stream)) => speak(stream, service, closed).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake"),
            Err(_) => tracing::debug!("TLS handshake took too long"),
        },
    }
}

/// Waits for a switch. A switch that is gone counts as one that was turned.
async fn becomes(switch: &mut watch::Receiver<bool>, to: bool) {
    let _ = switch.wait_for(|value| *value == to).await;
}

async fn speak<S>(stream: S, service: Service, mut closed: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250);
    let connection =
        builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        biased;
        result = connection.as_mut() => Some(result),
        () = becomes(&mut closed, true) => None,
    };
    let result = match ended {
        Some(result) => result,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection");
    }
}

//! A kube client that finds a dead peer, uses the proxy only for clusters that need it, and retries nothing by itself.
//!
//! Against `kube_client::Client::try_from(config)`:
//! * nothing is retried inside (`default_retry = false`). kube-client repeats a request that was answered with 429, 503
//!   or 504 up to 15 times before its caller sees the answer: an informer then sends several times the requests that
//!   its [reflector](crate::reflector) allows, and waits for a minute where it should react at once. Back-off belongs to
//!   the reflector and the queue, which know what a retry means;
//! * connecting is bounded (10 s, with TLS 15 s), TCP keepalive and, on Linux, `TCP_USER_TIMEOUT` find a peer that is gone
//!   within 45 s;
//! * `NO_PROXY` is matched against the cluster's address. kube-client 5.0 matches it against the proxy's own;
//! * each request names the program in `User-Agent`;
//! * data that was not delivered when a connection is closed is discarded, so that a write does not arrive minutes
//!   after its process has ended.
//!
//! ```no_run
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! use reeve_informer::connect;
//! let client = connect::infer(&connect::Options::new().user_agent("greeter/1.2")).await?;
//! # Ok(()) }
//! ```

mod proxy;

use std::time::Duration;

use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube_client::client::{Body, ConfigExt};
use kube_client::config::InferConfigError;
use kube_client::{Client, Config};
use tokio::net::TcpStream;
use tower::timeout::Timeout;
use tower::util::{BoxCloneSyncService, MapFuture, MapResponse};
use tower::{BoxError, Service, ServiceBuilder};

use crate::transport::error_chain;
use proxy::{Environment, proxy_for};

/// How long a TCP connection may take to be made.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may take to be made, TLS included.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a peer may leave sent data unacknowledged before the connection is given up.
pub const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(45);

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment names no cluster.
    #[error(
        "the environment names no cluster: {}; set KUBECONFIG, or run in a Pod",
        error_chain(source)
    )]
    Infer {
        /// What was tried.
        source: Box<InferConfigError>,
    },
    /// The configuration does not make a client.
    #[error(
        "the client configuration for {url} is not usable: {}",
        error_chain(source)
    )]
    Configuration {
        /// The cluster.
        url: Box<Uri>,
        /// What is wrong.
        source: Box<kube_client::Error>,
    },
    /// The proxy's protocol is not spoken.
    #[error("the proxy {proxy} is not usable: only http proxies are supported")]
    Proxy {
        /// The proxy, without credentials.
        proxy: Box<Uri>,
    },
}

/// How a client presents itself.
#[derive(Clone, Debug, Default)]
pub struct Options {
    user_agent: Option<String>,
}

/// What [`service`] makes: sends requests to one cluster.
pub type Connected = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

// === impl Options ===

impl Options {
    /// The default: `reeve/<version>`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the program in every request: `name/version` by custom.
    #[must_use]
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = Some(user_agent.into());
        self
    }
}

/// A client for the cluster that the environment names: `KUBECONFIG`, `~/.kube/config`, or the Pod's service account.
///
/// # Errors
/// When it names none, or the configuration is not usable.
pub async fn infer(options: &Options) -> Result<Client, Error> {
    let config = Config::infer().await.map_err(|source| Error::Infer {
        source: Box::new(source),
    })?;
    connect(config, options)
}

/// A client for `config`. Must be called inside a tokio runtime; nothing is sent yet.
///
/// # Errors
/// When the certificates, the credentials or the proxy are not usable.
pub fn connect(config: Config, options: &Options) -> Result<Client, Error> {
    let namespace = config.default_namespace.clone();
    Ok(Client::new(
        service(config, options, Ok::<_, BoxError>)?,
        namespace,
    ))
}

/// What [`connect`] makes a client of. `seal` sees each request last, when it is authenticated and about to be sent: it may
/// refuse it, or change its body.
///
/// # Errors
/// As [`connect`].
pub fn service<B, E>(
    mut config: Config,
    options: &Options,
    seal: impl Fn(Request<Body>) -> Result<Request<B>, E> + Clone + Send + Sync + 'static,
) -> Result<Connected, Error>
where
    B: http_body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    E: Into<BoxError> + Send + 'static,
{
    config.default_retry = false;
    let agent = options.user_agent.clone();
    let agent = agent.unwrap_or_else(|| concat!("reeve/", env!("CARGO_PKG_VERSION")).to_owned());
    if let Ok(value) = HeaderValue::from_str(&agent) {
        config.headers.push((http::header::USER_AGENT, value));
    }
    let proxy = proxy_for(
        &config.cluster_url,
        config.proxy_url.as_ref(),
        &Environment::read(),
    );
    match proxy {
        None => stack(&config, tcp(), seal),
        Some(proxy) if proxy.uri().scheme_str() == Some("http") => {
            let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp());
            if let Some(auth) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(auth.clone());
            }
            stack(&config, tunnel, seal)
        }
        Some(proxy) => Err(Error::Proxy {
            proxy: Box::new(proxy.uri().clone()),
        }),
    }
}

/// Connects, and see [`discarding`].
type Connector = MapResponse<HttpConnector, fn(TokioIo<TcpStream>) -> TokioIo<TcpStream>>;

fn tcp() -> Connector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_nodelay(true);
    connector.set_keepalive(Some(Duration::from_secs(30)));
    connector.set_keepalive_interval(Some(Duration::from_secs(5)));
    connector.set_keepalive_retries(Some(3));
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    connector.set_tcp_user_timeout(Some(DEAD_PEER_TIMEOUT));
    MapResponse::new(connector, discarding as fn(_) -> _)
}

/// Discards what is not delivered when the connection is closed. Otherwise the kernel goes on trying for minutes, and
/// the last write of a process that has exited arrives when a partition heals.
fn discarding(stream: TokioIo<TcpStream>) -> TokioIo<TcpStream> {
    if let Err(error) = stream.inner().set_zero_linger() {
        tracing::debug!(%error, "a closed connection will deliver what was written");
    }
    stream
}

fn stack<C, B, E>(
    config: &Config,
    connector: C,
    seal: impl Fn(Request<Body>) -> Result<Request<B>, E> + Clone + Send + Sync + 'static,
) -> Result<Connected, Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: hyper_util::client::legacy::connect::Connection
        + hyper::rt::Read
        + hyper::rt::Write
        + Send
        + Unpin
        + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
    B: http_body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    E: Into<BoxError> + Send + 'static,
{
    let unusable = |source: kube_client::Error| Error::Configuration {
        url: Box::new(config.cluster_url.clone()),
        source: Box::new(source),
    };
    let https = config
        .rustls_https_connector_with_connector(connector)
        .map_err(unusable)?;
    let http: hyper_util::client::legacy::Client<_, B> =
        hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(90))
            .build(MapFuture::new(
                Timeout::new(https, HANDSHAKE_TIMEOUT),
                Box::pin,
            ));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(unusable)?)
        .layer(config.extra_headers_layer().map_err(unusable)?)
        .map_err(BoxError::from)
        .service(tower::service_fn(move |request| {
            let sent = seal(request).map(|request| http.request(request));
            async move {
                match sent {
                    Ok(answer) => answer.await.map_err(BoxError::from),
                    Err(refused) => Err(refused.into()),
                }
            }
        }));
    Ok(BoxCloneSyncService::new(service))
}

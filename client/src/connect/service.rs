//! The layers of a request: headers, credentials, TLS, and the TCP connection with its time-outs.

use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube_client::Config;
use kube_client::client::{Body, ConfigExt};
use reeve_clock::Clock;
use tokio::net::TcpStream;
use tower::timeout::Timeout;
use tower::util::{BoxCloneSyncService, MapFuture, MapResponse};
use tower::{BoxError, Service, ServiceBuilder};

use super::credentials::{redacted, redacted_start};
use super::identity::{Connections, Source};
use super::proxy::{Environment, proxy_for};
use super::{Error, Options};

/// Time limit of a TCP connect.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit of a connect with TLS.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);

/// Time after which unacknowledged data closes the connection.
pub const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(45);

/// An error from before a connection had the request: of its credentials, for example.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unsent(#[source] BoxError);

/// The result of [`service`]: sends requests to one cluster.
pub(super) type Connected = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

/// The service below a kube client of [`connect`](super::connect). `seal` gets each request last, authenticated and about to be sent: it may
/// refuse it, or change its body.
///
/// # Errors
/// As [`connect`](super::connect).
pub(super) fn service<B, E>(
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
    let encrypts = config.cluster_url.scheme_str() == Some("https");
    if !super::cryptography::install() && encrypts {
        return Err(Error::NoCryptography);
    }
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
        None => stack(config, tcp(), seal),
        Some(proxy) if proxy.uri().scheme_str() == Some("http") => {
            let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp());
            if let Some(auth) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(auth.clone());
            }
            stack(config, tunnel, seal)
        }
        Some(proxy) => Err(Error::Proxy {
            proxy: Box::new(proxy.uri().clone()),
        }),
    }
}

/// A TCP connector with [`discarding`].
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

/// Discards undelivered data when the connection is closed. Otherwise the kernel retries for minutes, and the last
/// write of a process that has exited arrives when a partition heals.
fn discarding(stream: TokioIo<TcpStream>) -> TokioIo<TcpStream> {
    if let Err(error) = stream.inner().set_zero_linger() {
        tracing::debug!(%error, "could not set SO_LINGER: a closed connection may still deliver written data");
    }
    stream
}

/// Marks all errors but those of a connection.
fn unsent(error: BoxError) -> BoxError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&*error);
    while let Some(error) = cause.filter(|cause| !cause.is::<hyper_util::client::legacy::Error>()) {
        cause = error.source();
    }
    if cause.is_some() {
        return error;
    }
    Unsent(error).into()
}

fn stack<C, B, E>(
    mut config: Config,
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
    let url = config.cluster_url.clone();
    let unusable = |source: kube_client::Error| Error::Configuration {
        url: Box::new(url.clone()),
        source: Box::new(redacted_start(source)),
    };
    let source = Source::take(&mut config.auth_info, &Clock::system())
        .map_err(|error| unusable(kube_client::Error::Service(error.into())))?;
    let (base, headers) = (config.base_uri_layer(), config.extra_headers_layer());
    let (auth, headers) = (
        config.auth_layer().map_err(unusable)?,
        headers.map_err(unusable)?,
    );
    let connections = Connections::new(source.first_pair(), move |pair| {
        let mut config = config.clone();
        if let Some(pair) = pair {
            pair.set(&mut config.auth_info);
        }
        let https = config.rustls_https_connector_with_connector(connector.clone())?;
        let http: hyper_util::client::legacy::Client<_, B> =
            hyper_util::client::legacy::Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(Duration::from_secs(90))
                .build(MapFuture::new(
                    Timeout::new(https, HANDSHAKE_TIMEOUT),
                    Box::pin,
                ));
        Ok(http)
    });
    let connections = Arc::new(connections.map_err(unusable)?);
    let service = ServiceBuilder::new()
        .map_err(unsent)
        .map_err(redacted)
        .layer(base)
        .option_layer(auth)
        .layer(headers)
        .service(tower::service_fn(move |mut request: Request<Body>| {
            let (source, connections) = (source.clone(), Arc::clone(&connections));
            let seal = seal.clone();
            async move {
                let has_own = request.headers().contains_key(AUTHORIZATION);
                let identity = source.identity(has_own).await?;
                if let Some(token) = &identity.token {
                    request.headers_mut().insert(AUTHORIZATION, token.clone());
                }
                // The next request asks for another certificate.
                let rejected = || source.rejected(identity.number);
                let connections = connections.of(&identity, rejected)?;
                let request = seal(request).map_err(Into::<BoxError>::into)?;
                let answer = connections.request(request).await?;
                if answer.status() == StatusCode::UNAUTHORIZED {
                    source.rejected(identity.number);
                }
                Ok::<_, BoxError>(answer)
            }
        }));
    Ok(BoxCloneSyncService::new(service))
}

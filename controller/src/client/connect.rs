//! A kube client that notices a dead peer, goes through the proxy only when it should, and leaves retrying to
//! whoever asked.
//!
//! Against `kube_client::Client::try_from(config)`:
//! * connecting is bounded (10 s, with TLS 15 s), TCP keepalive and, on Linux, `TCP_USER_TIMEOUT` find a peer that is gone
//!   within 45 s;
//! * nothing is retried inside (`default_retry = false`): back-off belongs to the queue, the reflector and
//!   the elector, which know what a retry means;
//! * `NO_PROXY` is matched against the cluster's address. kube-client 5.0 matches it against the proxy's own;
//! * the program says who it is in `User-Agent`;
//! * what was not delivered when a connection is closed is discarded, so that a write does not arrive minutes after its
//!   process has ended;
//! * requests are counted (`rest_client_requests_total`) when a [`Metrics`] is given; those of a manager's parts are
//!   in any case.

use std::time::Duration;

use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube_client::Config;
use kube_client::client::{Body, ConfigExt};
use tokio::net::TcpStream;
use tower::timeout::Timeout;
use tower::util::{MapFuture, MapResponse};
use tower::{BoxError, Service, ServiceBuilder};

use super::location::Location;
use super::measure::counting;
use crate::leader_election::Gated;
use crate::metrics::Metrics;

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
    /// Neither a kubeconfig nor a service account was found.
    #[error(
        "no way to a cluster: there is no ~/.kube/config, and no service account ({}); set KUBECONFIG, or run in a Pod",
        crate::error_chain(in_cluster)
    )]
    NoCluster {
        /// Why the service account is none.
        in_cluster: Box<kube_client::config::InClusterError>,
    },
    /// A kubeconfig is not usable.
    #[error(
        "the kubeconfig {place} cannot be used: {}",
        crate::error_chain(source)
    )]
    Kubeconfig {
        /// Which.
        place: String,
        /// What is wrong.
        source: Box<kube_client::config::KubeconfigError>,
    },
    /// The configuration does not make a client.
    #[error(
        "the client configuration for {url} is not usable: {}",
        crate::error_chain(source)
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

/// What a client says of itself and where it counts.
#[derive(Clone, Debug, Default)]
pub struct Options {
    user_agent: Option<String>,
    metrics: Option<Metrics>,
}

// === impl Options ===

impl Options {
    /// The default: `reeve/<version>`, nothing counted.
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

    /// Counts requests there: those of a program without a manager. A manager counts the requests of its parts into its
    /// own metrics anyway, each once.
    #[must_use]
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }
}

/// A client for the cluster that the environment names: see [`location`](super::location).
///
/// # Errors
/// When it names none, or the configuration is not usable.
pub async fn infer(options: &Options) -> Result<kube_client::Client, Error> {
    locate(&Location::new(), options).await
}

/// A client for the cluster of `location`.
///
/// # Errors
/// When there is none, or the configuration is not usable.
pub async fn locate(location: &Location, options: &Options) -> Result<kube_client::Client, Error> {
    connect(location.load().await?, options)
}

/// A client for `config`. Must be called inside a tokio runtime; nothing is sent yet.
///
/// # Errors
/// When the certificates, the credentials or the proxy are not usable.
pub fn connect(mut config: Config, options: &Options) -> Result<kube_client::Client, Error> {
    config.default_retry = false;
    let agent = options
        .user_agent
        .clone()
        .unwrap_or_else(|| concat!("reeve/", env!("CARGO_PKG_VERSION")).to_owned());
    if let Ok(value) = HeaderValue::from_str(&agent) {
        config.headers.push((http::header::USER_AGENT, value));
    }
    let proxy = proxy_for(
        &config.cluster_url,
        config.proxy_url.as_ref(),
        &Environment::read(),
    );
    match proxy {
        None => stack(&config, tcp(), options),
        Some(proxy) if proxy.uri().scheme_str() == Some("http") => {
            let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp());
            if let Some(auth) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(auth.clone());
            }
            stack(&config, tunnel, options)
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
/// the last write of a process that has exited because it lost its lease arrives when a partition heals.
fn discarding(stream: TokioIo<TcpStream>) -> TokioIo<TcpStream> {
    if let Err(error) = stream.inner().set_zero_linger() {
        tracing::debug!(%error, "a closed connection will deliver what was written");
    }
    stream
}

fn stack<C>(config: &Config, connector: C, options: &Options) -> Result<kube_client::Client, Error>
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
{
    let unusable = |source: kube_client::Error| Error::Configuration {
        url: Box::new(config.cluster_url.clone()),
        source: Box::new(source),
    };
    let https = config
        .rustls_https_connector_with_connector(connector)
        .map_err(unusable)?;
    let http: hyper_util::client::legacy::Client<_, Gated<Body>> =
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
        .service(tower::service_fn(move |request| {
            // Made, authenticated and about to be sent: a write asks here whether it still may be.
            let sent = Gated::request(request).map(|request| http.request(request));
            async move {
                match sent {
                    Ok(answer) => answer.await.map_err(BoxError::from),
                    Err(closed) => Err(closed.into()),
                }
            }
        }));
    let host = config.cluster_url.authority().map(ToString::to_string);
    let counted = counting(service, options.metrics.clone(), host.unwrap_or_default());
    Ok(kube_client::Client::new(
        counted,
        config.default_namespace.clone(),
    ))
}

/// The proxy variables, under both spellings.
#[derive(Debug, Default)]
struct Environment {
    https_proxy: Option<String>,
    http_proxy: Option<String>,
    no_proxy: Option<String>,
}

// === impl Environment ===

impl Environment {
    fn read() -> Self {
        let get = |upper: &str| {
            std::env::var(upper)
                .or_else(|_| std::env::var(upper.to_lowercase()))
                .ok()
                .filter(|value| !value.is_empty())
        };
        Self {
            https_proxy: get("HTTPS_PROXY"),
            http_proxy: get("HTTP_PROXY"),
            no_proxy: get("NO_PROXY"),
        }
    }
}

/// The proxy to reach `cluster` through. What the kubeconfig names is used as it is; what the environment
/// names only if `NO_PROXY` does not name the cluster, and never for loopback (Go: `http.ProxyFromEnvironment`).
fn proxy_for(
    cluster: &Uri,
    configured: Option<&Uri>,
    environment: &Environment,
) -> Option<Intercept> {
    // kube-client puts the environment's proxy into the same field as the kubeconfig's.
    let from_environment = |uri: &Uri| {
        let parsed = environment
            .https_proxy
            .as_deref()
            .and_then(|proxy| proxy.parse::<Uri>().ok());
        parsed.as_ref() == Some(uri)
    };
    if let Some(uri) = configured.filter(|uri| !from_environment(uri)) {
        return Matcher::builder()
            .all(uri.to_string())
            .build()
            .intercept(cluster);
    }
    let host = cluster.host().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    if host == "localhost" || address.is_ok_and(|address| address.is_loopback()) {
        return None;
    }
    let mut matcher = Matcher::builder();
    if let Some(proxy) = &environment.https_proxy {
        matcher = matcher.https(proxy.clone());
    }
    if let Some(proxy) = &environment.http_proxy {
        matcher = matcher.http(proxy.clone());
    }
    if let Some(exceptions) = &environment.no_proxy {
        matcher = matcher.no(exceptions.clone());
    }
    matcher.build().intercept(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_is_matched_against_the_cluster() {
        let proxy = "http://10.0.0.9:3128/";
        let environment = |no_proxy: &str| Environment {
            https_proxy: Some(proxy.into()),
            http_proxy: None,
            no_proxy: (!no_proxy.is_empty()).then(|| no_proxy.into()),
        };
        let by_kube: Uri = proxy.parse().unwrap();
        let other: Uri = "http://kubeconfig.proxy:1/".parse().unwrap();
        for (case, cluster, configured, no_proxy, expected) in [
            (
                "by default",
                "https://cluster.local:6443",
                Some(&by_kube),
                "",
                Some("10.0.0.9"),
            ),
            (
                "in a Pod too",
                "https://cluster.local:6443",
                None,
                "",
                Some("10.0.0.9"),
            ),
            (
                "cluster named",
                "https://cluster.local:6443",
                Some(&by_kube),
                "cluster.local",
                None,
            ),
            (
                "domain named",
                "https://cluster.local:6443",
                Some(&by_kube),
                ".local",
                None,
            ),
            (
                "network named",
                "https://10.1.2.3:6443",
                Some(&by_kube),
                "10.1.0.0/16",
                None,
            ),
            (
                "proxy named is no exception",
                "https://cluster.local:6443",
                Some(&by_kube),
                "10.0.0.9",
                Some("10.0.0.9"),
            ),
            (
                "kubeconfig wins",
                "https://cluster.local:6443",
                Some(&other),
                "cluster.local",
                Some("kubeconfig.proxy"),
            ),
            (
                "loopback is direct",
                "https://127.0.0.1:6443",
                Some(&by_kube),
                "",
                None,
            ),
            (
                "v6 loopback is direct",
                "https://[::1]:6443",
                Some(&by_kube),
                "",
                None,
            ),
        ] {
            let found = proxy_for(
                &cluster.parse().unwrap(),
                configured,
                &environment(no_proxy),
            );
            let host = found.as_ref().and_then(|found| found.uri().host());
            assert_eq!(host, expected, "{case}");
        }
    }
}

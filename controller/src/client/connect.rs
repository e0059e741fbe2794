//! A kube client that notices a dead peer, goes through the proxy only when it should, and leaves retrying to
//! whoever asked.
//!
//! It is [`reeve_informer::connect`], with two things more:
//! * a write under a lease asks for the lease once more when it is about to be sent;
//! * requests are counted (`rest_client_requests_total`) when a [`Metrics`] is given; those of a manager's parts are
//!   in any case.

use kube_client::Config;
pub use reeve_informer::connect::{CONNECT_TIMEOUT, DEAD_PEER_TIMEOUT, HANDSHAKE_TIMEOUT};

use super::location::Location;
use super::measure::counting;
use crate::leader_election::Gated;
use crate::metrics::Metrics;

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
    #[error(transparent)]
    Connect(#[from] reeve_informer::connect::Error),
}

/// What a client says of itself and where it counts.
#[derive(Clone, Debug, Default)]
pub struct Options {
    connect: reeve_informer::connect::Options,
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
        self.connect = self.connect.user_agent(user_agent);
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
pub fn connect(config: Config, options: &Options) -> Result<kube_client::Client, Error> {
    let (host, namespace) = (
        config.cluster_url.authority().map(ToString::to_string),
        config.default_namespace.clone(),
    );
    // Made, authenticated and about to be sent: a write asks here whether it still may be.
    let service = reeve_informer::connect::service(config, &options.connect, Gated::request)?;
    let counted = counting(service, options.metrics.clone(), host.unwrap_or_default());
    Ok(kube_client::Client::new(counted, namespace))
}

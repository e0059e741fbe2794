//! Errors of making a client.

use http::Uri;
use kube_client::config::{InClusterError, KubeconfigError};

use crate::error_chain;

/// The reason why no client could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither a kubeconfig nor a service account was found.
    #[error(
        "could not find a cluster: there is no ~/.kube/config, and no service account ({}); set KUBECONFIG, or run in a Pod",
        error_chain(in_cluster)
    )]
    NoCluster {
        /// The error of the service account.
        in_cluster: Box<InClusterError>,
    },
    /// A kubeconfig is invalid.
    #[error("the kubeconfig {place} cannot be used: {}", error_chain(source))]
    Kubeconfig {
        /// The kubeconfig.
        place: String,
        /// The cause.
        source: Box<KubeconfigError>,
    },
    /// The configuration is invalid.
    #[error(
        "the client configuration for {url} is not usable: {}",
        error_chain(source)
    )]
    Configuration {
        /// The cluster.
        url: Box<Uri>,
        /// The cause.
        source: Box<kube_client::Error>,
    },
    /// The cluster is reached by HTTPS, and the program has no provider of cryptography.
    #[error(
        "TLS has no provider of cryptography: enable the feature ring or aws-lc-rs of reeve-client, or install a provider with rustls' CryptoProvider::install_default before connecting"
    )]
    NoCryptography,
    /// The protocol of the proxy is not supported.
    #[error("the proxy {proxy} is not usable: only http proxies are supported")]
    Proxy {
        /// The proxy, without credentials.
        proxy: Box<Uri>,
    },
}

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
    #[error(
        "the kubeconfig {place} cannot be used: {}",
        kubeconfig_fault(place, fault)
    )]
    Kubeconfig {
        /// The kubeconfig.
        place: String,
        /// The cause. It is not the `source`: the text has it, with the file named once.
        fault: Box<KubeconfigError>,
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

/// What is wrong with the kubeconfig `place`. The file is named once.
fn kubeconfig_fault(place: &str, source: &KubeconfigError) -> String {
    match source {
        KubeconfigError::ReadConfig(error, path) if path.to_str() == Some(place) => {
            error.to_string()
        }
        KubeconfigError::ReadConfig(error, path) => {
            format!("cannot read {}: {error}", path.display())
        }
        source => error_chain(source).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_that_cannot_be_read_is_named_once() {
        let fault = |place: &str| {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            let fault = Box::new(KubeconfigError::ReadConfig(missing, "/k/config".into()));
            let place = place.to_owned();
            Error::Kubeconfig { place, fault }.to_string()
        };
        assert_eq!(
            fault("/k/config"),
            "the kubeconfig /k/config cannot be used: entity not found"
        );
        assert_eq!(
            fault("of KUBECONFIG"),
            "the kubeconfig of KUBECONFIG cannot be used: cannot read /k/config: entity not found"
        );
    }
}

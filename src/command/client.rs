//! The way to the cluster.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use reeve_controller::client::connect;
use reeve_controller::metrics::Metrics;

use crate::reconcile::resolve;

/// How to reach the cluster.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(super) struct Arguments {
    /// The kubeconfig to use. Unset: the one of the environment variable KUBECONFIG, ~/.kube/config, or the
    /// service account of the Pod.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig; unset, its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Why there is no way to the cluster.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the kubeconfig {path} cannot be used")]
    Kubeconfig {
        path: PathBuf,
        #[source]
        source: Box<KubeconfigError>,
    },
    #[error(transparent)]
    Connect(#[from] connect::Error),
}

// === impl Arguments ===

impl Arguments {
    /// The API server's addresses, as far as they can be known: they are never banned.
    pub(super) async fn server(&self) -> Vec<IpAddr> {
        let config = match self.path() {
            None => Config::infer().await.ok(),
            Some(path) => self.config(&path).await.ok(),
        };
        let Some(url) = config.map(|config| config.cluster_url) else {
            return Vec::new();
        };
        let host = url.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match resolve(host, url.port_u16().unwrap_or(443)).await {
            Ok(addresses) => addresses,
            Err(error) => {
                tracing::warn!(
                    host,
                    error,
                    "the API server's addresses are not known, and not protected"
                );
                Vec::new()
            }
        }
    }

    /// A client, counting its requests in `metrics`.
    pub(super) async fn client(&self, metrics: &Metrics) -> Result<kube_client::Client, Error> {
        let options = connect::Options::new()
            .user_agent(concat!("ipblock-operator/", env!("CARGO_PKG_VERSION")))
            .metrics(metrics);
        let Some(path) = self.path() else {
            return Ok(connect::infer(&options).await?);
        };
        Ok(connect::connect(self.config(&path).await?, &options)?)
    }

    fn path(&self) -> Option<PathBuf> {
        self.kubeconfig.clone().or_else(|| {
            // A context can only be chosen in a file, so the file is looked up here as well.
            self.context.as_ref()?;
            std::env::var_os("KUBECONFIG").map(PathBuf::from)
        })
    }

    async fn config(&self, path: &Path) -> Result<Config, Error> {
        let wrong = |source: KubeconfigError| Error::Kubeconfig {
            path: path.to_owned(),
            source: Box::new(source),
        };
        let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
        let chosen = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        Config::from_custom_kubeconfig(kubeconfig, &chosen)
            .await
            .map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_server_of_a_kubeconfig_is_known_by_address() {
        let path = std::env::temp_dir().join(format!("kubeconfig-{}", std::process::id()));
        let text = "{apiVersion: v1, kind: Config, current-context: a, \
            contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}], \
            clusters: [{name: a, cluster: {server: 'https://192.0.2.9:6443'}}]}";
        std::fs::write(&path, text).unwrap();
        let arguments = Arguments {
            kubeconfig: Some(path.clone()),
            context: None,
        };
        let addresses = arguments.server().await;
        std::fs::remove_file(&path).unwrap();
        assert_eq!(addresses, ["192.0.2.9".parse::<IpAddr>().unwrap()]);
    }
}

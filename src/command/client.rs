//! The connection to the cluster.

use std::net::IpAddr;

use reeve_controller::client::connect;
use reeve_controller::client::location::Location;
use reeve_controller::metrics::Metrics;
use reeve_controller::options::Program;

use crate::names::resolve;

/// The `User-Agent`.
const PROGRAM: Program = Program::new("ipblock-operator", env!("CARGO_PKG_VERSION"));

/// The API server's addresses, as far as they can be resolved: they are never banned.
pub(super) async fn server(location: &Location) -> Vec<IpAddr> {
    let Ok(config) = location.load().await else {
        return Vec::new();
    };
    let url = config.cluster_url;
    let host = url.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match resolve(host, url.port_u16().unwrap_or(443)).await {
        Ok(addresses) => addresses,
        Err(error) => {
            tracing::warn!(
                host,
                error,
                "could not resolve the API server's addresses; they are not protected from bans"
            );
            Vec::new()
        }
    }
}

/// A client, counting its requests in `metrics`.
pub(super) async fn client(
    location: &Location,
    metrics: &Metrics,
) -> Result<kube_client::Client, connect::Error> {
    let options = connect::Options::new()
        .user_agent(PROGRAM.user_agent())
        .metrics(metrics);
    connect::locate(location, &options).await
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
        let addresses = server(&Location::new().kubeconfig(&path)).await;
        std::fs::remove_file(&path).unwrap();
        assert_eq!(addresses, ["192.0.2.9".parse::<IpAddr>().unwrap()]);
    }
}

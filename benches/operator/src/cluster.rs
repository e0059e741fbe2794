//! The real API server for the measured operators.

use std::path::PathBuf;

use kube_client::Client;
use reeve_apiserver::control_plane::ControlPlane;
use serde_json::{Value, json};

use crate::blocks::{Error, Result, send};

/// The bench's kube-apiserver and etcd.
pub(crate) struct Cluster {
    control_plane: ControlPlane,
}

/// Requests that the API server has answered so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requests {
    /// Writes of IPBlocks and Events, by any client.
    pub(crate) writes: u64,
}

// === impl Cluster ===

impl Cluster {
    pub(crate) async fn start() -> Result<Self> {
        let control_plane = ControlPlane::builder().start().await.map_err(setup)?;
        Ok(Self { control_plane })
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        self.control_plane.client().map_err(setup)
    }

    pub(crate) async fn write_kubeconfig(&self) -> Result<PathBuf> {
        let path =
            std::env::temp_dir().join(format!("operator-bench-{}.kubeconfig", std::process::id()));
        std::fs::write(&path, self.control_plane.kubeconfig())?;
        Ok(path)
    }

    pub(crate) fn stop_apiserver(&mut self) {
        self.control_plane.stop_apiserver();
    }

    pub(crate) async fn start_apiserver(&mut self) -> Result<()> {
        self.control_plane.start_apiserver().await.map_err(setup)
    }

    pub(crate) async fn stop(self) {
        drop(self.control_plane);
    }

    /// Counted by the API server itself.
    pub(crate) async fn requests(&self) -> Result<Requests> {
        let client = self.client().await?;
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let metrics = client.request_text(request).await?;
        let writes = metrics
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{"))
            .filter(|line| {
                ["POST", "PUT", "PATCH", "APPLY"]
                    .iter()
                    .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
            })
            .filter(|line| {
                ["ipblocks", "events"]
                    .iter()
                    .any(|name| line.contains(&format!("resource=\"{name}\"")))
            })
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum::<f64>();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count"
        )]
        Ok(Requests {
            writes: writes as u64,
        })
    }
}

fn setup(error: impl std::fmt::Display) -> Error {
    Error::Setup(error.to_string())
}

/// Installs the CRD and the configuration, and waits until blocks can be made.
pub(crate) async fn install(client: &Client, gateway: &str) -> Result<()> {
    let crd = serde_json::to_value(ipblock_operator::api::crd()).map_err(setup)?;
    send(
        client,
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "application/json",
        &crd,
    )
    .await?;
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "ipblock-operator-config", "namespace": "default"},
        "data": {"gatewayHost": gateway, "engine": "iptables", "whitelist": "", "trigger": "[]", "notifyType": ""},
    });
    send(
        client,
        "POST",
        "/api/v1/namespaces/default/configmaps",
        "application/json",
        &config,
    )
    .await?;
    for _ in 0..200 {
        let listed = send(
            client,
            "GET",
            "/apis/ops.yiiong.top/v1/ipblocks",
            "application/json",
            &Value::Null,
        )
        .await;
        if listed.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    Err(Error::Setup("the CRD is not served after 10 s".into()))
}

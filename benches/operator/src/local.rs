//! The operator beside an API server in this process: how it is installed, started and read.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipblock_operator::api;
use jiff::Timestamp;
use kube_client::Client;
use reeve_apiserver::{ApiServer, Serving};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::blocks::{Error, Result, send};
use crate::subject::{Recipe, Subject};

/// Where the lists are.
pub(crate) const LISTS: &str = "/apis/ops.yiiong.top/v1/namespaces/default/blocklists";

/// The first object of each kind.
const FIRST: [&str; 2] = [
    "/apis/ops.yiiong.top/v1/namespaces/default/ipblocks?limit=1",
    "/apis/ops.yiiong.top/v1/namespaces/default/blocklists?limit=1",
];

/// An API server in this process.
pub(crate) struct Local {
    pub(crate) client: Client,
    /// Where the operator serves its metrics.
    pub(crate) metrics: SocketAddr,
    kubeconfig: PathBuf,
    /// They serve until they are dropped.
    _server: ApiServer,
    _serving: Serving,
}

// === impl Local ===

impl Local {
    /// Starts an API server without objects, with TLS if `tls`. `bench` is a part of the name of its kubeconfig.
    pub(crate) async fn start(bench: &str, tls: bool) -> Result<Self> {
        let server = ApiServer::builder().record_requests(false).start().await;
        let server = server.map_err(setup)?;
        let serving = if tls {
            server.serve_tls(loopback(0)).await
        } else {
            server.serve(loopback(0)).await
        };
        let serving = serving.map_err(setup)?;
        let name = format!("operator-bench-{}.{bench}.kubeconfig", std::process::id());
        let kubeconfig = std::env::temp_dir().join(name);
        std::fs::write(&kubeconfig, serving.kubeconfig())?;
        Ok(Self {
            client: server.client(),
            metrics: free()?,
            kubeconfig,
            _server: server,
            _serving: serving,
        })
    }

    /// Adds the kinds and a ConfigMap with `data`, and waits until the kinds are served.
    pub(crate) async fn install(&self, data: &Value) -> Result<()> {
        for crd in api::crds() {
            let crd = serde_json::to_value(crd).map_err(setup)?;
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            send(&self.client, "POST", path, "application/json", &crd).await?;
        }
        let config = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "ipblock-operator-config", "namespace": "default"},
            "data": data,
        });
        let path = "/api/v1/namespaces/default/configmaps";
        send(&self.client, "POST", path, "application/json", &config).await?;
        for _ in 0..200 {
            if self.is_served().await {
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Err(Error::Setup("the kinds are not served after 10 s".into()))
    }

    async fn is_served(&self) -> bool {
        for path in FIRST {
            let listed = send(&self.client, "GET", path, "application/json", &Value::Null);
            if listed.await.is_err() {
                return false;
            }
        }
        true
    }

    /// How `operator` is started, with `more` arguments.
    pub(crate) fn recipe(&self, operator: PathBuf, log: PathBuf, more: &[&str]) -> Recipe {
        let mut args = vec![
            "run".to_owned(),
            "--namespace=default".to_owned(),
            "--insecure-triggers".to_owned(),
            format!("--metrics-bind-address={}", self.metrics),
            "--health-probe-bind-address=127.0.0.1:0".to_owned(),
        ];
        args.extend(more.iter().map(ToString::to_string));
        let kubeconfig = self.kubeconfig.display().to_string();
        Recipe {
            program: operator,
            args,
            environment: vec![("KUBECONFIG".into(), kubeconfig)],
            log,
        }
    }
}

/// The sum of the samples whose lines begin with `start`.
pub(crate) fn sum(metrics: &str, start: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(start));
    lines
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

/// The highest resident memory in megabytes, from `/proc`.
pub(crate) fn peak(subject: &Subject) -> f64 {
    subject.peak_bytes().unwrap_or_default() as f64 / 1e6
}

pub(crate) async fn fetch(address: SocketAddr, path: &str) -> Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: */*\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

pub(crate) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

pub(crate) fn free() -> Result<SocketAddr> {
    Ok(loopback(reeve_apiserver::free_port()?))
}

pub(crate) fn setup(error: impl std::fmt::Display) -> Error {
    Error::Setup(error.to_string())
}

#[allow(
    clippy::disallowed_methods,
    reason = "the bench makes objects with real times for an operator with a real clock"
)]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

//! `ccm dev`: an API server, three nodes, a cloud in memory and the controller in one process.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use reeve_apiserver::ApiServer;
use reeve_controller::client::{self, Client, Patch};
use reeve_controller::{CancellationToken, Manager, ObjectKey, serde_json};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::commands::Objects;
use crate::provider::memory::{self, Cloud};
use crate::settings::Settings;

/// The limit of each wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval of looks.
const LOOK: Duration = Duration::from_millis(200);

/// Reads that the transcript leaves out.
const READS: [&str; 4] = ["find", "describe", "groups", "listeners"];

/// A boxed error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A cluster and a cloud, and the controller between them.
pub struct Dev<W> {
    server: ApiServer,
    cloud: Cloud,
    client: Client,
    settings: Settings,
    out: W,
}

// === impl Dev ===

impl<W: Write> Dev<W> {
    /// Starts the API server on `clock`, and writes what happens to `out`.
    ///
    /// # Errors
    /// If the API server does not start.
    pub async fn start(clock: reeve_clock::Clock, out: W) -> Result<Self, BoxError> {
        let server = ApiServer::builder().clock(clock).start().await?;
        let client = Client::new(server.client());
        for number in 1..=3 {
            let node = json!({
                "metadata": {"name": format!("node-{number}")},
                "spec": {"providerID": format!("dev://zone/i-{number}")},
            });
            client
                .create(&serde_json::from_value::<Node>(node)?)
                .await?;
        }
        Ok(Self {
            server,
            cloud: Cloud::new(memory::Settings::default()),
            client,
            settings: Settings::new("dev".parse()?),
            out,
        })
    }

    /// The API server, to serve it to kubectl.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Runs the controller, and meanwhile `during`.
    ///
    /// # Errors
    /// Those of either.
    pub async fn run(
        &mut self,
        during: impl AsyncFnOnce(&mut Self) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let builder = Manager::builder(self.server.client()).clock(self.server.clock().clone());
        let cloud = Arc::new(self.cloud.clone());
        let manager = crate::build(builder, cloud, self.settings.clone()).await?;
        let stop = CancellationToken::new();
        let run = manager.run(stop.clone());
        let during = async {
            let result = during(self).await;
            stop.cancel();
            result
        };
        let (ran, result) = tokio::join!(run, during);
        ran?;
        result
    }

    /// Creates the Service `web`, moves a port and takes a node out, and deletes the Service again.
    ///
    /// # Errors
    /// If a step has no effect within a minute, or `out` fails.
    pub async fn tour(&mut self) -> Result<(), BoxError> {
        let key = ObjectKey::namespaced("default", "web");
        writeln!(self.out, "# A Service of type LoadBalancer")?;
        let service = json!({
            "metadata": {"namespace": "default", "name": "web"},
            "spec": {"type": "LoadBalancer", "selector": {"app": "web"},
                "ports": [{"port": 80, "nodePort": 30080}]},
        });
        let service: Service = serde_json::from_value(service)?;
        self.client.create(&service).await?;
        self.published(&key).await?;
        self.settle().await?;
        writeln!(
            self.out,
            "# Another bandwidth: the protection is lifted for it"
        )?;
        let patch = json!({"metadata": {"annotations": {"lb.reeve.dev/bandwidth": "50"}}});
        self.client
            .patch::<Service>(&key, Patch::merge(patch))
            .await?;
        self.settle().await?;
        writeln!(self.out, "# A node that is excluded")?;
        let label = "node.kubernetes.io/exclude-from-external-load-balancers";
        let patch = json!({"metadata": {"labels": {label: "true"}}});
        let node = ObjectKey::cluster("node-2");
        self.client
            .patch::<Node>(&node, Patch::merge(patch))
            .await?;
        self.settle().await?;
        writeln!(self.out, "# The plan of a Service that is as it should be")?;
        let objects = Objects::fetch(&key, &self.client).await?;
        let plan = objects.plan(&self.cloud, &self.settings).await?;
        write!(self.out, "{plan}")?;
        self.cloud.clear_calls();
        writeln!(self.out, "# The Service is deleted")?;
        self.client
            .delete::<Service>(&key, &Default::default())
            .await?;
        self.gone(&key).await?;
        self.show()?;
        writeln!(
            self.out,
            "the cloud has {} load balancers",
            self.cloud.all().len()
        )?;
        Ok(())
    }

    /// Shows the calls of the cloud until `stop`.
    ///
    /// # Errors
    /// If `out` fails.
    pub async fn follow(&mut self, stop: &CancellationToken) -> Result<(), BoxError> {
        while stop.run_until_cancelled(sleep(LOOK)).await.is_some() {
            self.show()?;
        }
        Ok(())
    }

    /// Writes a line.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.out, "{line}")
    }

    /// Writes the calls that changed the cloud since the last time.
    fn show(&mut self) -> io::Result<()> {
        let calls = self.cloud.calls();
        self.cloud.clear_calls();
        for call in calls.iter().filter(|call| !READS.contains(&call.name)) {
            write!(self.out, "cloud: {} {}", call.name, call.target)?;
            match &call.error {
                Some(code) => writeln!(self.out, ": {code}")?,
                None => writeln!(self.out)?,
            }
        }
        self.out.flush()
    }

    async fn published(&mut self, key: &ObjectKey) -> Result<(), BoxError> {
        let client = self.client.clone();
        let address = async {
            loop {
                let service = client.get::<Service>(key).await?;
                let status = service
                    .status
                    .and_then(|status| status.load_balancer?.ingress);
                if let Some(ip) = status.and_then(|all| all.into_iter().next()?.ip) {
                    return Ok::<_, client::Error>(ip);
                }
                sleep(LOOK).await;
            }
        };
        let address = timeout(PATIENCE, address).await??;
        self.settle().await?;
        writeln!(self.out, "Service web has the address {address}")?;
        Ok(())
    }

    async fn gone(&mut self, key: &ObjectKey) -> Result<(), BoxError> {
        let client = self.client.clone();
        let gone = async {
            while client::optional(client.get::<Service>(key).await)?.is_some() {
                sleep(LOOK).await;
            }
            Ok::<_, client::Error>(())
        };
        Ok(timeout(PATIENCE, gone).await??)
    }

    /// Waits until the cloud has no calls for a while, and shows them.
    async fn settle(&mut self) -> Result<(), BoxError> {
        let quiet = async {
            let mut seen = usize::MAX;
            while seen != self.cloud.calls().len() {
                seen = self.cloud.calls().len();
                sleep(LOOK * 5).await;
            }
        };
        timeout(PATIENCE, quiet).await?;
        Ok(self.show()?)
    }
}

impl<W> std::fmt::Debug for Dev<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dev")
            .field("cloud", &self.cloud)
            .finish_non_exhaustive()
    }
}

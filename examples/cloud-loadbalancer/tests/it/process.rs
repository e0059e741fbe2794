//! The controller as a process beside an API server with two nodes and one Service, for tests that kill it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use reeve_apiserver::{ApiServer, Serving};
use reeve_controller::client::{Patch, optional};
use reeve_controller::{Client, ObjectKey};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(120);
/// Numbers the folders of this process.
static SITES: AtomicUsize = AtomicUsize::new(0);

/// A controller process, killed when this is dropped.
pub(crate) struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An API server, a client of it, and the files of the controller.
pub(crate) struct Site {
    _api: ApiServer,
    _serving: Serving,
    client: Client,
    /// The kubeconfig and the access key of the controller.
    folder: PathBuf,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Site {
    /// The access key in the file is `key`, and the `providerID` of a node `provider_id` of its number.
    pub(crate) async fn new(key: &str, provider_id: impl Fn(u32) -> String) -> Self {
        let api = ApiServer::builder().start().await.unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let serving = api.serve(any).await.unwrap();
        let number = SITES.fetch_add(1, Ordering::Relaxed);
        let name = format!("ccm-killed-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("kubeconfig"), serving.kubeconfig()).unwrap();
        std::fs::write(folder.join("key"), key).unwrap();
        let site = Self {
            client: Client::new(api.client()),
            _api: api,
            _serving: serving,
            folder,
        };
        for number in 1..=2 {
            let node: Node = serde_json::from_value(json!({
                "metadata": { "name": format!("n{number}") },
                "spec": { "providerID": provider_id(number) },
            }))
            .unwrap();
            site.client.create(&node).await.unwrap();
        }
        site
    }

    /// Starts `ccm run` with the flags of its provider, where `KEY` is the file with the access key.
    pub(crate) fn start(&self, provider: &[&str]) -> Controller {
        let key = self.folder.join("key");
        let flags = provider.iter().map(|flag| match *flag {
            "KEY" => key.as_path(),
            flag => Path::new(flag),
        });
        let child = Command::new(env!("CARGO_BIN_EXE_ccm"))
            .args(["run", "--cluster-id", "test"])
            .args(flags)
            .arg("--kubeconfig")
            .arg(self.folder.join("kubeconfig"))
            .args(["--metrics-bind-address", "0"])
            .args(["--health-probe-bind-address", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Controller(child.unwrap())
    }

    fn key() -> ObjectKey {
        ObjectKey::namespaced("default", "web")
    }

    /// The Service, if it exists.
    pub(crate) async fn service(&self) -> Option<Service> {
        optional(self.client.get(&Self::key()).await).unwrap()
    }

    /// Creates the Service, with the ports 80 and 81 and more in its `spec`.
    pub(crate) async fn create(&self, more: Value) {
        let mut service = json!({
            "metadata": { "namespace": "default", "name": "web" },
            "spec": {
                "type": "LoadBalancer",
                "selector": { "app": "web" },
                "ports": [
                    { "name": "a", "port": 80, "targetPort": 8080 },
                    { "name": "b", "port": 81, "targetPort": 8081 },
                ],
            },
        });
        for (field, value) in more.as_object().unwrap() {
            service["spec"][field] = value.clone();
        }
        let service: Service = serde_json::from_value(service).unwrap();
        self.client.create(&service).await.unwrap();
    }

    /// Removes the second node and the port 81, and adds annotations.
    pub(crate) async fn shrink(&self, annotations: Value) {
        let node = ObjectKey::cluster("n2");
        let gone = self.client.delete::<Node>(&node, &Default::default()).await;
        gone.unwrap();
        let patch = Patch::merge(json!({
            "metadata": { "annotations": annotations },
            "spec": { "ports": [{ "name": "a", "port": 80, "targetPort": 8080 }] },
        }));
        let patched = self.client.patch::<Service>(&Self::key(), patch).await;
        patched.unwrap();
    }

    /// Deletes the Service.
    pub(crate) async fn delete(&self) {
        let deleted = self
            .client
            .delete::<Service>(&Self::key(), &Default::default())
            .await;
        deleted.unwrap();
    }
}

/// Waits until `holds`; `state` describes what is there instead.
pub(crate) async fn eventually(
    what: &str,
    mut holds: impl AsyncFnMut() -> bool,
    state: impl AsyncFn() -> String,
) {
    let until = Instant::now() + PATIENCE;
    while !holds().await {
        if Instant::now() >= until {
            panic!("not {what}: {}", state().await);
        }
        sleep(Duration::from_millis(50)).await;
    }
}

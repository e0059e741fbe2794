//! The two API servers a case runs against, and the content of the manifests.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use kube_client::Client;
use reeve_apiserver::assets;
use reeve_apiserver::control_plane::ControlPlane;

use serde_json::Value;

use crate::builtin::Builtin;

/// Which API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `reeve-apiserver` on loopback with TLS and RBAC.
    Builtin,
    /// etcd, kube-apiserver and kube-controller-manager.
    Real,
}

enum Server {
    Builtin(Builtin),
    /// Always there, until the case ends.
    Real(Option<Box<ControlPlane>>),
}

/// Control planes that no case uses now. A case takes one and leaves it here when it ends, so that as many are started
/// as cases run at once.
static IDLE: Mutex<Vec<ControlPlane>> = Mutex::new(Vec::new());

/// A control plane without objects of earlier cases; `None` when the case is skipped.
async fn real() -> Option<Box<ControlPlane>> {
    let builder = assets::control_plane()?;
    let idle = IDLE.lock().expect("no case panics here").pop();
    if let Some(control_plane) = idle {
        control_plane
            .remove_directory_at_exit(false)
            .expect("a case that panics keeps the logs");
        control_plane.reset().await.expect("a reset");
        return Some(Box::new(control_plane));
    }
    let control_plane = builder.controller_manager(true).start().await;
    Some(Box::new(control_plane.expect("the control plane starts")))
}

/// A running API server with a directory for the files of the case.
pub(crate) struct Cluster {
    server: Server,
    /// Whether the case took the API server away and did not bring it back.
    api_stopped: bool,
    directory: PathBuf,
}

// === impl Cluster ===

impl Cluster {
    /// `None` when the case is skipped because there is no real server.
    pub(crate) async fn start(kind: Kind) -> Option<Self> {
        let server = match kind {
            Kind::Builtin => Server::Builtin(Builtin::start().await),
            Kind::Real => Server::Real(Some(real().await?)),
        };
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("reeve-e2e-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the case");
        Some(Self {
            server,
            api_stopped: false,
            directory,
        })
    }

    fn control_plane(&self) -> &ControlPlane {
        match &self.server {
            Server::Real(Some(control_plane)) => control_plane,
            _ => unreachable!("only asked of a real server, which goes with the case"),
        }
    }

    pub(crate) fn client(&self) -> Client {
        match &self.server {
            Server::Builtin(builtin) => builtin.client(),
            Server::Real(_) => self.control_plane().client().expect("a client"),
        }
    }

    /// The administrator's kubeconfig, as text.
    fn kubeconfig(&self) -> String {
        match &self.server {
            Server::Builtin(builtin) => builtin.kubeconfig(),
            Server::Real(_) => self.control_plane().kubeconfig(),
        }
    }

    /// The API server's URL and the certificate of its authority.
    pub(crate) fn endpoint(&self) -> (String, String) {
        use base64::Engine as _;
        let config: Value = serde_saphyr::from_str(&self.kubeconfig()).expect("YAML");
        let cluster = &config["clusters"][0]["cluster"];
        let text = |key: &str| cluster[key].as_str().expect(key);
        let authority = base64::engine::general_purpose::STANDARD
            .decode(text("certificate-authority-data"))
            .expect("base64");
        let authority = String::from_utf8(authority).expect("PEM");
        (text("server").to_owned(), authority)
    }

    pub(crate) fn kubeconfig_file(&self) -> PathBuf {
        self.write("admin.kubeconfig", &self.kubeconfig())
    }

    /// The same cluster as another user: the one of `token`.
    pub(crate) fn kubeconfig_with_token(&self, token: &str) -> PathBuf {
        let mut config: Value =
            serde_saphyr::from_str(&self.kubeconfig()).expect("a kubeconfig is YAML");
        for user in config["users"].as_array_mut().expect("users") {
            user["user"] = serde_json::json!({"token": token});
        }
        self.write("operator.kubeconfig", &config.to_string())
    }

    /// Where the files of the case are.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.as_ref()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::write(&path, text).expect("a file of the case");
        path
    }

    /// Takes the API server away, connections and all; what it stored stays.
    pub(crate) fn stop_api(&mut self) {
        self.api_stopped = true;
        match &mut self.server {
            Server::Builtin(builtin) => builtin.stop(),
            Server::Real(control_plane) => {
                let control_plane = control_plane.as_mut().expect("it is there");
                control_plane.stop_apiserver();
            }
        }
    }

    /// Brings it back, at the same address.
    pub(crate) async fn start_api(&mut self) {
        self.api_stopped = false;
        match &mut self.server {
            Server::Builtin(builtin) => builtin.serve(),
            Server::Real(control_plane) => {
                let control_plane = control_plane.as_mut().expect("it is there");
                control_plane.start_apiserver().await.expect("it starts");
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Server::Real(control_plane) = &mut self.server
            && let Some(control_plane) = control_plane.take()
            && !self.api_stopped
            && !std::thread::panicking()
            && control_plane.remove_directory_at_exit(true).is_ok()
            && let Ok(mut idle) = IDLE.lock()
        {
            idle.push(*control_plane);
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub(crate) fn manifest_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests")
}

/// The documents of a YAML file.
pub(crate) fn documents(path: &Path) -> Vec<Value> {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    yaml(&text, &path.display().to_string())
}

/// The documents of a YAML text, which comes from `source`.
pub(crate) fn yaml(text: &str, source: &str) -> Vec<Value> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{source}: {error}"));
    documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect()
}

/// Every object that `kubectl apply -k manifests/` makes, in the order of kustomization.yaml.
pub(crate) fn manifests() -> Vec<Value> {
    let directory = manifest_directory();
    let kustomization = documents(&directory.join("kustomization.yaml"));
    let resources = kustomization[0]["resources"]
        .as_array()
        .expect("resources")
        .clone();
    resources
        .iter()
        .flat_map(|file| documents(&directory.join(file.as_str().expect("a file name"))))
        .collect()
}

fn one(kind: &str) -> Value {
    manifests()
        .into_iter()
        .find(|document| document["kind"] == kind)
        .unwrap_or_else(|| panic!("a {kind} in the manifests"))
}

/// The operator's container, as the Deployment has it.
pub(crate) fn container() -> Value {
    one("Deployment")["spec"]["template"]["spec"]["containers"][0].clone()
}

/// The data of the ConfigMap.
pub(crate) fn configuration() -> Value {
    one("ConfigMap")["data"].clone()
}

/// The name of the operator's ServiceAccount.
pub(crate) fn service_account() -> String {
    one("ServiceAccount")["metadata"]["name"]
        .as_str()
        .expect("a name")
        .to_string()
}

/// The container of the Job that the uninstall overlay makes.
pub(crate) fn uninstall_container() -> Value {
    let job = documents(&manifest_directory().join("overlays/uninstall/job.yaml"));
    job[0]["spec"]["template"]["spec"]["containers"][0].clone()
}

/// A container's arguments.
pub(crate) fn arguments(container: &Value) -> Vec<String> {
    let args = container["args"].as_array().expect("args");
    args.iter()
        .filter_map(|arg| arg.as_str())
        .map(String::from)
        .collect()
}

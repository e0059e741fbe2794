//! One case's surroundings: an API server, the manifests, a gateway, and operators to start and kill.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Request;
use kube_client::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, Kind, manifests};
use crate::gateway::Gateway;
use crate::kubectl::{self, Kubectl};
use crate::process::{Process, free_port, get};

/// How long anything may take to come true before the case fails. Real servers on a busy machine are slow at times.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const NAMESPACE: &str = "default";
const CONFIGURATION: &str = "/api/v1/namespaces/default/configmaps/ipblock-operator-config";
pub(crate) const BLOCKS: &str = "/apis/ops.yiiong.top/v1/namespaces/default/ipblocks";
const LISTS: &str = "/apis/ops.yiiong.top/v1/namespaces/default/blocklists";

/// An API server with the manifests applied, a gateway, and the means to check both.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) gateway: Gateway,
    /// The kubeconfig of the operator's ServiceAccount.
    account: PathBuf,
}

/// Runs one case on a server of `kind`. Cases share nothing, so as many run at once as the harness has threads.
pub(crate) fn run<C, F>(kind: Kind, case: C)
where
    C: FnOnce(World) -> F,
    F: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let Some(world) = World::start(kind).await else {
            return;
        };
        tokio::time::timeout(Duration::from_secs(240), case(world))
            .await
            .expect("a case ends within four minutes");
    });
}

// === impl World ===

impl World {
    async fn start(kind: Kind) -> Option<Self> {
        let cluster = Cluster::start(kind).await?;
        let client = cluster.client();
        let mut world = Self {
            cluster,
            client,
            gateway: Gateway::start().await,
            account: PathBuf::new(),
        };
        for document in manifests() {
            world.apply(world.at_this_gateway(document)).await;
        }
        for kind in [BLOCKS, LISTS] {
            // As a cache begins: for a moment kube-apiserver answers this with 429, when it serves other lists already.
            let first_page = format!("{kind}?limit=1&resourceVersion=0");
            world
                .until(&format!("{kind} is served"), async |world| {
                    let page = world.try_request("GET", &first_page, &Value::Null);
                    page.await.is_ok()
                })
                .await;
        }
        world.account = world.account_kubeconfig().await;
        Some(world)
    }

    /// The ConfigMap of the manifests names a gateway of the cluster; here it is the one of this case.
    fn at_this_gateway(&self, mut document: Value) -> Value {
        if document["kind"] == "ConfigMap" {
            document["data"]["gatewayHost"] = json!(self.gateway.address.to_string());
            document["data"]["engine"] = json!("iptables");
            // Several copies on one host cannot share the Deployment's port; cases that want a trigger name one.
            document["data"]["trigger"] = json!("[]");
        }
        document
    }

    // --- programs

    /// An operator with the Deployment's arguments and environment, its listeners on free ports.
    pub(crate) async fn operator(&self, pod: &str) -> Operator {
        self.operator_with(pod, &[]).await
    }

    pub(crate) async fn operator_with(&self, pod: &str, more: &[&str]) -> Operator {
        let container = crate::cluster::container();
        let (health, metrics) = (free_port(), free_port());
        let mut args = crate::cluster::arguments(&container);
        for arg in &mut args {
            if arg.starts_with("--health-probe-bind-address") {
                *arg = format!("--health-probe-bind-address=127.0.0.1:{health}");
            } else if arg.starts_with("--metrics-bind-address") {
                *arg = format!("--metrics-bind-address=127.0.0.1:{metrics}");
            }
        }
        args.push("--allow-loopback".into());
        // The files of a case lie where its cluster has its own.
        let files = self.cluster.directory();
        args.push(format!("--secrets-dir={}", files.display()));
        args.extend(more.iter().map(ToString::to_string));
        let operator = Operator {
            process: Process::operator(pod, &args, &self.environment(&container, pod)),
            health: SocketAddr::from(([127, 0, 0, 1], health)),
            metrics: SocketAddr::from(([127, 0, 0, 1], metrics)),
        };
        until("the operator is alive", async || {
            matches!(get(operator.health, "/healthz").await, Some((200, _)))
        })
        .await;
        operator
    }

    /// The container's environment as the kubelet would fill it in, and the kubeconfig that stands for the mounted token.
    pub(crate) fn environment(&self, container: &Value, pod: &str) -> Vec<(String, String)> {
        let mut environment = vec![("KUBECONFIG".to_string(), self.account.display().to_string())];
        for variable in container["env"].as_array().into_iter().flatten() {
            let name = variable["name"]
                .as_str()
                .expect("an environment variable has a name");
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some("metadata.name") => pod.to_string(),
                Some("metadata.namespace") => NAMESPACE.to_string(),
                Some("status.podIP" | "status.hostIP") => "127.0.0.1".to_string(),
                Some(other) => panic!("the test does not know how to fill in {name} from {other}"),
                None => variable["value"].as_str().unwrap_or("").to_string(),
            };
            environment.push((name.to_string(), value));
        }
        environment
    }

    /// kubectl as the cluster's administrator; `None` with a printed line if there is none.
    pub(crate) fn kubectl(&self) -> Option<Kubectl> {
        kubectl::of(self.cluster.kubeconfig_file())
    }

    /// A file of the case, as a mounted Secret would be.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        self.cluster.write(name, text)
    }

    // --- objects

    pub(crate) async fn try_request(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, kube_client::Error> {
        let kind = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind);
        let bytes = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        self.client
            .request(request.body(bytes).expect("a request"))
            .await
    }

    pub(crate) async fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_request(method, path, body)
            .await
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub(crate) async fn create(&self, name: &str, spec: Value) -> Value {
        let body = json!({"apiVersion": "ops.yiiong.top/v1", "kind": "IPBlock",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec});
        self.request("POST", BLOCKS, &body).await
    }

    pub(crate) async fn block(&self, name: &str) -> Option<Value> {
        self.try_request("GET", &format!("{BLOCKS}/{name}"), &Value::Null)
            .await
            .ok()
    }

    pub(crate) async fn blocks(&self) -> Vec<Value> {
        self.request("GET", BLOCKS, &Value::Null).await["items"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }

    pub(crate) async fn patch(&self, name: &str, body: Value) -> Value {
        self.request("PATCH", &format!("{BLOCKS}/{name}"), &body)
            .await
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.request("DELETE", &format!("{BLOCKS}/{name}"), &Value::Null)
            .await;
    }

    /// Changes keys of the ConfigMap; null removes one.
    pub(crate) async fn configure(&self, data: Value) {
        self.request("PATCH", CONFIGURATION, &json!({"data": data}))
            .await;
    }

    /// The data of the ConfigMap.
    pub(crate) async fn configuration(&self) -> Value {
        self.request("GET", CONFIGURATION, &Value::Null).await["data"].clone()
    }

    /// Replaces the data of the ConfigMap, in one write.
    pub(crate) async fn replace_configuration(&self, data: &Value) {
        let mut map = self.request("GET", CONFIGURATION, &Value::Null).await;
        map["data"] = data.clone();
        self.request("PUT", CONFIGURATION, &map).await;
    }

    pub(crate) async fn delete_configuration(&self) {
        self.request("DELETE", CONFIGURATION, &Value::Null).await;
    }

    pub(crate) async fn create_configuration(&self, data: &Value) {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "ipblock-operator-config", "namespace": NAMESPACE}, "data": data});
        self.apply(map).await;
    }

    async fn apply(&self, document: Value) {
        let (kind, name) = (
            document["kind"].as_str().expect("a kind"),
            document["metadata"]["name"].as_str().expect("a name"),
        );
        let collection = collection(
            kind,
            document["metadata"]["namespace"]
                .as_str()
                .unwrap_or(NAMESPACE),
        );
        let answer = self.try_request("POST", &collection, &document).await;
        assert!(answer.is_ok(), "{kind} {name} is applied: {answer:?}");
    }

    /// Deletes an object of the manifests.
    pub(crate) async fn delete_document(&self, document: &Value) {
        let path = path_of(document);
        self.request("DELETE", &path, &Value::Null).await;
    }

    pub(crate) async fn has_document(&self, document: &Value) -> bool {
        let path = path_of(document);
        self.try_request("GET", &path, &Value::Null).await.is_ok()
    }

    /// A kubeconfig with a token that the API server issued for the operator's ServiceAccount.
    async fn account_kubeconfig(&self) -> PathBuf {
        let account = crate::cluster::service_account();
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
        let answer = self.request("POST", &path, &review).await;
        let token = answer["status"]["token"].as_str().expect("a token");
        self.cluster.kubeconfig_with_token(token)
    }

    // --- checks

    /// Waits until the block is in `phase`; the block then.
    pub(crate) async fn phase(&self, name: &str, phase: &str) -> Value {
        self.shows(name, &format!("the phase {phase}"), |block| {
            block["status"]["phase"] == phase
        })
        .await
    }

    /// Waits until the message of the block has `text`; the block then.
    pub(crate) async fn message(&self, name: &str, text: &str) -> Value {
        self.shows(name, &format!("a message with {text:?}"), |block| {
            let message = block["status"]["message"].as_str();
            message.is_some_and(|message| message.contains(text))
        })
        .await
    }

    /// Waits until `reason` is why the block is ready or not; the block then.
    pub(crate) async fn reason(&self, name: &str, reason: &str) -> Value {
        self.shows(name, &format!("the reason {reason}"), |block| {
            let conditions = block["status"]["conditions"].as_array();
            conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Ready" && condition["reason"] == reason)
        })
        .await
    }

    async fn shows(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let block = self.block(name).await.unwrap_or_default();
            if holds(&block) {
                return block;
            }
            assert!(
                Instant::now() < deadline,
                "{name} has {what} within {PATIENCE:?}; it is {block:#}"
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the gateway enforces exactly `targets`.
    pub(crate) async fn enforces(&self, targets: &[&str]) {
        self.gateway.enforces(targets).await;
    }

    /// Events about an object, oldest first.
    pub(crate) async fn events(&self, name: &str) -> Vec<SeenEvent> {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events");
        let mut events: Vec<Value> = self.request("GET", &path, &Value::Null).await["items"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        events.retain(|event| event["regarding"]["name"] == name);
        events.sort_by_key(|event| event["eventTime"].as_str().unwrap_or("").to_string());
        let seen = events.iter().map(|event| SeenEvent {
            reason: event["reason"].as_str().unwrap_or_default().to_owned(),
            note: event["note"].as_str().unwrap_or_default().to_owned(),
            times: event["series"]["count"].as_u64().unwrap_or(1),
        });
        seen.collect()
    }

    /// Reasons of the Events about an object, oldest first.
    pub(crate) async fn event_reasons(&self, name: &str) -> Vec<String> {
        let events = self.events(name).await;
        events.into_iter().map(|event| event.reason).collect()
    }

    /// Waits until `check` holds.
    pub(crate) async fn until<C>(&self, what: &str, check: C)
    where
        C: AsyncFn(&Self) -> bool,
    {
        until(what, async || check(self).await).await;
    }
}

/// Waits until `check` holds.
pub(crate) async fn until(what: &str, check: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !check().await {
        assert!(Instant::now() < deadline, "within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(30)).await;
    }
}

/// An Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenEvent {
    pub(crate) reason: String,
    pub(crate) note: String,
    /// How often it was emitted with the same note.
    pub(crate) times: u64,
}

/// A running operator and where it listens.
pub(crate) struct Operator {
    pub(crate) process: Process,
    pub(crate) health: SocketAddr,
    pub(crate) metrics: SocketAddr,
}

// === impl Operator ===

impl Operator {
    /// Waits until the operator is ready: all of its caches are filled.
    pub(crate) async fn ready(&self) {
        until("the operator is ready", async || {
            matches!(get(self.health, "/readyz").await, Some((200, _)))
        })
        .await;
    }

    /// The sum of a metric's samples that have all of `labels` (`outcome="reset"`).
    pub(crate) async fn counted(&self, metric: &str, labels: &[&str]) -> f64 {
        let (_, page) = get(self.metrics, "/metrics").await.expect("metrics answer");
        page.lines()
            .filter_map(|line| {
                let (sample, value) = line.rsplit_once(' ')?;
                let (name, rest) = sample.split_once('{').unwrap_or((sample, ""));
                let meant = name == metric && labels.iter().all(|label| rest.contains(label));
                meant.then(|| value.parse::<f64>().ok())?
            })
            .sum()
    }
}

/// Where an object of the manifests is.
fn path_of(document: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or(NAMESPACE).to_owned();
    let metadata = &document["metadata"];
    let collection = collection(&text(&document["kind"]), &text(&metadata["namespace"]));
    format!("{collection}/{}", text(&metadata["name"]))
}

/// Where objects of a kind are made.
pub(crate) fn collection(kind: &str, namespace: &str) -> String {
    match kind {
        "CustomResourceDefinition" => {
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".into()
        }
        "ClusterRole" => "/apis/rbac.authorization.k8s.io/v1/clusterroles".into(),
        "ClusterRoleBinding" => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".into(),
        "Role" => format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles"),
        "RoleBinding" => {
            format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings")
        }
        "Deployment" => format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
        "ConfigMap" | "Secret" | "Service" | "ServiceAccount" => format!(
            "/api/v1/namespaces/{namespace}/{}s",
            kind.to_ascii_lowercase()
        ),
        "Lease" => format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
        "PodDisruptionBudget" => {
            format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
        }
        "Job" => format!("/apis/batch/v1/namespaces/{namespace}/jobs"),
        other => panic!("the test does not know where {other} objects are made"),
    }
}

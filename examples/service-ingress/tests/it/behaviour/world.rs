//! The environment of one case: an API server with the manifests applied, and programs to start and stop.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube_core::params::{DeleteParams, ListParams, Patch};
use reeve_apiserver::ApiServer;
use reeve_apiserver::rbac::User;
use reeve_apiserver::record::RequestRecord;
use reeve_clock::Clock;
use reeve_controller::client::{self, Client, Object};
use reeve_controller::{Manager, leader_election, manager};
use reeve_informer::ObjectKey;
use serde_json::{Value, json};
use service_ingress::desired::ANNOTATION;
use service_ingress::{Form, NAME, Settings};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// The limit of each wait in virtual time.
const PATIENCE: Duration = Duration::from_secs(600);
/// After this virtual time all effects of former steps have happened.
const QUIET: Duration = Duration::from_secs(30);

/// The interval of checks in virtual time: the server's log of requests is limited to 10,000.
const LOOK: Duration = Duration::from_millis(100);

/// The user name of the program's ServiceAccount.
const ACCOUNT: &str = "system:serviceaccount:default:mycontroller-sa";
const TOKEN: &str = "the program's";

/// An API server and an administrator's client.
pub(crate) struct World {
    pub(crate) form: Form,
    pub(crate) clock: Clock,
    pub(crate) server: ApiServer,
    /// The administrator's.
    pub(crate) client: Client,
}

/// A running program.
pub(crate) struct Running {
    pub(crate) manager: Manager,
    stop: CancellationToken,
    run: JoinHandle<Result<(), manager::Error>>,
}

/// Runs one case under paused time.
pub(crate) fn run(form: Form, case: impl AsyncFnOnce(World)) {
    // RUST_LOG=debug shows the steps of a case.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_test_writer()
        .try_init();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async { case(World::new(form).await).await });
}

/// The key of the object `name` in `default`.
pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

/// An object of the manifests.
pub(crate) fn manifest<K: Object>(file: &str) -> K {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("manifests")
        .join(file);
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

// === impl World ===

impl World {
    pub(crate) async fn new(form: Form) -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 7);
        Self::with(form, clock, |server| server).await
    }

    /// A world whose server is configured by `configure`.
    pub(crate) async fn with(
        form: Form,
        clock: Clock,
        configure: impl FnOnce(reeve_apiserver::Builder) -> reeve_apiserver::Builder,
    ) -> Self {
        let account = User::service_account("default", "mycontroller-sa", "");
        assert_eq!(account.name, ACCOUNT);
        let server = ApiServer::builder()
            .clock(clock.clone())
            .rbac()
            .token(TOKEN, account);
        let server = configure(server).start().await.unwrap();
        let client = Client::new(server.client());
        client
            .create(&manifest::<ClusterRole>("role/role.yaml"))
            .await
            .unwrap();
        client
            .create(&manifest::<ClusterRoleBinding>("role/rolebinding.yaml"))
            .await
            .unwrap();
        Self {
            form,
            clock,
            server,
            client,
        }
    }

    // --- programs

    pub(crate) fn settings(&self) -> Settings {
        Settings::new(self.form)
    }

    /// Starts the program, with the rights of the manifests.
    pub(crate) async fn start(&self) -> Running {
        self.start_with(self.settings()).await
    }

    pub(crate) async fn start_with(&self, settings: Settings) -> Running {
        self.run(self.builder(), settings).await
    }

    /// Starts one of several copies.
    pub(crate) async fn start_copy(&self, name: &str) -> Running {
        let lease = leader_election::Options::new("default", NAME).identity(name);
        let builder = self.builder().leader_election(lease);
        self.run(builder, self.settings()).await
    }

    /// A manager with the rights of the manifests.
    pub(crate) fn builder(&self) -> manager::Builder {
        Manager::builder(self.server.client_with(Some(TOKEN))).clock(self.clock.clone())
    }

    pub(crate) async fn run(&self, builder: manager::Builder, settings: Settings) -> Running {
        let manager = service_ingress::build(builder, settings).await.unwrap();
        let stop = CancellationToken::new();
        let (running, token) = (manager.clone(), stop.clone());
        let run = tokio::spawn(async move { running.run(token).await });
        Running { manager, stop, run }
    }

    /// The requests of the program.
    pub(crate) fn requests(&self) -> Vec<RequestRecord> {
        let mut requests = self.server.requests().all();
        requests.retain(|request| request.user == ACCOUNT);
        requests
    }

    /// The number of successful requests of the program for Ingresses with this verb.
    pub(crate) fn done(&self, verb: &str) -> usize {
        let of_ingresses =
            |request: &&RequestRecord| request.verb == verb && request.resource == "ingresses";
        let requests = self.requests();
        requests
            .iter()
            .filter(of_ingresses)
            .filter(|request| request.code < 300)
            .count()
    }

    // --- objects

    /// Creates a Service with the port 80, annotated with `annotation` if any.
    pub(crate) async fn service(&self, name: &str, annotation: Option<&str>) -> Service {
        self.create(json!({
            "metadata": {"namespace": "default", "name": name,
                "annotations": annotation.map(|value| json!({ANNOTATION: value}))},
            "spec": {"ports": [{"port": 80}]},
        }))
        .await
    }

    pub(crate) async fn create<K: Object>(&self, object: Value) -> K {
        let object: K = serde_json::from_value(object).unwrap();
        self.client.create(&object).await.unwrap()
    }

    /// Annotates a Service, or removes the annotation.
    pub(crate) async fn annotate(&self, name: &str, annotation: Option<&str>) {
        self.patch::<Service>(
            name,
            json!({"metadata": {"annotations": {ANNOTATION: annotation}}}),
        )
        .await;
    }

    pub(crate) async fn patch<K: Object>(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.client.patch::<K>(&key(name), &patch).await.unwrap();
    }

    pub(crate) async fn delete<K: Object>(&self, name: &str) {
        self.client
            .delete::<K>(&key(name), &DeleteParams::default())
            .await
            .unwrap();
    }

    pub(crate) async fn get<K: Object>(&self, name: &str) -> Option<K> {
        client::optional(self.client.get(&key(name)).await).unwrap()
    }

    pub(crate) async fn ingress(&self, name: &str) -> Option<Ingress> {
        self.get(name).await
    }

    /// An Ingress without an owner.
    pub(crate) async fn foreign_ingress(&self, name: &str) -> Ingress {
        self.create(json!({
            "metadata": {"namespace": "default", "name": name},
            "spec": {"defaultBackend": {"service": {"name": "else", "port": {"number": 1}}}},
        }))
        .await
    }

    /// Reasons of the Events about a Service, each once, in alphabetical order.
    pub(crate) async fn event_reasons(&self, name: &str) -> Vec<String> {
        let events = self
            .client
            .list::<Event>(Some("default"), &ListParams::default())
            .await
            .unwrap();
        let about = events.items.into_iter().filter(|event| {
            let regarding = event.regarding.as_ref();
            regarding.is_some_and(|about| {
                about.kind.as_deref() == Some("Service") && about.name.as_deref() == Some(name)
            })
        });
        let mut reasons: Vec<String> = about.filter_map(|event| event.reason).collect();
        reasons.sort();
        reasons.dedup();
        reasons
    }

    // --- time

    /// Waits until `check` holds.
    pub(crate) async fn until(&self, what: &str, check: impl AsyncFn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !check(self).await {
            assert!(Instant::now() < end, "within {PATIENCE:?}: {what}");
            sleep(LOOK).await;
        }
    }

    pub(crate) async fn until_ingress(&self, name: &str) -> Ingress {
        self.until(&format!("there is an Ingress {name}"), async |world| {
            world.ingress(name).await.is_some()
        })
        .await;
        self.ingress(name).await.unwrap()
    }

    pub(crate) async fn until_no_ingress(&self, name: &str) {
        self.until(&format!("there is no Ingress {name}"), async |world| {
            world.ingress(name).await.is_none()
        })
        .await;
    }

    pub(crate) async fn until_event(&self, name: &str, reason: &str) {
        let reported = async |world: &Self| {
            let reasons = world.event_reasons(name).await;
            reasons.iter().any(|found| found == reason)
        };
        self.until(&format!("{name} has an Event {reason}"), reported)
            .await;
    }

    /// Waits until all effects of former steps have happened.
    pub(crate) async fn quiet(&self) {
        sleep(QUIET).await;
    }
}

// === impl Running ===

impl Running {
    /// Waits until the program has started.
    pub(crate) async fn ready(&self, world: &World) {
        let ready = async |_: &World| self.manager.health().ready().failures().is_empty();
        world.until("the program is ready", ready).await;
        world.quiet().await;
    }

    /// Stops the program, which ends without an error.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.run.await.unwrap().unwrap();
    }

    /// Ends the program like `kill -9`.
    pub(crate) async fn kill(self) {
        self.run.abort();
        assert!(self.run.await.unwrap_err().is_cancelled());
    }
}

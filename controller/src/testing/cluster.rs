//! The API server of a test.

use std::fmt::{Debug, Write as _};
use std::panic::Location;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Config;
use kube_client::client::Body;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_core::CustomResourceExt;
use parking_lot::Mutex;
use reeve_apiserver::control_plane::ControlPlane;
use reeve_apiserver::front::Front;
use reeve_apiserver::rights::Rights;
use reeve_apiserver::{ApiServer, Template};
use reeve_clock::Clock;
use serde_json::Value;

use super::wait::compared;
use super::{Faults, Look, Patience, Record, Running, Server, Setup};
use crate::ObjectKey;
use crate::client::connect;
use crate::client::{Client, Object};
use crate::controller::Controller;
use crate::debug::Queues;
use crate::manager::{self, Manager};

/// The number of requests in the report of a failed wait.
const SHOWN: usize = 10;
/// The number of a controller's keys in that report, with their errors.
const FAILURES: usize = 3;
/// The `User-Agent` of the test's own client.
const OWN: &str = "reeve-controller-testing";

/// The API server of a test. It ends when this is dropped.
pub struct Cluster {
    clock: Clock,
    kube: kube_client::Client,
    /// The client of the test itself, whose requests differ from those of the tested code by their `User-Agent`.
    own: kube_client::Client,
    /// The queues of the managers that were started.
    queues: Mutex<Vec<Queues>>,
    faults: Faults,
    requests: Record,
    patience: Patience,
    server: Kind,
}

#[derive(Debug)]
enum Kind {
    BuiltIn(ApiServer),
    Assets(Box<ControlPlane>),
}

// === impl Cluster ===

impl Cluster {
    /// The built-in server with [`Setup`]'s defaults, for a test on a paused runtime of its own:
    /// `#[tokio::test(start_paused = true)]`.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn in_process() -> Self {
        let setup = Setup::new().server(Server::BuiltIn);
        setup.cluster().await.expect("the built-in API server")
    }

    /// Tests against this built-in server.
    #[must_use]
    pub fn of(server: ApiServer) -> Self {
        Self {
            clock: server.clock().clone(),
            kube: server.client(),
            own: marked(server.client()),
            queues: Mutex::default(),
            faults: server.faults(),
            requests: server.requests(),
            patience: Patience::VIRTUAL,
            server: Kind::BuiltIn(server),
        }
    }

    /// Tests against this real server, behind a proxy for faults and the log of requests.
    ///
    /// # Panics
    /// When no client can be made.
    #[must_use]
    pub fn of_control_plane(control_plane: ControlPlane) -> Self {
        let clock = Clock::system();
        let front = Front::new(clock.clone());
        let kube = front.client(connected(&control_plane));
        Self {
            own: marked(kube.clone()),
            kube,
            queues: Mutex::default(),
            clock,
            faults: front.faults(),
            requests: front.requests(),
            patience: Patience::REAL,
            server: Kind::Assets(Box::new(control_plane)),
        }
    }

    /// Sets the patience of waits.
    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// A client of an administrator, for the test itself. Its requests are logged and meet faults, too; the report of a
    /// failed wait leaves them out.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.own.clone()).with_clock(self.clock.clone())
    }

    /// A kube client of an administrator, for the tested code.
    #[must_use]
    pub fn kube(&self) -> kube_client::Client {
        self.kube.clone()
    }

    /// Wall time and randomness. [`Clock::jump`] sets it, on the built-in server.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The objects and custom kinds of the built-in server as they are now, with which the servers of other tests start:
    /// `Setup::new().api_server(move |server| server.template(&template))`. `None` for a real server.
    #[must_use]
    pub fn template(&self) -> Option<Template> {
        match &self.server {
            Kind::BuiltIn(server) => Some(server.template()),
            Kind::Assets(_) => None,
        }
    }

    /// The faults to inject.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The log of requests.
    #[must_use]
    pub fn requests(&self) -> &Record {
        &self.requests
    }

    /// The rights that the requests of the tested code needed: those in the log, without those of [`Cluster::client`].
    /// Compare them with the roles that the program is installed with: see [`rbac`](super::rbac).
    ///
    /// # Panics
    /// When the log has dropped requests.
    #[must_use]
    pub fn rights(&self) -> Rights {
        let dropped = self.requests.dropped();
        assert!(
            dropped == 0,
            "the log dropped {dropped} requests, so rights may be missing; take the rights earlier, clear the log, \
             and join both with `Rights::and`"
        );
        let mut requests = self.requests.all();
        requests.retain(|request| request.agent != OWN);
        Rights::of(&requests)
    }

    /// The built-in server, if it is used: to take it down, compact it, close watches, or open a socket.
    #[must_use]
    pub fn built_in(&self) -> Option<&ApiServer> {
        match &self.server {
            Kind::BuiltIn(server) => Some(server),
            Kind::Assets(_) => None,
        }
    }

    /// The real server, if it is used: to stop and start it.
    #[must_use]
    pub fn control_plane(&mut self) -> Option<&mut ControlPlane> {
        match &mut self.server {
            Kind::BuiltIn(_) => None,
            Kind::Assets(control_plane) => Some(control_plane),
        }
    }

    /// Builds a manager on this server, with its clock.
    pub fn manager(&self) -> manager::Builder {
        Manager::builder(self.kube()).clock(self.clock.clone())
    }

    /// Runs `manager`.
    #[must_use]
    pub fn start(&self, manager: &Manager) -> Running {
        self.queues.lock().push(manager.queues().clone());
        Running::start(manager)
    }

    /// Runs a manager with these controllers and nothing else.
    ///
    /// # Panics
    /// When two have one name.
    pub async fn run(&self, controllers: impl IntoIterator<Item = Controller>) -> Running {
        let manager = self.manager().build().await.expect("a manager");
        for controller in controllers {
            manager
                .add_controller(controller)
                .expect("a new controller");
        }
        self.start(&manager)
    }

    /// Creates an object from JSON.
    ///
    /// # Panics
    /// When it is not a `K`, or the server refuses it.
    pub async fn create<K: Object>(&self, object: Value) -> K {
        let object: K = serde_json::from_value(object).expect("an object of the kind");
        match self.client().create(&object).await {
            Ok(created) => created,
            Err(error) => panic!("not created: {error}"),
        }
    }

    /// Installs the definition of the custom kind `K`, and waits until the server serves it.
    ///
    /// # Panics
    /// When the server refuses it, or does not serve it in time.
    pub async fn install<K: CustomResourceExt>(&self) {
        self.install_definition(&K::crd()).await;
    }

    /// As [`Cluster::install`], with a definition that was not derived, or changed since.
    ///
    /// # Panics
    /// When the server refuses it, or does not serve it in time.
    pub async fn install_definition(&self, definition: &CustomResourceDefinition) {
        let created = self.client().create(definition).await;
        let definition = created.unwrap_or_else(|error| panic!("not installed: {error}"));
        let key = ObjectKey::of(&definition);
        let served = async || {
            let definition: CustomResourceDefinition = self.client().get(&key).await.ok()?;
            let mut conditions = definition.status?.conditions?.into_iter();
            conditions.find(|one| one.type_ == "Established" && one.status == "True")
        };
        self.eventually(&format!("{key} is established"), served)
            .await;
    }

    /// Waits until `look` finds its value, and returns it: see [`Look`] for the types that a look may return.
    ///
    /// # Panics
    /// When it never does, with the last seen state, the keys that fail in the controllers of the managers that
    /// [`Cluster::start`] runs, each with its last error, and the last requests but those of [`Cluster::client`].
    #[track_caller]
    pub fn eventually<L: Look>(
        &self,
        what: &str,
        look: impl AsyncFnMut() -> L,
    ) -> impl Future<Output = L::Found> {
        let at = Location::caller();
        self.patience.wait(what, at, look, || self.report())
    }

    /// Waits until `look` returns `expected`.
    ///
    /// # Panics
    /// As [`Cluster::eventually`].
    #[track_caller]
    pub fn eventually_eq<T, E>(
        &self,
        what: &str,
        expected: E,
        mut look: impl AsyncFnMut() -> T,
    ) -> impl Future<Output = T>
    where
        T: PartialEq<E> + Debug,
        E: Debug,
    {
        let at = Location::caller();
        let look = async move || compared(look().await, &expected);
        self.patience.wait(what, at, look, || self.report())
    }

    /// Repeats `look` for `length`; every look must succeed.
    ///
    /// # Panics
    /// When one does not, with the seen state, and more as [`Cluster::eventually`].
    #[track_caller]
    pub fn consistently<L: Look>(
        &self,
        what: &str,
        length: Duration,
        look: impl AsyncFnMut() -> L,
    ) -> impl Future<Output = ()> {
        let at = Location::caller();
        self.patience.keep(what, length, at, look, || self.report())
    }

    /// Evidence for a failed wait.
    fn report(&self) -> String {
        let mut text = String::new();
        let queues = self.queues.lock().clone();
        for queue in queues.iter().flat_map(|queues| queues.report(usize::MAX)) {
            let items = queue.items.iter();
            let failed = items.filter_map(|item| Some((item, item.last_error.as_ref()?)));
            let failed: Vec<_> = failed.collect();
            let name = &queue.name;
            for (item, error) in failed.iter().take(FAILURES) {
                let (key, times) = (&item.key, item.failures);
                let message = &error.message;
                let _ = write!(
                    text,
                    "\n  {name} failed for {key}, {times} times in a row: {message}"
                );
            }
            if failed.len() > FAILURES {
                let more = failed.len() - FAILURES;
                let _ = write!(text, "\n  {name} failed for {more} more keys");
            }
        }
        self.write_requests(&mut text);
        text
    }

    fn write_requests(&self, text: &mut String) {
        let (own, others): (Vec<_>, Vec<_>) = self
            .requests
            .all()
            .into_iter()
            .partition(|request| request.agent == OWN);
        let _ = write!(text, "\n  requests: {}", others.len());
        if !own.is_empty() {
            let _ = write!(text, " and {} of the test itself", own.len());
        }
        if others.len() > SHOWN {
            let _ = write!(text, ", the last {SHOWN}");
        }
        for request in &others[others.len().saturating_sub(SHOWN)..] {
            let _ = write!(text, "\n    {request}");
        }
    }
}

impl Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// A client with the requests of `kube`, marked as the test's.
fn marked(kube: kube_client::Client) -> kube_client::Client {
    let namespace = kube.default_namespace().to_owned();
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        let agent = HeaderValue::from_static(OWN);
        request.headers_mut().insert(USER_AGENT, agent);
        let kube = kube.clone();
        async move { kube.send(request).await }
    });
    kube_client::Client::new(service, namespace)
}

/// A client with the limits of production.
fn connected(control_plane: &ControlPlane) -> kube_client::Client {
    use futures::FutureExt as _;
    let kubeconfig = Kubeconfig::from_yaml(&control_plane.kubeconfig()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    // It waits for files and plugins only, and has none of them.
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .now_or_never()
        .expect("a configuration without files")
        .expect("a configuration");
    connect::connect(config, &connect::Options::new()).expect("a client")
}

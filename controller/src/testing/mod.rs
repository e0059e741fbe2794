//! A kit for tests of controllers: a manager on an API server, under virtual time, with faults and a log of requests.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use reeve_controller::client::Patch;
//! use reeve_controller::testing::{self, Cluster};
//! use reeve_controller::{Context, Controller, ObjectKey, Outcome, Request, reconcile};
//! use serde_json::json;
//!
//! fn greeter() -> Controller {
//!     let reconciler = reconcile::function(|ctx: Context, request: Request| async move {
//!         if ctx.lister::<ConfigMap>()?.get(&request)?.is_some_and(|map| map.data.is_none()) {
//!             let greeting = Patch::merge(json!({"data": {"greeting": "hello"}}));
//!             ctx.client().patch::<ConfigMap>(&request, greeting).await?;
//!         }
//!         Ok::<_, reconcile::Error>(Outcome::done())
//!     });
//!     Controller::builder("greeter").for_kind::<ConfigMap>().complete(reconciler).unwrap()
//! }
//!
//! testing::run(async |cluster: Cluster| {
//!     let running = cluster.run([greeter()]).await;
//!     cluster.create::<ConfigMap>(json!({"metadata": {"name": "a", "namespace": "default"}})).await;
//!     let key = ObjectKey::namespaced("default", "a");
//!     let data = cluster.eventually("the map is greeted", async || {
//!         cluster.client().get::<ConfigMap>(&key).await.ok()?.data
//!     }).await;
//!     assert_eq!(data["greeting"], "hello");
//!     assert_eq!(cluster.requests().count("patch", "configmaps"), 1, "it sees what it wrote");
//!     running.end().await;
//! });
//! ```
//!
//! [`run`] starts the built-in API server in this process, on one thread, under tokio's paused time: hours of back-off
//! pass in milliseconds, and the same seed gives the same trace. With `REEVE_TEST_SERVER=assets` in the environment
//! (or [`Setup::server`]) the same test runs against the etcd and kube-apiserver in the directory that
//! `KUBEBUILDER_ASSETS` names, in real time; when that is not set, the test prints SKIPPED, or fails if
//! `REEVE_REQUIRE_ASSETS=1`. A test that leaks a task fails.
//!
//! | a test needs | it uses |
//! |---|---|
//! | to wait for a state | [`Cluster::eventually`], [`Cluster::eventually_eq`], [`Cluster::consistently`] |
//! | a kind of its own | [`Cluster::install`] |
//! | an API server that fails | [`Cluster::faults`], with [`Rule`]s; the built-in one goes down with [`Cluster::built_in`] |
//! | the log of requests | [`Cluster::requests`] |
//! | the roles compared with the requests | [`Cluster::rights`] and [`rbac`] |
//! | hours to pass | [`tokio::time::sleep`] |
//! | the wall clock set | [`Clock::jump`] of [`Cluster::clock`] |
//! | its own server: RBAC, tokens, history | [`Setup::api_server`] |
//! | its admission webhooks and conversions called | `Cluster::webhooks`, `webhooks_as`, with the feature `webhook` |
//! | its own manager | [`Cluster::manager`], [`Cluster::start`] |
//! | a process that is killed | [`Running::crash`] |
//! | every fault at every point of a run | [`explore::Explorer`] |
//!
//! A test that has a runtime already (`#[tokio::test(start_paused = true)]`) starts with [`Cluster::in_process`] or
//! [`Setup::cluster`].

mod cluster;
pub mod explore;
pub mod rbac;
mod running;
mod wait;
#[cfg(feature = "webhook")]
mod webhooks;

use std::time::Duration;

use jiff::Timestamp;
use reeve_apiserver::ApiServer;
use reeve_apiserver::assets;
use reeve_apiserver::control_plane;
use reeve_clock::Clock;

pub use cluster::Cluster;
pub use reeve_apiserver::faults::{Faults, Rule};
pub use reeve_apiserver::record::{Record, RequestRecord};
pub use running::Running;
pub use wait::{Look, Patience};

/// The environment variable that [`Server::of_environment`] reads.
pub const SERVER_VARIABLE: &str = "REEVE_TEST_SERVER";

/// The time limit, in real time, for tasks to end after a test.
const LEFT_OVERS: Duration = Duration::from_secs(5);

/// The API server of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Server {
    /// The built-in one, in process, under virtual time.
    #[default]
    BuiltIn,
    /// etcd and kube-apiserver from the directory in `KUBEBUILDER_ASSETS`, in real time.
    Assets,
}

// === impl Server ===

impl Server {
    /// The server in `REEVE_TEST_SERVER`: `built-in`, also when it is not set, or `assets`.
    ///
    /// # Panics
    /// When it has another value.
    #[must_use]
    pub fn of_environment() -> Self {
        let value = std::env::var(SERVER_VARIABLE).unwrap_or_default();
        Self::named(&value).unwrap_or_else(|| {
            panic!("{SERVER_VARIABLE} is {value:?}; it may be \"built-in\" or \"assets\"")
        })
    }

    fn named(name: &str) -> Option<Self> {
        match name {
            "" | "built-in" => Some(Self::BuiltIn),
            "assets" => Some(Self::Assets),
            _ => None,
        }
    }
}

type Shape<B> = Box<dyn FnOnce(B) -> B>;

/// The environment of a test; see [`Setup::new`].
#[must_use]
pub struct Setup {
    server: Server,
    seed: u64,
    start: Timestamp,
    patience: Option<Patience>,
    api_server: Option<Shape<reeve_apiserver::Builder>>,
    control_plane: Option<Shape<control_plane::Builder>>,
}

/// Runs `test` with [`Setup::new`]: the built-in server under virtual time, unless `REEVE_TEST_SERVER` sets another.
///
/// # Panics
/// When the test panics, when no server starts, or when tasks are left.
pub fn run(test: impl AsyncFnOnce(Cluster)) {
    Setup::new().run(test);
}

// === impl Setup ===

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

impl Setup {
    /// The server of the environment, seed 1, 2026-01-01.
    pub fn new() -> Self {
        Self {
            server: Server::of_environment(),
            seed: 1,
            start: Timestamp::constant(1_767_225_600, 0),
            patience: None,
            api_server: None,
            control_plane: None,
        }
    }

    /// Sets the server, whatever the environment.
    pub fn server(mut self, server: Server) -> Self {
        self.server = server;
        self
    }

    /// The seed of all randomness (built-in server).
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The initial wall clock (built-in server).
    pub fn starting_at(mut self, start: Timestamp) -> Self {
        self.start = start;
        self
    }

    /// The limit of [`Cluster::eventually`]: by default ten virtual minutes, or a real one.
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Changes the built-in server before it starts: RBAC, tokens, its minor version.
    pub fn api_server(
        mut self,
        shape: impl FnOnce(reeve_apiserver::Builder) -> reeve_apiserver::Builder + 'static,
    ) -> Self {
        self.api_server = Some(Box::new(shape));
        self
    }

    /// Changes the real server before it starts: arguments, a controller manager.
    pub fn control_plane(
        mut self,
        shape: impl FnOnce(control_plane::Builder) -> control_plane::Builder + 'static,
    ) -> Self {
        self.control_plane = Some(Box::new(shape));
        self
    }

    /// Runs `test` on a runtime of its own.
    ///
    /// # Panics
    /// When the test panics, when no server starts, or when tasks are left.
    pub fn run(self, test: impl AsyncFnOnce(Cluster)) {
        let paused = self.server == Server::BuiltIn;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(paused)
            .build()
            .expect("a runtime");
        let ran = runtime.block_on(async {
            match self.cluster().await {
                Some(cluster) => {
                    test(cluster).await;
                    true
                }
                None => false,
            }
        });
        if ran {
            let left = runtime.block_on(left_over_tasks());
            assert_eq!(
                left, 0,
                "tasks are left over after the test: a spawned task has no owner"
            );
        }
    }

    /// Starts the server alone, for a test that runs on a runtime of its own: paused for the built-in server, not paused
    /// for the real one. `None` when `KUBEBUILDER_ASSETS` is needed and not set.
    ///
    /// # Panics
    /// When no server starts, or `REEVE_REQUIRE_ASSETS=1` and there are no assets.
    pub async fn cluster(self) -> Option<Cluster> {
        match self.server {
            Server::BuiltIn => {
                let clock = Clock::simulated(self.start, self.seed);
                let mut builder = ApiServer::builder().clock(clock);
                if let Some(shape) = self.api_server {
                    builder = shape(builder);
                }
                let server = builder.start().await.expect("the built-in API server");
                let patience = self.patience.unwrap_or(Patience::VIRTUAL);
                Some(Cluster::of(server).with_patience(patience))
            }
            Server::Assets => {
                let mut builder = assets::control_plane()?;
                if let Some(shape) = self.control_plane {
                    builder = shape(builder);
                }
                let started = builder.start().await;
                let control_plane = started.unwrap_or_else(|error| panic!("{error}"));
                let patience = self.patience.unwrap_or(Patience::REAL);
                Some(Cluster::of_control_plane(control_plane).with_patience(patience))
            }
        }
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup")
            .field("server", &self.server)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// The number of tasks left in the runtime after those that are ending have ended.
async fn left_over_tasks() -> usize {
    let end = tokio::time::Instant::now() + LEFT_OVERS;
    loop {
        let left = tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks();
        if left == 0 || tokio::time::Instant::now() >= end {
            return left;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_has_two_positions() {
        assert_eq!(Server::named(""), Some(Server::BuiltIn));
        assert_eq!(Server::named("built-in"), Some(Server::BuiltIn));
        assert_eq!(Server::named("assets"), Some(Server::Assets));
        assert_eq!(Server::named("real"), None);
    }

    #[test]
    #[should_panic(expected = "tasks are left over")]
    fn a_task_without_an_owner_is_found() {
        Setup::new().server(Server::BuiltIn).run(async |_| {
            tokio::spawn(std::future::pending::<()>());
        });
    }
}

//! The roles of a program, compared with the requests of its controllers.
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
//! // In a project: `include_str!("../manifests/rbac.yaml")`.
//! const ROLE: &str = "
//! apiVersion: rbac.authorization.k8s.io/v1
//! kind: ClusterRole
//! metadata: {name: greeter}
//! rules:
//!   - apiGroups: [\"\"]
//!     resources: [configmaps]
//!     verbs: [get, list, watch, patch]
//! ";
//!
//! testing::run(async |cluster: Cluster| {
//!     let running = cluster.run([greeter()]).await;
//!     cluster.create::<ConfigMap>(json!({"metadata": {"name": "a", "namespace": "default"}})).await;
//!     let key = ObjectKey::namespaced("default", "a");
//!     cluster.eventually("the map is greeted", async || {
//!         cluster.client().get::<ConfigMap>(&key).await.ok()?.data
//!     }).await;
//!     running.end().await;
//!     // Panics with the rules to add if the role allows less than the controller requested.
//!     let unused = cluster.rights().check(ROLE);
//!     assert_eq!(unused[0].rules[0].verbs, ["get"]);
//! });
//! ```
//!
//! [`Cluster::rights`](super::Cluster::rights) takes the requests of the tested code from the log: those of managers and
//! of [`Cluster::kube`](super::Cluster::kube), not those of [`Cluster::client`](super::Cluster::client), which the test
//! sends itself. To include the rights of leader election and of Events, the test uses them: build the manager with
//! [`leader_election`](crate::manager::Builder::leader_election).
//!
//! A test with clients of its own makes [`Rights::of`] the requests that it selects from
//! [`Cluster::requests`](super::Cluster::requests), for example by user.
//!
//! [`reeve_apiserver::rights`] documents what counts and what the requests do not show.

pub use reeve_apiserver::rights::{Comparison, Manifest, ManifestError, Part, Rights};

//! Controllers for Kubernetes: the counterpart of controller-runtime on [`reeve_informer`] and [`reeve_workqueue`].
//!
//! A [`Manager`] owns the parts that the controllers of a program share: caches, a client, leader election, the servers
//! of health and metrics, the writer of events. A [`Controller`] watches kinds, maps their events to requests, and
//! passes each request to a [`Reconciler`], never twice at once, again after a failure with growing delays. A
//! reconciler reads the present state from listers ([`Context::lister`]), writes through [`Context::client`], and
//! returns an [`Outcome`]. It sees its own writes: the key is held back until the caches show them.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube_core::params::{Patch, PatchParams};
//! use reeve_controller::events::EventType;
//! use reeve_controller::{Context, Controller, Manager, Outcome, Reconciler, Request};
//! use reeve_controller::{client, finalizer, leader_election, predicate, reconcile, source};
//! use serde_json::json;
//! use std::time::Duration;
//!
//! struct Greeter;
//!
//! impl Reconciler for Greeter {
//!     type Error = reconcile::Error;
//!
//!     async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, Self::Error> {
//!         // Read from the cache. Its objects are shared: clone one to change it.
//!         let Some(map) = ctx.lister::<ConfigMap>()?.get(&request)? else {
//!             return Ok(Outcome::done());
//!         };
//!         if finalizer::is_deleting(&*map) {
//!             return Ok(Outcome::done());
//!         }
//!         let data = map.data.clone().unwrap_or_default();
//!         let Some(name) = data.get("name") else {
//!             return Ok(Outcome::terminal(reconcile::Error::message("no name to greet")));
//!         };
//!         let greeting = format!("Hello {name}");
//!         if data.get("greeting") != Some(&greeting) {
//!             let patch = Patch::Merge(json!({"data": {"greeting": greeting}}));
//!             let params = PatchParams::default();
//!             // `optional` makes "not found" a `None`.
//!             client::optional(ctx.client().patch::<ConfigMap, _>(&request, &params, &patch).await)?;
//!             ctx.events().event(&*map, EventType::Normal, "Greeted", "Greet", greeting);
//!         }
//!         // Reconcile again in an hour.
//!         Ok(Outcome::requeue_after(Duration::from_secs(3600)))
//!     }
//! }
//!
//! async fn run(client: kube_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//!     let clock = reeve_clock::Clock::system();
//!     let lease = leader_election::Options::new("default", "greeter", leader_election::identity(&clock));
//!     let manager = Manager::builder(client)
//!         .clock(clock)
//!         .namespace("default")
//!         .leader_election(lease)
//!         .health_address(([0, 0, 0, 0], 8081).into())
//!         .metrics_address(([0, 0, 0, 0], 8080).into())
//!         .build()
//!         .await?;
//!     // Requests may also come from other sources.
//!     let (again, requests) = source::channel::<Request>(100);
//!     let controller = Controller::builder("greeter")
//!         .for_kind::<ConfigMap>()
//!         .with_predicate(predicate::resource_version_changed())
//!         .watches_source(requests)
//!         .workers(4)
//!         .complete(Greeter)?;
//!     manager.add_controller(controller)?;
//!     again.try_send(Request::namespaced("default", "greeting"))?;
//!     // Until SIGTERM or SIGINT; a second signal exits at once.
//!     manager.run_until_signal().await?;
//!     Ok(())
//! }
//! ```
//!
//! | to find | see |
//! |---|---|
//! | what each result does to the queue | [`reconcile`] |
//! | how a controller is put together | [`controller::Builder`], [`handler`], [`predicate`], [`source`] |
//! | the order of start and stop, the grace period | [`manager`] |
//! | what each part is doing, and why a controller waits | [`Manager::runnables`], [`manager::Handle`] |
//! | another cluster in the same manager | [`cluster`] |
//! | a client that finds dead peers and does not retry behind your back | [`client::connect`] |
//! | read your writes, rule by rule | [`client::Client`], [`controller::Builder::own_writes_timeout`] |
//! | the lease | [`leader_election`] |
//! | conditions of a status | [`conditions`] |
//! | events, finalizers, owners | [`events`], [`finalizer`], [`owner`] |
//! | `/healthz`, `/readyz`, `/metrics`, limits | [`health`], [`metrics`], [`metrics_server`], [`server`]: of [`reeve_serve`] |
//! | flags named as kubebuilder's, which kubeconfig | [`options`], [`client::location`] |
//! | TLS, and access to the servers | [`certificates`], [`access`] |
//! | why nothing happens: `/debug/queues`, `/debug/informers` | [`debug`] |
//! | what is cached, and how it is read | [`cache`] |
//! | which rules of controller-runtime are held by which test, and where this differs | `CONFORMANCE.md`, beside the README of this crate |
//! | a test with an API server, faults and virtual time | `testing`, with the feature of that name |
//!
//! Time is tokio's; dates and randomness come from a [`reeve_clock::Clock`]. Everything that is spawned belongs to
//! the future of [`Manager::run`] and ends with it.

pub mod cache;
pub mod client;
pub mod cluster;
pub mod conditions;
pub mod context;
pub mod controller;
pub mod debug;
pub mod events;
#[cfg(test)]
mod fake;
pub mod finalizer;
#[cfg(any(doc, doctest))]
pub mod guide;
pub mod handler;
pub mod leader_election;
mod lifecycle;
pub mod manager;
pub mod metrics;
pub mod options;
mod own_writes;
pub mod owner;
pub mod predicate;
pub mod prelude;
mod process;
pub mod reconcile;
mod reviewer;
pub mod source;
#[cfg(feature = "testing")]
pub mod testing;

#[doc(no_inline)]
#[cfg(feature = "tls")]
pub use reeve_serve::certificates;
#[doc(no_inline)]
pub use reeve_serve::{access, health, http as server, metrics_server};

pub use cache::{CacheOptions, Caches, Lister};
pub use client::Client;
pub use cluster::Cluster;
pub use context::Context;
pub use controller::Controller;
pub use events::Recorder;
pub use manager::{Manager, Runnable};
pub use metrics::Metrics;
pub use metrics_server::MetricsServer;
pub use reconcile::{Outcome, Reconciler, Request};
pub use reeve_informer::{Event, ObjectKey};

pub(crate) use reeve_client::error_chain;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

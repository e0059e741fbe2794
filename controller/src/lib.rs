//! Controllers for Kubernetes: the counterpart of controller-runtime on [`reeve_informer`] and [`reeve_workqueue`].
//!
//! A [`Manager`] owns the parts that the controllers of a program share: caches, a client, leader election, the servers
//! of health and metrics, the writer of events. A [`Controller`] watches kinds, maps their events to requests, and
//! passes each request to a [`Reconciler`], never twice at once, again after a failure with growing delays. A
//! reconciler reads the present state from listers ([`Context::lister`]), writes through [`Context::client`], and
//! returns an [`Outcome`]. It sees its own writes: the key is held back until the caches show them.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use reeve_controller::client::{Patch, connect, optional};
//! use reeve_controller::prelude::*;
//! use reeve_controller::serde_json::json;
//!
//! async fn greet(ctx: Context, map: Arc<ConfigMap>) -> Result<Outcome, reconcile::Error> {
//!     // The object is from the cache, and shared: clone it to change it.
//!     if finalizer::is_deleting(&map) {
//!         return Ok(Outcome::done());
//!     }
//!     let data = map.data.clone().unwrap_or_default();
//!     let Some(name) = data.get("name") else {
//!         return Ok(Outcome::terminal(reconcile::Error::message("no name to greet")));
//!     };
//!     let greeting = format!("Hello {name}");
//!     if data.get("greeting") != Some(&greeting) {
//!         let key = ObjectKey::of(&map);
//!         let patch = Patch::merge(json!({"data": {"greeting": greeting}}));
//!         // `optional` makes "not found" a `None`.
//!         optional(ctx.client().patch::<ConfigMap>(&key, patch).await)?;
//!         ctx.events().event(&map, EventType::Normal, "Greeted", "Greet", greeting);
//!     }
//!     // Reconcile again in an hour.
//!     Ok(Outcome::requeue_after(Duration::from_secs(3600)))
//! }
//!
//! async fn run() -> Result<(), Box<dyn std::error::Error>> {
//!     let manager = Manager::builder(connect::infer(&connect::Options::new()).await?)
//!         .namespace("default")
//!         .leader_election(leader_election::Options::new("default", "greeter"))
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
//!         .complete(reconcile::object(greet))?;
//!     manager.add_controller(controller)?;
//!     again.try_send(Request::namespaced("default", "greeting"))?;
//!     // Until SIGTERM or SIGINT; a second signal exits at once.
//!     manager.run_until_signal().await?;
//!     Ok(())
//! }
//! ```
//!
//! A program depends on this crate, `k8s-openapi` with the version of Kubernetes as its feature, and `tokio`. The crates
//! and types of the signatures are here, too: [`kube_client`], [`kube_core`], [`serde_json`], [`Clock`],
//! [`CancellationToken`]; [`prelude`] has the names that most controllers use. A kind of the program's own needs
//! `kube-derive`, `schemars` and `serde`, and the paths of two crates:
//!
//! ```
//! use kube_derive::CustomResource;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[kube(
//!     group = "example.com",
//!     version = "v1",
//!     kind = "Website",
//!     namespaced,
//!     crates(
//!         kube_core = "::reeve_controller::kube_core",
//!         serde_json = "::reeve_controller::serde_json"
//!     )
//! )]
//! pub struct WebsiteSpec {
//!     image: String,
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
//! | a function of an object as a reconciler | [`reconcile::object`] |
//! | a finalizer around a reconcile | [`finalizer::apply_or_cleanup`] |
//! | a live read, change and write, again after a conflict | [`Client::edit`](reeve_client::Client::edit) |
//! | a wait for a state of one object, in tests and tools | [`Client::wait_for`](reeve_client::Client::wait_for) |
//! | events, finalizers, owners, owned objects | [`events`], [`finalizer`], [`owner`], [`child`] |
//! | `/healthz`, `/readyz`, `/metrics`, limits | [`health`], [`metrics`], [`metrics_server`], [`server`]: of [`reeve_serve`] |
//! | flags named as kubebuilder's, which kubeconfig | [`options`], [`client::location`] |
//! | TLS, and access to the servers | [`certificates`], [`access`] |
//! | why nothing happens: `/debug/queues`, `/debug/informers` | [`debug`] |
//! | more of the log for ten minutes: `/debug/log` | [`options`] |
//! | what is cached, and how it is read | [`cache`] |
//! | admission and conversion webhooks | `webhook`, with the feature of that name, and `manager::Builder::webhooks` |
//! | which rules of controller-runtime are held by which test, and where this differs | `CONFORMANCE.md`, beside the README of this crate |
//! | a test with an API server, faults and virtual time | `testing`, with the feature of that name |
//!
//! Time is tokio's; dates and randomness come from a [`reeve_clock::Clock`]. Everything that is spawned belongs to
//! the future of [`Manager::run`] and ends with it.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod cache;
pub mod child;
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
#[cfg(feature = "clap")]
mod log_levels;
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

// The crates of this crate's signatures, so that a program needs no dependency for them.
#[doc(no_inline)]
pub use reeve_clock::Clock;
#[doc(no_inline)]
#[cfg(feature = "webhook")]
#[doc(no_inline)]
pub use reeve_webhook as webhook;
#[doc(no_inline)]
pub use tokio_util::sync::CancellationToken;
#[doc(no_inline)]
pub use {kube_client, kube_core, reeve_workqueue as workqueue, serde_json};

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
pub use reeve_informer::{Event, ObjectKey, UpdateReason};

pub(crate) use reeve_client::error_chain;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! A hardened client for the Kubernetes API, on kube-client: every verb for typed objects, objects known at run time, and
//! their metadata.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use k8s_openapi::api::core::v1::{ConfigMap, Pod};
//! use kube_core::params::{DeleteParams, ListParams};
//! use reeve_client::{ApplyOptions, Client, ObjectKey, Patch, connect, optional};
//! use serde_json::json;
//!
//! let kube = connect::infer(&connect::Options::new().user_agent("example/1.0")).await?;
//! let client = Client::new(kube);
//! let key = ObjectKey::namespaced("default", "settings");
//! // `optional` makes "not found" a `None`.
//! let Some(mut settings) = optional(client.get::<ConfigMap>(&key).await)? else { return Ok(()) };
//! // A locked patch conflicts if the object changed since the read.
//! let before = settings.clone();
//! settings.data.get_or_insert_default().insert("level".into(), "debug".into());
//! let patch = Patch::merge_from_locked(&before, &settings)?;
//! client.patch::<ConfigMap>(&key, patch).await?;
//! // Only names, labels and owners of the Pods, page by page.
//! let pods = client.metadata::<Pod>().pages(Some("default"), &ListParams::default()).all().await?;
//! // Server-side apply requires a field owner.
//! let mut wanted = ConfigMap::default();
//! wanted.metadata.namespace = Some("default".into());
//! wanted.metadata.name = Some("summary".into());
//! wanted.data = Some([("pods".into(), pods.len().to_string())].into());
//! client.apply(&wanted, ApplyOptions::new("example")).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # The parts
//! * [`connect`]: a kube client that detects dead peers, uses a proxy only where needed, and does not retry by itself;
//! * [`Client`]: every verb, with deadlines, bounded answers and precise errors;
//! * [`json`]: the reader of objects, which leaves out what is not kept;
//! * [`transport`]: lists and watches as streams of bytes, for informers;
//! * [`ObjectKey`], [`Kind`], [`GroupKind`], [`Mapper`]: names of objects and kinds;
//! * [`Gate`] and [`WriteObserver`]: seams for leader election, and for caches that wait for the writes of their process.
//!
//! The crate has no cache. `reeve-informer` reads through it, `reeve-controller` writes through it.
//!
//! # Guarantees of every call
//! One function performs every call ([`Objects`] differ in path and decoding only):
//!
//! * a call ends by its [deadline](Client::with_deadline), an answer is [bounded](Client::with_body_limit);
//! * kube-client logs the whole body of an answer it cannot decode, Secrets included; this client never logs or quotes a
//!   body;
//! * a warning of the server is logged once; names that are not path segments are refused;
//! * writes are refused while the gate is closed ([`Error::NotLeader`]);
//! * writes are reported to the observer;
//! * the settings of the client apply: [`Client::dry_run`], [`Client::field_owner`], [`Client::field_validation`],
//!   [`Client::in_namespace`], and [`Client::intercepted`] for tests.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
pub mod as_object;
mod call;
mod chain;
mod client;
mod compare;
pub mod connect;
mod edit;
mod endpoint;
mod error;
mod gate;
mod intercept;
pub mod json;
mod key;
mod kind;
mod mapper;
mod measure;
mod memory;
mod object;
mod objects;
mod observe;
mod options;
mod pages;
pub mod patch;
mod perform;
mod retry;
mod settings;
mod subresource;
pub mod transport;
mod upsert;
pub mod version;
mod wait;
mod warning;

pub use answer::Answer;
pub use as_object::{AsObject, types_of};
pub use call::{Call, Verb};
pub use chain::{Chain, error_chain};
pub use client::Client;
pub use connect::location;
pub use endpoint::{Endpoint, GroupKind};
pub use error::{Error, optional};
pub use gate::{Closed, Gate, Gated};
pub use intercept::{Interceptor, Next};
pub use key::{KeyRef, ObjectKey, ParseKeyError};
pub use kind::{Kind, Kinds, is_namespaced};
pub use mapper::Mapper;
pub use measure::RequestMetrics;
pub use object::{AnyObject, Object, key_of};
pub use objects::Objects;
pub use observe::{PendingWrite, WriteObserver};
pub use options::{ApplyOptions, FieldValidation, WriteOptions};
pub use pages::{PAGE_SIZE, Pages};
pub use patch::Patch;
pub use retry::{Backoff, DEFAULT_BACKOFF, DEFAULT_RETRY, retry_on, retry_on_conflict};
pub use settings::{DEFAULT_BODY_LIMIT, DEFAULT_DEADLINE};
pub use subresource::Subresource;
pub use upsert::{Change, Mutated};
pub use version::{ResourceVersion, compare};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

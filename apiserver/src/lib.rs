//! A Kubernetes API server in process or on loopback, for development and tests.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use reeve_apiserver::ApiServer;
//! let server = ApiServer::builder().start().await?;
//! let version = server.client().apiserver_version().await?;
//! assert_eq!(version.major, "1");
//! # Ok(())
//! # }
//! ```
//!
//! The way of a request: [`Service`] applies the fault rules, checks the rights of the user, parses the path and
//! calls a verb. A verb loads the object, changes it, fills in defaults, checks it and commits it to
//! the store if no other write came first. The store numbers the write and appends it to the ring of its resource,
//! from which every watch reads by its own cursor. One background task finishes what
//! writes start: garbage collection, and the ends of namespaces and definitions.
//!
//! The layers, from the ground up: `store`, `schema` with `cel`, and `crd` know no request. `request` is one request.
//! `core` is what all requests share. `definitions`, `kinds` and `escalation` are the rules of a write. `verbs` apply
//! them. `lifecycle` and `dispatch` call verbs, and `service` calls `dispatch`. `server`, `serve` and `front` run
//! a service. [`rights`] compares recorded requests with roles.
//!
//! Recovery: objects are kept on disk only with [`Builder::data_dir`]. A restarted server has its
//! objects, its keys and a higher version, and no history: older watches and pages get 410 and list again.
//!
//! Time, uids and randomness come from the [`Clock`](reeve_clock::Clock) of the builder.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod admission;
mod apply;
pub mod assets;
pub mod authn;
mod builder;
mod builtin_schema;
mod cel;
mod connect;
mod control;
pub mod control_plane;
mod core;
mod crd;
mod definitions;
mod discovery;
mod disk;
mod dispatch;
mod documents;
#[cfg(feature = "program")]
mod envtest;
mod escalation;
pub mod faults;
mod field;
pub mod front;
mod http;
mod identity;
mod json_text;
mod kinds;
mod kubeconfig;
mod labels;
mod lifecycle;
mod meta;
mod names;
mod openapi;
mod ownership;
mod patch;
mod ports;
#[cfg(feature = "program")]
mod process;
// For the binary, and for the tool that writes its completions and manual page.
#[cfg(feature = "program")]
#[doc(hidden)]
pub mod program;
mod protobuf;
mod questions;
pub mod rbac;
pub mod record;
mod registry;
mod request;
mod resource;
mod restore;
mod reviews;
pub mod rights;
mod schema;
mod selector;
mod serve;
mod server;
mod service;
mod status;
mod store;
mod table;
mod template;
mod tls;
#[cfg(feature = "program")]
mod token_file;
mod user_certificate;
mod verbs;
mod webhooks;
mod yaml;

pub use builder::{Builder, StartError};
pub use http::body::Body;
pub use identity::IdentityError;
pub use ports::free_port;
pub use restore::RestoreError;
pub use serve::{ServeError, Serving};
pub use server::ApiServer;
pub use service::Service;
pub use store::{History, PersistError};
pub use template::Template;
pub use tls::TlsError;
pub use user_certificate::UserCertificate;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

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
//! The way of a request: [`Service`] asks the fault rules, then who may, reads what the path names, and
//! hands it to a verb. A verb loads the object, changes it, fills in defaults, checks it and commits it to
//! the store if nobody else wrote meanwhile. The store numbers the write and appends it to the ring of its resource,
//! from which every watch reads by its own cursor. One background task does what follows from writes:
//! collection, namespaces, definitions.
//!
//! Recovery: objects are kept on disk only with [`Builder::data_dir`]. A server that comes back has its
//! objects, its keys and a higher version, and no history: older watches and pages get 410 and list again.
//!
//! Time, uids and randomness come from the [`Clock`](reeve_clock::Clock) it is built with.

mod access;
pub mod assets;
pub mod authn;
mod builtin_schema;
mod cel;
pub mod control_plane;
mod core;
mod crd;
mod discovery;
mod disk;
mod dispatch;
mod documents;
mod escalation;
pub mod faults;
mod field;
pub mod front;
mod http;
mod identity;
mod json_text;
mod kinds;
mod kubeconfig;
mod lifecycle;
mod meta;
mod names;
mod openapi;
mod patch;
mod protobuf;
mod questions;
pub mod rbac;
pub mod record;
mod registry;
mod resource;
mod reviews;
mod schema;
mod selector;
mod serve;
mod server;
mod service;
mod status;
mod store;
mod table;
mod tls;
mod verbs;

pub use http::body::Body;
pub use identity::IdentityError;
pub use serve::{ServeError, Serving};
pub use server::{ApiServer, Builder, StartError};
pub use service::Service;
pub use store::{History, PersistError};
pub use tls::TlsError;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

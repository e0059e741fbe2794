//! The client of a manager: [`reeve_client`], with reads from the caches.
//!
//! ```no_run
//! # async fn example(client: reeve_controller::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use k8s_openapi::api::core::v1::{ConfigMap, Pod};
//! use kube_core::params::{DeleteParams, ListParams};
//! use reeve_controller::ObjectKey;
//! use reeve_controller::client::{ApplyOptions, Patch, optional};
//! use serde_json::json;
//!
//! let key = ObjectKey::namespaced("default", "settings");
//! // From the server. `optional` makes "not found" a `None`.
//! let Some(mut settings) = optional(client.get::<ConfigMap>(&key).await)? else { return Ok(()) };
//! // A change since the read is refused with a conflict.
//! let before = settings.clone();
//! settings.data.get_or_insert_default().insert("level".into(), "debug".into());
//! let patch = Patch::merge_from_locked(&before, &settings)?;
//! client.patch::<ConfigMap>(&key, patch).await?;
//! // Only names, labels and owners of the Pods, page by page.
//! let pods = client.metadata::<Pod>().pages(Some("default"), &ListParams::default()).all().await?;
//! // Server-side apply requires an owner.
//! let mut wanted = ConfigMap::default();
//! wanted.metadata.namespace = Some("default".into());
//! wanted.metadata.name = Some("summary".into());
//! wanted.data = Some([("pods".into(), pods.len().to_string())].into());
//! client.apply(&wanted, ApplyOptions::new("example")).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Sources of reads
//! [`Client::get`](reeve_client::Client::get), [`list`](reeve_client::Client::list) and all of [`Objects`] read from
//! the server. Reads of this process' caches have other names: [`Client::cached`], which waits for this client's own
//! writes, or a lister ([`Context::lister`](crate::Context::lister)), which never waits. Neither replaces the other
//! (controller-runtime: one `Get` for both, by configuration), and no read makes an informer.
//!
//! The rules for every call are documented in [`reeve_client`]. In addition:
//!
//! * writes of a deposed leader are refused ([`Error::NotLeader`]);
//! * writes are recorded, for [read-your-writes](crate::controller::Builder::own_writes_timeout).

pub use reeve_client::*;

pub use crate::own_writes::{Cached, CachedError, Client, DEFAULT_WAIT};

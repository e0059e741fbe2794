//! The names that most controllers use.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use reeve_controller::prelude::*;
//!
//! struct Names;
//!
//! impl Reconciler for Names {
//!     type Error = reconcile::Error;
//!
//!     async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, Self::Error> {
//!         if let Some(map) = ctx.lister::<ConfigMap>()?.get(&request)? {
//!             println!("{}", map.name_any());
//!         }
//!         Ok(Outcome::done())
//!     }
//! }
//! ```

pub use kube_core::{Resource, ResourceExt};
pub use reeve_clock::Clock;
pub use tokio_util::sync::CancellationToken;

pub use crate::cache::View;
pub use crate::{
    Client, Context, Controller, Event, Lister, Manager, ObjectKey, Outcome, Reconciler, Request,
};
pub use crate::{conditions, finalizer, handler, owner, predicate, reconcile, source};

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

#[doc(no_inline)]
pub use kube_core::{Resource, ResourceExt};
#[doc(no_inline)]
pub use reeve_clock::Clock;
#[doc(no_inline)]
pub use tokio_util::sync::CancellationToken;

#[doc(no_inline)]
pub use crate::cache::View;
#[doc(no_inline)]
pub use crate::{
    Client, Context, Controller, Event, Lister, Manager, ObjectKey, Outcome, Reconciler, Request,
};
#[doc(no_inline)]
pub use crate::{conditions, finalizer, handler, owner, predicate, reconcile, source};

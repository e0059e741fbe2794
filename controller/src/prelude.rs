//! The names that most controllers use.
//!
//! ```
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use reeve_controller::prelude::*;
//!
//! async fn name(ctx: Context, map: Arc<ConfigMap>) -> Result<Outcome, reconcile::Error> {
//!     println!("{} reconciles {}", ctx.controller(), map.name_any());
//!     Ok(Outcome::done())
//! }
//!
//! let names = Controller::builder("names").for_kind::<ConfigMap>().complete(reconcile::object(name));
//! # names.unwrap();
//! ```

#[doc(no_inline)]
pub use crate::cache::View;
#[doc(no_inline)]
pub use crate::events::EventType;
#[doc(no_inline)]
pub use crate::{
    CancellationToken, Client, Clock, Context, Controller, Event, Lister, Manager, ObjectKey,
    Outcome, Reconciler, Request,
};
#[doc(no_inline)]
pub use crate::{
    child, conditions, finalizer, handler, leader_election, owner, predicate, reconcile, source,
};
#[doc(no_inline)]
pub use kube_core::{Resource, ResourceExt};

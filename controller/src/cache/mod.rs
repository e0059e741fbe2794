//! Caches: what a manager knows of the cluster, one store a kind, filled and kept up to date by one informer.

mod caches;
#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod health_tests;
mod kind;
mod label_selector;
mod lister;
mod options;
mod registration;
mod resolve;
mod slot;
mod store;
mod sync;
#[cfg(test)]
mod tests;
mod view;
#[cfg(test)]
mod wire_tests;

pub(crate) use caches::{Asked, Asking};
pub use caches::{CacheError, Caches, NotCached};
pub use kind::{Kind, Kinds};
pub use lister::{Lister, ReadError};
pub use options::{CacheOptions, KindOptions, Selected};
pub use registration::Registration;
pub use resolve::{OptionsError, Resolved, resolve};
pub use store::StoreForm;
pub use sync::{NotSynced, Unsynced};
pub use view::View;

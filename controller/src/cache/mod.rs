//! Caches: what a manager knows of the cluster, one store a kind, filled and kept up to date by one informer.

mod caches;
mod kind;
mod lister;
mod registration;
mod slot;
mod store;
#[cfg(test)]
mod tests;
mod view;

pub use caches::{CacheError, Caches, NotCached};
pub use kind::{Kind, Kinds};
pub use lister::{Lister, ReadError};
pub use registration::Registration;
pub use store::StoreForm;
pub use view::View;

//! Caches: a manager's view of the cluster, one store a kind, filled and kept up to date by one informer.

mod caches;
#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod health_tests;
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

pub use caches::{CacheError, Caches, IndexError, NotCached};
pub(crate) use caches::{LONGEST_PAUSE, Rank};
pub use lister::{Lister, ReadError};
pub use options::{CacheOptions, KindOptions, Selected};
pub use reeve_client::{Kind, Kinds};
pub use registration::Registration;
pub use resolve::{OptionsError, Resolved, resolve};
pub use store::StoreForm;
pub(crate) use store::{Query, Store, scope_of};
pub use sync::{NotSynced, Unsynced};
pub use view::View;

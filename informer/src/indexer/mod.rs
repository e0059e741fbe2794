//! The store: objects by key, in the order of their keys, and by the values of named indexes.
//!
//! Each thread reads with a lock of its own. Writers hold all of them for a batch of changes at most, and to
//! swap in a state that was built beside the old one; freed entries are dropped after the lock is released. A walk over many objects uses a
//! [`StoreSnapshot`], which holds the lock for a moment only. A list costs one reference count an object, and no
//! copies.
//!
//! Beside the objects the store keeps 30 to 40 bytes for each, and its name: a pointer, its key, its place in the hash
//! table, and four bytes for each index that it is in, including the index of namespaces. A store of `dyn Stored` keeps 8 bytes more.

mod bytes;
mod index;
mod objects;
mod ordered;
mod postings;
mod replace;
mod replaced;
mod sharded;
mod snapshot;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod transaction;

pub use bytes::StoreBytes;
pub use index::{Error, IndexFunction, IndexValues, NAMESPACE_INDEX};
pub(crate) use replace::{Replacement, is_same};
pub(crate) use replaced::{Events, Replaced};
pub use snapshot::StoreSnapshot;
pub(crate) use state::OTHERS;
pub use store::Indexer;
pub(crate) use transaction::Change;

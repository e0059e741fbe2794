//! What a read asks for, and its result.

use std::sync::Arc;

use super::object::{Key, Object};

/// Why a read of the past fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HistoryError {
    /// Only events after `oldest` are kept.
    #[error("version {asked} is older than {oldest}")]
    TooOld {
        /// The version of the read.
        asked: u64,
        /// The oldest version with a complete history.
        oldest: u64,
    },
    /// The version is in the future.
    #[error("version {asked} is above {current}")]
    TooNew {
        /// The version of the read.
        asked: u64,
        /// The current version.
        current: u64,
    },
    /// The resource does not exist any more.
    #[error("the resource has no table")]
    NoTable,
}

/// Some objects of a resource at one version.
#[derive(Debug)]
pub(crate) struct Page {
    /// The version of the read.
    pub(crate) version: u64,
    /// In the order of their keys.
    pub(crate) objects: Vec<Arc<Object>>,
    /// The key after which to continue, when more remain.
    pub(crate) last: Option<Key>,
    /// Number of remaining objects, whether the filter accepts them or not.
    pub(crate) remaining: usize,
}

/// Which objects of a resource a read returns.
pub(crate) struct Query<'a> {
    /// Keys that start with this: `namespace/`, or everything.
    pub(crate) prefix: &'a str,
    /// Keys after this one.
    pub(crate) after: Option<&'a str>,
    /// The version of the read; `None` is now.
    pub(crate) at: Option<u64>,
    /// At most this many; `None` is all.
    pub(crate) limit: Option<usize>,
    /// Only objects that this accepts.
    pub(crate) accept: &'a dyn Fn(&Object) -> bool,
}

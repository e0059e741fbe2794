//! Changes without effect, so that they are not sent again.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::endpoint::GroupKind;

/// Maximum number of remembered changes. The least recently used is dropped beyond it, which costs a request.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4096).expect("more than none");

/// Changes that the server answered with an unchanged version.
#[derive(Debug)]
pub(crate) struct WithoutEffect(Mutex<LruCache<Tried, u64>>);

/// An object at one version, and the written part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tried {
    pub(crate) kind: GroupKind,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) status: bool,
}

// === impl WithoutEffect ===

impl Default for WithoutEffect {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(REMEMBERED)))
    }
}

impl WithoutEffect {
    pub(crate) fn knows(&self, tried: &Option<Tried>, change: u64) -> bool {
        let known = tried
            .as_ref()
            .and_then(|tried| self.0.lock().get(tried).copied());
        known == Some(change)
    }

    pub(crate) fn remember(&self, tried: Option<Tried>, change: u64) {
        if let Some(tried) = tried {
            self.0.lock().put(tried, change);
        }
    }
}

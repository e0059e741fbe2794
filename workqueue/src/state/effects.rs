//! Effects of an operation that are applied after the lock is released.

use crate::metrics::Counts;

/// Effects of an operation that are applied after the lock is released: counts, and keys to drop.
#[derive(Debug)]
pub(crate) struct Effects<T> {
    pub(crate) counts: Counts,
    /// A key to drop.
    dropped: Option<T>,
    /// More keys to drop; rare.
    more: Vec<T>,
}

// === impl Effects ===

impl<T> Default for Effects<T> {
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            dropped: None,
            more: Vec::new(),
        }
    }
}

impl<T> Effects<T> {
    pub(crate) fn drop_later(&mut self, key: Option<T>) {
        if self.dropped.is_none() {
            self.dropped = key;
        } else if let Some(key) = key {
            self.more.push(key);
        }
    }
}

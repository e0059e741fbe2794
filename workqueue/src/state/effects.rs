//! Effects of an operation that are applied after the lock is released.

/// Effects of an operation that are applied after the lock is released: counts, and keys to drop.
#[derive(Debug)]
pub(crate) struct Effects<T> {
    /// Number of items that became ready (or dirty).
    pub(crate) adds: u64,
    /// Number of adds with a delay.
    pub(crate) retries: u64,
    /// A key to drop.
    dropped: Option<T>,
    /// More keys to drop; rare.
    more: Vec<T>,
}

// === impl Effects ===

impl<T> Default for Effects<T> {
    fn default() -> Self {
        Self {
            adds: 0,
            retries: 0,
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

//! What an operation leaves to do once the lock is released.

/// What an operation left to do once the lock is released: to count, and to drop keys.
#[derive(Debug)]
pub(crate) struct Effects<T> {
    /// How many items became ready (or dirty).
    pub(crate) adds: u64,
    /// How many adds had a delay.
    pub(crate) retries: u64,
    /// A key to drop.
    dropped: Option<T>,
    /// More to drop; seldom.
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

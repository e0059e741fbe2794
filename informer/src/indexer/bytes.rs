//! The memory of a store: [`StoreBytes`].

/// The memory of a store, in bytes as requested from the allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreBytes {
    /// The entries themselves, with their reference counts: the size of the entry's type for each.
    pub entries: usize,
    /// The memory that the entries own ([`Stored::owned_bytes`](crate::Stored::owned_bytes)). All of it for
    /// [`Compact`](crate::Compact): the JSON. Zero for typed objects, whose strings, maps and lists are not counted:
    /// there this is a lower bound.
    pub owned: usize,
    /// The hash table, the order, and the indexes.
    pub indexes: usize,
}

// === impl StoreBytes ===

impl StoreBytes {
    /// The sum.
    #[must_use]
    pub fn total(&self) -> usize {
        self.entries + self.owned + self.indexes
    }
}

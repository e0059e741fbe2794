//! The place of an object in the store: [`Slot`].

/// The place of an object. It stays the same for as long as there is an object with its key, so an index needs four
/// bytes for the object, and no change when it is updated.
pub(super) type Slot = u32;

/// The number of slots that are copied together while a snapshot is held.
pub(super) const CHUNK: usize = 128;

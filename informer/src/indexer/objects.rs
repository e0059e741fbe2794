//! The objects in numbered slots, found by key: [`Objects`].

use std::sync::Arc;

use super::names::Names;
use super::slot::{CHUNK, Slot};
use crate::object::Stored;

type Chunk<S> = [Option<Arc<S>>; CHUNK];

/// Objects by key. A clone shares all chunks; a change copies the chunk of the object, if that is shared.
///
/// An object costs 8 bytes of a chunk (16 in a store of `dyn Stored`), 6 for its key and those of its name, and 10 to 20 of the table.
pub(super) struct Objects<S: ?Sized> {
    chunks: Vec<Arc<Chunk<S>>>,
    pub(super) names: Names,
}

// === impl Objects ===

impl<S: ?Sized> Clone for Objects<S> {
    fn clone(&self) -> Self {
        Self {
            chunks: self.chunks.clone(),
            names: self.names.clone(),
        }
    }
}

impl<S: Stored + ?Sized> Objects<S> {
    pub(super) fn new() -> Self {
        Self {
            chunks: Vec::new(),
            names: Names::new(),
        }
    }

    /// Empty, with room for `capacity`; keys have the same hashes as here.
    pub(super) fn emptied(&self, capacity: usize) -> Self {
        Self {
            chunks: Vec::with_capacity(capacity.div_ceil(CHUNK)),
            names: self.names.emptied(capacity),
        }
    }

    /// The bytes on the heap, without the objects.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * size_of::<Chunk<S>>()
            + self.chunks.capacity() * size_of::<usize>()
            + self.names.bytes()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Arc<S>> {
        let slot = slot as usize;
        self.chunks.get(slot / CHUNK)?[slot % CHUNK].as_ref()
    }

    /// Puts `object` into the slot of its key, which is in `namespace`, "" for none. Returns the slot, and the former
    /// object of the key.
    pub(super) fn insert(
        &mut self,
        hash: u32,
        namespace: &Arc<str>,
        object: Arc<S>,
    ) -> (Slot, Option<Arc<S>>) {
        let slot = self.names.take(hash, namespace, object.key_ref());
        if self.chunks.len() <= slot as usize / CHUNK {
            self.chunks.push(Arc::new([const { None }; CHUNK]));
        }
        (slot, self.put(slot, object))
    }

    /// Puts `object` into `slot`, which is that of its key.
    pub(super) fn put(&mut self, slot: Slot, object: Arc<S>) -> Option<Arc<S>> {
        let slot = slot as usize;
        Arc::make_mut(&mut self.chunks[slot / CHUNK])[slot % CHUNK].replace(object)
    }

    /// Empties `slot`.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Arc<S>> {
        self.names.free(slot);
        let slot = slot as usize;
        Arc::make_mut(&mut self.chunks[slot / CHUNK])[slot % CHUNK].take()
    }
}

//! The objects in numbered slots, found by key: [`Objects`].

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::keys::Keys;
use super::slot::{CHUNK, Slot};
use crate::object::Stored;
use reeve_client::KeyRef;

type Chunk<S> = [Option<Arc<S>>; CHUNK];

/// Objects by key. A clone shares all chunks; a change copies the chunk of the object, if that is shared.
///
/// An object costs 8 bytes of a chunk, 6 for its key and those of its name, and 10 to 20 of the table.
pub(super) struct Objects<S> {
    chunks: Vec<Arc<Chunk<S>>>,
    /// The keys of each chunk.
    keys: Vec<Arc<Keys>>,
    /// Slots from here on were never used.
    end: Slot,
    /// Slots that were given back.
    free: Vec<Slot>,
    table: Arc<HashTable<Place>>,
    /// Seeded in each process, but not resistant against chosen keys: a client that can create objects with chosen
    /// names has simpler ways to slow controllers down.
    hasher: RandomState,
}

/// The hash of a key, kept so that a growing table reads no object, and the slot of the object.
#[derive(Clone, Copy)]
struct Place {
    hash: u32,
    slot: Slot,
}

// === impl Place ===

impl Place {
    /// A hash for the table, which uses bits of both ends.
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

// === impl Objects ===

impl<S> Clone for Objects<S> {
    fn clone(&self) -> Self {
        Self {
            chunks: self.chunks.clone(),
            keys: self.keys.clone(),
            end: self.end,
            free: self.free.clone(),
            table: Arc::clone(&self.table),
            hasher: self.hasher.clone(),
        }
    }
}

impl<S: Stored> Objects<S> {
    pub(super) fn new() -> Self {
        Self::with_capacity(0, RandomState::default())
    }

    fn with_capacity(capacity: usize, hasher: RandomState) -> Self {
        Self {
            chunks: Vec::with_capacity(capacity.div_ceil(CHUNK)),
            keys: Vec::with_capacity(capacity.div_ceil(CHUNK)),
            end: 0,
            free: Vec::new(),
            table: Arc::new(HashTable::with_capacity(capacity)),
            hasher,
        }
    }

    /// Empty, with room for `capacity`; keys have the same hashes as here.
    pub(super) fn emptied(&self, capacity: usize) -> Self {
        Self::with_capacity(capacity, self.hasher.clone())
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// One more than the highest slot that was ever used.
    pub(super) fn end(&self) -> Slot {
        self.end
    }

    /// The bytes on the heap, without the objects.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * size_of::<Chunk<S>>()
            + self.keys.iter().map(|keys| keys.bytes()).sum::<usize>()
            + (self.chunks.capacity() + self.keys.capacity()) * size_of::<usize>()
            + self.free.capacity() * size_of::<Slot>()
            + self.table.allocation_size()
    }

    pub(super) fn hash(&self, key: KeyRef<'_>) -> u32 {
        // The upper half is as good as the lower.
        (self.hasher.hash_one(key) >> 32) as u32
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Arc<S>> {
        let slot = slot as usize;
        self.chunks.get(slot / CHUNK)?[slot % CHUNK].as_ref()
    }

    /// The key of the object in `slot`, or of the last one that was there.
    pub(super) fn key(&self, slot: Slot) -> KeyRef<'_> {
        let slot = slot as usize;
        self.keys[slot / CHUNK].get(slot % CHUNK)
    }

    pub(super) fn find(&self, hash: u32, key: KeyRef<'_>) -> Option<Slot> {
        let found = self.table.find(Place::spread(hash), |place| {
            place.hash == hash && self.key(place.slot) == key
        });
        found.map(|place| place.slot)
    }

    /// Puts `object` into the slot of its key, which is in `namespace`, "" for none. Returns the slot, and the former
    /// object of the key.
    pub(super) fn insert(
        &mut self,
        hash: u32,
        namespace: &Arc<str>,
        object: Arc<S>,
    ) -> (Slot, Option<Arc<S>>) {
        let key = object.key_ref();
        let keys = &self.keys;
        let entry = Arc::make_mut(&mut self.table).entry(
            Place::spread(hash),
            |place| {
                let slot = place.slot as usize;
                place.hash == hash && keys[slot / CHUNK].get(slot % CHUNK) == key
            },
            |place| Place::spread(place.hash),
        );
        let slot = match entry {
            Entry::Occupied(place) => place.get().slot,
            Entry::Vacant(vacant) => {
                let slot = self.free.pop().unwrap_or_else(|| {
                    let slot = self.end;
                    // 2^32 entries would need 34 GB for their slots alone.
                    self.end = slot.checked_add(1).expect("fewer than 2^32 objects");
                    slot
                });
                vacant.insert(Place { hash, slot });
                self.name(slot, namespace, key.name);
                slot
            }
        };
        let old = self.put(slot, object);
        (slot, old)
    }

    /// Records the key of the next object in `slot`.
    fn name(&mut self, slot: Slot, namespace: &Arc<str>, name: &str) {
        let slot = slot as usize;
        if self.keys.len() <= slot / CHUNK {
            if let Some(full) = self.keys.last_mut() {
                Arc::make_mut(full).shrink();
            }
            self.keys.push(Arc::new(Keys::new()));
            self.chunks.push(Arc::new([const { None }; CHUNK]));
        }
        Arc::make_mut(&mut self.keys[slot / CHUNK]).put(slot % CHUNK, namespace, name);
    }

    /// Puts `object` into `slot`, which is that of its key.
    pub(super) fn put(&mut self, slot: Slot, object: Arc<S>) -> Option<Arc<S>> {
        let slot = slot as usize;
        Arc::make_mut(&mut self.chunks[slot / CHUNK])[slot % CHUNK].replace(object)
    }

    /// Empties `slot`.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Arc<S>> {
        let hash = self.hash(self.key(slot));
        let table = Arc::make_mut(&mut self.table);
        let place = table.find_entry(Place::spread(hash), |place| place.slot == slot);
        if let Ok(place) = place {
            place.remove();
        }
        self.free.push(slot);
        let slot = slot as usize;
        Arc::make_mut(&mut self.chunks[slot / CHUNK])[slot % CHUNK].take()
    }
}

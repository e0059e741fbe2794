//! The objects in numbered slots ([`Objects`]), found by their keys ([`Names`]).

use std::hash::BuildHasher;
use std::hint::black_box;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::object::Stored;
use crate::turns::Turns;
use reeve_client::KeyRef;

/// The place of an object. It stays the same for as long as there is an object with its key, so an index needs four
/// bytes for the object, and no change when it is updated.
pub(super) type Slot = u32;

/// The number of slots that are copied together while a snapshot is held.
pub(super) const CHUNK: usize = 128;

type Chunk<S> = [Option<Arc<S>>; CHUNK];

/// Objects by key. A clone shares all chunks; a change copies the chunk of the object, if that is shared.
///
/// An object costs 8 bytes of a chunk (16 in a store of `dyn Stored`), 6 for its key and those of its name, and 10 to 20 of the table.
pub(super) struct Objects<S: ?Sized> {
    chunks: Vec<Arc<Chunk<S>>>,
    pub(super) names: Names,
}

/// The slots by key, and the keys by slot. A clone shares all chunks; a change copies the chunk of the key. Nothing here
/// depends on the type of the objects.
#[derive(Clone)]
pub(super) struct Names {
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

/// The keys of the objects of one chunk: nine bytes each and their names, in four pieces of memory.
///
/// A lookup compares keys here, where they are dense in the processor's caches. A comparison with the object itself,
/// which is anywhere on the heap, would cost more than all the rest of a read.
#[derive(Clone)]
struct Keys {
    /// The end of each place's name in `names`. A name begins at the end of the one before.
    ends: [u32; CHUNK],
    /// The index of each place's namespace in `namespaces`.
    spaces: [u8; CHUNK],
    names: String,
    /// "" for cluster-scoped objects. The text is shared with all other chunks.
    namespaces: Vec<Arc<str>>,
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

    /// The slot and the object of a key, to be changed.
    ///
    /// The key and the object are mostly in no cache of the processor, which can wait for both at once: so the object is
    /// looked at before its key is compared. A change that comes alone, in a store of 20,000, takes a microsecond less.
    pub(super) fn find(&self, hash: u32, key: KeyRef<'_>) -> Option<(Slot, &Arc<S>)> {
        let slot = self.names.find_if(hash, |slot| {
            black_box(self.get(slot).map(Arc::strong_count));
            self.names.key(slot) == key
        })?;
        Some((slot, self.get(slot)?))
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

    /// True if both have the same objects under the same keys, and share them.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let mut chunks = self.chunks.iter().zip(&other.chunks);
        self.chunks.len() == other.chunks.len()
            && chunks.all(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// The number of chunks that both share.
    #[cfg(test)]
    pub(super) fn shared_chunks(&self, other: &Self) -> usize {
        let chunks = self.chunks.iter().zip(&other.chunks);
        chunks
            .filter(|(one, other)| Arc::ptr_eq(one, other))
            .count()
    }

    /// The slots that do not have the same object in `other`.
    pub(super) async fn changed(&self, other: &Self, turns: &mut Turns) -> Vec<Slot> {
        let chunks = self.chunks.len().max(other.chunks.len());
        let mut changed = Vec::new();
        for chunk in 0..chunks {
            let both = (self.chunks.get(chunk), other.chunks.get(chunk));
            if matches!(both, (Some(one), Some(other)) if Arc::ptr_eq(one, other)) {
                turns.spend(1).await;
                continue;
            }
            turns.spend(CHUNK).await;
            let slots = (chunk * CHUNK..(chunk + 1) * CHUNK).map(|slot| slot as Slot);
            changed.extend(
                slots.filter(|slot| match (self.get(*slot), other.get(*slot)) {
                    (Some(one), Some(other)) => !Arc::ptr_eq(one, other),
                    (one, other) => one.is_some() || other.is_some(),
                }),
            );
        }
        changed
    }

    /// Frees them in turns: each chunk that nothing else refers to.
    pub(super) async fn free(self, turns: &mut Turns) {
        for chunk in self.chunks {
            let objects = Arc::into_inner(chunk).map_or(1, |_| CHUNK);
            turns.spend(objects).await;
        }
    }

    /// Empties `slot`.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Arc<S>> {
        self.names.free(slot);
        let slot = slot as usize;
        Arc::make_mut(&mut self.chunks[slot / CHUNK])[slot % CHUNK].take()
    }
}

// === impl Place ===

impl Place {
    /// A hash for the table, which uses bits of both ends.
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

// === impl Names ===

impl Names {
    fn new() -> Self {
        Self::with_capacity(0, RandomState::default())
    }

    fn with_capacity(capacity: usize, hasher: RandomState) -> Self {
        Self {
            keys: Vec::with_capacity(capacity.div_ceil(CHUNK)),
            end: 0,
            free: Vec::new(),
            table: Arc::new(HashTable::with_capacity(capacity)),
            hasher,
        }
    }

    /// Empty, with room for `capacity`; keys have the same hashes as here.
    fn emptied(&self, capacity: usize) -> Self {
        Self::with_capacity(capacity, self.hasher.clone())
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// One more than the highest slot that was ever used.
    pub(super) fn end(&self) -> Slot {
        self.end
    }

    /// The bytes on the heap.
    fn bytes(&self) -> usize {
        self.keys.iter().map(|keys| keys.bytes()).sum::<usize>()
            + self.keys.capacity() * size_of::<usize>()
            + self.free.capacity() * size_of::<Slot>()
            + self.table.allocation_size()
    }

    pub(super) fn hash(&self, key: KeyRef<'_>) -> u32 {
        // The upper half is as good as the lower.
        (self.hasher.hash_one(key) >> 32) as u32
    }

    /// The key of the object in `slot`, or of the last one that was there.
    pub(super) fn key(&self, slot: Slot) -> KeyRef<'_> {
        let slot = slot as usize;
        self.keys[slot / CHUNK].get(slot % CHUNK)
    }

    /// The shared text of the namespace of the key in `slot`, "" for none.
    pub(super) fn namespace(&self, slot: Slot) -> Arc<str> {
        let slot = slot as usize;
        self.keys[slot / CHUNK].namespace(slot % CHUNK)
    }

    pub(super) fn find(&self, hash: u32, key: KeyRef<'_>) -> Option<Slot> {
        self.find_if(hash, |slot| self.key(slot) == key)
    }

    /// The first slot with this hash that `is` accepts.
    fn find_if(&self, hash: u32, is: impl Fn(Slot) -> bool) -> Option<Slot> {
        let found = self.table.find(Place::spread(hash), |place| {
            place.hash == hash && is(place.slot)
        });
        found.map(|place| place.slot)
    }

    /// The slot of `key`, a new one if it has none. The text of its namespace, "" for none, is shared.
    fn take(&mut self, hash: u32, namespace: &Arc<str>, key: KeyRef<'_>) -> Slot {
        let keys = &self.keys;
        let entry = Arc::make_mut(&mut self.table).entry(
            Place::spread(hash),
            |place| {
                let slot = place.slot as usize;
                place.hash == hash && keys[slot / CHUNK].get(slot % CHUNK) == key
            },
            |place| Place::spread(place.hash),
        );
        match entry {
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
        }
    }

    /// Records the key of the next object in `slot`.
    fn name(&mut self, slot: Slot, namespace: &Arc<str>, name: &str) {
        let slot = slot as usize;
        if self.keys.len() <= slot / CHUNK {
            if let Some(full) = self.keys.last_mut() {
                Arc::make_mut(full).shrink();
            }
            self.keys.push(Arc::new(Keys::new()));
        }
        Arc::make_mut(&mut self.keys[slot / CHUNK]).put(slot % CHUNK, namespace, name);
    }

    /// Gives `slot` back.
    fn free(&mut self, slot: Slot) {
        let hash = self.hash(self.key(slot));
        let table = Arc::make_mut(&mut self.table);
        let place = table.find_entry(Place::spread(hash), |place| place.slot == slot);
        if let Ok(place) = place {
            place.remove();
        }
        self.free.push(slot);
    }
}

// === impl Keys ===

impl Keys {
    fn new() -> Self {
        Self {
            ends: [0; CHUNK],
            spaces: [0; CHUNK],
            names: String::new(),
            namespaces: Vec::new(),
        }
    }

    /// The bytes on the heap.
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.names.capacity()
            + self.namespaces.capacity() * size_of::<Arc<str>>()
    }

    /// The key that was put in `place` last.
    fn get(&self, place: usize) -> KeyRef<'_> {
        // Nearly always all neighbours are of one namespace.
        let namespace = match self.namespaces.as_slice() {
            [namespace] => Some(namespace),
            namespaces => namespaces.get(usize::from(self.spaces[place])),
        };
        KeyRef {
            namespace: namespace
                .map(|namespace| &**namespace)
                .filter(|text| !text.is_empty()),
            name: &self.names[self.begin(place)..self.ends[place] as usize],
        }
    }

    /// The shared text of the namespace of that key, "" for none.
    fn namespace(&self, place: usize) -> Arc<str> {
        let namespace = self.namespaces.get(usize::from(self.spaces[place]));
        namespace.map_or_else(|| Arc::from(""), Arc::clone)
    }

    fn begin(&self, place: usize) -> usize {
        place
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize)
    }

    /// Puts a key in `place`, and replaces the one that was there.
    fn put(&mut self, place: usize, namespace: &Arc<str>, name: &str) {
        let (begin, end) = (self.begin(place), self.ends[place] as usize);
        self.names.replace_range(begin..end, name);
        // A longer or shorter name moves those after it.
        let moved = (name.len() as u32).wrapping_sub((end - begin) as u32);
        for end in &mut self.ends[place..] {
            *end = end.wrapping_add(moved);
        }
        self.spaces[place] = self.space(namespace, begin < end);
    }

    /// The index of a namespace. `again`: the place had another key before.
    fn space(&mut self, namespace: &Arc<str>, again: bool) -> u8 {
        if self.namespaces.len() > CHUNK {
            self.forget();
        }
        // All keys of a namespace share its text, and neighbours are often of the namespace that came last.
        let mut known = self.namespaces.iter();
        let mut at = known.rposition(|known| Arc::ptr_eq(known, namespace));
        if at.is_none() && again {
            // A namespace that was empty for a while has another text than before.
            at = self.namespaces.iter().position(|known| known == namespace);
            if let Some(at) = at {
                self.namespaces[at] = Arc::clone(namespace);
            }
        }
        let at = at.unwrap_or_else(|| {
            self.namespaces.push(Arc::clone(namespace));
            self.namespaces.len() - 1
        });
        u8::try_from(at).expect("at most one namespace a place, and one to come")
    }

    /// Removes the namespaces of replaced keys.
    fn forget(&mut self) {
        let mut kept: Vec<Arc<str>> = Vec::new();
        for space in &mut self.spaces {
            let Some(namespace) = self.namespaces.get(usize::from(*space)) else {
                continue;
            };
            let known = kept.iter().position(|known| known == namespace);
            let at = known.unwrap_or(kept.len());
            if known.is_none() {
                kept.push(Arc::clone(namespace));
            }
            *space = u8::try_from(at).expect("at most one namespace a place");
        }
        self.namespaces = kept;
    }

    /// Frees spare capacity, once all places are taken.
    fn shrink(&mut self) {
        self.names.shrink_to_fit();
        self.namespaces.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::cases;

    proptest! {
        #![proptest_config(cases(300))]

        /// Each place has the key that was put there last, whatever was put elsewhere. A namespace that was empty has another
        /// text than before.
        #[test]
        fn each_place_keeps_its_key(
            steps in proptest::collection::vec((0..CHUNK, 0..400_u16, 0..10_u8, ".{0,12}"), 0..400),
        ) {
            let text = |space: u16| if space == 0 { String::new() } else { space.to_string() };
            let mut shared: Vec<Arc<str>> = (0..400).map(|space| text(space).into()).collect();
            let mut keys = Keys::new();
            let mut wanted = std::collections::BTreeMap::new();
            for (place, space, empty, name) in steps {
                let space = usize::from(space);
                if empty == 0 {
                    shared[space] = (*shared[space]).into();
                }
                keys.put(place, &shared[space], &name);
                wanted.insert(place, (Arc::clone(&shared[space]), name));
            }
            for (place, (namespace, name)) in &wanted {
                prop_assert_eq!(&keys.namespace(*place), namespace);
                let namespace = Some(&**namespace).filter(|text| !text.is_empty());
                prop_assert_eq!(keys.get(*place), KeyRef { namespace, name });
            }
            prop_assert!(keys.namespaces.len() <= CHUNK + 1);
            keys.forget();
            let spaces: std::collections::BTreeSet<_> = wanted.values().map(|(space, _)| space).collect();
            prop_assert!(keys.namespaces.len() <= spaces.len() + 1);
        }
    }
}

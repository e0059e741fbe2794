//! The keys of a store, in numbered slots: [`Names`]. Nothing here depends on the type of the objects.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::keys::Keys;
use super::ordered::Ordered;
use super::slot::{CHUNK, Slot};
use reeve_client::{KeyRef, ObjectKey};

/// The slots by key, and the keys by slot. A clone shares all chunks; a change copies the chunk of the key.
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

/// The slots of each namespace, cluster-scoped objects under "". Together they are the order of everything. A clone
/// shares all of it.
#[derive(Clone, Default)]
pub(super) struct Namespaces(Arc<BTreeMap<Arc<str>, Arc<Ordered>>>);

// === impl Place ===

impl Place {
    /// A hash for the table, which uses bits of both ends.
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

// === impl Names ===

impl Names {
    pub(super) fn new() -> Self {
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

    /// The bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
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

    pub(super) fn find(&self, hash: u32, key: KeyRef<'_>) -> Option<Slot> {
        let found = self.table.find(Place::spread(hash), |place| {
            place.hash == hash && self.key(place.slot) == key
        });
        found.map(|place| place.slot)
    }

    /// The slot of `key`, a new one if it has none. The text of its namespace, "" for none, is shared.
    pub(super) fn take(&mut self, hash: u32, namespace: &Arc<str>, key: KeyRef<'_>) -> Slot {
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
    pub(super) fn free(&mut self, slot: Slot) {
        let hash = self.hash(self.key(slot));
        let table = Arc::make_mut(&mut self.table);
        let place = table.find_entry(Place::spread(hash), |place| place.slot == slot);
        if let Ok(place) = place {
            place.remove();
        }
        self.free.push(slot);
    }
}

// === impl Names: order ===

impl Names {
    /// Adds `slot`, whose key is `key`, to a set.
    pub(super) fn add_to(&self, set: &mut Ordered, slot: Slot, key: KeyRef<'_>) {
        set.insert(slot, |other| self.key(other).cmp(&key));
    }

    /// Removes the slot of `key` from a set.
    pub(super) fn remove_from(&self, set: &mut Ordered, key: KeyRef<'_>) {
        set.remove(|other| self.key(other).cmp(&key));
    }

    /// The slots of all sets, each once, in the order of the keys.
    pub(super) fn union(&self, sets: &[&Ordered]) -> Vec<Slot> {
        let mut slots = Vec::with_capacity(sets.iter().map(|set| set.len()).sum());
        for set in sets {
            slots.extend(set.iter());
        }
        if sets.len() > 1 {
            slots.sort_unstable_by(|a, b| self.key(*a).cmp(&self.key(*b)));
            slots.dedup();
        }
        slots
    }

    /// Every slot, in the order of the keys, where no slot was given back. Lists come in this order, except from some
    /// servers that stream.
    pub(super) fn in_order(&self) -> Vec<Slot> {
        let mut order: Vec<Slot> = (0..self.end).collect();
        if !order.is_sorted_by(|a, b| self.key(*a) <= self.key(*b)) {
            order.sort_unstable_by(|a, b| self.key(*a).cmp(&self.key(*b)));
        }
        order
    }

    /// The slots of each namespace, of all slots in the order of the keys. `shared` returns the shared text of a
    /// namespace.
    pub(super) fn by_namespace(
        &self,
        order: &[Slot],
        shared: &mut dyn FnMut(&str) -> Arc<str>,
    ) -> Namespaces {
        let mut namespaces = BTreeMap::new();
        let mut rest = order;
        while let Some(first) = rest.first() {
            let namespace = self.key(*first).namespace;
            let length = rest.partition_point(|slot| self.key(*slot).namespace == namespace);
            let slots = Ordered::from_sorted(&rest[..length]);
            namespaces.insert(shared(namespace.unwrap_or_default()), Arc::new(slots));
            rest = &rest[length..];
        }
        Namespaces(Arc::new(namespaces))
    }
}

// === impl Namespaces ===

impl Namespaces {
    /// The slots of a namespace.
    pub(super) fn get(&self, namespace: &str) -> Option<&Ordered> {
        self.0.get(namespace).map(Arc::as_ref)
    }

    /// The names of the namespaces, in order.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.0.keys().cloned().collect()
    }

    /// The name of a namespace as all of its keys share it.
    pub(super) fn shared(&self, namespace: &str) -> Arc<str> {
        match self.0.get_key_value(namespace) {
            Some((shared, _)) => Arc::clone(shared),
            None => Arc::from(namespace),
        }
    }

    /// The key, which shares its namespace with the other keys.
    pub(super) fn key_of(&self, key: KeyRef<'_>) -> ObjectKey {
        ObjectKey {
            namespace: key.namespace.map(|namespace| self.shared(namespace)),
            name: Arc::from(key.name),
        }
    }

    /// Adds the slot of `key`, whose namespace has this shared name.
    pub(super) fn add(&mut self, names: &Names, namespace: Arc<str>, slot: Slot, key: KeyRef<'_>) {
        let slots = Arc::make_mut(&mut self.0).entry(namespace).or_default();
        names.add_to(Arc::make_mut(slots), slot, key);
    }

    /// Removes the slot of `key`.
    pub(super) fn remove(&mut self, names: &Names, key: KeyRef<'_>) {
        let namespace = key.namespace.unwrap_or_default();
        let namespaces = Arc::make_mut(&mut self.0);
        if let Some(slots) = namespaces.get_mut(namespace) {
            let slots = Arc::make_mut(slots);
            names.remove_from(slots, key);
            if slots.len() == 0 {
                namespaces.remove(namespace);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Every slot, in the order of the keys.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.0.values().flat_map(|slots| slots.iter())
    }

    /// The slots after `after` of one namespace or of all, in the order of the keys.
    pub(super) fn range<'a>(
        &'a self,
        names: &'a Names,
        namespace: Option<&'a str>,
        after: Option<KeyRef<'a>>,
    ) -> impl Iterator<Item = Slot> + 'a {
        let first = after.map(|after| after.namespace.unwrap_or_default());
        let from = Bound::Included(namespace.or(first).unwrap_or_default());
        let to = namespace.map_or(Bound::Unbounded, Bound::Included);
        let namespaces = self.0.range::<str, _>((from, to));
        namespaces.flat_map(move |(_, slots)| {
            slots.iter_after(move |slot| after.is_some_and(|after| names.key(slot) <= after))
        })
    }

    /// The bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let each = |(name, slots): (&Arc<str>, &Arc<Ordered>)| {
            // A pointer to each, their reference counts, and the text.
            24 + 32 + size_of::<Ordered>() + name.len() + slots.bytes()
        };
        self.0.iter().map(each).sum()
    }
}

//! Values at stable indices, kept in blocks, and linked lists through them.
//!
//! Growing moves nothing, and an empty block is freed. A vacant index is used again, so indices stay small. After a burst, only blocks that still hold a value
//! keep their memory.

use std::ops::{Index, IndexMut};

/// No index.
pub(crate) const NONE: u32 = u32::MAX;

/// Entries in a block.
const BLOCK: usize = 1024;
const SHIFT: u32 = BLOCK.trailing_zeros();
/// Number of empty blocks whose memory is kept for the next burst.
const KEPT: usize = 4;

#[derive(Debug)]
pub(crate) struct Slab<V> {
    blocks: Vec<Block<V>>,
    /// Blocks with a vacancy; the last one is used first.
    open: Vec<u32>,
    len: usize,
    /// Empty blocks that hold memory.
    idle: usize,
}

#[derive(Debug)]
struct Block<V> {
    entries: Vec<Entry<V>>,
    /// Head of the linked list of vacant entries; [`NONE`]: only entries beyond the end are vacant.
    vacant: u32,
    taken: u32,
    /// Whether it is in the list of open blocks.
    open: bool,
}

/// As large as the value if the value has a niche. A test pins this for slots and timers.
#[derive(Debug)]
enum Entry<V> {
    Taken(V),
    Vacant { next: u32 },
}

// === impl Slab ===

impl<V> Default for Slab<V> {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            open: Vec::new(),
            len: 0,
            idle: 0,
        }
    }
}

impl<V> Slab<V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, value: V) -> u32 {
        let number = match self.open.last() {
            Some(&number) => number,
            None => self.new_block(),
        };
        let block = &mut self.blocks[number as usize];
        let at = if block.vacant == NONE {
            if block.entries.capacity() == 0 && number > 0 {
                block.entries.reserve_exact(BLOCK);
            } else if block.taken == 0 && block.entries.capacity() > 0 {
                self.idle -= 1;
            }
            block.entries.push(Entry::Taken(value));
            block.entries.len() - 1
        } else {
            if block.taken == 0 {
                self.idle -= 1;
            }
            let at = block.vacant as usize;
            let was = std::mem::replace(&mut block.entries[at], Entry::Taken(value));
            block.vacant = match was {
                Entry::Vacant { next } => next,
                Entry::Taken(_) => unreachable!("the list of vacant entries holds vacant ones"),
            };
            at
        };
        block.taken += 1;
        if block.taken as usize == BLOCK {
            block.open = false;
            self.open.pop();
        }
        self.len += 1;
        number << SHIFT | u32::try_from(at).unwrap_or(NONE)
    }

    fn new_block(&mut self) -> u32 {
        let number = u32::try_from(self.blocks.len())
            .ok()
            .filter(|&number| number < NONE >> SHIFT)
            .expect("fewer than 2^32 - 1024 keys");
        self.blocks.push(Block {
            entries: Vec::new(),
            vacant: NONE,
            taken: 0,
            open: true,
        });
        self.open.push(number);
        number
    }

    pub(crate) fn remove(&mut self, index: u32) -> V {
        let number = index >> SHIFT;
        let block = &mut self.blocks[number as usize];
        let entry = &mut block.entries[index as usize % BLOCK];
        let vacated = Entry::Vacant { next: block.vacant };
        let Entry::Taken(value) = std::mem::replace(entry, vacated) else {
            unreachable!("{index} is vacant");
        };
        block.vacant = index % BLOCK as u32;
        block.taken -= 1;
        self.len -= 1;
        if !block.open {
            block.open = true;
            self.open.push(number);
        }
        if block.taken == 0 {
            if self.idle >= KEPT {
                block.entries = Vec::new();
                block.vacant = NONE;
            } else {
                self.idle += 1;
            }
        }
        value
    }

    pub(crate) fn get(&self, index: u32) -> Option<&V> {
        match self
            .blocks
            .get((index >> SHIFT) as usize)?
            .entries
            .get(index as usize % BLOCK)?
        {
            Entry::Taken(value) => Some(value),
            Entry::Vacant { .. } => None,
        }
    }

    /// The values, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &V> {
        let entries = self.blocks.iter().flat_map(|block| &block.entries);
        entries.filter_map(|entry| match entry {
            Entry::Taken(value) => Some(value),
            Entry::Vacant { .. } => None,
        })
    }

    /// Number of values that fit into the allocated memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        let blocks = self.blocks.iter();
        blocks.map(|block| block.entries.capacity()).sum()
    }

    #[cfg(test)]
    pub(crate) const fn bytes_each() -> usize {
        size_of::<Entry<V>>()
    }
}

impl<V> Index<u32> for Slab<V> {
    type Output = V;

    fn index(&self, index: u32) -> &V {
        match &self.blocks[(index >> SHIFT) as usize].entries[index as usize % BLOCK] {
            Entry::Taken(value) => value,
            Entry::Vacant { .. } => unreachable!("{index} is vacant"),
        }
    }
}

impl<V> IndexMut<u32> for Slab<V> {
    fn index_mut(&mut self, index: u32) -> &mut V {
        match &mut self.blocks[(index >> SHIFT) as usize].entries[index as usize % BLOCK] {
            Entry::Taken(value) => value,
            Entry::Vacant { .. } => unreachable!("{index} is vacant"),
        }
    }
}

/// The neighbours of a value in the one list it may be in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) previous: u32,
    pub(crate) next: u32,
}

/// A value that can be in a list.
pub(crate) trait Linked {
    fn links(&self) -> Links;
    fn links_mut(&mut self) -> &mut Links;
}

/// A doubly linked list through the values of a [`Slab`]: first in, first out, with removal in O(1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

// === impl Links ===

impl Default for Links {
    fn default() -> Self {
        Self {
            previous: NONE,
            next: NONE,
        }
    }
}

// === impl List ===

impl Default for List {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            len: 0,
        }
    }
}

impl List {
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    pub(crate) fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    pub(crate) fn push_back<V: Linked>(&mut self, slab: &mut Slab<V>, index: u32) {
        let tail = self.tail;
        *slab[index].links_mut() = Links {
            previous: tail,
            next: NONE,
        };
        if tail == NONE {
            self.head = index;
        } else {
            slab[tail].links_mut().next = index;
        }
        self.tail = index;
        self.len += 1;
    }

    pub(crate) fn remove<V: Linked>(&mut self, slab: &mut Slab<V>, index: u32) {
        let Links { previous, next } = slab[index].links();
        if previous == NONE {
            self.head = next;
        } else {
            slab[previous].links_mut().next = next;
        }
        if next == NONE {
            self.tail = previous;
        } else {
            slab[next].links_mut().previous = previous;
        }
        self.len -= 1;
    }

    /// The indices of the list, first to last.
    pub(crate) fn iter<'a, V: Linked>(
        &self,
        slab: &'a Slab<V>,
    ) -> impl Iterator<Item = u32> + use<'a, V> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let index = (at != NONE).then_some(at)?;
            at = slab[index].links().next;
            Some(index)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_values_stay_where_they_are() {
        let mut slab = Slab::default();
        let places: Vec<u32> = (0..5000_u64).map(|value| slab.insert(value)).collect();
        for (value, &place) in (0_u64..).zip(&places) {
            assert_eq!(slab[place], value);
        }
        assert_eq!(slab.remove(places[17]), 17);
        assert_eq!(slab.get(places[17]), None);
        assert_eq!((slab.len(), slab.insert(9)), (4999, places[17]));
    }

    #[test]
    fn memory_is_given_back_though_a_few_stay() {
        let mut slab = Slab::default();
        let places: Vec<u32> = (0..100 * BLOCK).map(|value| slab.insert(value)).collect();
        assert_eq!(slab.capacity(), 100 * BLOCK);
        for &place in &places {
            if place as usize != 50 * BLOCK {
                slab.remove(place);
            }
        }
        assert_eq!(slab.len(), 1);
        assert!(slab.capacity() <= (KEPT + 1) * BLOCK, "{}", slab.capacity());
        for value in 0..100 * BLOCK {
            slab.insert(value);
        }
        assert_eq!(slab.len(), 100 * BLOCK + 1);
        assert_eq!(slab[places[50 * BLOCK]], 50 * BLOCK);
    }

    #[test]
    fn one_value_that_comes_and_goes_allocates_once() {
        let mut slab = Slab::default();
        let place = slab.insert(1);
        for _ in 0..10 {
            slab.remove(place);
            assert_eq!(slab.insert(1), place);
        }
        assert!(slab.capacity() < BLOCK);
    }

    impl Linked for Links {
        fn links(&self) -> Links {
            *self
        }
        fn links_mut(&mut self) -> &mut Links {
            self
        }
    }

    #[test]
    fn a_list_gives_up_its_middle_and_keeps_its_order() {
        let mut slab = Slab::default();
        let mut list = List::default();
        let places: Vec<u32> = (0..5).map(|_| slab.insert(Links::default())).collect();
        for &place in &places {
            list.push_back(&mut slab, place);
        }
        for gone in [2, 0, 4] {
            list.remove(&mut slab, places[gone]);
        }
        let left: Vec<u32> = list.iter(&slab).collect();
        assert_eq!(left, [places[1], places[3]]);
        list.push_back(&mut slab, places[0]);
        let left: Vec<u32> = list.iter(&slab).collect();
        assert_eq!(left, [places[1], places[3], places[0]]);
        assert_eq!(list.len(), 3);
    }
}

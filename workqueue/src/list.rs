//! A doubly linked list through the entries of a [`Slab`]: first in, first out, with removal in O(1).

use crate::slab::{NONE, Slab};

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

//! The keys of neighbouring slots, close together.

use std::sync::Arc;

use super::slot::CHUNK;
use reeve_client::KeyRef;

/// The keys of the objects of one chunk: nine bytes each and their names, in four pieces of memory.
///
/// A lookup compares keys here, where they are dense in the processor's caches. A comparison with the object itself,
/// which is anywhere on the heap, would cost more than all the rest of a read.
#[derive(Clone)]
pub(super) struct Keys {
    /// The end of each place's name in `names`. A name begins at the end of the one before.
    ends: [u32; CHUNK],
    /// The index of each place's namespace in `namespaces`.
    spaces: [u8; CHUNK],
    names: String,
    /// "" for cluster-scoped objects. The text is shared with all other chunks.
    namespaces: Vec<Arc<str>>,
}

// === impl Keys ===

impl Keys {
    pub(super) fn new() -> Self {
        Self {
            ends: [0; CHUNK],
            spaces: [0; CHUNK],
            names: String::new(),
            namespaces: Vec::new(),
        }
    }

    /// The bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.names.capacity()
            + self.namespaces.capacity() * size_of::<Arc<str>>()
    }

    /// The key that was put in `place` last.
    pub(super) fn get(&self, place: usize) -> KeyRef<'_> {
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

    fn begin(&self, place: usize) -> usize {
        place
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize)
    }

    /// Puts a key in `place`, and replaces the one that was there.
    pub(super) fn put(&mut self, place: usize, namespace: &Arc<str>, name: &str) {
        let (begin, end) = (self.begin(place), self.ends[place] as usize);
        self.names.replace_range(begin..end, name);
        // A longer or shorter name moves those after it.
        let moved = (name.len() as u32).wrapping_sub((end - begin) as u32);
        for end in &mut self.ends[place..] {
            *end = end.wrapping_add(moved);
        }
        self.spaces[place] = self.space(namespace);
    }

    fn space(&mut self, namespace: &Arc<str>) -> u8 {
        if self.namespaces.len() > CHUNK {
            self.forget();
        }
        let known = self.namespaces.iter().position(|known| known == namespace);
        let at = known.unwrap_or_else(|| {
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
    pub(super) fn shrink(&mut self) {
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

        /// Each place has the key that was put there last, whatever was put elsewhere.
        #[test]
        fn each_place_keeps_its_key(
            steps in proptest::collection::vec((0..CHUNK, 0..400_u16, ".{0,12}"), 0..400),
        ) {
            let mut keys = Keys::new();
            let mut wanted = std::collections::BTreeMap::new();
            for (place, space, name) in steps {
                let namespace: Arc<str> = if space == 0 { "".into() } else { space.to_string().into() };
                keys.put(place, &namespace, &name);
                wanted.insert(place, (namespace, name));
            }
            for (place, (namespace, name)) in &wanted {
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

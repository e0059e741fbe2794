//! A sorted map that is copied in constant time, and counts its entries below a key in logarithmic time.
//!
//! A B+ tree whose nodes are shared between copies. A write copies the nodes on its way that another copy shares, about
//! three of 32 entries, and changes all others in place.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use super::object::Key;

/// Maximum number of entries of a leaf, and of children of an inner node.
const WIDTH: usize = 32;
/// A node with fewer entries is merged with the one beside it, if they fit into one.
const NARROW: usize = WIDTH / 4;

/// A sorted map from keys to values that are cheap to clone.
#[derive(Clone)]
pub(super) struct Map<V>(Node<V>);

enum Node<V> {
    Leaf(Arc<Vec<(Key, V)>>),
    Inner(Arc<Inner<V>>),
}

#[derive(Clone)]
struct Inner<V> {
    /// Number of entries below.
    count: usize,
    /// Each child with a key that is not above its first one and above all of the child before; that of the first child is
    /// not used.
    children: Vec<(Key, Node<V>)>,
}

/// A key with its values in two maps.
pub(super) type Unshared<'a, V> = (&'a Key, Option<&'a V>, Option<&'a V>);

/// Entries in the order of their keys.
pub(super) struct Iter<'a, V> {
    /// The children that are still to visit, of each level.
    inner: Vec<std::slice::Iter<'a, (Key, Node<V>)>>,
    leaf: std::slice::Iter<'a, (Key, V)>,
}

// === impl Map ===

impl<V: Clone> Map<V> {
    /// An empty map.
    pub(super) fn new() -> Self {
        Self(Node::Leaf(Arc::default()))
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.0.count()
    }

    /// Whether it has no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `key`.
    pub(super) fn get(&self, key: &str) -> Option<&V> {
        let mut node = &self.0;
        loop {
            match node {
                Node::Leaf(entries) => {
                    let at = entries.binary_search_by(|(known, _)| known.as_str().cmp(key));
                    return at.ok().map(|at| &entries[at].1);
                }
                Node::Inner(inner) => {
                    node = &inner.children[inner.child(|known| known <= key)].1;
                }
            }
        }
    }

    /// Sets the value of `key`; returns the former one.
    pub(super) fn insert(&mut self, key: Key, value: V) -> Option<V> {
        let (former, split) = self.0.insert(key, value);
        if let Some(right) = split {
            let left = std::mem::replace(&mut self.0, Node::Leaf(Arc::default()));
            self.0 = Node::Inner(Arc::new(Inner {
                count: left.count() + right.1.count(),
                children: vec![(right.0.clone(), left), right],
            }));
        }
        former
    }

    /// Removes `key`; returns its value.
    pub(super) fn remove(&mut self, key: &str) -> Option<V> {
        // Nothing is copied for a key that is absent.
        self.get(key)?;
        let removed = self.0.remove(key);
        while let Node::Inner(inner) = &self.0 {
            match &inner.children[..] {
                [] => self.0 = Node::Leaf(Arc::default()),
                [(_, only)] => self.0 = only.clone(),
                _ => break,
            }
        }
        removed
    }

    /// Number of the first keys for which `is_before` holds; it holds for none after one for which it does not.
    pub(super) fn rank(&self, is_before: impl Fn(&str) -> bool) -> usize {
        let (mut node, mut rank) = (&self.0, 0);
        loop {
            match node {
                Node::Leaf(entries) => {
                    return rank + entries.partition_point(|(key, _)| is_before(key.as_str()));
                }
                Node::Inner(inner) => {
                    let at = inner.child(&is_before);
                    let before = inner.children[..at].iter();
                    rank += before.map(|(_, child)| child.count()).sum::<usize>();
                    node = &inner.children[at].1;
                }
            }
        }
    }

    /// All entries.
    pub(super) fn iter(&self) -> Iter<'_, V> {
        self.iter_from(|_| false)
    }

    /// The keys whose entries may differ from those of `other`, each with both values, in order. Nodes that both maps share
    /// are not visited: for a copy the work grows with the number of writes since then, not with that of entries.
    pub(super) fn unshared<'a>(&'a self, other: &'a Self) -> Vec<Unshared<'a, V>> {
        let (mut ones, mut others) = (vec![&self.0], vec![&other.0]);
        loop {
            let heights = (height(&ones), height(&others));
            match heights.0.cmp(&heights.1) {
                Ordering::Greater => ones = children(&ones),
                Ordering::Less => others = children(&others),
                Ordering::Equal => {
                    remove_shared(&mut ones, &mut others);
                    if heights.0 == 0 {
                        return both(&entries(&ones), &entries(&others));
                    }
                    (ones, others) = (children(&ones), children(&others));
                }
            }
        }
    }

    /// The entries from the first key for which `is_before` does not hold.
    pub(super) fn iter_from(&self, is_before: impl Fn(&str) -> bool) -> Iter<'_, V> {
        let (mut node, mut inner) = (&self.0, Vec::new());
        loop {
            match node {
                Node::Leaf(entries) => {
                    let at = entries.partition_point(|(key, _)| is_before(key.as_str()));
                    let leaf = entries[at..].iter();
                    return Iter { inner, leaf };
                }
                Node::Inner(found) => {
                    let at = found.child(&is_before);
                    inner.push(found.children[at + 1..].iter());
                    node = &found.children[at].1;
                }
            }
        }
    }
}

impl<V> std::fmt::Debug for Map<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Map({})", self.0.count())
    }
}

impl<V: Clone> Default for Map<V> {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Node ===

impl<V> Clone for Node<V> {
    fn clone(&self) -> Self {
        match self {
            Self::Leaf(entries) => Self::Leaf(entries.clone()),
            Self::Inner(inner) => Self::Inner(inner.clone()),
        }
    }
}

impl<V> Node<V> {
    fn count(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(inner) => inner.count,
        }
    }

    /// The address of the node: copies that share it have the same one.
    fn place(&self) -> *const () {
        match self {
            Self::Leaf(entries) => Arc::as_ptr(entries).cast(),
            Self::Inner(inner) => Arc::as_ptr(inner).cast(),
        }
    }

    /// Number of entries or children.
    fn width(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(inner) => inner.children.len(),
        }
    }
}

impl<V: Clone> Node<V> {
    /// Returns the former value, and the right half if the node was split.
    fn insert(&mut self, key: Key, value: V) -> (Option<V>, Option<(Key, Self)>) {
        match self {
            Self::Leaf(entries) => {
                let entries = Arc::make_mut(entries);
                let at = match entries.binary_search_by(|(known, _)| known.cmp(&key)) {
                    Ok(at) => {
                        return (Some(std::mem::replace(&mut entries[at].1, value)), None);
                    }
                    Err(at) => at,
                };
                entries.insert(at, (key, value));
                let right = split(entries, at);
                let right = right.map(|right| (right[0].0.clone(), Self::Leaf(Arc::new(right))));
                (None, right)
            }
            Self::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let at = inner.child(|known| known <= key.as_str());
                let (former, right) = inner.children[at].1.insert(key, value);
                inner.count += usize::from(former.is_none());
                let Some(right) = right else {
                    return (former, None);
                };
                inner.children.insert(at + 1, right);
                let Some(children) = split(&mut inner.children, at + 1) else {
                    return (former, None);
                };
                let right = Inner::of(children);
                inner.count -= right.count;
                let first = right.children[0].0.clone();
                (former, Some((first, Self::Inner(Arc::new(right)))))
            }
        }
    }

    /// Removes a key that is present.
    fn remove(&mut self, key: &str) -> Option<V> {
        match self {
            Self::Leaf(entries) => {
                let entries = Arc::make_mut(entries);
                let at = entries.binary_search_by(|(known, _)| known.as_str().cmp(key));
                at.ok().map(|at| entries.remove(at).1)
            }
            Self::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let at = inner.child(|known| known <= key);
                let removed = inner.children[at].1.remove(key);
                inner.count -= usize::from(removed.is_some());
                inner.merge(at);
                removed
            }
        }
    }

    /// Appends the entries of the node that follows.
    fn append(&mut self, separator: &Key, right: &Self) {
        match (self, right) {
            (Self::Leaf(entries), Self::Leaf(right)) => {
                Arc::make_mut(entries).extend(right.iter().cloned());
            }
            (Self::Inner(inner), Self::Inner(right)) => {
                let inner = Arc::make_mut(inner);
                let first = inner.children.len();
                inner.children.extend(right.children.iter().cloned());
                inner.children[first].0 = separator.clone();
                inner.count += right.count;
            }
            // All leaves have one depth.
            _ => {}
        }
    }
}

// === impl Inner ===

impl<V: Clone> Inner<V> {
    fn of(children: Vec<(Key, Node<V>)>) -> Self {
        Self {
            count: children.iter().map(|(_, child)| child.count()).sum(),
            children,
        }
    }

    /// The last child whose first key may be before.
    fn child(&self, is_before: impl Fn(&str) -> bool) -> usize {
        self.children[1..].partition_point(|(key, _)| is_before(key.as_str()))
    }

    /// Joins a child that became narrow with the one beside it; an empty one is removed.
    fn merge(&mut self, at: usize) {
        let width = self.children[at].1.width();
        if width == 0 {
            self.children.remove(at);
            return;
        }
        if width >= NARROW {
            return;
        }
        let left = at.saturating_sub(1);
        let Some((separator, right)) = self.children.get(left + 1) else {
            return;
        };
        if self.children[left].1.width() + right.width() <= WIDTH {
            let (separator, right) = (separator.clone(), right.clone());
            self.children[left].1.append(&separator, &right);
            self.children.remove(left + 1);
        }
    }
}

/// How many levels are below nodes of one level.
fn height<V>(nodes: &[&Node<V>]) -> usize {
    let mut height = 0;
    let mut node = nodes.first().copied();
    while let Some(Node::Inner(inner)) = node {
        height += 1;
        node = inner.children.first().map(|(_, child)| child);
    }
    height
}

/// The nodes below those of one level.
fn children<'a, V>(nodes: &[&'a Node<V>]) -> Vec<&'a Node<V>> {
    let below = nodes.iter().flat_map(|node| match node {
        Node::Leaf(_) => &[],
        Node::Inner(inner) => &inner.children[..],
    });
    below.map(|(_, child)| child).collect()
}

/// The entries of leaves.
fn entries<'a, V>(leaves: &[&'a Node<V>]) -> Vec<&'a (Key, V)> {
    let entries = leaves.iter().flat_map(|leaf| match leaf {
        Node::Leaf(entries) => &entries[..],
        Node::Inner(_) => &[],
    });
    entries.collect()
}

/// Removes the nodes that are in both levels.
fn remove_shared<V>(ones: &mut Vec<&Node<V>>, others: &mut Vec<&Node<V>>) {
    let known: HashSet<_> = ones.iter().map(|node| node.place()).collect();
    let shared: HashSet<_> = others.iter().map(|node| node.place()).collect();
    let shared: HashSet<_> = shared.intersection(&known).copied().collect();
    ones.retain(|node| !shared.contains(&node.place()));
    others.retain(|node| !shared.contains(&node.place()));
}

/// Each key of two sorted sequences with the values there.
fn both<'a, V>(ones: &[&'a (Key, V)], others: &[&'a (Key, V)]) -> Vec<Unshared<'a, V>> {
    let (mut ones, mut others) = (ones.iter().peekable(), others.iter().peekable());
    let mut found = Vec::new();
    loop {
        let order = match (ones.peek(), others.peek()) {
            (None, None) => return found,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((one, _)), Some((other, _))) => one.cmp(other),
        };
        let one = ones.next_if(|_| order.is_le());
        let other = others.next_if(|_| order.is_ge());
        if let Some((key, _)) = one.or(other) {
            found.push((
                key,
                one.map(|(_, value)| value),
                other.map(|(_, value)| value),
            ));
        }
    }
}

/// Splits the entries of a full node after an insertion at `at`. Keys that grow leave full nodes.
fn split<T>(entries: &mut Vec<T>, at: usize) -> Option<Vec<T>> {
    if entries.len() <= WIDTH {
        return None;
    }
    let half = if at + 1 == entries.len() {
        at
    } else {
        entries.len() / 2
    };
    let mut right = Vec::with_capacity(WIDTH + 1);
    right.extend(entries.drain(half..));
    entries.shrink_to(WIDTH + 1);
    Some(right)
}

// === impl Iter ===

impl<'a, V> Iterator for Iter<'a, V> {
    type Item = (&'a Key, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.leaf.next() {
                return Some((key, value));
            }
            let mut node = loop {
                match self.inner.last_mut()?.next() {
                    Some((_, child)) => break child,
                    None => drop(self.inner.pop()),
                }
            };
            loop {
                match node {
                    Node::Leaf(entries) => break self.leaf = entries.iter(),
                    Node::Inner(inner) => {
                        let mut children = inner.children.iter();
                        let Some((_, first)) = children.next() else {
                            break;
                        };
                        self.inner.push(children);
                        node = first;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use proptest::prelude::*;

    fn key(number: u32) -> Key {
        // Some are prefixes of others.
        Key::from(&*format!("{}/{number}", number % 7))
    }

    fn depth<V>(node: &Node<V>) -> usize {
        match node {
            Node::Leaf(entries) => {
                assert!(entries.len() <= WIDTH);
                1
            }
            Node::Inner(inner) => {
                assert!((1..=WIDTH).contains(&inner.children.len()));
                let counts = inner.children.iter().map(|(_, child)| child.count());
                assert_eq!(inner.count, counts.sum::<usize>());
                let depths: Vec<_> = inner
                    .children
                    .iter()
                    .map(|(_, child)| depth(child))
                    .collect();
                assert!(depths.iter().all(|depth| *depth == depths[0]), "{depths:?}");
                depths[0] + 1
            }
        }
    }

    fn check(map: &Map<u32>, model: &BTreeMap<String, u32>) {
        let all = map.iter().map(|(key, value)| (key.as_str(), *value));
        assert!(all.eq(model.iter().map(|(key, value)| (&**key, *value))));
        assert_eq!(map.len(), model.len());
        depth(&map.0);
        for prefix in ["", "3", "3/", "3/1", "6/", "7", "9"] {
            let found = map
                .iter_from(|key| key < prefix)
                .map(|(key, _)| key.as_str());
            let found = found.take_while(|key| key.starts_with(prefix));
            let expected = model.keys().filter(|key| key.starts_with(prefix));
            assert!(found.eq(expected.map(|key| &**key)), "{prefix}");
            let before = model.keys().filter(|key| key.as_str() < prefix);
            assert_eq!(map.rank(|key| key < prefix), before.count());
            assert_eq!(map.get(prefix), model.get(prefix));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_is_a_sorted_map_and_copies_stay_as_they_were(
            operations in proptest::collection::vec((0_u32..800, any::<u8>()), 1..2_000), removes in 0_u8..200,
        ) {
            let (mut map, mut model) = (Map::new(), BTreeMap::new());
            let mut copies = Vec::new();
            for (at, (number, what)) in operations.into_iter().enumerate() {
                // The share of removals changes, so that the map grows and shrinks.
                let removes = if at % 500 < 250 { removes / 2 } else { removes.saturating_add(55) };
                let key = key(number);
                if what < removes {
                    prop_assert_eq!(map.remove(key.as_str()), model.remove(key.as_str()));
                } else {
                    let former = map.insert(key.clone(), at as u32);
                    prop_assert_eq!(former, model.insert(key.to_string(), at as u32));
                }
                if at % 200 == 0 {
                    copies.push((map.clone(), model.clone()));
                }
            }
            copies.push((map.clone(), model.clone()));
            for (copy, then) in &copies {
                check(copy, then);
                // An entry that was written again with its value may be among them.
                let found = copy.unshared(&map);
                prop_assert!(found.is_sorted_by_key(|(key, _, _)| *key));
                let found = found.into_iter().filter(|(_, then, now)| then != now);
                let found: Vec<_> = found
                    .map(|(key, then, now)| (key.to_string(), then.copied(), now.copied()))
                    .collect();
                let keys: BTreeSet<&String> = then.keys().chain(model.keys()).collect();
                let expected = keys.into_iter().map(|key| (key.clone(), then.get(key).copied(), model.get(key).copied()));
                let expected: Vec<_> = expected.filter(|(_, then, now)| then != now).collect();
                prop_assert_eq!(found, expected);
            }
            for key in model.keys() {
                prop_assert!(map.remove(key).is_some());
            }
            prop_assert!(map.is_empty() && map.iter().next().is_none());
        }
    }

    #[test]
    fn growing_keys_leave_full_leaves_and_a_write_copies_few_nodes() {
        let mut map = Map::new();
        for number in 0..10_000_u32 {
            map.insert(Key::from(&*format!("{number:06}")), number);
        }
        fn leaves(node: &Node<u32>, found: &mut Vec<*const Vec<(Key, u32)>>) {
            match node {
                Node::Leaf(entries) => found.push(Arc::as_ptr(entries)),
                Node::Inner(inner) => inner
                    .children
                    .iter()
                    .for_each(|(_, child)| leaves(child, found)),
            }
        }
        let (mut before, mut after) = (Vec::new(), Vec::new());
        leaves(&map.0, &mut before);
        assert_eq!(before.len(), 10_000_usize.div_ceil(WIDTH));
        let copy = map.clone();
        map.insert(Key::from("005000"), 1);
        leaves(&map.0, &mut after);
        let copied = before
            .iter()
            .zip(&after)
            .filter(|(one, other)| one != other);
        assert_eq!(copied.count(), 1);
        assert_eq!(
            (copy.get("005000"), map.get("005000")),
            (Some(&5000), Some(&1))
        );
        assert!(depth(&map.0) <= 3);
        let visited = copy.unshared(&map);
        assert_eq!(visited.len(), WIDTH, "one leaf");
        let different = visited.iter().filter(|(_, then, now)| then != now);
        let different: Vec<_> = different.collect();
        assert_eq!(different, [&(&Key::from("005000"), Some(&5000), Some(&1))]);
        assert!(map.unshared(&map.clone()).is_empty());
    }
}

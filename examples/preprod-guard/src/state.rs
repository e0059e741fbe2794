//! The objects of the cluster that rules look up, as informers report them.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Mark;
use crate::object::{Facts, Key};

/// The observed objects.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Whether the first lists of all watched kinds are complete.
    pub synced: bool,
    objects: BTreeMap<Key, Facts>,
}

// === impl State ===

impl State {
    /// Adds an object or replaces it.
    pub fn put(&mut self, key: Key, facts: Facts) {
        self.objects.insert(key, facts);
    }

    /// Removes an object, and returns its last facts.
    pub fn remove(&mut self, key: &Key) -> Option<Facts> {
        self.objects.remove(key)
    }

    /// The number of objects, without namespaces, for whose environment there is no label, neither on the object nor on
    /// its namespace.
    #[must_use]
    pub fn unlabelled(&self, mark: &Mark) -> usize {
        let of_namespace = |namespace: &str| {
            let namespace = self.get(&Key::namespace(namespace));
            namespace.is_some_and(|namespace| namespace.labels.contains_key(&mark.label))
        };
        let objects = self.objects.iter().filter(|(key, facts)| {
            key.resource != "namespaces"
                && !facts.marked
                && !facts.labels.contains_key(&mark.label)
                && !of_namespace(&key.namespace)
        });
        objects.count()
    }

    /// An object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Facts> {
        self.objects.get(key)
    }

    /// Whether `facts` are those of a production object: by its mark, or without such a label by that of its namespace.
    #[must_use]
    pub fn is_production(&self, namespace: &str, facts: &Facts, mark: &Mark) -> bool {
        if facts.marked || facts.labels.contains_key(&mark.label) {
            return facts.marked;
        }
        self.get(&Key::namespace(namespace))
            .is_some_and(|namespace| namespace.marked)
    }

    /// The production objects for which `condition` holds, in the order of their keys. Namespaces are not among them.
    #[must_use]
    pub fn production(&self, mark: &Mark, condition: impl Fn(&Key, &Facts) -> bool) -> Vec<&Key> {
        let objects = self.objects.iter().filter(|(key, facts)| {
            key.resource != "namespaces"
                && condition(key, facts)
                && self.is_production(&key.namespace, facts, mark)
        });
        objects.map(|(key, _)| key).collect()
    }

    /// The groups and kinds of the owners of production objects.
    #[must_use]
    pub fn owner_kinds(&self, mark: &Mark) -> BTreeSet<(String, String)> {
        let objects = self.objects.iter();
        let production =
            objects.filter(|(key, facts)| self.is_production(&key.namespace, facts, mark));
        production
            .flat_map(|(_, facts)| facts.owner_kinds.iter().cloned())
            .collect()
    }

    /// The uids in `uids`, and those of all objects that they own, directly or through others.
    #[must_use]
    pub fn family(&self, mut uids: BTreeSet<String>) -> BTreeSet<String> {
        loop {
            let before = uids.len();
            for facts in self.objects.values() {
                if !facts.uid.is_empty() && !facts.owners.is_disjoint(&uids) {
                    uids.insert(facts.uid.clone());
                }
            }
            if uids.len() == before {
                return uids;
            }
        }
    }
}

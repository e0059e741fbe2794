//! The objects of the cluster that rules look up, as informers report them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::config::Config;
use crate::object::{Facts, Key};

/// The most owners above an object that can give it their mark.
const MOST_OWNERS_ABOVE: usize = 16;

/// The observed objects.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Whether the first lists of all watched kinds are complete, and their watches go on.
    pub synced: bool,
    objects: BTreeMap<Arc<Key>, Facts>,
    by_uid: HashMap<String, Arc<Key>>,
    by_owner: HashMap<String, BTreeSet<Arc<Key>>>,
    by_namespace: HashMap<String, BTreeSet<Arc<Key>>>,
}

// === impl State ===

impl State {
    /// Adds an object or replaces it. Returns its former facts.
    pub fn put(&mut self, key: Key, facts: Facts) -> Option<Facts> {
        let before = self.remove(&key);
        let key = Arc::new(key);
        if !facts.uid.is_empty() {
            self.by_uid.insert(facts.uid.clone(), Arc::clone(&key));
        }
        for owner in &facts.owners {
            let owned = self.by_owner.entry(owner.clone()).or_default();
            owned.insert(Arc::clone(&key));
        }
        let namespace = self.by_namespace.entry(key.namespace.clone()).or_default();
        namespace.insert(Arc::clone(&key));
        self.objects.insert(key, facts);
        before
    }

    /// Removes an object, and returns its last facts.
    pub fn remove(&mut self, key: &Key) -> Option<Facts> {
        let facts = self.objects.remove(key)?;
        if self.by_uid.get(&facts.uid).is_some_and(|of| **of == *key) {
            self.by_uid.remove(&facts.uid);
        }
        for owner in &facts.owners {
            take(&mut self.by_owner, owner, key);
        }
        take(&mut self.by_namespace, &key.namespace, key);
        Some(facts)
    }

    /// The number of objects, without namespaces, for whose environment there is no label, neither on the object nor on
    /// its namespace.
    #[must_use]
    pub fn unlabelled(&self, config: &Config) -> usize {
        let label = &config.mark.label;
        let of_namespace = |namespace: &str| {
            let namespace = self.get(&Key::namespace(namespace));
            namespace.is_some_and(|namespace| namespace.labels.contains_key(label))
        };
        let objects = self.objects.iter().filter(|(key, facts)| {
            key.resource != "namespaces"
                && !facts.marked
                && !facts.labels.contains_key(label)
                && !of_namespace(&key.namespace)
        });
        objects.count()
    }

    /// An object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Facts> {
        self.objects.get(key)
    }

    /// Whether `facts` are those of a production object: by its mark, or without such a label by that of an owner or of its
    /// namespace. The namespace of the guard is production, with everything in it.
    #[must_use]
    pub fn is_production(&self, key: &Key, facts: &Facts, config: &Config) -> bool {
        let namespace = self.get(&Key::namespace(&key.namespace));
        self.is_production_in(namespace, key, facts, config)
    }

    /// The same, with the facts of the namespace from another source.
    #[must_use]
    pub fn is_production_in(
        &self,
        namespace: Option<&Facts>,
        key: &Key,
        facts: &Facts,
        config: &Config,
    ) -> bool {
        if key.is_of_namespace(&config.namespace) {
            return true;
        }
        if facts.marked || facts.labels.contains_key(&config.mark.label) {
            return facts.marked;
        }
        self.has_marked_owner(facts, MOST_OWNERS_ABOVE)
            || namespace.is_some_and(|namespace| namespace.marked)
    }

    /// Whether an object is production only if one of its owners is.
    pub(crate) fn asks_owners(&self, facts: &Facts, config: &Config) -> bool {
        let says = facts.marked || facts.labels.contains_key(&config.mark.label);
        !says && !facts.owners.is_empty()
    }

    fn has_marked_owner(&self, facts: &Facts, most: usize) -> bool {
        let keys = facts.owners.iter().filter_map(|uid| self.by_uid.get(uid));
        let mut owners = keys.filter_map(|key| self.objects.get(key));
        owners.any(|owner| owner.marked || most > 0 && self.has_marked_owner(owner, most - 1))
    }

    /// The production objects for which `condition` holds, in the order of their keys. Namespaces are not among them.
    #[must_use]
    pub fn production(
        &self,
        config: &Config,
        condition: impl Fn(&Key, &Facts) -> bool,
    ) -> Vec<&Key> {
        let objects = self.objects.iter().map(|(key, facts)| (&**key, facts));
        self.of_production(objects, config, condition)
    }

    /// The same, of one namespace.
    #[must_use]
    pub fn production_in(
        &self,
        namespace: &str,
        config: &Config,
        condition: impl Fn(&Key, &Facts) -> bool,
    ) -> Vec<&Key> {
        let keys = self.by_namespace.get(namespace).into_iter().flatten();
        let objects = keys.filter_map(|key| Some((&**key, self.objects.get(key)?)));
        self.of_production(objects, config, condition)
    }

    /// The production objects that the objects with these uids own, directly or through others.
    #[must_use]
    pub fn production_of(&self, owners: BTreeSet<String>, config: &Config) -> Vec<&Key> {
        let mut found = BTreeSet::new();
        let mut seen = owners.clone();
        let mut open: Vec<String> = owners.into_iter().collect();
        while let Some(owner) = open.pop() {
            for key in self.by_owner.get(&owner).into_iter().flatten() {
                found.insert(&**key);
                let facts = self.objects.get(key);
                let uid = facts.map(|facts| facts.uid.clone()).unwrap_or_default();
                if !uid.is_empty() && seen.insert(uid.clone()) {
                    open.push(uid);
                }
            }
        }
        let objects = found
            .into_iter()
            .filter_map(|key| Some((key, self.objects.get(key)?)));
        self.of_production(objects, config, |_, _| true)
    }

    fn of_production<'a>(
        &self,
        objects: impl Iterator<Item = (&'a Key, &'a Facts)>,
        config: &Config,
        condition: impl Fn(&Key, &Facts) -> bool,
    ) -> Vec<&'a Key> {
        let objects = objects.filter(|(key, facts)| {
            key.resource != "namespaces"
                && condition(key, facts)
                && self.is_production(key, facts, config)
        });
        objects.map(|(key, _)| key).collect()
    }

    /// The groups and kinds of the owners of production objects.
    #[must_use]
    pub fn owner_kinds(&self, config: &Config) -> BTreeSet<(String, String)> {
        let objects = self.objects.iter();
        let production = objects.filter(|(key, facts)| self.is_production(key, facts, config));
        production
            .flat_map(|(_, facts)| facts.owner_kinds.iter().cloned())
            .collect()
    }
}

/// Removes a key from the set of an index, and the set with its last key.
fn take(index: &mut HashMap<String, BTreeSet<Arc<Key>>>, of: &str, key: &Key) {
    if let Some(keys) = index.get_mut(of) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            resource: "pods".into(),
            namespace: "hbox".into(),
            name: name.into(),
            ..Key::default()
        }
    }

    fn facts(uid: &str, owner: &str, marked: bool) -> Facts {
        Facts {
            uid: uid.into(),
            owners: [owner.to_owned()].into(),
            marked,
            ..Facts::default()
        }
    }

    #[test]
    fn an_object_leaves_every_index_with_its_owners_and_its_uid() {
        let (mut state, config) = (State::default(), Config::default());
        state.put(key("a"), facts("1", "owner", true));
        let owned = |state: &State| {
            let owned = state.production_of(["owner".to_owned()].into(), &config);
            owned.len()
        };
        assert_eq!(owned(&state), 1);
        let before = state.put(key("a"), facts("2", "another", true));
        assert_eq!(before.unwrap().uid, "1");
        assert_eq!(owned(&state), 0);
        assert!(state.remove(&key("a")).is_some() && state.remove(&key("a")).is_none());
        assert!(state.by_uid.is_empty() && state.by_owner.is_empty());
        assert!(state.by_namespace.is_empty());
    }

    #[test]
    fn owners_in_a_circle_have_an_end() {
        let (mut state, config) = (State::default(), Config::default());
        state.put(key("a"), facts("1", "2", false));
        state.put(key("b"), facts("2", "1", false));
        let a = state.get(&key("a")).unwrap();
        assert!(!state.is_production(&key("a"), a, &config));
        assert!(
            state
                .production_of(["1".to_owned()].into(), &config)
                .is_empty()
        );
    }
}

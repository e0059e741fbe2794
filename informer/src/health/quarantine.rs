//! The objects that cannot be read.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use indexmap::IndexMap;

use crate::decode::Undecodable;
use reeve_client::{KeyRef, ObjectKey};

/// An object of the server that cannot be read as its type. The store keeps the state that it had before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quarantined {
    /// The key of the object.
    pub key: ObjectKey,
    /// Its version.
    pub resource_version: Option<String>,
    /// The error, without any of the object's content.
    pub error: String,
    /// The outline of the object: names of fields and types of values, never a value. Cut after 512 bytes, without
    /// `managedFields`.
    pub outline: String,
}

/// The number of objects that are described, and of those without a name that are counted.
pub(super) const DESCRIBED: usize = 1000;

/// All objects that cannot be read, each once.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    named: IndexMap<ObjectKey, Held, RandomState>,
    /// The versions of objects without a name.
    nameless: HashSet<Option<String>, RandomState>,
    /// The number of named objects that are described.
    described: usize,
}

#[derive(Debug)]
struct Held {
    version: Option<String>,
    /// The error and the outline.
    described: Option<Box<(String, String)>>,
}

// === impl Quarantine ===

impl Quarantine {
    /// True if this version of the object is in quarantine, or no more objects without a name are counted.
    pub(super) fn holds(&self, object: &Undecodable) -> bool {
        let Some(key) = &object.key else {
            return self.nameless.len() >= DESCRIBED
                || self.nameless.contains(&object.resource_version);
        };
        let held = self.named.get(key);
        held.is_some_and(|held| held.version == object.resource_version)
    }

    pub(super) fn add(&mut self, object: &Undecodable) {
        let Some(key) = &object.key else {
            if self.nameless.len() < DESCRIBED {
                self.nameless.insert(object.resource_version.clone());
            }
            return;
        };
        self.release(key.as_ref());
        let described = (self.described < DESCRIBED).then(|| {
            self.described += 1;
            Box::new((object.error.clone(), object.outline.clone()))
        });
        let held = Held {
            version: object.resource_version.clone(),
            described,
        };
        self.named.insert(key.clone(), held);
    }

    /// True if it was there.
    pub(super) fn release(&mut self, key: KeyRef<'_>) -> bool {
        let held = self.named.swap_remove(&key);
        if let Some(held) = &held {
            self.described -= usize::from(held.described.is_some());
        }
        held.is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.named.len() + self.nameless.len()
    }

    pub(super) fn described(&self) -> impl Iterator<Item = Quarantined> + '_ {
        self.named.iter().filter_map(|(key, held)| {
            let (error, outline) = &**held.described.as_ref()?;
            Some(Quarantined {
                key: key.clone(),
                resource_version: held.version.clone(),
                error: error.clone(),
                outline: outline.clone(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(name: Option<usize>, version: usize) -> Undecodable {
        Undecodable {
            key: name.map(|name| ObjectKey::namespaced("n", name.to_string())),
            uid: None,
            resource_version: Some(version.to_string()),
            error: format!("error {version}"),
            outline: String::new(),
        }
    }

    #[test]
    fn all_are_counted_once_and_a_thousand_described() {
        let mut quarantine = Quarantine::default();
        for version in 0..2 {
            for name in 0..5000 {
                assert!(!quarantine.holds(&broken(Some(name), version)));
                quarantine.add(&broken(Some(name), version));
                assert!(quarantine.holds(&broken(Some(name), version)));
            }
        }
        assert_eq!(quarantine.len(), 5000);
        assert_eq!(quarantine.described().count(), 1000);
        assert!(quarantine.described().all(|one| one.error == "error 1"));
        for name in 0..4999 {
            quarantine.release(broken(Some(name), 0).key.unwrap().as_ref());
        }
        assert_eq!(quarantine.len(), 1);
        quarantine.add(&broken(Some(1), 2));
        assert_eq!(
            (quarantine.len(), quarantine.described().count()),
            (2, 1),
            "there is room again for what comes"
        );
    }

    #[test]
    fn objects_without_a_name_are_distinguished_by_their_version_and_bounded() {
        let mut quarantine = Quarantine::default();
        for version in 0..1000 {
            for again in [false, true] {
                assert_eq!(quarantine.holds(&broken(None, version)), again);
                quarantine.add(&broken(None, version));
            }
        }
        assert!(quarantine.holds(&broken(None, 1000)));
        quarantine.add(&broken(None, 1000));
        assert_eq!(
            (quarantine.len(), quarantine.described().count()),
            (1000, 0)
        );
    }
}

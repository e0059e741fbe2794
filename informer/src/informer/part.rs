//! The part of a store that one watch fills, and its replacement by a list: [`Part`].

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::event::Event;
use crate::fifo::{Deletion, Delta, KnownObjects, Snapshot};
use crate::indexer::{Change, Events, Indexer, NAMESPACE_INDEX, OTHERS, Replaced, Replacement};
use crate::object::Stored;
use crate::turns::PIECE;
use reeve_client::transport::Scope;
use reeve_client::{KeyRef, ObjectKey, ResourceVersion};

/// The part of a store that one watch fills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Namespace(Arc<str>),
    /// All namespaces but these.
    Others(Arc<BTreeSet<Arc<str>>>),
}

/// The objects that a store holds of one part.
pub(super) struct KnownPart<S: ?Sized> {
    pub(super) indexer: Arc<Indexer<S>>,
    pub(super) part: Part,
}

// === impl Part ===

impl Part {
    /// The name under which the store keeps its version; `None` for all of the store.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Whole => None,
            Self::Namespace(name) => Some(name),
            Self::Others(_) => Some(OTHERS),
        }
    }

    /// True if the objects of a namespace belong to this part.
    pub(super) fn holds(&self, namespace: Option<&str>) -> bool {
        match self {
            Self::Whole => true,
            Self::Namespace(name) => namespace == Some(name),
            Self::Others(names) => !names.contains(namespace.unwrap_or_default()),
        }
    }

    /// True if something in `scope` may belong to this part.
    pub(super) fn meets(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Cluster => true,
            Scope::Namespace(name) => self.holds(Some(name)),
        }
    }

    /// `fields`, and the field selector that excludes what is not of this part.
    pub(super) fn fields(&self, fields: String) -> String {
        let Self::Others(names) = self else {
            return fields;
        };
        let others = names
            .iter()
            .map(|name| format!("metadata.namespace!={name}"));
        let own = (!fields.is_empty()).then_some(fields);
        own.into_iter().chain(others).collect::<Vec<_>>().join(",")
    }

    /// The keys of the objects that the store holds of this part, if it can be replaced within the store that readers
    /// see: both states are few objects. Else the next state is made beside it.
    pub(super) fn few<S: Stored + ?Sized>(
        &self,
        indexer: &Indexer<S>,
        snapshot: &Snapshot<S>,
    ) -> Option<Vec<ObjectKey>> {
        // Only the replacement of everything knows that equal versions may not mean equal objects.
        if snapshot.is_fresh() || snapshot.objects.len() > PIECE {
            return None;
        }
        let namespace = match self {
            Self::Whole => return None,
            Self::Namespace(name) => Some(&**name),
            Self::Others(_) => None,
        };
        let held = indexer.list_range(namespace, None, PIECE + 1);
        let of_part = held.iter().filter(|object| self.holds(object.namespace()));
        (held.len() <= PIECE).then(|| of_part.map(|object| object.key()).collect())
    }

    /// Replaces what the store holds of this part, the objects of `held`, in one step, and returns what changed: first
    /// what is gone, then the rest in the order of the list, as for a list of everything.
    pub(super) fn replace_within<S: Stored + ?Sized>(
        &self,
        indexer: &Indexer<S>,
        held: Vec<ObjectKey>,
        snapshot: Snapshot<S>,
        initial: bool,
    ) -> Vec<Event<S>> {
        let name = self.name().unwrap_or_default();
        let mut stay: HashSet<KeyRef<'_>> = HashSet::new();
        // From the last object to the first: of two with one key the later counts.
        let listed = snapshot.objects.iter().rev();
        let mut counts: Vec<_> = listed.map(|one| stay.insert(one.key_ref())).collect();
        stay.extend(snapshot.retained.iter().map(ObjectKey::as_ref));
        let gone: Vec<_> = held
            .into_iter()
            .filter(|key| !stay.contains(&key.as_ref()))
            .collect();
        let mut events = Events::new();
        indexer.change(|change| {
            let lost = gone
                .into_iter()
                .map(|key| Delta::Deleted(Deletion::FinalStateUnknown { key, last: None }));
            let listed = snapshot.objects.into_iter();
            let listed = listed.filter(|_| counts.pop() == Some(true));
            let listed = listed.map(Delta::Replaced);
            for delta in lost.chain(listed) {
                events.push(change.apply(delta, initial));
            }
            change.set_part(name, snapshot.resource_version.clone());
            change.advance(snapshot.resource_version);
        });
        events.in_order().collect()
    }

    /// Has the replacement of this part take place, by a list of `version`. See [`Indexer::swap`].
    pub(super) fn swap<S: Stored + ?Sized>(
        &self,
        indexer: &Indexer<S>,
        replacement: Replacement<S>,
        version: &ResourceVersion,
        new_epoch: bool,
    ) -> Result<Replaced<S>, Box<Replacement<S>>> {
        let newest = indexer.resource_version();
        indexer.swap(replacement, |change| {
            if let Some(part) = self.name() {
                change.set_part(part, version.clone());
                if !new_epoch {
                    change.advance(newest);
                }
            }
        })
    }
}

/// Removes objects of a namespace from the store, the first [`PIECE`] of them. Returns the deletions, none if there are
/// no such objects.
pub(super) fn remove_piece<S: Stored + ?Sized>(
    indexer: &Indexer<S>,
    namespace: &str,
) -> Vec<Event<S>> {
    let objects = indexer.list_range(Some(namespace), None, PIECE);
    let mut events = Vec::with_capacity(objects.len());
    indexer.change(|change| {
        for object in objects {
            let lost = Delta::Deleted(Deletion::FinalStateUnknown {
                key: object.key(),
                last: None,
            });
            if let Change::One(event) = change.apply(lost, false) {
                events.push(event);
            }
        }
    });
    events
}

// === impl KnownPart ===

impl<S: Stored + ?Sized> KnownObjects<S> for KnownPart<S> {
    fn known(&self, key: KeyRef<'_>) -> Option<Arc<S>> {
        self.indexer.get_ref(key)
    }

    fn known_objects(&self) -> Vec<Arc<S>> {
        match &self.part {
            Part::Namespace(namespace) => self
                .indexer
                .by_index(NAMESPACE_INDEX, namespace)
                .unwrap_or_default(),
            part => {
                let mut objects = self.indexer.list();
                objects.retain(|object| part.holds(object.namespace()));
                objects
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::sample::line;
    use crate::turns::{Turns, at_once};

    fn map(namespace: &str, name: &str, version: &str) -> Arc<ConfigMap> {
        let mut map = ConfigMap::default();
        map.metadata.namespace = Some(namespace.to_owned());
        map.metadata.name = Some(name.to_owned());
        map.metadata.uid = Some(format!("uid-{name}"));
        map.metadata.resource_version = Some(version.to_owned());
        Arc::new(map)
    }

    fn all(objects: Vec<Arc<ConfigMap>>, version: &str) -> Snapshot<ConfigMap> {
        Snapshot {
            objects,
            retained: Vec::new(),
            resource_version: version.into(),
            new_epoch: false,
            reread: Arc::default(),
        }
    }

    /// Replaces a part as a feed does.
    fn replace(
        part: &Part,
        indexer: &Indexer<ConfigMap>,
        snapshot: Snapshot<ConfigMap>,
    ) -> Vec<Event<ConfigMap>> {
        if let Some(held) = part.few(indexer, &snapshot) {
            return part.replace_within(indexer, held, snapshot, false);
        }
        let (version, new_epoch) = (snapshot.resource_version.clone(), snapshot.new_epoch);
        let (mut turns, holds) = (Turns::endless(), |namespace: Option<&str>| {
            part.holds(namespace)
        });
        let replacement = at_once(indexer.replacement(snapshot, false, holds, &mut turns));
        let replaced = part.swap(indexer, replacement, &version, new_epoch);
        replaced.ok().unwrap().into_parts().0.collect()
    }

    /// The store of an informer that watches two namespaces.
    fn store() -> Indexer<ConfigMap> {
        let indexer = Indexer::new();
        let parts = ["red", "blue"].map(Arc::from);
        indexer.change(|change| change.set_parts(parts.into_iter()));
        indexer
    }

    /// Few objects are replaced within the store, many beside it, with the same result.
    #[test]
    fn a_list_of_one_namespace_leaves_the_others_as_they_are() {
        for many in [0, PIECE + 1] {
            let indexer = store();
            let [red, blue] = ["red", "blue"].map(|name| Part::Namespace(Arc::from(name)));
            let crowd = || (0..many).map(|number| map("red", &format!("m{number}"), "1"));
            let others = vec![map("blue", "a", "3"), map("blue", "z", "4")];
            drop(replace(&blue, &indexer, all(others, "9")));
            let first = [
                map("red", "a", "1"),
                map("red", "b", "2"),
                map("red", "c", "5"),
            ];
            let listed = crowd().chain(first.clone()).collect();
            drop(replace(&red, &indexer, all(listed, "7")));
            let newest = ResourceVersion::from("9");
            assert_eq!(indexer.resource_version(), newest, "of any");
            let key = ObjectKey::namespaced("red", "c");
            let kept = indexer.get(&key).unwrap();

            let mut reborn = (*map("red", "b", "11")).clone();
            reborn.metadata.uid = Some("another".to_owned());
            let next = vec![
                map("red", "d", "12"),
                Arc::new(reborn),
                map("red", "c", "5"),
            ];
            let mut snapshot = all(crowd().chain(next).collect(), "20");
            snapshot.retained = vec![ObjectKey::namespaced("red", "x")];
            let events = replace(&red, &indexer, snapshot);
            let mut lines: Vec<_> = events.iter().map(line).collect();
            lines[..2].sort();
            assert_eq!(
                lines,
                ["-a@1!", "-b@2!", "+d@12", "+b@11"],
                "{many} besides"
            );
            assert!(Arc::ptr_eq(&kept, &indexer.get(&key).unwrap()));
            assert_eq!(indexer.list_range(Some("blue"), None, 2000).len(), 2);
            assert_eq!(indexer.list_range(Some("red"), None, 2000).len(), many + 3);
            assert_eq!(indexer.resource_version().as_str(), "20");
        }
    }

    #[test]
    fn of_two_objects_with_one_key_the_later_counts() {
        let [red, blue] = ["red", "blue"].map(|name| Part::Namespace(Arc::from(name)));
        let again = |name: &str, version: &str| {
            let mut map = (*map("red", name, version)).clone();
            map.metadata.uid = Some("another".to_owned());
            Arc::new(map)
        };
        // Within the store, by a changed copy of it, and by a state from nothing.
        for (crowd, others) in [(0, 0), (PIECE + 1, 2 * PIECE + 20), (PIECE + 1, 0)] {
            let indexer = store();
            let crowd = || (0..crowd).map(|number| map("red", &format!("m{number}"), "1"));
            let others = (0..others).map(|number| map("blue", &format!("m{number}"), "1"));
            drop(replace(&blue, &indexer, all(others.collect(), "9")));
            let first = [
                map("red", "a", "2"),
                map("red", "b", "3"),
                map("red", "c", "4"),
            ];
            // What the store holds.
            drop(replace(&red, &indexer, all(first.to_vec(), "7")));
            let twice = [
                map("red", "a", "11"),
                again("a", "12"),
                map("red", "b", "13"),
                map("red", "b", "14"),
                again("c", "15"),
                map("red", "c", "4"),
                map("red", "d", "16"),
                again("d", "17"),
            ];
            let events = replace(&red, &indexer, all(crowd().chain(twice).collect(), "20"));
            let lines = events.iter().map(line);
            let lines: Vec<_> = lines.filter(|line| !line.contains('m')).collect();
            assert_eq!(lines, ["-a@2!", "+a@12", "~b@3-14r", "+d@17"]);
        }
    }

    #[test]
    fn the_list_of_a_part_has_an_index_that_was_added_while_it_was_applied() {
        let indexer = store();
        let [red, blue] = ["red", "blue"].map(|name| Part::Namespace(Arc::from(name)));
        let others = (0..3 * PIECE).map(|number| map("blue", &format!("m{number}"), "2"));
        drop(replace(&blue, &indexer, all(others.collect(), "9")));
        let listed = || (0..PIECE + 1).map(|number| map("red", &format!("m{number}"), "3"));
        let (mut turns, version) = (Turns::endless(), ResourceVersion::from("8"));
        let holds = |namespace: Option<&str>| red.holds(namespace);
        let snapshot = all(listed().collect(), "8");
        let replacement = at_once(indexer.replacement(snapshot, false, holds, &mut turns));
        let names = |map: &ConfigMap| Ok(vec![map.name().into()]);
        indexer.add_index("name", names).unwrap();
        let refused = red.swap(&indexer, replacement, &version, false);
        let mut replacement = refused.err().unwrap();
        assert_eq!(indexer.len(), 3 * PIECE, "nothing took place");
        let part = |name| indexer.snapshot().resource_version_of(Some(name)).clone();
        assert!(part("red").is_empty());
        at_once(replacement.follow(&indexer, &mut turns));
        let replaced = red.swap(&indexer, *replacement, &version, false);
        assert_eq!(replaced.ok().unwrap().len(), PIECE + 1);
        assert_eq!((part("red").as_str(), part("blue").as_str()), ("8", "9"));
        assert_eq!(indexer.resource_version().as_str(), "9", "of any");
        assert_eq!(indexer.by_index("name", "m7").unwrap().len(), 2);
    }

    #[test]
    fn in_a_new_epoch_equal_versions_are_not_taken_for_equal_objects() {
        let indexer = store();
        let [red, blue] = ["red", "blue"].map(|name| Part::Namespace(Arc::from(name)));
        drop(replace(
            &blue,
            &indexer,
            all(vec![map("blue", "z", "80")], "90"),
        ));
        drop(replace(
            &red,
            &indexer,
            all(vec![map("red", "a", "60")], "70"),
        ));
        let mut snapshot = all(vec![map("red", "a", "60")], "65");
        snapshot.new_epoch = true;
        let events = replace(&red, &indexer, snapshot);
        let lines: Vec<_> = events.iter().map(line).collect();
        assert_eq!(
            lines,
            ["~a@60-60r"],
            "without events for the other namespace"
        );
        assert_eq!(indexer.resource_version().as_str(), "65");
    }
}

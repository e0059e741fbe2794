//! Several watches that fill one store: one for each namespace of a set.

use std::collections::HashSet;
use std::sync::Arc;

use super::Inner;
use super::feed::Feed;
use super::namespaces::Part;
use crate::entry::Stored;
use crate::event::Event;
use crate::fifo::{Deletion, Delta};
use crate::indexer::{Change, NAMESPACE_INDEX, Snapshot};
use crate::key::{KeyRef, ObjectKey};
use crate::transport::Scope;

/// A namespace of more objects is replaced beside the store that readers see, which costs as much as all of it;
/// of fewer, within it.
const BESIDE: usize = 1000;

/// How many deletions readers wait for at most.
const CHUNK: usize = 1000;

impl<S: Stored> Inner<S> {
    /// Has one watch for each namespace that the set has now; gives those that are new.
    ///
    /// What is known of a namespace that stays in view, stays: also when all namespaces are watched as one from
    /// now on, or were until now. A new watch takes nothing older than what was seen by any other.
    pub(super) fn follow_namespaces(&self) -> Vec<Arc<Feed<S>>> {
        let Some(namespaces) = &self.namespaces else {
            return Vec::new();
        };
        let wanted = namespaces.parts();
        let (mut feeds, gone): (Vec<_>, Vec<_>) = self
            .feeds()
            .iter()
            .cloned()
            .partition(|feed| wanted.get(&feed.scope) == Some(&feed.part));
        let newest = self.indexer.resource_version();
        let new: Vec<_> = wanted
            .iter()
            .filter(|(scope, _)| {
                // They are in the order of their scopes.
                let held = feeds.binary_search_by(|feed| feed.scope.cmp(scope));
                held.is_err()
            })
            .map(|(scope, part)| {
                let (scope, part) = (scope.clone(), part.clone());
                self.source.feed(scope, part, newest.clone())
            })
            .collect();
        feeds.extend(new.iter().cloned());
        feeds.sort_by(|a, b| a.scope.cmp(&b.scope));
        // With the processor held, no handler that comes now sees what goes.
        let processor = self.processor.lock();
        for feed in &gone {
            feed.stop();
        }
        let parts = feeds.iter().filter_map(|feed| feed.part.name());
        let parts: Vec<Arc<str>> = parts.map(Arc::from).collect();
        self.feeds.send_replace(feeds.into());
        self.indexer
            .change(|change| change.set_parts(parts.into_iter()));
        if !gone.is_empty() && !wanted.contains_key(&Scope::Cluster) {
            let mut names = self
                .indexer
                .index_values(NAMESPACE_INDEX)
                .unwrap_or_default();
            names.retain(|name| !wanted.contains_key(&Scope::Namespace(Arc::clone(name))));
            names.sort_unstable();
            for name in names {
                let events = self.forget(&self.keys_of(&name));
                self.note_change(&events);
                processor.distribute(events);
            }
            // Nothing was processed, after which these are told without that.
            processor.wake_inline();
        }
        drop(processor);
        new
    }

    fn keys_of(&self, namespace: &str) -> Vec<ObjectKey> {
        self.indexer
            .index_keys(NAMESPACE_INDEX, namespace)
            .unwrap_or_default()
    }

    fn keys_in(&self, part: &Part) -> Vec<ObjectKey> {
        if let Part::Namespace(namespace) = part {
            return self.keys_of(namespace);
        }
        let objects = self.indexer.list();
        let of_part = objects
            .iter()
            .filter(|object| part.holds(object.namespace()));
        of_part.map(|object| object.key()).collect()
    }

    /// Takes these objects out of the store.
    fn forget(&self, keys: &[ObjectKey]) -> Vec<Event<S>> {
        let mut events = Vec::with_capacity(keys.len());
        for keys in keys.chunks(CHUNK) {
            self.indexer.change(|change| {
                for key in keys {
                    let lost = Delta::Deleted(Deletion::FinalStateUnknown {
                        key: key.clone(),
                        last: None,
                    });
                    if let Change::One(event) = change.apply(lost, false) {
                        events.push(event);
                    }
                }
            });
        }
        events
    }

    /// Replaces what the store holds of `part`, in one step, and tells what changed: first what is gone,
    /// then the rest in the order of the list, as of a list of everything.
    pub(super) fn replace_within(
        &self,
        part: &Part,
        mut snapshot: Snapshot<S>,
        initial: bool,
    ) -> Vec<Event<S>> {
        let name = part.name().unwrap_or_default();
        let held = self.keys_in(part);
        // In a new epoch versions say nothing, which is the business of the store.
        if snapshot.new_epoch || held.len().max(snapshot.objects.len()) > BESIDE {
            let others = self.indexer.list();
            let others = others
                .into_iter()
                .filter(|object| !part.holds(object.namespace()));
            snapshot.objects.extend(others);
            let newest = self.indexer.resource_version();
            let (anew, version) = (snapshot.new_epoch, snapshot.resource_version.clone());
            let events = self.indexer.replace(snapshot, initial);
            self.indexer.change(|change| {
                change.set_part(name, version);
                if !anew {
                    change.advance(newest);
                }
            });
            return events;
        }
        let gone: Vec<_> = {
            let listed = snapshot.objects.iter().map(|object| object.key_ref());
            let retained = snapshot.retained.iter().map(ObjectKey::as_ref);
            let stay: HashSet<KeyRef<'_>> = listed.chain(retained).collect();
            held.into_iter()
                .filter(|key| !stay.contains(&key.as_ref()))
                .collect()
        };
        let (mut deleted, mut rest) = (Vec::new(), Vec::new());
        self.indexer.change(|change| {
            let lost = gone
                .into_iter()
                .map(|key| Delta::Deleted(Deletion::FinalStateUnknown { key, last: None }));
            let listed = snapshot.objects.into_iter().map(Delta::Replaced);
            for delta in lost.chain(listed) {
                match change.apply(delta, initial) {
                    Change::One(event @ Event::Deleted { .. }) => deleted.push(event),
                    Change::One(event) => rest.push(event),
                    Change::Recreated(former, new) => {
                        deleted.push(former);
                        rest.push(new);
                    }
                    Change::Known | Change::Stale => {}
                }
            }
            change.set_part(name, snapshot.resource_version.clone());
            change.advance(snapshot.resource_version);
        });
        deleted.append(&mut rest);
        deleted
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_client::Client;
    use kube_client::client::Body;

    use super::super::{NamespaceSet, SharedInformer};
    use super::*;
    use crate::sample::told;
    use crate::version::ResourceVersion;

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
        }
    }

    fn informer() -> SharedInformer<ConfigMap> {
        let nobody = tower::service_fn(|_: http::Request<Body>| async {
            std::future::pending::<Result<Response<Body>, Infallible>>().await
        });
        SharedInformer::builder(Client::new(nobody, "default"))
            .namespaces(NamespaceSet::new(["red", "blue"]))
            .build()
    }

    /// A few are replaced within the store, many beside it: the same comes of it.
    #[tokio::test]
    async fn a_list_of_one_namespace_leaves_the_others_as_they_are() {
        for many in [0, BESIDE + 1] {
            let informer = informer();
            let inner = &informer.inner;
            let [red, blue] = ["red", "blue"].map(|name| Part::Namespace(Arc::from(name)));
            let crowd = || (0..many).map(|number| map("red", &format!("m{number}"), "1"));
            let others = vec![map("blue", "a", "3"), map("blue", "z", "4")];
            drop(inner.replace_within(&blue, all(others, "9"), true));
            let first = [
                map("red", "a", "1"),
                map("red", "b", "2"),
                map("red", "c", "5"),
            ];
            let listed = crowd().chain(first.clone()).collect();
            drop(inner.replace_within(&red, all(listed, "7"), true));
            let newest = ResourceVersion::from("9");
            assert_eq!(inner.indexer.resource_version(), newest, "of any");
            let key = ObjectKey::namespaced("red", "c");
            let kept = inner.indexer.get(&key).unwrap();

            let mut reborn = (*map("red", "b", "11")).clone();
            reborn.metadata.uid = Some("another".to_owned());
            let next = vec![
                map("red", "d", "12"),
                Arc::new(reborn),
                map("red", "c", "5"),
            ];
            let mut snapshot = all(crowd().chain(next).collect(), "20");
            snapshot.retained = vec![ObjectKey::namespaced("red", "x")];
            let events = inner.replace_within(&red, snapshot, false);
            let mut lines: Vec<_> = events.iter().map(told).collect();
            lines[..2].sort();
            assert_eq!(
                lines,
                ["-a@1!", "-b@2!", "+d@12", "+b@11"],
                "{many} besides"
            );
            assert!(Arc::ptr_eq(&kept, &inner.indexer.get(&key).unwrap()));
            assert_eq!(inner.keys_of("blue").len(), 2);
            assert_eq!(inner.keys_of("red").len(), many + 3);
            assert_eq!(inner.indexer.resource_version().as_str(), "20");
        }
    }

    #[tokio::test]
    async fn in_a_new_epoch_equal_versions_are_not_taken_for_equal_objects() {
        let informer = informer();
        let inner = &informer.inner;
        let [red, blue] = ["red", "blue"].map(|name| Part::Namespace(Arc::from(name)));
        drop(inner.replace_within(&blue, all(vec![map("blue", "z", "80")], "90"), true));
        drop(inner.replace_within(&red, all(vec![map("red", "a", "60")], "70"), true));
        let mut snapshot = all(vec![map("red", "a", "60")], "65");
        snapshot.new_epoch = true;
        let events = inner.replace_within(&red, snapshot, false);
        let lines: Vec<_> = events.iter().map(told).collect();
        assert_eq!(
            lines,
            ["~a@60-60r"],
            "and the other namespace is not told again"
        );
        assert_eq!(inner.indexer.resource_version().as_str(), "65");
    }
}

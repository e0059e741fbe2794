//! Own writes on top of a store that does not show them yet: [`MutationCache`].

use std::cmp::Ordering;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::indexer;
use crate::indexer::StoreSnapshot;
use crate::lister::Lister;
use crate::object::Stored;
use reeve_client::ObjectKey;
use reeve_client::version;
use reeve_clock::LONGEST;

/// The time for which a mutation counts (client-go: the TTL that its users set).
const TTL: Duration = Duration::from_secs(5 * 60);

/// The number of mutations that are kept (client-go: `mutationCache`, 100).
const CAPACITY: NonZeroUsize = NonZeroUsize::new(100).expect("a hundred");

/// Reads from a [`Lister`], and shows own writes before the watch reports them (client-go: `MutationCache`).
///
/// Pass the API server's answer to each write to [`MutationCache::mutated`]. Until the store has reached that
/// resourceVersion, reads return it in place of the older state in the store. From then on only the store counts: an
/// object that it no longer holds was deleted, and does not come back. So no handler has to report updates and deletions
/// to the cache (client-go: `OnAddOrUpdate`, `OnDelete` and the tombstones they leave).
///
/// If the namespaces of a set are watched one by one, the version of the object's namespace counts.
///
/// The cache is bounded: by default it keeps 100 mutations for five minutes each, and drops those first that were not
/// read for longest. If a mutation was dropped early, or its version is not a number and so has no order, reads return
/// the content of the store.
pub struct MutationCache<S: ?Sized> {
    lister: Lister<S>,
    ttl: Duration,
    include_adds: bool,
    mutations: Mutex<LruCache<ObjectKey, Mutation<S>>>,
}

struct Mutation<S: ?Sized> {
    object: Arc<S>,
    expires: Instant,
}

// === impl MutationCache ===

impl<S: Stored + ?Sized> MutationCache<S> {
    /// A cache without mutations, on top of `lister`.
    #[must_use]
    pub fn new(lister: Lister<S>) -> Self {
        Self {
            lister,
            ttl: TTL,
            include_adds: false,
            mutations: Mutex::new(LruCache::new(CAPACITY)),
        }
    }

    /// The time after which a mutation no longer counts. Default: five minutes.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl.min(LONGEST);
        self
    }

    /// The number of mutations that are kept. Default: 100.
    #[must_use]
    pub fn capacity(self, capacity: NonZeroUsize) -> Self {
        self.mutations.lock().resize(capacity);
        self
    }

    /// Shows objects that the store does not hold yet, too, and not only newer states of those that it holds. Default: no
    /// (client-go: `includeAdds`).
    #[must_use]
    pub fn include_adds(mut self) -> Self {
        self.include_adds = true;
        self
    }

    /// Records the server's answer to a write. Of two answers about one object the newer counts, in any order.
    pub fn mutated(&self, object: Arc<S>) {
        let key = object.key();
        let store = self.lister.snapshot();
        let mut mutations = self.mutations.lock();
        let known = mutations
            .peek(&key)
            .map(|known| known.object.resource_version());
        let newer = known.is_some_and(|known| is_older(object.resource_version(), known));
        if newer || !is_ahead(&*object, &store) {
            return;
        }
        let expires = Instant::now() + self.ttl;
        let replaced = mutations.push(key, Mutation { object, expires });
        // Outside the lock: the former object may be large.
        drop(mutations);
        drop(replaced);
    }

    /// The object with this key: as it was written, if the store has not reached that version, else from the store.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<S>> {
        let store = self.lister.snapshot();
        let held = store.get(key.as_ref());
        let mut mutations = self.mutations.lock();
        let Some(mutation) = mutations.get(key) else {
            return held.cloned();
        };
        if mutation.counts(&store) {
            let shown = held.is_some() || self.include_adds;
            return shown.then(|| Arc::clone(&mutation.object));
        }
        let past = mutations.pop(key);
        drop(mutations);
        drop(past);
        held.cloned()
    }

    /// The objects that have `value` in the index called `index`, in the order of the keys, each as [`MutationCache::get`]
    /// returns it: an object whose value changed is found under the new one only.
    ///
    /// # Errors
    /// [`indexer::Error::Unknown`] if there is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<S>>, indexer::Error> {
        let store = self.lister.snapshot();
        let mut found: Vec<Arc<S>> = store.by_index(index, value)?.cloned().collect();
        for mutation in self.counting(&store) {
            let key = mutation.key_ref();
            // An object that the index function refuses has no values, as in the store.
            let values = store.values_of(index, &mutation).unwrap_or_default();
            let shown = values.iter().any(|other| **other == *value)
                && (self.include_adds || store.get(key).is_some());
            match (
                found.binary_search_by(|other| other.key_ref().cmp(&key)),
                shown,
            ) {
                (Ok(at), true) => found[at] = mutation,
                (Ok(at), false) => drop(found.remove(at)),
                (Err(at), true) => found.insert(at, Arc::clone(&mutation)),
                (Err(_), false) => {}
            }
        }
        Ok(found)
    }

    /// The writes that `store` has not reached. They do not count as read, so the order in which they are dropped stays.
    fn counting(&self, store: &StoreSnapshot<S>) -> Vec<Arc<S>> {
        let mutations = self.mutations.lock();
        let counting = mutations
            .iter()
            .filter(|(_, mutation)| mutation.counts(store));
        counting
            .map(|(_, mutation)| Arc::clone(&mutation.object))
            .collect()
    }
}

impl<S: Stored + ?Sized> Mutation<S> {
    fn counts(&self, store: &StoreSnapshot<S>) -> bool {
        Instant::now() < self.expires && is_ahead(&*self.object, store)
    }
}

impl<S: Stored + ?Sized> std::fmt::Debug for MutationCache<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MutationCache")
            .field("lister", &self.lister)
            .field("mutations", &self.mutations.lock().len())
            .finish_non_exhaustive()
    }
}

fn is_older(version: &str, than: &str) -> bool {
    version::compare(version, than) == Some(Ordering::Less)
}

/// True if the store has not reached the version of `object`, as a whole or with this object.
fn is_ahead<S: Stored + ?Sized>(object: &S, store: &StoreSnapshot<S>) -> bool {
    let version = object.resource_version();
    let held = store.get(object.key_ref());
    let seen = store.resource_version_of(object.namespace());
    (seen.is_empty() || is_older(seen.as_str(), version))
        && held.is_none_or(|held| is_older(held.resource_version(), version))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::fifo::{Deletion, Delta, Snapshot};
    use crate::indexer::{Indexer, NAMESPACE_INDEX};
    use crate::sample::{map, text};

    /// A store that holds `objects` as of `version`, with an index of the last digit of their versions.
    fn store(objects: &[&str], version: &str) -> Arc<Indexer<ConfigMap>> {
        let indexer = Arc::new(Indexer::new());
        let last = |map: &ConfigMap| {
            let version = map.resource_version();
            Ok(vec![Arc::from(&version[version.len() - 1..])])
        };
        indexer.add_index("last", last).unwrap();
        indexer.replace(
            Snapshot {
                objects: objects.iter().map(|object| map(object)).collect(),
                retained: Vec::new(),
                resource_version: version.into(),
                new_epoch: false,
                reread: Arc::default(),
            },
            true,
        );
        indexer
    }

    fn see(indexer: &Indexer<ConfigMap>, delta: Delta<ConfigMap>, version: &str) {
        indexer.change(|change| {
            change.apply(delta, false);
            change.advance(version.into());
        });
    }

    fn on(indexer: &Arc<Indexer<ConfigMap>>) -> MutationCache<ConfigMap> {
        MutationCache::new(Lister::new(Arc::clone(indexer), None))
    }

    fn get(cache: &MutationCache<ConfigMap>, name: &str) -> Option<String> {
        let found = cache.get(&ObjectKey::namespaced("n", name));
        found.map(|map| text(&map))
    }

    fn found(cache: &MutationCache<ConfigMap>, index: &str, value: &str) -> String {
        let found = cache.by_index(index, value).unwrap();
        found
            .iter()
            .map(|map| text(map))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// client-go: TestMutationCacheOnAddOrUpdate, its three cases.
    #[test]
    fn a_write_is_read_until_the_store_has_reached_its_version() {
        for (seen, read) in [("a@14", "a@15"), ("a@15", "a@15"), ("a@16", "a@16")] {
            let indexer = store(&["a@10"], "10");
            let cache = on(&indexer);
            cache.mutated(map("a@15"));
            assert_eq!(get(&cache, "a").as_deref(), Some("a@15"));
            see(&indexer, Delta::Updated(map(seen)), &seen[2..]);
            assert_eq!(get(&cache, "a").as_deref(), Some(read), "{seen}");
            let past = seen != "a@14";
            assert_eq!(cache.mutations.lock().is_empty(), past, "{seen}");
        }
    }

    /// client-go: TestMutationCacheOnDelete, UpdateConcurrentDelete, UpdateConcurrentRecreate and
    /// OnDeleteClearsStaleMutation: the own write is at 15; then others delete the object, and maybe create it again.
    #[test]
    fn an_object_whose_deletion_the_store_saw_does_not_come_back() {
        let deleted = || Delta::Deleted(Deletion::Seen(map("a@16")));
        let missed = || {
            let key = ObjectKey::namespaced("n", "a");
            Delta::Deleted(Deletion::FinalStateUnknown { key, last: None })
        };
        for late in [false, true] {
            for (delta, version, read) in [
                (deleted(), "16", None),
                // The deletion was missed, and a list at 20 revealed it.
                (missed(), "20", None),
                (Delta::Added(map("a@18/other")), "18", Some("a@18")),
                // A watch that reports the deletion with the object's last version.
                (Delta::Deleted(Deletion::Seen(map("a@15"))), "15", None),
            ] {
                let case = format!("{delta:?} late: {late}");
                let indexer = store(&["a@10"], "10");
                let cache = on(&indexer).include_adds();
                if !late {
                    cache.mutated(map("a@15"));
                    assert_eq!(found(&cache, "last", "5"), "a@15");
                }
                see(&indexer, delta, version);
                // The answer to the own write came after the watch had reported the later change.
                if late {
                    cache.mutated(map("a@15"));
                }
                assert_eq!(get(&cache, "a").as_deref(), read, "{case}");
                assert_eq!(found(&cache, "last", "5"), "", "{case}");
            }
        }
    }

    #[test]
    fn an_object_that_the_store_does_not_hold_yet_is_read_if_the_option_is_set() {
        let indexer = store(&["b@9"], "10");
        let (plain, adding) = (on(&indexer), on(&indexer).include_adds());
        for cache in [&plain, &adding] {
            cache.mutated(map("a@15"));
        }
        assert_eq!(
            (get(&plain, "a"), get(&adding, "a").as_deref()),
            (None, Some("a@15"))
        );
        assert_eq!(found(&plain, NAMESPACE_INDEX, "n"), "b@9");
        assert_eq!(found(&adding, NAMESPACE_INDEX, "n"), "a@15 b@9");
        assert_eq!(found(&adding, "last", "5"), "a@15");
        // The selection does not match it: the watch goes on, and the object is not there.
        indexer.change(|change| change.advance("15".into()));
        assert_eq!(
            (get(&adding, "a"), found(&adding, NAMESPACE_INDEX, "n")),
            (None, "b@9".to_owned())
        );
    }

    #[test]
    fn an_object_is_found_by_the_values_that_were_written() {
        let indexer = store(&["a@1", "b@2", "c@1"], "10");
        let cache = on(&indexer);
        cache.mutated(map("a@12"));
        cache.mutated(map("c@11"));
        assert_eq!(found(&cache, "last", "1"), "c@11");
        assert_eq!(found(&cache, "last", "2"), "a@12 b@2");
        assert!(matches!(
            cache.by_index("none", "1"),
            Err(indexer::Error::Unknown { .. })
        ));
    }

    #[test]
    fn of_two_writes_the_newer_counts_and_a_version_without_order_does_not() {
        let indexer = store(&["a@10", "b@10"], "10");
        let cache = on(&indexer);
        cache.mutated(map("a@17"));
        cache.mutated(map("a@15"));
        assert_eq!(get(&cache, "a").as_deref(), Some("a@17"));
        cache.mutated(map("a@18/recreated"));
        assert_eq!(get(&cache, "a").as_deref(), Some("a@18"));
        cache.mutated(map("b@opaque"));
        cache.mutated(map("b@9"));
        assert_eq!(get(&cache, "b").as_deref(), Some("b@10"));
        assert_eq!(cache.mutations.lock().len(), 1);
    }

    #[test]
    fn each_namespace_that_is_watched_by_itself_has_its_own_version() {
        let indexer = store(&["a@1"], "30");
        let cache = on(&indexer).include_adds();
        // Another namespace is at 30; this one was not listed yet, and then is at 10.
        indexer.change(|change| change.set_parts(["n".into(), "m".into()].into_iter()));
        cache.mutated(map("a@15"));
        assert_eq!(get(&cache, "a").as_deref(), Some("a@15"));
        indexer.change(|change| change.set_part("n", "10".into()));
        assert_eq!(found(&cache, "last", "5"), "a@15");
        indexer.change(|change| change.advance_part(Some("n"), "15".into()));
        assert_eq!(get(&cache, "a").as_deref(), Some("a@1"), "the store counts");
        assert_eq!(indexer.resource_version().as_str(), "30");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_counts_for_a_limited_time() {
        let indexer = store(&["a@10", "b@10"], "10");
        let cache = on(&indexer).ttl(Duration::from_secs(60));
        cache.mutated(map("a@15"));
        tokio::time::advance(Duration::from_secs(59)).await;
        cache.mutated(map("b@15"));
        assert_eq!(found(&cache, "last", "5"), "a@15 b@15");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(found(&cache, "last", "5"), "b@15");
        assert_eq!(get(&cache, "a").as_deref(), Some("a@10"));
        assert_eq!(cache.mutations.lock().len(), 1);
    }

    #[test]
    fn of_too_many_writes_those_not_read_for_longest_are_dropped() {
        let indexer = store(&["a@10", "b@10", "c@10"], "10");
        let cache = on(&indexer).capacity(NonZeroUsize::new(2).unwrap());
        cache.mutated(map("a@15"));
        cache.mutated(map("b@15"));
        // Reading an object keeps it; a search in an index does not.
        assert_eq!(get(&cache, "a").as_deref(), Some("a@15"));
        assert_eq!(found(&cache, "last", "5"), "a@15 b@15");
        cache.mutated(map("c@15"));
        assert_eq!(found(&cache, "last", "5"), "a@15 c@15");
        assert_eq!(get(&cache, "b").as_deref(), Some("b@10"));
    }
}

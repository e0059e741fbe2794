//! Reading from the store.

use std::sync::Arc;

use kube_core::Selector;

use crate::indexer::{self, Indexer, NAMESPACE_INDEX, StoreSnapshot};
use crate::object::FieldSelector;
use crate::object::Stored;
use crate::use_count::InUse;
use reeve_client::ResourceVersion;
use reeve_client::{KeyRef, ObjectKey};

/// Reads the store of an informer. Cloning it is cheap. The objects it returns are shared: clone an object to change it.
pub struct Lister<S: ?Sized> {
    indexer: Arc<Indexer<S>>,
    /// Keeps the informer running while it may be read.
    in_use: Option<Arc<InUse>>,
}

// === impl Lister ===

impl<S: Stored + ?Sized> Lister<S> {
    pub(crate) fn new(indexer: Arc<Indexer<S>>, in_use: Option<Arc<InUse>>) -> Self {
        Self { indexer, in_use }
    }

    /// The object with this key, or `None` if there is none.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<S>> {
        self.indexer.get(key)
    }

    /// The object of this name, in `namespace` or cluster-scoped, without an owned key.
    #[must_use]
    pub fn get_named(&self, namespace: Option<&str>, name: &str) -> Option<Arc<S>> {
        self.indexer.get_ref(KeyRef { namespace, name })
    }

    /// Calls `read` with the object with this key, and returns the result; `None` if there is no such object.
    ///
    /// It differs from [`Lister::get`] in two ways. The count of the object's `Arc` is not written, so a thread writes no
    /// memory that other threads use, and nothing of an object that it does not look at: for many reads a second. And the store does not
    /// change until `read` returns, which is as of one moment with other reads of this store within it. So keep it short:
    /// the informer waits for it, and with it every other reader. `read` may read this store and others.
    ///
    /// # Panics
    /// If `read` adds or removes an index of this store, adds a handler or asks for the health of its informer; or of any
    /// store within a second such call.
    pub fn with<R>(&self, key: &ObjectKey, read: impl FnOnce(&Arc<S>) -> R) -> Option<R> {
        self.indexer.with(key.as_ref(), read)
    }

    /// Every object, as of one moment, in the order of the keys.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<S>> {
        self.indexer.list()
    }

    /// The objects that satisfy `condition`, which is called outside the store's lock.
    #[must_use]
    pub fn list_where(&self, condition: impl Fn(&S) -> bool) -> Vec<Arc<S>> {
        let mut objects = self.list();
        objects.retain(|object| condition(object));
        objects
    }

    /// The objects whose labels satisfy `labels`, of one namespace or of all (client-go: `List` of a lister).
    ///
    /// It checks each object of the namespace. If a label has an index
    /// ([`SharedInformer::add_label_index`](crate::SharedInformer::add_label_index)), it checks only the objects that `=`
    /// or `in` find there, if they are fewer.
    #[must_use]
    pub fn select(&self, namespace: Option<&str>, labels: &Selector) -> Vec<Arc<S>> {
        self.snapshot().select(namespace, labels)
    }

    /// The objects whose labels and fields satisfy both selectors, of one namespace or of all.
    ///
    /// The fields `metadata.name` and `metadata.namespace` are always available. Any other field is available through an
    /// index of its name, `add_indexer("spec.nodeName", …)`, which `=` uses for its search. If an object has several
    /// values, one of them must be equal, or for `!=` none. An object without a value has the empty value.
    ///
    /// # Errors
    /// [`indexer::Error::UnknownField`], which names the available fields.
    pub fn select_fields(
        &self,
        namespace: Option<&str>,
        labels: &Selector,
        fields: &FieldSelector,
    ) -> Result<Vec<Arc<S>>, indexer::Error> {
        self.snapshot().select_fields(namespace, labels, fields)
    }

    /// At most `limit` objects of one namespace, or of all, whose keys come after `after`: a page. See
    /// [`Indexer::list_range`].
    #[must_use]
    pub fn list_range(
        &self,
        namespace: Option<&str>,
        after: Option<KeyRef<'_>>,
        limit: usize,
    ) -> Vec<Arc<S>> {
        self.indexer.list_range(namespace, after, limit)
    }

    /// The present content of the store, which does not change when the store does.
    #[must_use]
    pub fn snapshot(&self) -> StoreSnapshot<S> {
        self.indexer.snapshot()
    }

    /// The version of the store's content (client-go: `LastStoreSyncResourceVersion`).
    #[must_use]
    pub fn resource_version(&self) -> ResourceVersion {
        self.indexer.resource_version()
    }

    /// The objects of one namespace.
    #[must_use]
    pub fn namespace(&self, namespace: &str) -> Vec<Arc<S>> {
        self.indexer
            .by_index(NAMESPACE_INDEX, namespace)
            .unwrap_or_default()
    }

    /// The objects that have `value` in the index called `index`.
    ///
    /// # Errors
    /// [`indexer::Error::Unknown`] if there is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<S>>, indexer::Error> {
        self.indexer.by_index(index, value)
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.indexer.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.indexer.is_empty()
    }
}

impl<S: ?Sized> Clone for Lister<S> {
    fn clone(&self) -> Self {
        Self {
            indexer: Arc::clone(&self.indexer),
            in_use: self.in_use.clone(),
        }
    }
}

impl<S: Stored + ?Sized> std::fmt::Debug for Lister<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lister")
            .field("objects", &self.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_core::Expression;

    use super::*;
    use crate::fifo::Snapshot;

    fn map(namespace: &str, name: &str, labels: &[(&str, &str)]) -> Arc<ConfigMap> {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        map.metadata.namespace = Some(namespace.to_owned());
        map.metadata.resource_version = Some("1".to_owned());
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        map.metadata.labels = Some(labels.collect::<BTreeMap<_, _>>());
        Arc::new(map)
    }

    #[test]
    fn objects_are_selected_by_their_labels_within_a_namespace_or_everywhere() {
        let indexer = Arc::new(Indexer::new());
        let objects = vec![
            map("n", "a", &[("app", "web"), ("tier", "front")]),
            map("n", "b", &[("app", "db")]),
            map("m", "c", &[("app", "web")]),
            map("m", "d", &[]),
        ];
        let snapshot = Snapshot {
            objects,
            retained: Vec::new(),
            resource_version: "1".into(),
            new_epoch: false,
            reread: Arc::default(),
        };
        drop(indexer.replace(snapshot, true));
        let lister = Lister::new(indexer, None);
        let names = |namespace: Option<&str>, expressions: &[Expression]| {
            let selector = Selector::from_iter(expressions.iter().cloned());
            let found = lister.select(namespace, &selector);
            let mut names: Vec<String> = found.iter().map(|map| map.name().to_owned()).collect();
            names.sort_unstable();
            names.concat()
        };
        let name = || "app".to_owned();
        let set = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        for (expression, everywhere, in_n) in [
            (Expression::Equal(name(), "web".to_owned()), "ac", "a"),
            (Expression::NotEqual(name(), "web".to_owned()), "bd", "b"),
            (Expression::In(name(), set(&["db", "none"])), "b", "b"),
            (Expression::NotIn(name(), set(&["db"])), "acd", "a"),
            (Expression::Exists(name()), "abc", "ab"),
            (Expression::DoesNotExist(name()), "d", ""),
        ] {
            assert_eq!(
                names(None, std::slice::from_ref(&expression)),
                everywhere,
                "{expression}"
            );
            assert_eq!(
                names(Some("n"), std::slice::from_ref(&expression)),
                in_n,
                "{expression}"
            );
        }
        let both = [
            Expression::Equal(name(), "web".to_owned()),
            Expression::Exists("tier".to_owned()),
        ];
        assert_eq!(names(None, &both), "a");
        assert_eq!(names(None, &[]), "abcd");
    }

    #[test]
    fn a_borrowed_read_returns_its_result_and_may_read_the_same_store() {
        let indexer = Arc::new(Indexer::new());
        let snapshot = Snapshot {
            objects: vec![map("n", "a", &[("app", "web")]), map("n", "b", &[])],
            retained: Vec::new(),
            resource_version: "1".into(),
            new_epoch: false,
            reread: Arc::default(),
        };
        drop(indexer.replace(snapshot, true));
        let lister = Lister::new(indexer, None);
        let key = |name| ObjectKey::namespaced("n", name);
        let before = lister.get(&key("a")).map(|map| Arc::strong_count(&map));
        let read = lister.with(&key("a"), |a| {
            let other = lister.with(&key("b"), |b| b.name().to_owned());
            let counts = (Some(Arc::strong_count(a) + 1), lister.len());
            (a.label("app").map(str::to_owned), other, counts)
        });
        let (label, other, counts) = read.unwrap();
        assert_eq!(
            (label.as_deref(), other.as_deref()),
            (Some("web"), Some("b"))
        );
        assert_eq!(counts, (before, 2), "the borrowed object is not counted");
        assert_eq!(lister.with(&key("c"), |_| ()), None);
    }

    #[test]
    fn objects_are_selected_by_registered_fields_and_an_unknown_field_is_an_error() {
        let indexer = Arc::new(Indexer::new());
        let objects = vec![
            map("m", "a", &[("app", "web"), ("tier", "front")]),
            map("n", "b", &[("app", "db"), ("tier", "back")]),
            map("n", "c", &[("app", "web")]),
        ];
        let snapshot = Snapshot {
            objects,
            retained: Vec::new(),
            resource_version: "1".into(),
            new_epoch: false,
            reread: Arc::default(),
        };
        drop(indexer.replace(snapshot, true));
        let tier = |map: &ConfigMap| Ok(map.label("tier").map(Arc::from).into_iter().collect());
        indexer.add_index("spec.tier", tier).unwrap();
        indexer.add_label_index("app").unwrap();
        let lister = Lister::new(indexer, None);
        let names = |namespace: Option<&str>, labels: &Selector, fields: &str| {
            let found = lister.select_fields(namespace, labels, &fields.parse().unwrap())?;
            Ok(found
                .iter()
                .map(|map| map.name().to_owned())
                .collect::<String>())
        };
        let all = Selector::default();
        for (fields, everywhere, in_n) in [
            ("", "abc", "bc"),
            ("metadata.name=b", "b", "b"),
            ("metadata.name!=b", "ac", "c"),
            ("metadata.namespace=m", "a", ""),
            ("metadata.namespace!=m,metadata.name!=c", "b", "b"),
            ("spec.tier=front", "a", ""),
            ("spec.tier=none", "", ""),
            ("spec.tier!=front", "bc", "bc"),
            ("spec.tier=", "c", "c"),
            ("spec.tier!=", "ab", "b"),
            ("spec.tier=back,metadata.namespace=n", "b", "b"),
        ] {
            let found = [None, Some("n")].map(|namespace| names(namespace, &all, fields).unwrap());
            assert_eq!(found, [everywhere, in_n], "{fields}");
        }
        let web = Selector::from_iter([Expression::Equal("app".to_owned(), "web".to_owned())]);
        assert_eq!(names(None, &web, "spec.tier!=front").unwrap(), "c");
        let unknown: Result<String, indexer::Error> = names(None, &all, "spec.nodeName=x");
        assert_eq!(
            unknown.unwrap_err().to_string(),
            "the field \"spec.nodeName\" has no index; there are [\"metadata.name\", \
             \"metadata.namespace\", \"spec.tier\"]. Add an index of this name with `add_indexer`"
        );
        // The index of a label is not a field.
        assert!(names(None, &all, "label:app=web").is_err());
    }
}

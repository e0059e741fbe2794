//! The store of a kind: an informer of entries whose type is known when the program runs ([`Model`]).

use std::any::TypeId;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use kube_core::{DynamicObject, PartialObjectMeta, Resource, Selector, SelectorExt};
use lru::LruCache;
use parking_lot::Mutex;
use reeve_informer::{
    CacheHealth, Compact, Endpoint, EntryType, Event, FieldSelector, Form, HandlerHandle,
    HandlerOptions, IndexValues, InformerFactory, KeyRef, NamespaceSet, ObjectKey, ResourceVersion,
    Scope, Selection, SharedInformer, Stored, ViewError, Within, indexer,
};

use super::Kind;
use super::label_selector;
use super::options::Transform;
use super::resolve::{equal_to, terms};
use crate::client::key_of;

/// The number of unreadable versions that are remembered as logged; past it the oldest may be logged again.
const LOGGED: NonZeroUsize = NonZeroUsize::new(4096).expect("more than none");

/// The stored part of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreForm {
    /// The Rust type: reads are free. A kind of which only metadata is viewed before the start is stored as a dynamic
    /// object; later reads as its type are converted.
    Typed,
    /// The received JSON: the least memory that holds everything; each read decodes. See
    /// [`Compact`](reeve_informer::Compact).
    Compact,
    /// Metadata only, and requests are for metadata only.
    Metadata,
}

/// The parameters of a store.
pub(super) struct Making<'a> {
    pub(super) factory: &'a InformerFactory,
    pub(super) form: StoreForm,
    /// The selection of all namespaces as one, for the name of the informer.
    pub(super) selection: Selection,
    pub(super) namespaces: Option<NamespaceSet>,
    pub(super) within: Select,
    pub(super) transforms: Option<Transforms>,
    pub(super) resync: Option<Duration>,
    pub(super) decoded: Option<NonZeroUsize>,
    pub(super) packed: bool,
}

/// The selection of a scope.
pub(super) type Select = Arc<dyn Fn(&Scope) -> Within + Send + Sync>;
/// The transform for objects of a namespace.
pub(super) type Transforms = Arc<dyn Fn(Option<&str>) -> Option<Transform> + Send + Sync>;

/// A handler of a store.
pub(crate) type RowHandler = Box<dyn Fn(Event<dyn Stored>) + Send + Sync>;
/// The values of an entry in an index.
pub(crate) type RowIndex = Arc<dyn Fn(&dyn Stored) -> IndexValues + Send + Sync>;

/// The types of the entries of a kind's store, as values. A kind brings these, and what reads the store is compiled
/// once for all kinds.
#[derive(Clone, Copy)]
pub(super) struct Model {
    /// The Rust type that stored objects are read as.
    pub(super) id: TypeId,
    /// The entries of the metadata form.
    metadata: EntryType<dyn Stored>,
    /// The entries of the typed form, and the type that they are read as; `None` if the server sends metadata only.
    whole: Option<(EntryType<dyn Stored>, TypeId)>,
}

/// An informer of entries of any type.
pub(crate) struct Store {
    informer: SharedInformer<dyn Stored>,
    lister: reeve_informer::Lister<dyn Stored>,
    form: StoreForm,
    entries: EntryType<dyn Stored>,
    model: TypeId,
    within: Select,
    /// The fields selected of all that is watched as one.
    fields: String,
    /// The labels, too.
    labels: Selector,
    /// The unreadable objects that were logged, by version.
    logged: Mutex<LruCache<(ObjectKey, String), ()>>,
}

/// The objects to find.
pub(crate) enum Query<'a> {
    Select {
        namespace: Option<&'a str>,
        labels: &'a Selector,
        fields: &'a FieldSelector,
    },
    Index {
        name: &'a str,
        value: &'a str,
    },
    Range {
        namespace: Option<&'a str>,
        after: Option<KeyRef<'a>>,
        limit: usize,
    },
    All,
    Namespace(&'a str),
}

/// A registered handler; `None` if the informer had stopped before.
pub(crate) struct Handle(Option<HandlerHandle<dyn Stored>>);

/// The metadata of an object of any kind.
type AnyMetadata = PartialObjectMeta<DynamicObject>;
/// The text of an object of any kind.
pub(super) type AnyCompact = Compact<DynamicObject>;

// === impl Model ===

impl Model {
    /// Objects of the type `K`. The compact and the metadata form have the same type for all kinds.
    pub(super) fn of<K: Form + Resource>() -> Self {
        let own = EntryType::erased::<K>();
        let id = TypeId::of::<K>();
        if K::metadata_api() {
            return Self {
                id,
                metadata: own,
                whole: None,
            };
        }
        Self {
            id,
            metadata: EntryType::erased::<AnyMetadata>(),
            whole: Some((own, id)),
        }
    }

    /// The model of a kind that only views of its metadata asked for, as `PartialObjectMeta<K>`. Its typed form is a
    /// dynamic object.
    pub(super) fn of_metadata<K: 'static>() -> Self
    where
        PartialObjectMeta<K>: Form,
    {
        let dynamic = EntryType::erased::<DynamicObject>();
        Self {
            id: TypeId::of::<K>(),
            metadata: EntryType::erased::<PartialObjectMeta<K>>(),
            whole: Some((dynamic, TypeId::of::<DynamicObject>())),
        }
    }
}

// === impl Store ===

impl Store {
    /// Makes the store of a kind.
    pub(super) fn make(model: Model, kind: &Kind, making: &Making<'_>) -> Arc<Self> {
        let (form, entries, model) = match (making.form, model.whole) {
            (StoreForm::Metadata, _) | (_, None) => (StoreForm::Metadata, model.metadata, model.id),
            (StoreForm::Compact, Some(_)) => {
                let compact = EntryType::erased::<AnyCompact>();
                (StoreForm::Compact, compact, model.id)
            }
            (StoreForm::Typed, Some((whole, model))) => (StoreForm::Typed, whole, model),
        };
        let endpoint = match form {
            StoreForm::Metadata => Endpoint::for_type::<AnyMetadata>(kind.resource()),
            _ => Endpoint::for_type::<DynamicObject>(kind.resource()),
        };
        let informer = making.factory.informer_of(
            entries,
            endpoint,
            making.selection.clone(),
            making.namespaces.as_ref(),
            |mut builder| {
                let within = Arc::clone(&making.within);
                builder = builder.within(move |scope| within(scope));
                if let Some(transforms) = &making.transforms {
                    let transforms = Arc::clone(transforms);
                    builder = builder.transform(move |object| transform(object, &transforms));
                }
                if let Some(period) = making.resync {
                    builder = builder.resync(period);
                }
                if let Some(decoded) = making.decoded {
                    builder = builder.cache_decoded(decoded);
                }
                if making.packed {
                    builder = builder.pack();
                }
                builder
            },
        );
        let all = (making.within)(&Scope::Cluster);
        Arc::new(Self {
            lister: informer.lister(),
            informer,
            form,
            entries,
            model,
            fields: all.fields,
            labels: selector(&all.labels),
            within: Arc::clone(&making.within),
            logged: Mutex::new(LruCache::new(LOGGED)),
        })
    }

    /// Whether the namespace of the key has a watch of its own, which may have another selection.
    fn watches_by_itself(&self, key: &ObjectKey) -> bool {
        let namespaces = self.informer.namespaces();
        key.namespace
            .as_deref()
            .is_some_and(|name| namespaces.is_some_and(|namespaces| namespaces.is_named(name)))
    }

    pub(crate) fn form(&self) -> StoreForm {
        self.form
    }

    /// The Rust type that is stored, or that stored objects are decoded to.
    pub(crate) fn model(&self) -> TypeId {
        self.model
    }

    /// Whether its entries are of the type `K`.
    pub(super) fn holds<K: Form>(&self) -> bool {
        self.entries.is::<K>()
    }

    pub(crate) fn health(&self) -> CacheHealth {
        self.informer.health()
    }

    /// Whether all of `scope` is watched.
    pub(crate) fn covers(&self, scope: &Scope) -> bool {
        self.informer.covers(scope)
    }

    /// Whether an object of this key would be in it, judged by the key.
    pub(crate) fn may_hold(&self, key: &ObjectKey) -> bool {
        let scope = scope_of(key);
        if !self.informer.covers(&scope) {
            return false;
        }
        let own = self
            .watches_by_itself(key)
            .then(|| (self.within)(&scope).fields);
        let fields = own.as_ref().unwrap_or(&self.fields);
        let allow = |field: &str, value: Option<&str>| {
            let mut wanted = terms(fields).filter_map(|term| equal_to(term, field));
            wanted.all(|wanted| Some(wanted) == value)
        };
        // A write to many objects has no name.
        (key.name.is_empty() || allow("metadata.name", Some(&key.name)))
            && allow("metadata.namespace", key.namespace.as_deref())
    }

    /// Whether the label selector for the place of the key selects these labels.
    pub(crate) fn selects(&self, key: &ObjectKey, labels: &BTreeMap<String, String>) -> bool {
        if self.watches_by_itself(key) {
            selector(&(self.within)(&scope_of(key)).labels).matches(labels)
        } else {
            self.labels.matches(labels)
        }
    }

    pub(crate) fn has_synced(&self) -> bool {
        self.informer.has_synced()
    }

    pub(crate) fn has_synced_in(&self, scope: &Scope) -> bool {
        self.informer.has_synced_in(scope)
    }

    /// Waits for the first lists; false if the informer stopped before.
    pub(crate) async fn synced(&self) -> bool {
        self.informer.wait_synced().await.is_ok()
    }

    /// Waits for the first lists of `scope`; false if the informer stopped before, or does not watch there.
    pub(crate) async fn synced_in(&self, scope: &Scope) -> bool {
        self.informer.wait_synced_in(scope).await.is_ok()
    }

    pub(crate) fn resource_version(&self) -> ResourceVersion {
        self.informer.last_sync_resource_version()
    }

    /// The version of the store in `scope`; empty before its first list.
    pub(crate) fn resource_version_in(&self, scope: &Scope) -> ResourceVersion {
        self.informer.resource_version_in(scope)
    }

    pub(crate) fn len(&self) -> usize {
        self.lister.len()
    }

    pub(crate) fn get(&self, key: KeyRef<'_>) -> Option<Arc<dyn Stored>> {
        self.lister.get_named(key.namespace, key.name)
    }

    pub(crate) fn find(&self, query: &Query<'_>) -> Result<Vec<Arc<dyn Stored>>, indexer::Error> {
        Ok(match *query {
            Query::All => self.lister.list(),
            Query::Namespace(namespace) => self.lister.namespace(namespace),
            Query::Select {
                namespace,
                labels,
                fields,
            } => self.lister.select_fields(namespace, labels, fields)?,
            Query::Index { name, value } => self.lister.by_index(name, value)?,
            Query::Range {
                namespace,
                after,
                limit,
            } => self.lister.list_range(namespace, after, limit),
        })
    }

    pub(crate) fn add_index(
        &self,
        name: Arc<str>,
        function: RowIndex,
    ) -> Result<(), indexer::Error> {
        self.informer
            .add_indexer(name, move |object: &dyn Stored| function(object))
    }

    pub(crate) fn add_label_index(&self, label: Arc<str>) -> Result<(), indexer::Error> {
        self.informer.add_label_index(label)
    }

    pub(crate) fn remove_index(&self, name: &str) -> bool {
        self.informer.remove_indexer(name)
    }

    pub(crate) fn add_handler(&self, handler: RowHandler, options: HandlerOptions) -> Handle {
        Handle(match self.informer.add_handler(handler, options) {
            Ok(handle) => Some(handle),
            Err(stopped) => {
                tracing::debug!(%stopped, "could not add a handler");
                None
            }
        })
    }

    /// Counts and logs, once, an entry that cannot be read as a type other than the store's.
    pub(crate) fn unreadable(&self, row: &dyn Stored, error: &ViewError) {
        let (ViewError::Undecodable { .. }, Ok(meta)) = (error, row.metadata()) else {
            return;
        };
        let key = key_of(&meta);
        let version = meta.resource_version.clone().unwrap_or_default();
        if self.logged.lock().put((key.clone(), version), ()).is_none() {
            self.informer.report_unreadable(key.as_ref(), error);
        }
    }

    pub(crate) fn informer(&self) -> &SharedInformer<dyn Stored> {
        &self.informer
    }
}

// === impl Handle ===

impl Handle {
    pub(crate) fn has_synced(&self) -> bool {
        self.0.as_ref().is_some_and(HandlerHandle::has_synced)
    }

    /// Waits until the handler has seen every object of the first list.
    pub(crate) async fn synced(&self) {
        let synced = match &self.0 {
            Some(handle) => handle.wait_synced().await.is_ok(),
            None => false,
        };
        if !synced {
            // The informer has stopped: the waiter will stop, too.
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn unregister(&self) {
        if let Some(handle) = &self.0 {
            handle.unregister();
        }
    }

    /// As `unregister`, and waits until the handler does not run any more.
    pub(crate) async fn remove(&self) {
        if let Some(handle) = &self.0 {
            handle.remove().await;
        }
    }
}

fn transform(object: &mut dyn Stored, transforms: &Transforms) {
    match transforms(object.namespace()) {
        None | Some(Transform::None) => {}
        Some(Transform::Metadata(change)) => {
            if let Some(metadata) = object.metadata_mut() {
                change(metadata);
            }
        }
        Some(Transform::Typed(typed)) => (typed.function)(object),
    }
}

/// A label selector of the options, validated there.
fn selector(text: &str) -> Selector {
    label_selector::parse(text).unwrap_or_default()
}

/// The scope of an object of this key.
pub(crate) fn scope_of(key: &ObjectKey) -> Scope {
    match &key.namespace {
        Some(namespace) => Scope::Namespace(Arc::clone(namespace)),
        None => Scope::Cluster,
    }
}

//! The store of a kind, its form erased: an informer, with the operations that do not need its type.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube_core::{DynamicObject, PartialObjectMeta, Resource, Selector, SelectorExt};
use lru::LruCache;
use parking_lot::Mutex;
use reeve_informer::{
    Builder, CacheHealth, Compact, Endpoint, Event, FieldSelector, HandlerHandle, HandlerOptions,
    IndexValues, InformerFactory, KeyRef, NamespaceSet, ObjectKey, ResourceVersion, Scope,
    Selection, SharedInformer, Stored, ViewError, Within, indexer,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Kind;
use super::label_selector;
use super::options::{Function, Transform};
use super::resolve::{equal_to, terms};
use super::view::Row;
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

/// Makes the store of a kind, of the maker's Rust type.
pub(super) type Make = fn(&Kind, &Making<'_>) -> Arc<dyn Store>;

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
}

impl Making<'_> {
    fn with_form(&self, form: StoreForm) -> Self {
        Self {
            form,
            selection: self.selection.clone(),
            namespaces: self.namespaces.clone(),
            within: Arc::clone(&self.within),
            transforms: self.transforms.clone(),
            ..*self
        }
    }
}

/// The selection of a scope.
pub(super) type Select = Arc<dyn Fn(&Scope) -> Within + Send + Sync>;
/// The transform for objects of a namespace.
pub(super) type Transforms = Arc<dyn Fn(Option<&str>) -> Option<Transform> + Send + Sync>;

/// A handler of a store of unknown form.
pub(crate) type RowHandler = Box<dyn Fn(Event<dyn Row>) + Send + Sync>;
/// The values of an entry in an index.
pub(crate) type RowIndex = Arc<dyn Fn(&dyn Row) -> IndexValues + Send + Sync>;

/// An informer of any form.
pub(crate) trait Store: Send + Sync {
    fn form(&self) -> StoreForm;
    /// The Rust type that is stored, or that stored objects are decoded to.
    fn model(&self) -> TypeId;
    fn health(&self) -> CacheHealth;
    /// Whether all of `scope` is watched.
    fn covers(&self, scope: &Scope) -> bool;
    /// Whether an object of this key would be in it, judged by the key.
    fn may_hold(&self, key: &ObjectKey) -> bool;
    /// Whether the label selector for the place of the key selects these labels.
    fn selects(&self, key: &ObjectKey, labels: &BTreeMap<String, String>) -> bool;
    fn has_synced(&self) -> bool;
    fn has_synced_in(&self, scope: &Scope) -> bool;
    /// Waits for the first lists; false if the informer stopped before.
    fn synced(&self) -> BoxFuture<'_, bool>;
    /// Waits for the first lists of `scope`; false if the informer stopped before, or does not watch there.
    fn synced_in(&self, scope: Scope) -> BoxFuture<'_, bool>;
    fn resource_version(&self) -> ResourceVersion;
    /// The version of the store in `scope`; empty before its first list.
    fn resource_version_in(&self, scope: &Scope) -> ResourceVersion;
    fn len(&self) -> usize;
    fn get(&self, key: KeyRef<'_>) -> Option<Arc<dyn Row>>;
    fn find(&self, query: &Query<'_>) -> Result<Vec<Arc<dyn Row>>, indexer::Error>;
    fn add_index(&self, name: Arc<str>, function: RowIndex) -> Result<(), indexer::Error>;
    fn add_label_index(&self, label: Arc<str>) -> Result<(), indexer::Error>;
    fn add_handler(&self, handler: RowHandler, options: HandlerOptions) -> Box<dyn Handle>;
    /// Counts and logs, once, an entry that cannot be read as a type other than the store's.
    fn unreadable(&self, row: &dyn Row, error: &ViewError);
    /// The [`SharedInformer`].
    fn informer(&self) -> &dyn Any;
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

/// A registered handler.
pub(crate) trait Handle: Send + Sync {
    fn has_synced(&self) -> bool;
    fn synced(&self) -> BoxFuture<'_, ()>;
    fn unregister(&self);
    /// As `unregister`, and waits until the handler does not run any more.
    fn remove(&self) -> BoxFuture<'_, ()>;
}

struct Held<S: Stored> {
    informer: SharedInformer<S>,
    lister: reeve_informer::Lister<S>,
    form: StoreForm,
    model: TypeId,
    within: Select,
    /// The fields selected of all that is watched as one.
    fields: String,
    /// The labels, too.
    labels: Selector,
    /// The unreadable objects that were logged, by version.
    logged: Mutex<LruCache<(ObjectKey, String), ()>>,
}

/// Makes the store of a kind, of the Rust type `K` or of objects decoded as it.
///
/// The compact and the metadata form are the same type for all kinds, so that a kind costs the code of one store.
pub(super) fn make<K>(kind: &Kind, making: &Making<'_>) -> Arc<dyn Store>
where
    K: Resource + Serialize + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static,
{
    let model = TypeId::of::<K>();
    match making.form {
        StoreForm::Metadata if !K::metadata_api() => {
            held::<AnyMetadata>(model, metadata(kind), making, transforming)
        }
        StoreForm::Compact if !K::metadata_api() => compact(model, kind, making),
        StoreForm::Typed if !K::metadata_api() => {
            held::<K>(model, whole(kind), making, transforming)
        }
        // The server sends metadata only for this type.
        _ => {
            let making = making.with_form(StoreForm::Metadata);
            held::<K>(model, metadata(kind), &making, transforming)
        }
    }
}

/// Makes the store of a kind that only views of its metadata asked for, as `PartialObjectMeta<K>`. The typed form of
/// such a kind is a dynamic object: no code is made for a store of `K`.
pub(super) fn make_metadata<K>(kind: &Kind, making: &Making<'_>) -> Arc<dyn Store>
where
    K: 'static,
    PartialObjectMeta<K>: Stored + Resource,
{
    let model = TypeId::of::<K>();
    match making.form {
        StoreForm::Metadata => {
            held::<PartialObjectMeta<K>>(model, metadata(kind), making, transforming)
        }
        StoreForm::Compact => compact(model, kind, making),
        StoreForm::Typed => {
            let model = TypeId::of::<DynamicObject>();
            held::<DynamicObject>(model, whole(kind), making, transforming)
        }
    }
}

/// The metadata of an object of any kind.
type AnyMetadata = PartialObjectMeta<DynamicObject>;
/// The text of an object of any kind.
pub(super) type AnyCompact = Compact<DynamicObject>;

fn compact(model: TypeId, kind: &Kind, making: &Making<'_>) -> Arc<dyn Store> {
    // Options with a transform were refused.
    held::<AnyCompact>(model, whole(kind), making, |builder, _| builder)
}

fn whole(kind: &Kind) -> Endpoint {
    Endpoint::for_type::<DynamicObject>(kind.resource())
}

fn metadata(kind: &Kind) -> Endpoint {
    Endpoint::for_type::<AnyMetadata>(kind.resource())
}

fn held<S: Stored>(
    model: TypeId,
    endpoint: Endpoint,
    making: &Making<'_>,
    transforming: fn(Builder<S>, Transforms) -> Builder<S>,
) -> Arc<dyn Store> {
    let informer = making.factory.informer_with::<S>(
        endpoint,
        making.selection.clone(),
        making.namespaces.as_ref(),
        |mut builder| {
            let within = Arc::clone(&making.within);
            builder = builder.within(move |scope| within(scope));
            if let Some(transforms) = &making.transforms {
                builder = transforming(builder, Arc::clone(transforms));
            }
            if let Some(period) = making.resync {
                builder = builder.resync(period);
            }
            if let Some(decoded) = making.decoded {
                builder = builder.cache_decoded(decoded);
            }
            builder
        },
    );
    let all = (making.within)(&Scope::Cluster);
    Arc::new(Held {
        lister: informer.lister(),
        informer,
        form: making.form,
        model,
        fields: all.fields,
        labels: selector(&all.labels),
        within: Arc::clone(&making.within),
        logged: Mutex::new(LruCache::new(LOGGED)),
    })
}

fn transforming<S: Stored + Resource>(builder: Builder<S>, transforms: Transforms) -> Builder<S> {
    builder.transform(move |object| {
        let transform = transforms(object.meta().namespace.as_deref());
        match transform {
            None | Some(Transform::None) => {}
            Some(Transform::Metadata(change)) => change(object.meta_mut()),
            Some(Transform::Typed(typed)) => {
                if let Some(change) = typed.function.downcast_ref::<Function<S>>() {
                    change(object);
                }
            }
        }
    })
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

// === impl Held ===

fn erased<S: Stored>(objects: Vec<Arc<S>>) -> Vec<Arc<dyn Row>> {
    objects
        .into_iter()
        .map(|object| object as Arc<dyn Row>)
        .collect()
}

impl<S: Stored> Held<S> {
    /// Whether the namespace of the key has a watch of its own, which may have another selection.
    fn watches_by_itself(&self, key: &ObjectKey) -> bool {
        let namespaces = self.informer.namespaces();
        key.namespace
            .as_deref()
            .is_some_and(|name| namespaces.is_some_and(|namespaces| namespaces.is_named(name)))
    }
}

impl<S: Stored> Store for Held<S> {
    fn form(&self) -> StoreForm {
        self.form
    }

    fn model(&self) -> TypeId {
        self.model
    }

    fn health(&self) -> CacheHealth {
        self.informer.health()
    }

    fn covers(&self, scope: &Scope) -> bool {
        self.informer.covers(scope)
    }

    fn may_hold(&self, key: &ObjectKey) -> bool {
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

    fn selects(&self, key: &ObjectKey, labels: &BTreeMap<String, String>) -> bool {
        if self.watches_by_itself(key) {
            selector(&(self.within)(&scope_of(key)).labels).matches(labels)
        } else {
            self.labels.matches(labels)
        }
    }

    fn has_synced(&self) -> bool {
        self.informer.has_synced()
    }

    fn has_synced_in(&self, scope: &Scope) -> bool {
        self.informer.has_synced_in(scope)
    }

    fn synced(&self) -> BoxFuture<'_, bool> {
        async { self.informer.wait_synced().await.is_ok() }.boxed()
    }

    fn synced_in(&self, scope: Scope) -> BoxFuture<'_, bool> {
        async move { self.informer.wait_synced_in(&scope).await.is_ok() }.boxed()
    }

    fn resource_version(&self) -> ResourceVersion {
        self.informer.last_sync_resource_version()
    }

    fn resource_version_in(&self, scope: &Scope) -> ResourceVersion {
        self.informer.resource_version_in(scope)
    }

    fn len(&self) -> usize {
        self.lister.len()
    }

    fn get(&self, key: KeyRef<'_>) -> Option<Arc<dyn Row>> {
        let found = self.lister.get_named(key.namespace, key.name);
        found.map(|object| object as Arc<dyn Row>)
    }

    fn find(&self, query: &Query<'_>) -> Result<Vec<Arc<dyn Row>>, indexer::Error> {
        Ok(erased(match *query {
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
        }))
    }

    fn add_index(&self, name: Arc<str>, function: RowIndex) -> Result<(), indexer::Error> {
        self.informer
            .add_indexer(name, move |object: &S| function(object))
    }

    fn add_label_index(&self, label: Arc<str>) -> Result<(), indexer::Error> {
        self.informer.add_label_index(label)
    }

    fn add_handler(&self, handler: RowHandler, options: HandlerOptions) -> Box<dyn Handle> {
        let shown = move |event: Event<S>| {
            if let Some(event) = event.filter_map(|object| Some(object as Arc<dyn Row>)) {
                handler(event);
            }
        };
        Box::new(match self.informer.add_handler(shown, options) {
            Ok(handle) => Some(handle),
            Err(stopped) => {
                tracing::debug!(%stopped, "could not add a handler");
                None
            }
        })
    }

    fn unreadable(&self, row: &dyn Row, error: &ViewError) {
        let (ViewError::Undecodable { .. }, Ok(meta)) = (error, row.metadata()) else {
            return;
        };
        let key = key_of(&meta);
        let version = meta.resource_version.clone().unwrap_or_default();
        if self.logged.lock().put((key.clone(), version), ()).is_none() {
            self.informer.report_unreadable(key.as_ref(), error);
        }
    }

    fn informer(&self) -> &dyn Any {
        &self.informer
    }
}

impl<S: Stored> Handle for Option<HandlerHandle<S>> {
    fn has_synced(&self) -> bool {
        self.as_ref().is_some_and(HandlerHandle::has_synced)
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        async {
            let synced = match self {
                Some(handle) => handle.wait_synced().await.is_ok(),
                None => false,
            };
            if !synced {
                // The informer has stopped: the waiter will stop, too.
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }

    fn unregister(&self) {
        if let Some(handle) = self {
            handle.unregister();
        }
    }

    fn remove(&self) -> BoxFuture<'_, ()> {
        async move {
            if let Some(handle) = self {
                handle.remove().await;
            }
        }
        .boxed()
    }
}

//! A reader's view of a kind, independent of the stored form.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kube_core::{DynamicObject, ObjectMeta, PartialObjectMeta, Resource, TypeMeta};
use reeve_informer::{Event, Form, Stored, ViewError};

use super::Kind;
use super::store::{AnyCompact, Model, RowHandler, Store};
use crate::client::{Object, json};

/// The form in which a reader or a handler gets a kind: its objects as `V`.
///
/// All views of a kind share one store and one watch where the store's form allows:
///
/// | stored as | [typed](View::typed) | [dynamic](View::dynamic) | [metadata](View::metadata) |
/// |---|---|---|---|
/// | the type | shared, free | converted through JSON on each read: fields outside the type are absent | cloned on each read |
/// | [compact](super::StoreForm::Compact) | decoded on each read, or from its cache | decoded on each read, all fields | decoded on each read |
/// | a dynamic object | converted through JSON on each read | shared, free | cloned on each read |
/// | [metadata](super::StoreForm::Metadata) | refused | refused | shared, free |
///
/// A kind that is configured as its type, and of which only metadata is viewed before the start, is stored as a dynamic
/// object.
///
/// The form of a kind is that of [`CacheOptions`](super::CacheOptions), else the least that serves all views requested
/// before the start. Where a running store cannot serve a later view (metadata only, and now the type is needed), the
/// kind gets a second store and a second watch, and a log line names the option that avoids that.
pub struct View<V> {
    pub(super) shape: Shape,
    convert: Convert<V>,
    lend: Lend<V>,
}

/// A view without its Rust type, so that what finds or makes its store is compiled once.
#[derive(Clone)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    pub(super) need: Need,
    /// The types of a store that is made for it.
    pub(super) model: Model,
}

/// Makes an object of an entry.
type Convert<V> = fn(&Kind, Arc<dyn Stored>) -> Result<Arc<V>, ViewError>;
/// Lends an object that is made of an entry, or is one.
type Lend<V> = fn(&Kind, &dyn Stored, &mut dyn FnMut(&V)) -> Result<(), ViewError>;

/// The part of an object that a view needs, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    Metadata,
    /// All of it, as any type.
    Dynamic,
    /// All of it, as the view's type.
    Typed,
}

// === impl View ===

impl<K: Object> View<K> {
    /// The objects as their Rust type.
    #[must_use]
    pub fn typed() -> Self {
        Self {
            shape: Shape {
                kind: Kind::of::<K>(),
                // `PartialObjectMeta<T>` is a type like another, for which the server sends metadata only.
                need: if K::metadata_api() {
                    Need::Metadata
                } else {
                    Need::Typed
                },
                model: Model::of::<K>(),
            },
            convert: |kind, row| {
                let row = match row.cast::<K>() {
                    Ok(typed) => return Ok(typed),
                    Err(row) => row,
                };
                match row.cast::<AnyCompact>() {
                    Ok(compact) => compact.typed_as(),
                    Err(row) => from_row(kind, &*row).map(Arc::new),
                }
            },
            lend: |kind, row, read| match row.cast_ref::<K>() {
                Some(typed) => {
                    read(typed);
                    Ok(())
                }
                None => from_row::<K>(kind, row).map(|typed| read(&typed)),
            },
        }
    }
}

impl<K: Object> View<PartialObjectMeta<K>> {
    /// Only the metadata of the objects. If no view needs more, requests and the store are limited to it.
    #[must_use]
    pub fn metadata() -> Self {
        Self::metadata_as(Kind::of::<K>())
    }
}

impl View<PartialObjectMeta<DynamicObject>> {
    /// Only the metadata of the objects, of a kind known when the program runs.
    #[must_use]
    pub fn metadata_of(kind: &Kind) -> Self {
        Self::metadata_as(kind.clone())
    }
}

impl<K: Send + Sync + 'static> View<PartialObjectMeta<K>>
where
    PartialObjectMeta<K>: Form + Resource,
{
    fn metadata_as(kind: Kind) -> Self {
        Self {
            shape: Shape {
                kind,
                need: Need::Metadata,
                model: Model::of_metadata::<K>(),
            },
            convert: |kind, row| match row.cast::<PartialObjectMeta<K>>() {
                Ok(held) => Ok(held),
                Err(row) => Ok(Arc::new(partial(kind, row.metadata()?.into_owned()))),
            },
            lend: |kind, row, read| {
                match row.cast_ref::<PartialObjectMeta<K>>() {
                    Some(held) => read(held),
                    None => read(&partial(kind, row.metadata()?.into_owned())),
                }
                Ok(())
            },
        }
    }
}

impl View<DynamicObject> {
    /// The objects without a Rust type, of a kind known when the program runs.
    #[must_use]
    pub fn dynamic(kind: &Kind) -> Self {
        Self {
            shape: Shape {
                kind: kind.clone(),
                need: Need::Dynamic,
                model: Model::of::<DynamicObject>(),
            },
            convert: |kind, row| match row.cast::<DynamicObject>() {
                Ok(held) => Ok(held),
                Err(row) => dynamic(kind, &*row).map(Arc::new),
            },
            lend: |kind, row, read| {
                match row.cast_ref::<DynamicObject>() {
                    Some(held) => read(held),
                    None => read(&dynamic(kind, row)?),
                }
                Ok(())
            },
        }
    }
}

impl<V> View<V> {
    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.shape.kind
    }

    /// The object in the view's form.
    pub(super) fn of(&self, row: Arc<dyn Stored>) -> Result<Arc<V>, ViewError> {
        (self.convert)(&self.shape.kind, row)
    }

    /// The object of a row of `store` in the view's form. The store counts objects that do not convert.
    pub(super) fn of_store(
        &self,
        store: &Store,
        row: Arc<dyn Stored>,
    ) -> Result<Arc<V>, ViewError> {
        // A store of the type has counted those that do not decode, and so does a compact one.
        let counted =
            store.model() == self.shape.model.id || row.cast_ref::<AnyCompact>().is_some();
        if self.shape.need != Need::Typed || counted {
            return self.of(row);
        }
        let shown = self.of(Arc::clone(&row));
        if let Err(error) = &shown {
            store.unreadable(&*row, error);
        }
        shown
    }

    /// A handler of `store`, which holds it. Calls `handler` with each event in the view's form.
    pub(super) fn handler_of(
        &self,
        store: &Arc<Store>,
        handler: impl Fn(Event<V>) + Send + Sync + 'static,
    ) -> RowHandler
    where
        V: 'static,
    {
        let (view, store) = (self.clone(), Arc::downgrade(store));
        Box::new(move |event: Event<dyn Stored>| {
            let Some(store) = store.upgrade() else { return };
            // The store counts and logs objects that do not decode.
            if let Some(event) = event.filter_map(|row| view.of_store(&store, row).ok()) {
                handler(event);
            }
        })
    }

    /// Calls `read` with the object.
    pub(super) fn show(&self, row: &dyn Stored, read: &mut dyn FnMut(&V)) -> Result<(), ViewError> {
        (self.lend)(&self.shape.kind, row, read)
    }
}

// === impl Shape ===

impl Shape {
    /// Whether it can be read from a store of the type `model`.
    pub(super) fn reads(&self, model: TypeId) -> bool {
        model == self.model.id || model == TypeId::of::<DynamicObject>()
    }
}

impl<V> Clone for View<V> {
    fn clone(&self) -> Self {
        Self {
            shape: self.shape.clone(),
            ..*self
        }
    }
}

impl<V> fmt::Debug for View<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} as {:?})", self.shape.kind, self.shape.need)
    }
}

fn types(kind: &Kind) -> TypeMeta {
    TypeMeta {
        api_version: kind.resource().api_version.clone(),
        kind: kind.resource().kind.clone(),
    }
}

fn partial<K>(kind: &Kind, metadata: ObjectMeta) -> PartialObjectMeta<K> {
    PartialObjectMeta {
        types: Some(types(kind)),
        metadata,
        _phantom: PhantomData,
    }
}

fn dynamic(kind: &Kind, row: &dyn Stored) -> Result<DynamicObject, ViewError> {
    let mut object = row.dynamic()?;
    // Items of lists come without types.
    object.types.get_or_insert_with(|| types(kind));
    Ok(object)
}

/// An object from a store of another type, through JSON.
fn from_row<K: Object>(kind: &Kind, row: &dyn Stored) -> Result<K, ViewError> {
    let undecodable = |error: serde_json::Error| ViewError::Undecodable {
        view: "type",
        // The message may hold values of the object, which may be a secret.
        error: format!("{:?} error at line {}", error.classify(), error.line()),
    };
    let read = if K::metadata_api() {
        let partial = partial::<DynamicObject>(kind, row.metadata()?.into_owned());
        json::reencode(&partial)
    } else {
        json::reencode(&dynamic(kind, row)?)
    };
    read.map_err(undecodable)
}

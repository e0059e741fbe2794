//! An entry of the store: [`Stored`].

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_core::DynamicObject;

use super::view_error::ViewError;
use reeve_client::{KeyRef, ObjectKey};

/// An entry of the store: the identity of an object, and views of it.
///
/// Every Kubernetes type is an entry of itself. [`Form`](super::Form) says how an entry is read from JSON. A store of
/// `dyn Stored` holds entries of one type that is known when the program runs ([`EntryType::erased`]). Its code is
/// compiled once for all kinds. `dyn Stored` is `dyn Any` too, so an entry can be cast to its type again.
///
/// [`EntryType::erased`]: super::EntryType::erased
pub trait Stored: Any + Send + Sync {
    /// The object's name.
    fn name(&self) -> &str;

    /// The object's namespace; `None` for a cluster-scoped one.
    fn namespace(&self) -> Option<&str>;

    /// The object's uid; empty if the server sent none.
    fn uid(&self) -> &str;

    /// The object's version; empty if the server sent none.
    fn resource_version(&self) -> &str;

    /// The value of a label.
    fn label(&self, name: &str) -> Option<&str>;

    /// Calls `visit` with each label, in the order of their names.
    fn each_label(&self, visit: &mut dyn FnMut(&str, &str));

    /// The owners of the object.
    fn owner_references(&self) -> Cow<'_, [OwnerReference]>;

    /// The object's metadata. Fields that were skipped while decoding (`managedFields`) are absent.
    ///
    /// # Errors
    /// [`ViewError`] if this form does not hold it.
    fn metadata(&self) -> Result<Cow<'_, ObjectMeta>, ViewError>;

    /// The object's metadata, to change it before it is stored; `None` for a form that does not hold it as a value.
    fn metadata_mut(&mut self) -> Option<&mut ObjectMeta> {
        None
    }

    /// The object without its type.
    ///
    /// # Errors
    /// [`ViewError`] if this form does not hold all of the object, or it has no JSON form.
    fn dynamic(&self) -> Result<DynamicObject, ViewError>;

    /// The bytes that the entry owns on the heap besides itself, as far as they are known without a walk through all
    /// fields. Default: 0. The number must stay the same while the entry is in a store.
    fn owned_bytes(&self) -> usize {
        0
    }

    /// The key, borrowed.
    fn key_ref(&self) -> KeyRef<'_> {
        KeyRef {
            namespace: self.namespace(),
            name: self.name(),
        }
    }

    /// The key.
    fn key(&self) -> ObjectKey {
        self.key_ref().to_key()
    }
}

// === impl dyn Stored ===

impl dyn Stored {
    /// The entry as its type, if that is `T`.
    ///
    /// # Errors
    /// The entry, unchanged, if it is of another type.
    pub fn cast<T: Stored>(self: Arc<Self>) -> Result<Arc<T>, Arc<Self>> {
        if self.cast_ref::<T>().is_none() {
            return Err(self);
        }
        let entry: Arc<dyn Any + Send + Sync> = self;
        Ok(entry.downcast().expect("it was checked"))
    }

    /// As `cast`, borrowed.
    #[must_use]
    pub fn cast_ref<T: Stored>(&self) -> Option<&T> {
        let entry: &dyn Any = self;
        entry.downcast_ref()
    }

    /// As `cast`, to change the entry.
    pub fn cast_mut<T: Stored>(&mut self) -> Option<&mut T> {
        let entry: &mut dyn Any = self;
        entry.downcast_mut()
    }
}

impl fmt::Debug for dyn Stored {
    /// Prints key and version only: the content may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("key", &self.key())
            .field("version", &self.resource_version())
            .finish_non_exhaustive()
    }
}

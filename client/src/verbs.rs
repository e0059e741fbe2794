//! The verbs of a client, each for one kind.

use kube_core::metadata::PartialObjectMeta;
use kube_core::params::{DeleteParams, ListParams};
use kube_core::{DynamicObject, GroupVersionKind, ObjectList, ObjectMeta};

use crate::client::Client;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::key::ObjectKey;
use crate::object::Object;
use crate::objects::Objects;
use crate::options::{ApplyOptions, WriteOptions};
use crate::patch::Patch;
use crate::subresource::Subresource;

impl Client {
    /// The objects of the type `K`.
    pub fn objects<K: Object>(&self) -> Objects<K> {
        Objects::new(self.clone(), Endpoint::of::<K>(&()))
    }

    /// The objects of a kind known at run time: a [`Kind`](crate::Kind), such as a [`Mapper`](crate::Mapper) finds, or an
    /// [`ApiResource`](kube_core::ApiResource). [`Client::discovered`] takes the name of a kind.
    pub fn dynamic(&self, kind: impl Into<Endpoint>) -> Objects<DynamicObject> {
        Objects::new(self.clone(), kind.into())
    }

    /// The metadata of the objects of the type `K`. The server sends nothing else.
    pub fn metadata<K: Object>(&self) -> Objects<PartialObjectMeta<K>> {
        Objects::new(self.clone(), Endpoint::of::<PartialObjectMeta<K>>(&()))
    }

    /// The metadata of the objects of a kind known at run time.
    pub fn dynamic_metadata(
        &self,
        kind: impl Into<Endpoint>,
    ) -> Objects<PartialObjectMeta<DynamicObject>> {
        let mut endpoint = kind.into();
        endpoint.metadata_only = true;
        Objects::new(self.clone(), endpoint)
    }

    /// Reads the object `key` from the server.
    ///
    /// # Errors
    /// [`Error::is_not_found`] when there is none; [`optional`](crate::optional) makes that a `None`.
    pub async fn get<K: Object>(&self, key: &ObjectKey) -> Result<K, Error> {
        self.objects().get(key).await
    }

    /// Reads the metadata of the object `key` from the server.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_metadata<K: Object>(&self, key: &ObjectKey) -> Result<ObjectMeta, Error> {
        Ok(self.metadata::<K>().get(key).await?.metadata)
    }

    /// Lists the objects of a kind from the server, in one namespace or in all, with `params`. In pages:
    /// [`Objects::pages`].
    ///
    /// # Errors
    /// When the call fails.
    pub async fn list<K: Object>(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<ObjectList<K>, Error> {
        self.objects().list(namespace, params).await
    }

    /// Creates `object`, and returns it as the server stored it. With options: [`Objects::create_with`].
    ///
    /// # Errors
    /// [`Error::is_already_exists`], or when the call fails.
    pub async fn create<K: Object>(&self, object: &K) -> Result<K, Error> {
        self.objects().create(object).await
    }

    /// Replaces the object; with its resourceVersion set, only if it has not changed since. With options:
    /// [`Objects::update_with`].
    ///
    /// # Errors
    /// [`Error::is_conflict`], [`Error::is_not_found`], or when the call fails.
    pub async fn update<K: Object>(&self, object: &K) -> Result<K, Error> {
        self.objects().update(object).await
    }

    /// Replaces the object's status subresource; with its resourceVersion set, only if the object has not changed
    /// since.
    ///
    /// # Errors
    /// As [`Client::update`].
    pub async fn update_status<K: Object>(&self, object: &K) -> Result<K, Error> {
        self.objects().update_status(object).await
    }

    /// Patches the object `key`. Takes [`WriteOptions`] and a [`Patch`], or the parameters and the patch of kube-core.
    ///
    /// # Errors
    /// As [`Client::update`].
    pub async fn patch<K: Object, P: Into<Patch>>(
        &self,
        key: &ObjectKey,
        options: impl Into<WriteOptions>,
        patch: P,
    ) -> Result<K, Error> {
        self.objects().patch(key, options, patch).await
    }

    /// Patches the status subresource of the object `key`.
    ///
    /// # Errors
    /// As [`Client::update`].
    pub async fn patch_status<K: Object, P: Into<Patch>>(
        &self,
        key: &ObjectKey,
        options: impl Into<WriteOptions>,
        patch: P,
    ) -> Result<K, Error> {
        self.objects().patch_status(key, options, patch).await
    }

    /// Server-side apply: see [`Objects::apply`].
    ///
    /// # Errors
    /// As [`Objects::apply`].
    pub async fn apply<K: Object>(&self, object: &K, options: ApplyOptions) -> Result<K, Error> {
        self.objects().apply(object, options).await
    }

    /// Server-side apply to the status.
    ///
    /// # Errors
    /// As [`Objects::apply`].
    pub async fn apply_status<K: Object>(
        &self,
        object: &K,
        options: ApplyOptions,
    ) -> Result<K, Error> {
        self.objects().apply_status(object, options).await
    }

    /// Deletes the object `key`: see [`Objects::delete`].
    ///
    /// # Errors
    /// [`Error::is_not_found`], [`Error::is_conflict`] for a precondition, or when the call fails.
    pub async fn delete<K: Object>(
        &self,
        key: &ObjectKey,
        params: &DeleteParams,
    ) -> Result<(), Error> {
        self.objects::<K>().delete(key, params).await
    }

    /// Deletes the objects that the selectors of `which` match: see [`Objects::delete_all_of`].
    ///
    /// # Errors
    /// When the call fails.
    pub async fn delete_all_of<K: Object>(
        &self,
        namespace: Option<&str>,
        which: &ListParams,
        params: &DeleteParams,
    ) -> Result<(), Error> {
        self.objects::<K>()
            .delete_all_of(namespace, which, params)
            .await
    }

    /// The subresource `name` of the objects of type `K`: see [`Objects::subresource`].
    pub fn subresource<K: Object>(&self, name: impl Into<String>) -> Subresource<K> {
        self.objects().subresource(name)
    }

    /// The objects of a kind known by name only.
    ///
    /// # Errors
    /// As [`Mapper::version`](crate::Mapper::version).
    pub async fn discovered(
        &self,
        kind: &GroupVersionKind,
    ) -> Result<Objects<DynamicObject>, Error> {
        Ok(self.dynamic(&self.mapper().version(kind).await?))
    }
}

//! The verbs: for the objects of one kind, typed, dynamic or metadata only, and on the client for a type.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kube_core::metadata::PartialObjectMeta;
use kube_core::params::{DeleteParams, ListParams};
use kube_core::{DynamicObject, GroupVersionKind, ObjectList, ObjectMeta};
use serde::Serialize;
use serde_json::{Value, json};

use crate::call::{Call, Verb};
use crate::client::Client;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::key::ObjectKey;
use crate::object::{AnyObject, Object, key_of};
use crate::options::{ApplyOptions, FieldValidation, WriteOptions};
use crate::pages::Pages;
use crate::patch::{Form, Patch};
use crate::subresource::Subresource;

/// The objects of one kind at the server. Every call goes to the server. Cheap to clone.
///
/// [`Client::objects`] is for a type, [`Client::dynamic`] for a kind known at run time, [`Client::metadata`] and
/// [`Client::dynamic_metadata`] for metadata only. The calls are the same. Metadata alone cannot be created or
/// replaced (as in controller-runtime); it can be patched and applied.
#[must_use]
pub struct Objects<K> {
    client: Client,
    endpoint: Arc<Endpoint>,
    of: PhantomData<fn() -> K>,
}

// === impl Objects ===

impl<K: AnyObject> Objects<K> {
    pub(crate) fn new(client: Client, endpoint: Endpoint) -> Self {
        Self {
            client,
            endpoint: Arc::new(endpoint),
            of: PhantomData,
        }
    }

    /// The endpoint of the kind.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Reads one object.
    ///
    /// # Errors
    /// [`Error::is_not_found`] when there is none; [`optional`](crate::optional) makes that a `None`.
    pub async fn get(&self, key: &ObjectKey) -> Result<K, Error> {
        self.one(self.call(Verb::Get).key(key)).await
    }

    /// Lists the objects that `params` selects, in one namespace or in all: one page, if a limit is set.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn list(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<ObjectList<K>, Error> {
        let call = self
            .call(Verb::List)
            .in_namespace(namespace)
            .selecting(params);
        let mut list: ObjectList<K> = self.client.answer(call).await?;
        for object in &mut list.items {
            self.endpoint.stamp(object);
        }
        Ok(list)
    }

    /// Lists page by page, with the limit in `params` as the page size (default 500).
    pub fn pages(&self, namespace: Option<&str>, params: &ListParams) -> Pages<K> {
        Pages::new(self.clone(), namespace, params)
    }

    /// Creates `object`, and returns it as the server stored it.
    ///
    /// # Errors
    /// [`Error::is_already_exists`], or when the call fails.
    pub async fn create(&self, object: &K) -> Result<K, Error> {
        self.create_with(object, WriteOptions::new()).await
    }

    /// As [`Objects::create`], with options.
    ///
    /// # Errors
    /// As [`Objects::create`].
    pub async fn create_with(
        &self,
        object: &K,
        options: impl Into<WriteOptions>,
    ) -> Result<K, Error> {
        self.one(self.whole(Verb::Create, object)?.options(options))
            .await
    }

    /// As [`Objects::create`], without decoding the object in the answer: for a caller that needs nothing of it.
    ///
    /// # Errors
    /// As [`Objects::create`].
    pub async fn create_unread(&self, object: &K) -> Result<(), Error> {
        let call = self.whole(Verb::Create, object)?;
        self.client.perform(call).await.map(drop)
    }

    /// Replaces the object; with its resourceVersion set, only if it has not changed since.
    ///
    /// # Errors
    /// [`Error::is_conflict`], [`Error::is_not_found`], or when the call fails.
    pub async fn update(&self, object: &K) -> Result<K, Error> {
        self.update_with(object, WriteOptions::new()).await
    }

    /// As [`Objects::update`], with options.
    ///
    /// # Errors
    /// As [`Objects::update`].
    pub async fn update_with(
        &self,
        object: &K,
        options: impl Into<WriteOptions>,
    ) -> Result<K, Error> {
        self.one(self.whole(Verb::Update, object)?.options(options))
            .await
    }

    /// Patches one object.
    ///
    /// # Errors
    /// As [`Objects::update`].
    pub async fn patch(&self, key: &ObjectKey, patch: impl Into<Patch>) -> Result<K, Error> {
        self.patch_with(key, WriteOptions::new(), patch).await
    }

    /// As [`Objects::patch`], with options.
    ///
    /// # Errors
    /// As [`Objects::update`].
    pub async fn patch_with(
        &self,
        key: &ObjectKey,
        options: impl Into<WriteOptions>,
        patch: impl Into<Patch>,
    ) -> Result<K, Error> {
        let call = self.call(Verb::Patch).key(key).options(options);
        self.one(call.patch(patch.into())?).await
    }

    /// Server-side apply: the owner gets the fields that `object` sets, and fields that it set before and does not set
    /// now are removed. The object is created if it does not exist. Returns the new state.
    ///
    /// Set only the fields to own. An object that was read is a bad start: it has all fields.
    ///
    /// # Errors
    /// [`Error::is_conflict`] when others own such fields and it is not forced, or when the call fails.
    pub async fn apply(&self, object: &K, options: ApplyOptions) -> Result<K, Error> {
        let call = self.call(Verb::Apply).object(object.meta(), Vec::new());
        self.one(applying(call, options, object)?).await
    }

    /// Replaces the status; with the resourceVersion set, only if the object has not changed since.
    ///
    /// # Errors
    /// As [`Objects::update`].
    pub async fn update_status(&self, object: &K) -> Result<K, Error> {
        let call = self.whole(Verb::Update, object)?;
        self.one(call.subresource(Some("status"))).await
    }

    /// Patches the status.
    ///
    /// # Errors
    /// As [`Objects::update`].
    pub async fn patch_status(&self, key: &ObjectKey, patch: impl Into<Patch>) -> Result<K, Error> {
        self.patch_status_with(key, WriteOptions::new(), patch)
            .await
    }

    /// As [`Objects::patch_status`], with options.
    ///
    /// # Errors
    /// As [`Objects::update`].
    pub async fn patch_status_with(
        &self,
        key: &ObjectKey,
        options: impl Into<WriteOptions>,
        patch: impl Into<Patch>,
    ) -> Result<K, Error> {
        let call = self.call(Verb::Patch).key(key).options(options);
        self.one(call.subresource(Some("status")).patch(patch.into())?)
            .await
    }

    /// Server-side apply to the status.
    ///
    /// # Errors
    /// As [`Objects::apply`].
    pub async fn apply_status(&self, object: &K, options: ApplyOptions) -> Result<K, Error> {
        let key = key_of(object.meta());
        let mut applied: K = self
            .subresource("status")
            .apply(&key, options, object)
            .await?;
        self.endpoint().stamp(&mut applied);
        Ok(applied)
    }

    /// Deletes one object. It is removed, or marked while its finalizers or its grace period delay the removal.
    ///
    /// Set a uid precondition in `params`, or a new object of the same name may be deleted instead.
    ///
    /// # Errors
    /// [`Error::is_not_found`], [`Error::is_conflict`] for a precondition, or when the call fails.
    pub async fn delete(&self, key: &ObjectKey, params: &DeleteParams) -> Result<(), Error> {
        let call = self.call(Verb::Delete).key(key).deleting(params);
        self.client.perform(call).await.map(drop)
    }

    /// Deletes every object of a namespace (or of the cluster, for a kind without namespaces) that the selectors of
    /// `which` match.
    ///
    /// # Errors
    /// When the call fails. Some may be deleted then; a cached read and the next reconcile show which.
    pub async fn delete_all_of(
        &self,
        namespace: Option<&str>,
        which: &ListParams,
        params: &DeleteParams,
    ) -> Result<(), Error> {
        let call = self
            .call(Verb::DeleteAllOf)
            .in_namespace(namespace)
            .selecting(which)
            .deleting(params);
        self.client.perform(call).await.map(drop)
    }

    /// The subresource `name` of these objects: `status`, `scale`, `eviction`, `token`, `approval`,
    /// `ephemeralcontainers`, `binding`, or one of your own.
    pub fn subresource(&self, name: impl Into<String>) -> Subresource<K> {
        Subresource::new(self.clone(), name.into())
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn call(&self, verb: Verb) -> Call {
        Call::new(verb, &self.endpoint)
    }

    /// A call with the whole object.
    pub(crate) fn whole(&self, verb: Verb, object: &K) -> Result<Call, Error> {
        let call = self.call(verb).object(object.meta(), Vec::new());
        if self.endpoint.metadata_only {
            return Err(call.invalid("metadata alone does not make an object: patch or apply it"));
        }
        let body = encode_whole(&call, object)?;
        Ok(Call { body, ..call })
    }

    /// Performs the call, and decodes the answer as an object.
    pub(crate) async fn one(&self, call: Call) -> Result<K, Error> {
        let mut object: K = self.client.object(call).await?;
        self.endpoint.stamp(&mut object);
        Ok(object)
    }
}

// === impl Client ===

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

    /// Patches the object `key`. Takes a [`Patch`] ([which](crate::patch)), or one of kube-core. With options:
    /// [`Objects::patch_with`].
    ///
    /// # Errors
    /// As [`Client::update`].
    pub async fn patch<K: Object>(
        &self,
        key: &ObjectKey,
        patch: impl Into<Patch>,
    ) -> Result<K, Error> {
        self.objects().patch(key, patch).await
    }

    /// Patches the status subresource of the object `key`. With options: [`Objects::patch_status_with`].
    ///
    /// # Errors
    /// As [`Client::update`].
    pub async fn patch_status<K: Object>(
        &self,
        key: &ObjectKey,
        patch: impl Into<Patch>,
    ) -> Result<K, Error> {
        self.objects().patch_status(key, patch).await
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

impl<K> Clone for Objects<K> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            endpoint: Arc::clone(&self.endpoint),
            of: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Objects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

fn encode_whole<K: AnyObject>(call: &Call, object: &K) -> Result<Vec<u8>, Error> {
    if TypeId::of::<K::DynamicType>() == TypeId::of::<()>() {
        // Such a type writes its kind and apiVersion itself.
        return encode(call, object);
    }
    let mut value = to_value(call, object)?;
    named(call, &mut value);
    encode(call, &value)
}

/// The call with the configuration to apply: with kind and apiVersion, without managed fields.
pub(crate) fn applying<T: Serialize>(
    call: Call,
    options: ApplyOptions,
    object: &T,
) -> Result<Call, Error> {
    let ApplyOptions(mut options) = options;
    options
        .field_validation
        .get_or_insert(FieldValidation::Strict);
    let mut call = call.options(options);
    call.form = Some(Form::Apply);
    let mut value = to_value(&call, object)?;
    named(&call, &mut value);
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    call.body = encode(&call, &value)?;
    Ok(call)
}

fn to_value<T: Serialize>(call: &Call, object: &T) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|error| call.invalid(error.to_string()))
}

/// Writes the kind into an object that has none, or that has the kind of metadata.
fn named(call: &Call, object: &mut Value) {
    let resource = call.resource();
    let kind = object["kind"].as_str().unwrap_or_default();
    if object.is_object() && (kind.is_empty() || kind == "PartialObjectMetadata") {
        object["kind"] = json!(resource.kind);
        object["apiVersion"] = json!(resource.api_version);
    }
}

pub(crate) fn encode<T: Serialize>(call: &Call, object: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(object).map_err(|error| call.invalid(error.to_string()))
}

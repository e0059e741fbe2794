//! Subresources: parts of an object, or actions on it, with a path of their own.

use crate::key::ObjectKey;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::policy::v1::Eviction;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::call::{Call, Verb};
use crate::error::Error;
use crate::object::AnyObject;
use crate::objects::{Objects, applying, encode};
use crate::options::{ApplyOptions, WriteOptions};
use crate::patch::Patch;

/// One subresource of the objects of a kind. The types of its body and answer depend on the subresource: the object
/// itself for `status`, `approval` and `ephemeralcontainers`, a
/// [`Scale`] for `scale`, and so on.
#[derive(Debug)]
#[must_use]
pub struct Subresource<K> {
    objects: Objects<K>,
    name: String,
}

// === impl Subresource ===

impl<K: AnyObject> Subresource<K> {
    pub(crate) fn new(objects: Objects<K>, name: String) -> Self {
        Self { objects, name }
    }

    /// Reads the subresource.
    ///
    /// # Errors
    /// As [`Objects::get`].
    pub async fn get<T: DeserializeOwned>(&self, key: &ObjectKey) -> Result<T, Error> {
        self.objects
            .client()
            .answer(self.call(Verb::Get, key))
            .await
    }

    /// Creates the subresource: requests an eviction, a token or a binding.
    ///
    /// # Errors
    /// As [`Objects::create`].
    pub async fn create<B: Serialize, T: DeserializeOwned>(
        &self,
        key: &ObjectKey,
        options: impl Into<WriteOptions>,
        body: &B,
    ) -> Result<T, Error> {
        self.send(Verb::Create, key, options, body).await
    }

    /// Replaces the subresource; with a resourceVersion in `body`, only if the object has not changed since.
    ///
    /// # Errors
    /// As [`Objects::update`].
    pub async fn update<B: Serialize, T: DeserializeOwned>(
        &self,
        key: &ObjectKey,
        options: impl Into<WriteOptions>,
        body: &B,
    ) -> Result<T, Error> {
        self.send(Verb::Update, key, options, body).await
    }

    /// Patches the subresource.
    ///
    /// # Errors
    /// As [`Objects::update`].
    pub async fn patch<T: DeserializeOwned>(
        &self,
        key: &ObjectKey,
        patch: impl Into<Patch>,
    ) -> Result<T, Error> {
        self.patch_with(key, WriteOptions::new(), patch).await
    }

    /// As [`Subresource::patch`], with options.
    ///
    /// # Errors
    /// As [`Objects::update`].
    pub async fn patch_with<T: DeserializeOwned>(
        &self,
        key: &ObjectKey,
        options: impl Into<WriteOptions>,
        patch: impl Into<Patch>,
    ) -> Result<T, Error> {
        let call = self.call(Verb::Patch, key).options(options);
        self.objects
            .client()
            .answer(call.patch(patch.into())?)
            .await
    }

    /// Server-side apply to the subresource.
    ///
    /// # Errors
    /// As [`Objects::apply`].
    pub async fn apply<B: Serialize, T: DeserializeOwned>(
        &self,
        key: &ObjectKey,
        options: ApplyOptions,
        body: &B,
    ) -> Result<T, Error> {
        let call = applying(self.call(Verb::Apply, key), options, body)?;
        self.objects.client().answer(call).await
    }

    async fn send<B: Serialize, T: DeserializeOwned>(
        &self,
        verb: Verb,
        key: &ObjectKey,
        options: impl Into<WriteOptions>,
        body: &B,
    ) -> Result<T, Error> {
        let mut call = self.call(verb, key).options(options);
        call.body = encode(&call, body)?;
        self.objects.client().answer(call).await
    }

    fn call(&self, verb: Verb, key: &ObjectKey) -> Call {
        self.objects
            .call(verb)
            .key(key)
            .subresource(Some(&self.name))
    }
}

impl<K> Clone for Subresource<K> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            name: self.name.clone(),
        }
    }
}

/// The common subresources.
impl<K: AnyObject> Objects<K> {
    /// Reads the current and the desired number of replicas.
    ///
    /// # Errors
    /// As [`Objects::get`].
    pub async fn scale(&self, key: &ObjectKey) -> Result<Scale, Error> {
        self.subresource("scale").get(key).await
    }

    /// Sets the desired number of replicas, whatever it was.
    ///
    /// # Errors
    /// As [`Objects::update`].
    pub async fn set_replicas(&self, key: &ObjectKey, replicas: i32) -> Result<Scale, Error> {
        let patch = Patch::merge(serde_json::json!({"spec": {"replicas": replicas}}));
        self.subresource("scale").patch(key, patch).await
    }

    /// Requests the eviction of a Pod: it is deleted unless a disruption budget forbids it.
    ///
    /// # Errors
    /// [`Error::status`] with code 429 while a budget forbids it, or when the call fails.
    pub async fn evict(&self, key: &ObjectKey, eviction: &Eviction) -> Result<(), Error> {
        let mut call = self
            .call(Verb::Create)
            .key(key)
            .subresource(Some("eviction"));
        let mut eviction = eviction.clone();
        eviction
            .metadata
            .name
            .get_or_insert_with(|| key.name.to_string());
        call.body = encode(&call, &eviction)?;
        self.client().perform(call).await.map(drop)
    }

    /// Requests a token of a ServiceAccount.
    ///
    /// # Errors
    /// As [`Objects::create`].
    pub async fn token(
        &self,
        key: &ObjectKey,
        request: &TokenRequest,
    ) -> Result<TokenRequest, Error> {
        self.subresource("token")
            .create(key, WriteOptions::new(), request)
            .await
    }
}

//! The client a reconciler writes through: deadlines on every call, bodies decoded here, own writes noted.
//!
//! kube-client logs the whole body of an answer it cannot decode, Secrets included, and waits for an answer
//! for ever; so the calls here go through its raw `send`. Reads are live. Cached reads are a lister's
//! ([`Context::lister`](crate::Context::lister)).

pub mod connect;
mod error;
mod request;
#[cfg(test)]
mod tests;
pub(crate) mod writes;

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube_core::params::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_core::{ObjectList, ObjectMeta, Resource};
use reeve_informer::ObjectKey;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use error::{Error, optional};

use crate::leader_election::Fence;
use writes::{Effect, Notes};

/// How long a call may take before it is given up.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);

/// What an answer may hold at most, in bytes. A list that is larger is taken in pages.
pub const DEFAULT_BODY_LIMIT: usize = 256 * 1024 * 1024;

/// A kind the client reads and writes: a Rust type that knows its group, version and plural.
pub trait Object:
    Resource<DynamicType = ()>
    + Serialize
    + DeserializeOwned
    + Clone
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = ()>
        + Serialize
        + DeserializeOwned
        + Clone
        + fmt::Debug
        + Send
        + Sync
        + 'static
{
}

/// Reads and writes objects, each call within a deadline. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<kube_client::Client>,
    deadline: Duration,
    body_limit: usize,
    /// Where writes are noted, for the controller that holds the key until its caches show them.
    notes: Option<Arc<Notes>>,
    /// Refuses writes once the lease is not ours.
    fence: Option<Fence>,
}

// === impl Client ===

impl Client {
    /// Wraps a kube client. [`connect::connect`] builds one that finds a dead peer, too.
    #[must_use]
    pub fn new(inner: kube_client::Client) -> Self {
        Self {
            inner: Arc::new(inner),
            deadline: DEFAULT_DEADLINE,
            body_limit: DEFAULT_BODY_LIMIT,
            notes: None,
            fence: None,
        }
    }

    /// The same client with another deadline for each call.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The same client, whose writes the controller does not wait to see in its caches.
    #[must_use]
    pub fn without_read_your_writes(mut self) -> Self {
        self.notes = None;
        self
    }

    pub(crate) fn with_notes(mut self, notes: Arc<Notes>) -> Self {
        self.notes = Some(notes);
        self
    }

    pub(crate) fn with_fence(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }

    /// The kube client underneath, for what this one does not offer. What it writes is not noted.
    #[must_use]
    pub fn kube(&self) -> &kube_client::Client {
        &self.inner
    }

    /// Reads the object `key` from the server.
    ///
    /// # Errors
    /// [`Error::is_not_found`] when there is none; [`optional`] makes that a `None`.
    pub async fn get<K: Object>(&self, key: &ObjectKey) -> Result<K, Error> {
        let request = self.describe::<K>("get", key);
        let http = path::<K>(key.namespace.as_deref()).get(&key.name, &Default::default());
        self.call(request, http).await
    }

    /// Reads the metadata of the object `key` from the server.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_metadata<K: Object>(&self, key: &ObjectKey) -> Result<ObjectMeta, Error> {
        let request = self.describe::<K>("get", key);
        let http = path::<K>(key.namespace.as_deref()).get_metadata(&key.name, &Default::default());
        let answer: kube_core::PartialObjectMeta<K> = self.call(request, http).await?;
        Ok(answer.metadata)
    }

    /// Lists the objects of a kind, in one namespace or everywhere, as `params` says.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn list<K: Object>(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<ObjectList<K>, Error> {
        let request = format!(
            "list {}{}",
            K::plural(&()),
            namespace
                .map(|name| format!(" in {name}"))
                .unwrap_or_default()
        );
        self.call(request, path::<K>(namespace).list(params)).await
    }

    /// Creates `object`, and returns it as the server stored it.
    ///
    /// # Errors
    /// [`Error::is_already_exists`], or when the call fails.
    pub async fn create<K: Object>(&self, object: &K) -> Result<K, Error> {
        let key = key_of(object.meta());
        let request = self.describe::<K>("create", &key);
        let body = encode(&request, object)?;
        let http = path::<K>(key.namespace.as_deref()).create(&PostParams::default(), body);
        self.write(request, key, http, false).await
    }

    /// Replaces the object; with its resourceVersion set, only if nobody changed it since.
    ///
    /// # Errors
    /// [`Error::is_conflict`], [`Error::is_not_found`], or when the call fails.
    pub async fn update<K: Object>(&self, object: &K) -> Result<K, Error> {
        let key = key_of(object.meta());
        let request = self.describe::<K>("update", &key);
        let body = encode(&request, object)?;
        let http =
            path::<K>(key.namespace.as_deref()).replace(&key.name, &PostParams::default(), body);
        self.write(request, key, http, false).await
    }

    /// Replaces the object's status subresource; with its resourceVersion set, only if nobody changed the
    /// object since.
    ///
    /// # Errors
    /// As [`Client::update`].
    pub async fn update_status<K: Object>(&self, object: &K) -> Result<K, Error> {
        let key = key_of(object.meta());
        let request = self.describe::<K>("update status of", &key);
        let body = encode(&request, object)?;
        let http = path::<K>(key.namespace.as_deref()).replace_subresource(
            "status",
            &key.name,
            &PostParams::default(),
            body,
        );
        self.write(request, key, http, false).await
    }

    /// Patches the object `key`.
    ///
    /// # Errors
    /// As [`Client::update`].
    pub async fn patch<K: Object, P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectKey,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, Error> {
        let request = self.describe::<K>("patch", key);
        let http = path::<K>(key.namespace.as_deref()).patch(&key.name, params, patch);
        self.write(request, key.clone(), http, params.dry_run).await
    }

    /// Patches the status subresource of the object `key`.
    ///
    /// # Errors
    /// As [`Client::update`].
    pub async fn patch_status<K: Object, P: Serialize + fmt::Debug>(
        &self,
        key: &ObjectKey,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, Error> {
        let request = self.describe::<K>("patch status of", key);
        let http = path::<K>(key.namespace.as_deref())
            .patch_subresource("status", &key.name, params, patch);
        self.write(request, key.clone(), http, params.dry_run).await
    }

    /// Deletes the object `key`. It is gone, or marked and waiting for its finalizers.
    ///
    /// Say which object is meant with a uid precondition in `params`, or one made again under the name goes
    /// instead.
    ///
    /// # Errors
    /// [`Error::is_not_found`], [`Error::is_conflict`] for a precondition, or when the call fails.
    pub async fn delete<K: Object>(
        &self,
        key: &ObjectKey,
        params: &DeleteParams,
    ) -> Result<(), Error> {
        let request = self.describe::<K>("delete", key);
        self.check_fence(&request)?;
        let http = path::<K>(key.namespace.as_deref()).delete(&key.name, params);
        let begun = self.begin::<K>(key, params.dry_run);
        let result: Result<request::Deleted, Error> = self.call(request, http).await;
        let Some(begun) = begun else {
            return result.map(|_| ());
        };
        match result {
            Ok(answer) => {
                begun.settle(key.clone(), answer.effect());
                Ok(())
            }
            Err(error) => {
                if !error.is_ambiguous() {
                    begun.discard();
                }
                Err(error)
            }
        }
    }

    /// One write that answers with the object.
    async fn write<K: Object>(
        &self,
        request: String,
        key: ObjectKey,
        http: Result<http::Request<Vec<u8>>, kube_core::request::Error>,
        dry_run: bool,
    ) -> Result<K, Error> {
        self.check_fence(&request)?;
        let begun = self.begin::<K>(&key, dry_run);
        let result: Result<K, Error> = self.call(request, http).await;
        if let Some(begun) = begun {
            match &result {
                Ok(object) => {
                    begun.settle(key_of(object.meta()), Effect::of_written(object.meta()));
                }
                Err(error) if error.is_ambiguous() => drop(begun),
                Err(_) => begun.discard(),
            }
        }
        result
    }

    fn begin<K: Object>(&self, key: &ObjectKey, dry_run: bool) -> Option<writes::Begun> {
        let notes = self.notes.as_ref().filter(|_| !dry_run)?;
        Some(notes.begin(TypeId::of::<K>(), key.clone()))
    }

    pub(crate) fn check_fence(&self, request: &str) -> Result<(), Error> {
        match &self.fence {
            Some(fence) if !fence.is_open() => Err(Error::NotLeader {
                request: request.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn describe<K: Object>(&self, verb: &str, key: &ObjectKey) -> String {
        format!("{verb} {} {key}", K::kind(&()).to_lowercase())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// The key of the object `meta` belongs to.
pub(crate) fn key_of(meta: &ObjectMeta) -> ObjectKey {
    let name = meta.name.as_deref().unwrap_or_default();
    match meta.namespace.as_deref() {
        Some(namespace) if !namespace.is_empty() => ObjectKey::namespaced(namespace, name),
        _ => ObjectKey::cluster(name),
    }
}

fn path<K: Object>(namespace: Option<&str>) -> kube_core::Request {
    kube_core::Request::new(K::url_path(&(), namespace))
}

fn encode<K: Serialize>(request: &str, object: &K) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(object).map_err(|error| Error::Invalid {
        request: request.to_owned(),
        message: error.to_string(),
    })
}

//! The client: every verb for typed objects, objects known at run time, and their metadata; deadlines on every call,
//! bodies decoded here, own writes noted.
//!
//! ```no_run
//! # async fn example(client: reeve_controller::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use k8s_openapi::api::core::v1::{ConfigMap, Pod};
//! use kube_core::params::{DeleteParams, ListParams};
//! use reeve_controller::ObjectKey;
//! use reeve_controller::client::{ApplyOptions, Patch, WriteOptions, optional};
//! use serde_json::json;
//!
//! let key = ObjectKey::namespaced("default", "settings");
//! // From the server. `optional` makes "not found" a `None`.
//! let Some(mut settings) = optional(client.get::<ConfigMap>(&key).await)? else { return Ok(()) };
//! // What changed since the read is refused with a conflict.
//! let before = settings.clone();
//! settings.data.get_or_insert_default().insert("level".into(), "debug".into());
//! let patch = Patch::merge_from_locked(&before, &settings)?;
//! client.patch::<ConfigMap, _>(&key, WriteOptions::new(), patch).await?;
//! // Only names, labels and owners of the Pods, page by page.
//! let pods = client.metadata::<Pod>().pages(Some("default"), &ListParams::default()).all().await?;
//! // Server-side apply does not go without an owner.
//! let mut wanted = ConfigMap::default();
//! wanted.metadata.namespace = Some("default".into());
//! wanted.metadata.name = Some("summary".into());
//! wanted.data = Some([("pods".into(), pods.len().to_string())].into());
//! client.apply(&wanted, ApplyOptions::new("example")).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where it reads from
//! [`Client::get`], [`Client::list`] and all of [`Objects`] ask the server. Reads of this process' caches are said as
//! such: [`Client::cached`], which waits for this client's own writes, or a lister
//! ([`Context::lister`](crate::Context::lister)), which never waits. Neither stands in for the other behind your back
//! (controller-runtime: one `Get` for both, by configuration), and no read makes an informer.
//!
//! # What is one for all calls
//! One function performs every call ([`Objects`] differ in path and decoding only), so these hold for all:
//!
//! * a call ends by its [deadline](Client::with_deadline), an answer is [bounded](Client::with_body_limit);
//! * kube-client logs the whole body of an answer it cannot decode, Secrets included, and waits for ever; here no
//!   body is logged or quoted;
//! * a warning of the server is logged, once;
//! * names that are no path segment are refused instead of reaching another object or the whole collection;
//! * writes of a deposed leader are refused ([`Error::NotLeader`]);
//! * writes are noted, for [read-your-writes](crate::controller::Builder::own_writes_timeout);
//! * the settings of the client apply: [`Client::dry_run`], [`Client::field_owner`], [`Client::field_validation`],
//!   [`Client::in_namespace`], and [`Client::intercepted`] for tests.

mod cached;
mod call;
pub mod connect;
mod endpoint;
mod error;
mod intercept;
pub mod location;
mod mapper;
pub(crate) mod measure;
mod objects;
mod options;
mod outline;
mod pages;
pub mod patch;
mod retry;
mod send;
mod settings;
mod subresource;
#[cfg(test)]
mod tests;
mod upsert;
mod warning;
pub(crate) mod writes;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube_core::metadata::PartialObjectMeta;
use kube_core::params::{DeleteParams, ListParams};
use kube_core::{DynamicObject, ObjectList, ObjectMeta, Resource};
use reeve_informer::ObjectKey;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use cached::{Cached, DEFAULT_WAIT};
pub use call::{Call, Verb};
pub use endpoint::{Endpoint, GroupKind};
pub use error::{Error, optional};
pub use intercept::{Answer, Interceptor, Next};
pub use mapper::Mapper;
pub use objects::{AnyObject, Objects};
pub use options::{ApplyOptions, FieldValidation, WriteOptions};
pub use pages::{PAGE_SIZE, Pages};
pub use patch::Patch;
pub use retry::{Backoff, DEFAULT_BACKOFF, DEFAULT_RETRY, retry_on, retry_on_conflict};
pub use subresource::Subresource;
pub use upsert::{Change, Mutated};

use crate::leader_election::Fence;
pub(crate) use cached::Reading;
use measure::Counted;
use settings::Settings;
use writes::Notes;

/// How long a call may take before it is given up.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);

/// What an answer may hold at most, in bytes. A list that is larger is taken in pages.
pub const DEFAULT_BODY_LIMIT: usize = 256 * 1024 * 1024;

/// The longest name of a field owner, in bytes (the API server's limit).
const NAME_LIMIT: usize = 128;

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
    inner: Arc<Inner>,
    settings: Arc<Settings>,
    /// Where writes are noted, for the controller that holds the key until its caches show them.
    notes: Option<Arc<Notes>>,
    /// Refuses writes once the lease is not ours.
    fence: Option<Arc<Fenced>>,
    /// The caches it reads.
    reading: Option<Arc<Reading>>,
    /// What the server warned of.
    warnings: Arc<warning::Warnings>,
    /// What discovery told.
    known: Arc<mapper::Known>,
    /// Changes that need not be sent again.
    without_effect: Arc<upsert::WithoutEffect>,
    /// What stands between this client and the server.
    intercepted: Option<Arc<intercept::Layer>>,
}

/// The kube client underneath, as it is asked here, and as whoever wants it is given it.
struct Inner {
    counted: Counted,
    kube: kube_client::Client,
}

/// A fence, and the kube client that asks it, made when it is wanted.
struct Fenced {
    fence: Fence,
    kube: OnceLock<kube_client::Client>,
}

// === impl Client ===

impl Client {
    /// Wraps a kube client. [`connect::connect`] builds one that finds a dead peer, too.
    #[must_use]
    pub fn new(inner: kube_client::Client) -> Self {
        Self::counted(Counted::new(inner, None))
    }

    /// Must be called inside a tokio runtime.
    pub(crate) fn counted(counted: Counted) -> Self {
        let kube = counted.kube();
        Self {
            inner: Arc::new(Inner { counted, kube }),
            settings: Arc::default(),
            notes: None,
            fence: None,
            reading: None,
            warnings: Arc::default(),
            known: Arc::default(),
            without_effect: Arc::default(),
            intercepted: None,
        }
    }

    pub(crate) fn with_notes(mut self, notes: Arc<Notes>) -> Self {
        self.notes = Some(notes);
        self
    }

    pub(crate) fn with_reading(mut self, reading: Reading) -> Self {
        self.reading = Some(Arc::new(reading));
        self
    }

    pub(crate) fn fence(&self) -> Option<Fence> {
        self.fence.as_ref().map(|fenced| fenced.fence.clone())
    }

    pub(crate) fn with_fence(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence.map(|fence| {
            Arc::new(Fenced {
                fence,
                kube: OnceLock::new(),
            })
        });
        self
    }

    /// The kube client underneath, for what this one does not offer. What it writes is not noted; it refuses to
    /// write without the lease all the same. Must be called inside a tokio runtime.
    #[must_use]
    pub fn kube(&self) -> &kube_client::Client {
        match &self.fence {
            None => &self.inner.kube,
            Some(fenced) => {
                let kube = || fenced.fence.guard(&self.inner.kube);
                fenced.kube.get_or_init(kube)
            }
        }
    }

    /// The objects of the type `K`.
    pub fn objects<K: Object>(&self) -> Objects<K> {
        Objects::new(self.clone(), Endpoint::of::<K>(&()))
    }

    /// The objects of a kind known at run time: a [`cache::Kind`](crate::cache::Kind), such as a [`Mapper`] finds, or an
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
    /// [`Error::is_not_found`] when there is none; [`optional`] makes that a `None`.
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

    /// Lists the objects of a kind from the server, in one namespace or everywhere, as `params` says. In pages:
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

    /// Replaces the object; with its resourceVersion set, only if nobody changed it since. With options:
    /// [`Objects::update_with`].
    ///
    /// # Errors
    /// [`Error::is_conflict`], [`Error::is_not_found`], or when the call fails.
    pub async fn update<K: Object>(&self, object: &K) -> Result<K, Error> {
        self.objects().update(object).await
    }

    /// Replaces the object's status subresource; with its resourceVersion set, only if nobody changed the
    /// object since.
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

    /// Deletes what the selectors of `which` select: see [`Objects::delete_all_of`].
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

    fn begin(&self, call: &Call) -> Option<send::Writing> {
        let notes = self.notes.as_ref()?;
        if !call.verb.writes() || call.options.dry_run {
            return None;
        }
        let kind = call.endpoint.group_kind();
        // Nobody can wait for a kind that is not cached, and its notes would push others out.
        let cached = self
            .reading
            .as_ref()
            .is_none_or(|reading| reading.caches.holds(&kind));
        cached.then(|| {
            let subject = outline::Subject::of(call);
            let begun = notes.begin(kind, subject.key.clone());
            match subject.verb {
                call::Verb::DeleteAllOf => (begun.about_many(), subject),
                _ => (begun, subject),
            }
        })
    }

    pub(crate) fn check_fence(&self, request: impl FnOnce() -> String) -> Result<(), Error> {
        match &self.fence {
            Some(fenced) if !fenced.fence.is_open() => Err(Error::NotLeader { request: request() }),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("settings", &self.settings)
            .field("intercepted", &self.intercepted)
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

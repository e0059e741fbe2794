//! Creating an object or changing it, whichever is needed, and nothing when it is as it should be.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;

use kube_core::Resource;
use lru::LruCache;
use parking_lot::Mutex;
use reeve_informer::ObjectKey;
use serde_json::{Map, Value, json};

use super::endpoint::GroupKind;
use super::objects::{AnyObject, Objects};
use super::options::WriteOptions;
use super::patch::{Patch, difference};
use super::{Client, Error, Object, key_of, optional};
use crate::cache::Kind;

/// How many changes without effect are remembered; past it those that were not met for longest go, which costs a request.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4096).expect("more than none");

/// What [`Client::create_or_update`] or [`Client::create_or_patch`] did (controller-runtime: `OperationResult`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Nothing: the object was as it should be.
    Unchanged,
    /// It made the object.
    Created,
    /// It changed the object.
    Updated,
    /// It changed the object and its status.
    UpdatedStatus,
    /// It changed the status only.
    UpdatedStatusOnly,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unchanged => "unchanged",
            Self::Created => "created",
            Self::Updated => "updated",
            Self::UpdatedStatus => "updatedStatus",
            Self::UpdatedStatusOnly => "updatedStatusOnly",
        })
    }
}

/// What a function that changes an object may return: nothing, or a `Result` whose error stops the write.
pub trait Mutated: private::Sealed {
    /// The result.
    ///
    /// # Errors
    /// The function's.
    fn into_result(self) -> Result<(), BoxError>;
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

mod private {
    pub trait Sealed {}
    impl Sealed for () {}
    impl<E: Into<super::BoxError>> Sealed for Result<(), E> {}
}

impl Mutated for () {
    fn into_result(self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<E: Into<BoxError>> Mutated for Result<(), E> {
    fn into_result(self) -> Result<(), BoxError> {
        self.map_err(Into::into)
    }
}

/// Changes that the server answered with the version there was before.
#[derive(Debug)]
pub(super) struct WithoutEffect(Mutex<LruCache<Tried, u64>>);

/// An object at one version, and the part of it that was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Tried {
    kind: GroupKind,
    uid: String,
    version: String,
    status: bool,
}

// === impl WithoutEffect ===

impl Default for WithoutEffect {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(REMEMBERED)))
    }
}

impl WithoutEffect {
    fn knows(&self, tried: &Option<Tried>, change: u64) -> bool {
        let known = tried
            .as_ref()
            .and_then(|tried| self.0.lock().get(tried).copied());
        known == Some(change)
    }

    fn remember(&self, tried: Option<Tried>, change: u64) {
        if let Some(tried) = tried {
            self.0.lock().put(tried, change);
        }
    }
}

impl Client {
    /// Makes `object`, or makes what there is of its name as `mutate` leaves it, in one update that is refused when
    /// somebody changed the object meanwhile. Returns the object as it is then.
    ///
    /// The object is read from the cache if the kind is cached whole (after this client's own writes are seen), else
    /// from the server: an update writes all that was read, so what [options](crate::cache::Selected) with `skip` or a
    /// transform keep out of the cache would be deleted (controller-runtime: it is). It is read from the server, too,
    /// when the cache knows none and the server says there is one, because the cache does not select it. `mutate` is given `object` when there is none, so it says all that is wanted either way; it
    /// may run twice. Changes of the status are not written (controller-runtime: `CreateOrUpdate`).
    ///
    /// # What counts as a difference
    /// The object as it is and as `mutate` leaves it are compared as JSON, in which null, an empty list and nothing are
    /// the same, and so are no labels and no annotations, however that is said. `{}` elsewhere is a value: what is
    /// told by being there, as `emptyDir: {}`, is written. A `mutate` that writes a whole part, such as `spec`, leaves out what the server fills in, or says
    /// `1000m` where the server keeps `1`: a difference that no update makes go away (controller-runtime sends one on
    /// every reconcile). Here the client remembers: a change that the server answered with the version the object had
    /// before is not sent again to that version. So such a `mutate` costs one request more after each real change of
    /// the object, and none in between. A [dry run](Client::dry_run) remembers nothing and goes by nothing remembered:
    /// it says what would change.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use reeve_controller::{Client, client::{Change, Error}, owner};
    ///
    /// async fn summary(client: &Client, parent: &ConfigMap, text: String) -> Result<Change, Error> {
    ///     let mut summary = ConfigMap::default();
    ///     summary.metadata.namespace = parent.metadata.namespace.clone();
    ///     summary.metadata.name = Some("summary".to_owned());
    ///     let (_, change) = client
    ///         .create_or_update(summary, |summary| {
    ///             summary.data.get_or_insert_default().insert("text".to_owned(), text.clone());
    ///             owner::set_controller(parent, summary).map(drop)
    ///         })
    ///         .await?;
    ///     Ok(change)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Mutate`] with the error of `mutate`, or when it changed the name or the namespace;
    /// [`Error::is_conflict`]; or when a call fails.
    pub async fn create_or_update<K: Object, M: Mutated>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        let known = self.known(Form::Update, &object).await?;
        self.objects()
            .upsert(Form::Update, object, known, mutate)
            .await
    }

    /// As [`Client::create_or_update`], with a merge patch of what differs for the object, and another for its status:
    /// others' changes to other fields stay, and are no conflict; a list that differs is replaced as a whole
    /// (controller-runtime: `CreateOrPatch`).
    ///
    /// # Errors
    /// As [`Client::create_or_update`]; a conflict only if the object was made again meanwhile.
    pub async fn create_or_patch<K: Object, M: Mutated>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        let known = self.known(Form::Patch, &object).await?;
        self.objects()
            .upsert(Form::Patch, object, known, mutate)
            .await
    }

    /// What is known of the object without asking the server.
    async fn known<K: Object>(&self, form: Form, object: &K) -> Result<Known<K>, Error> {
        let (Ok(cached), Some(reading)) = (self.cached::<K>(), &self.reading) else {
            return Ok(Known::Nothing);
        };
        // What is not in the cache would be deleted by an update. A patch leaves it alone.
        if form == Form::Update && !reading.caches.keeps_whole(&Kind::of::<K>()) {
            return Ok(Known::Nothing);
        }
        let key = self.key_in_namespace(&key_of(object.meta()));
        match cached.get(&key).await {
            Ok(found) => Ok(Known::Cached(found.map(Arc::unwrap_or_clone))),
            // Of a namespace that is not cached, and before the first list, the server knows.
            Err(Error::Unread(_)) => Ok(Known::Nothing),
            Err(error) => Err(error),
        }
    }
}

enum Known<K> {
    /// Ask the server.
    Nothing,
    /// What the cache holds.
    Cached(Option<K>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Update,
    Patch,
}

impl<K: AnyObject> Objects<K> {
    /// As [`Client::create_or_update`], reading from the server.
    ///
    /// # Errors
    /// As [`Client::create_or_update`].
    pub async fn create_or_update<M: Mutated>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        self.upsert(Form::Update, object, Known::Nothing, mutate)
            .await
    }

    /// As [`Client::create_or_patch`], reading from the server.
    ///
    /// # Errors
    /// As [`Client::create_or_patch`].
    pub async fn create_or_patch<M: Mutated>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        self.upsert(Form::Patch, object, Known::Nothing, mutate)
            .await
    }

    async fn upsert<M: Mutated>(
        &self,
        form: Form,
        object: K,
        known: Known<K>,
        mut mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        let key = key_of(object.meta());
        let (found, cached) = match known {
            Known::Cached(found) => (found, true),
            Known::Nothing => (optional(self.get(&key).await)?, false),
        };
        let found = match found {
            Some(found) => found,
            None => {
                let mut wanted = object;
                self.mutate(&key, &mut wanted, &mut mutate)?;
                match self.create(&wanted).await {
                    Ok(created) if form == Form::Patch => {
                        return self.status_of_new(&key, created, &wanted).await;
                    }
                    Ok(created) => return Ok((created, Change::Created)),
                    // The cache does not select it, or has not seen it yet.
                    Err(error) if cached && error.is_already_exists() => self.get(&key).await?,
                    Err(error) => return Err(error),
                }
            }
        };
        let mut wanted = found.clone();
        self.mutate(&key, &mut wanted, &mut mutate)?;
        match form {
            Form::Update => self.update_to(&key, found, wanted).await,
            Form::Patch => self.patch_to(&key, found, &wanted).await,
        }
    }

    fn mutate<M: Mutated>(
        &self,
        key: &ObjectKey,
        object: &mut K,
        mutate: &mut (impl FnMut(&mut K) -> M + Send),
    ) -> Result<(), Error> {
        let stopped = |source: BoxError| Error::Mutate {
            object: format!("{} {key}", self.endpoint().resource().kind.to_lowercase()),
            source,
        };
        let before = (object.meta().name.clone(), object.meta().namespace.clone());
        mutate(object).into_result().map_err(stopped)?;
        let meta = object.meta();
        if (&meta.name, &meta.namespace) != (&before.0, &before.1) {
            let changed =
                "the function changed the name or the namespace, which makes it another object";
            return Err(stopped(changed.into()));
        }
        Ok(())
    }

    async fn update_to(&self, key: &ObjectKey, found: K, wanted: K) -> Result<(K, Change), Error> {
        let change = difference(&self.plain(key, &found)?, &self.plain(key, &wanted)?);
        if is_empty(&change) {
            return Ok((found, Change::Unchanged));
        }
        let (tried, digest) = (self.tried(&found, false), digest(&change));
        let memory = &self.client().without_effect;
        if memory.knows(&tried, digest) {
            return Ok((found, Change::Unchanged));
        }
        let updated = self.update(&wanted).await?;
        if !self.took_effect(key, &found, &updated, false)? {
            memory.remember(tried, digest);
            return Ok((updated, Change::Unchanged));
        }
        Ok((updated, Change::Updated))
    }

    async fn patch_to(&self, key: &ObjectKey, found: K, wanted: &K) -> Result<(K, Change), Error> {
        let change = difference(&self.plain(key, &found)?, &self.plain(key, wanted)?);
        let Value::Object(mut change) = change else {
            return Ok((found, Change::Unchanged));
        };
        let status = change.remove("status");
        let (now, main) = self
            .patch_part(key, found, Value::Object(change), false)
            .await?;
        let Some(status) = status else {
            return Ok((
                now,
                if main {
                    Change::Updated
                } else {
                    Change::Unchanged
                },
            ));
        };
        let (now, status) = self
            .patch_part(key, now, json!({ "status": status }), true)
            .await?;
        let change = match (main, status) {
            (true, true) => Change::UpdatedStatus,
            (true, false) => Change::Updated,
            (false, true) => Change::UpdatedStatusOnly,
            (false, false) => Change::Unchanged,
        };
        Ok((now, change))
    }

    /// Patches the object or its status; false if that had no effect.
    async fn patch_part(
        &self,
        key: &ObjectKey,
        found: K,
        mut change: Value,
        status: bool,
    ) -> Result<(K, bool), Error> {
        if is_empty(&change) {
            return Ok((found, false));
        }
        let (tried, digest) = (self.tried(&found, status), digest(&change));
        let memory = &self.client().without_effect;
        if memory.knows(&tried, digest) {
            return Ok((found, false));
        }
        if let Some(uid) = &found.meta().uid {
            // It keeps the patch off an object that was deleted and made again under the name.
            change["metadata"]["uid"] = json!(uid);
        }
        let (options, patch) = (WriteOptions::new(), Patch::merge(change));
        let patched = if status {
            self.patch_status(key, options, patch).await?
        } else {
            self.patch(key, options, patch).await?
        };
        if !self.took_effect(key, &found, &patched, status)? {
            memory.remember(tried, digest);
            return Ok((patched, false));
        }
        Ok((patched, true))
    }

    /// A create does not write the status of a kind that has it as a subresource.
    async fn status_of_new(
        &self,
        key: &ObjectKey,
        created: K,
        wanted: &K,
    ) -> Result<(K, Change), Error> {
        // Of what a dry run made there is no status to write.
        if self.client().is_dry_run() {
            return Ok((created, Change::Created));
        }
        let (is, should) = (self.plain(key, &created)?, self.plain(key, wanted)?);
        let Some(should) = should.get("status") else {
            return Ok((created, Change::Created));
        };
        let is = is.get("status").cloned().unwrap_or_else(|| json!({}));
        // What the server put there stays.
        let change = added(&is, should);
        if is_empty(&change) {
            return Ok((created, Change::Created));
        }
        let (now, _) = self
            .patch_part(key, created, json!({ "status": change }), true)
            .await?;
        Ok((now, Change::Created))
    }

    /// The object as JSON, without what means nothing.
    fn plain(&self, key: &ObjectKey, object: &K) -> Result<Value, Error> {
        match serde_json::to_value(object) {
            Ok(mut value) => {
                prune(&mut value);
                Ok(value)
            }
            Err(error) => Err(Error::Invalid {
                request: format!("compare {key}"),
                message: error.to_string(),
            }),
        }
    }

    /// Whether the answer to a write of the object, or of its status, says that something changed.
    fn took_effect(
        &self,
        key: &ObjectKey,
        found: &K,
        answer: &K,
        status: bool,
    ) -> Result<bool, Error> {
        if !self.client().is_dry_run() {
            return Ok(!same_version(found, answer));
        }
        // A dry run is answered with the version there was, whatever it would change.
        let (found, answer) = (self.plain(key, found)?, self.plain(key, answer)?);
        Ok(part(found, status) != part(answer, status))
    }

    /// `None` for an object that says no version, and for a dry run, whose answer says nothing of what a write does:
    /// nothing can be remembered of it.
    fn tried(&self, found: &K, status: bool) -> Option<Tried> {
        if self.client().is_dry_run() {
            return None;
        }
        let meta = found.meta();
        Some(Tried {
            kind: self.endpoint().group_kind(),
            uid: meta.uid.clone()?,
            version: meta.resource_version.clone()?,
            status,
        })
    }
}

fn same_version<K: Resource>(before: &K, after: &K) -> bool {
    let version = &before.meta().resource_version;
    version.is_some() && *version == after.meta().resource_version
}

/// What `to` says beyond `from`, as a merge patch that removes nothing.
fn added(from: &Value, to: &Value) -> Value {
    let mut change = difference(from, to);
    if let Some(change) = change.as_object_mut() {
        change.retain(|_, value| !value.is_null());
    }
    change
}

fn is_empty(change: &Value) -> bool {
    change.as_object().is_some_and(Map::is_empty)
}

/// The status of an object, or all else of it, without what a write changes by itself.
fn part(mut object: Value, status: bool) -> Value {
    if status {
        return object["status"].take();
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    object
}

/// Removes what is null, lists that are empty, and labels and annotations without any.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|name, value| {
                    !matches!(&**name, "labels" | "annotations") || !is_empty(value)
                });
            }
            fields.retain(|_, value| {
                !value.is_null() && !value.as_array().is_some_and(Vec::is_empty)
            });
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

fn digest(change: &Value) -> u64 {
    fn feed(value: &Value, hasher: &mut DefaultHasher) {
        match value {
            Value::Object(fields) => {
                // The same in whatever order the fields are kept.
                let mut names: Vec<&String> = fields.keys().collect();
                names.sort_unstable();
                ("{", names.len()).hash(hasher);
                for name in names {
                    name.hash(hasher);
                    feed(&fields[name], hasher);
                }
            }
            Value::Array(items) => {
                ("[", items.len()).hash(hasher);
                items.iter().for_each(|item| feed(item, hasher));
            }
            other => other.to_string().hash(hasher),
        }
    }
    let mut hasher = DefaultHasher::new();
    feed(change, &mut hasher);
    hasher.finish()
}

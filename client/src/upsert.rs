//! Create or update: creates an object, changes it, or does nothing if it is up to date.

use std::fmt;

use kube_core::Resource;
use serde_json::{Value, json};

use crate::client::Client;
use crate::compare::{digest, is_empty, part, patches, pruned, status_patch};
use crate::error::{Error, optional};
use crate::key::ObjectKey;
use crate::memory::Tried;
use crate::object::{AnyObject, Object, key_of};
use crate::objects::Objects;
use crate::options::WriteOptions;
use crate::patch::{Patch, difference};

/// The effect of [`Client::create_or_update`] or [`Client::create_or_patch`] (controller-runtime: `OperationResult`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// None: the object was up to date.
    Unchanged,
    /// The object was created.
    Created,
    /// The object was changed.
    Updated,
    /// The object and its status were changed.
    UpdatedStatus,
    /// Only the status was changed.
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

/// The result of a mutating function: nothing, or a `Result` whose error stops the write.
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

impl Client {
    /// Creates `object`, or updates the existing object of its name to the state that `mutate` leaves, in one update
    /// that conflicts if the object was changed meanwhile. Returns the new state.
    ///
    /// The object is read from the server; the client of reeve-controller reads it from its cache if that holds the
    /// whole kind. If there is none, `mutate` gets `object`, so `mutate` sets all fields in both cases; it may run
    /// twice. Changes of the status are not written (controller-runtime: `CreateOrUpdate`).
    ///
    /// # Differences
    /// The current object and the mutated one are compared as JSON. Null, an empty list and a missing field are equal, and
    /// so are empty and missing labels and annotations. `{}` elsewhere is a value, because its presence has a meaning, as
    /// in `emptyDir: {}`. A `mutate` that writes a whole part, such as `spec`, omits the server's defaults, or writes
    /// `1000m` where the server stores `1`: a difference that no update removes (controller-runtime sends one on every
    /// reconcile). This client remembers: a change that the server answered with the previous version is not sent again
    /// to that version. So such a `mutate` costs one more request after each real change of the object, and none in
    /// between. A [dry run](Client::dry_run) neither uses nor changes that memory: it reports what would change.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use reeve_client::{Change, Client, Error};
    ///
    /// async fn summary(client: &Client, namespace: &str, text: String) -> Result<Change, Error> {
    ///     let mut summary = ConfigMap::default();
    ///     summary.metadata.namespace = Some(namespace.to_owned());
    ///     summary.metadata.name = Some("summary".to_owned());
    ///     let (_, change) = client
    ///         .create_or_update(summary, |summary| {
    ///             summary.data.get_or_insert_default().insert("text".to_owned(), text.clone());
    ///         })
    ///         .await?;
    ///     Ok(change)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Mutate`] with the error of `mutate`, or if it changed the name or the namespace;
    /// [`Error::is_conflict`]; or when a call fails.
    pub async fn create_or_update<K: Object, M: Mutated>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        self.objects().create_or_update(object, mutate).await
    }

    /// As [`Client::create_or_update`], with a merge patch of the difference for the object, and another for its status:
    /// changes by others to other fields are kept, and do not conflict; a changed list is replaced as a whole
    /// (controller-runtime: `CreateOrPatch`). The fields of a patch are as `mutate` leaves them, so an emptied list is
    /// sent as an empty list, which a schema may require.
    ///
    /// # Errors
    /// As [`Client::create_or_update`]; a conflict only if the object was created again meanwhile.
    pub async fn create_or_patch<K: Object, M: Mutated>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        self.objects().create_or_patch(object, mutate).await
    }

    /// Patches the difference that `mutate` makes to `object`, which was read before; sends nothing if it makes none.
    /// Returns the new state. The difference of the status is a patch of its own. As with [`Client::create_or_patch`],
    /// changes by others to other fields are kept, and do not conflict (controller-runtime: `Patch` with `MergeFrom`).
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use reeve_client::{Change, Client, Error};
    ///
    /// async fn label(client: &Client, map: &ConfigMap) -> Result<Change, Error> {
    ///     let set = |map: &mut ConfigMap| {
    ///         map.metadata.labels.get_or_insert_default().insert("seen".to_owned(), "true".to_owned());
    ///     };
    ///     let (_, change) = client.mutate(map, set).await?;
    ///     Ok(change)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Mutate`] with the error of `mutate`, or if it changed the name or the namespace; when a call fails: not
    /// found if the object is gone, a conflict if it was created again meanwhile.
    pub async fn mutate<K: Object, M: Mutated>(
        &self,
        object: &K,
        mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        self.objects().mutate(object, mutate).await
    }
}

enum Known<K> {
    /// Nothing: read it from the server.
    Nothing,
    /// The cached object.
    Cached(Option<K>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Update,
    Patch,
}

impl<K: AnyObject> Objects<K> {
    /// As [`Client::create_or_update`].
    ///
    /// # Errors
    /// As [`Client::create_or_update`].
    pub async fn create_or_update<M: Mutated>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        Box::pin(self.upsert(Form::Update, object, Known::Nothing, mutate)).await
    }

    /// As [`Client::create_or_patch`].
    ///
    /// # Errors
    /// As [`Client::create_or_patch`].
    pub async fn create_or_patch<M: Mutated>(
        &self,
        object: K,
        mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        Box::pin(self.upsert(Form::Patch, object, Known::Nothing, mutate)).await
    }

    /// As [`Client::create_or_update`], with the cached object `found` instead of a read: `None` if the cache has none.
    /// If the server answers that there is one, the object is read.
    ///
    /// # Errors
    /// As [`Client::create_or_update`].
    pub async fn create_or_update_known<M: Mutated>(
        &self,
        object: K,
        found: Option<K>,
        mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        Box::pin(self.upsert(Form::Update, object, Known::Cached(found), mutate)).await
    }

    /// As [`Objects::create_or_update_known`], with the patches of [`Client::create_or_patch`].
    ///
    /// # Errors
    /// As [`Client::create_or_patch`].
    pub async fn create_or_patch_known<M: Mutated>(
        &self,
        object: K,
        found: Option<K>,
        mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        Box::pin(self.upsert(Form::Patch, object, Known::Cached(found), mutate)).await
    }

    /// As [`Client::mutate`].
    ///
    /// # Errors
    /// As [`Client::mutate`].
    pub async fn mutate<M: Mutated>(
        &self,
        object: &K,
        mut mutate: impl FnMut(&mut K) -> M + Send,
    ) -> Result<(K, Change), Error> {
        let (key, mut wanted) = (key_of(object.meta()), object.clone());
        self.run_mutate(&key, &mut wanted, &mut mutate)?;
        Box::pin(self.patch_to(&key, object.clone(), &wanted)).await
    }

    // The futures are boxed: each holds several states of the object, a Deployment takes 2 KB, and in a debug build each
    // future around them has a frame of its size on the stack of its thread.
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
                self.run_mutate(&key, &mut wanted, &mut mutate)?;
                match self.create(&wanted).await {
                    Ok(created) if form == Form::Patch => {
                        return Box::pin(self.status_of_new(&key, created, &wanted)).await;
                    }
                    Ok(created) => return Ok((created, Change::Created)),
                    // The cache does not select it, or has not received it yet.
                    Err(error) if cached && error.is_already_exists() => self.get(&key).await?,
                    Err(error) => return Err(error),
                }
            }
        };
        let mut wanted = found.clone();
        self.run_mutate(&key, &mut wanted, &mut mutate)?;
        match form {
            Form::Update => Box::pin(self.update_to(&key, found, wanted)).await,
            Form::Patch => Box::pin(self.patch_to(&key, found, &wanted)).await,
        }
    }

    pub(crate) fn run_mutate<M: Mutated>(
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

    pub(crate) async fn update_to(
        &self,
        key: &ObjectKey,
        found: K,
        wanted: K,
    ) -> Result<(K, Change), Error> {
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
        let (change, status) = patches(&self.json(key, &found)?, &self.json(key, wanted)?);
        let (now, main) = Box::pin(self.patch_part(key, found, change, false)).await?;
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
        let (now, status) =
            Box::pin(self.patch_part(key, now, json!({ "status": status }), true)).await?;
        let change = match (main, status) {
            (true, true) => Change::UpdatedStatus,
            (true, false) => Change::Updated,
            (false, true) => Change::UpdatedStatusOnly,
            (false, false) => Change::Unchanged,
        };
        Ok((now, change))
    }

    /// Patches the object or its status; returns whether that had an effect.
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
            // The uid protects an object that was created again under the same name.
            change["metadata"]["uid"] = json!(uid);
        }
        let (options, patch) = (WriteOptions::new(), Patch::merge(change));
        let patched = if status {
            Box::pin(self.patch_status_with(key, options, patch)).await?
        } else {
            Box::pin(self.patch_with(key, options, patch)).await?
        };
        if !self.took_effect(key, &found, &patched, status)? {
            memory.remember(tried, digest);
            return Ok((patched, false));
        }
        Ok((patched, true))
    }

    /// Writes the status of a new object, which a create ignores for kinds with a status subresource.
    async fn status_of_new(
        &self,
        key: &ObjectKey,
        created: K,
        wanted: &K,
    ) -> Result<(K, Change), Error> {
        // A dry run created nothing, so there is no status to write.
        if self.client().is_dry_run() {
            return Ok((created, Change::Created));
        }
        let (is, should) = (self.json(key, &created)?, self.json(key, wanted)?);
        // Fields that the server set are kept.
        let Some(change) = status_patch(&part(is, true), &part(should, true)) else {
            return Ok((created, Change::Created));
        };
        let (now, _) = self
            .patch_part(key, created, json!({ "status": change }), true)
            .await?;
        Ok((now, Change::Created))
    }

    /// The object as JSON, without empty values: for comparisons.
    pub(crate) fn plain(&self, key: &ObjectKey, object: &K) -> Result<Value, Error> {
        self.json(key, object).map(pruned)
    }

    /// The object as JSON.
    fn json(&self, key: &ObjectKey, object: &K) -> Result<Value, Error> {
        serde_json::to_value(object).map_err(|error| Error::Invalid {
            request: format!("compare {key}"),
            message: error.to_string(),
        })
    }

    /// Whether the answer to a write of the object, or of its status, shows a change.
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
        // A dry run is answered with the unchanged version, whatever it would change.
        let (found, answer) = (self.plain(key, found)?, self.plain(key, answer)?);
        Ok(part(found, status) != part(answer, status))
    }

    /// The key of the memory. `None` for an object without a version, and for a dry run, whose answer does not show the
    /// effect of a write.
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

//! Edits: an object is read, changed and written, and all of that again after a conflict.

use tokio::time::sleep;

use crate::client::Client;
use crate::error::Error;
use crate::key::ObjectKey;
use crate::object::{AnyObject, Object};
use crate::objects::Objects;
use crate::retry::{DEFAULT_RETRY, Pauses};
use crate::upsert::Mutated;

/// The part of an object that an edit writes.
#[derive(Clone, Copy)]
enum Part {
    /// All but the status, for a kind with a status subresource.
    Object,
    Status,
}

impl Client {
    /// Reads the object `key` from the server, applies `change`, and replaces the object, unless another client changed
    /// it meanwhile: then all of that again, up to five times, 10 ms apart (client-go: `retry.RetryOnConflict` with
    /// `retry.DefaultRetry`). Returns the new state. Writes nothing if `change` changed nothing.
    ///
    /// `change` may run several times, and may return a `Result`. It does not write the status of a kind with a status
    /// subresource: [`Client::edit_status`]. The whole object is replaced, so fields that `K` does not have are removed, such
    /// as those of a newer version of Kubernetes: a [patch](Client::mutate), or a `DynamicObject`, keeps them.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use reeve_client::{Client, Error, ObjectKey};
    ///
    /// async fn count(client: &Client, key: &ObjectKey) -> Result<ConfigMap, Error> {
    ///     client
    ///         .edit(key, |map: &mut ConfigMap| {
    ///             let data = map.data.get_or_insert_default();
    ///             let count: u64 = data.get("count").and_then(|text| text.parse().ok()).unwrap_or(0);
    ///             data.insert("count".to_owned(), (count + 1).to_string());
    ///         })
    ///         .await
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::is_not_found`]; [`Error::is_conflict`] after the last try; [`Error::Mutate`] with the error of `change`,
    /// or if it changed the name or the namespace; or when a call fails.
    pub async fn edit<K: Object, M: Mutated>(
        &self,
        key: &ObjectKey,
        change: impl FnMut(&mut K) -> M + Send,
    ) -> Result<K, Error> {
        self.objects().edit(key, change).await
    }

    /// As [`Client::edit`], for the status subresource: other changes are not written.
    ///
    /// # Errors
    /// As [`Client::edit`].
    pub async fn edit_status<K: Object, M: Mutated>(
        &self,
        key: &ObjectKey,
        change: impl FnMut(&mut K) -> M + Send,
    ) -> Result<K, Error> {
        self.objects().edit_status(key, change).await
    }
}

impl<K: AnyObject> Objects<K> {
    /// As [`Client::edit`].
    ///
    /// # Errors
    /// As [`Client::edit`].
    pub async fn edit<M: Mutated>(
        &self,
        key: &ObjectKey,
        change: impl FnMut(&mut K) -> M + Send,
    ) -> Result<K, Error> {
        self.edit_part(Part::Object, key, change).await
    }

    /// As [`Client::edit_status`].
    ///
    /// # Errors
    /// As [`Client::edit`].
    pub async fn edit_status<M: Mutated>(
        &self,
        key: &ObjectKey,
        change: impl FnMut(&mut K) -> M + Send,
    ) -> Result<K, Error> {
        self.edit_part(Part::Status, key, change).await
    }

    async fn edit_part<M: Mutated>(
        &self,
        part: Part,
        key: &ObjectKey,
        mut change: impl FnMut(&mut K) -> M + Send,
    ) -> Result<K, Error> {
        let clock = self.client().clock();
        let mut pauses = Pauses::new(DEFAULT_RETRY);
        loop {
            let error = match Box::pin(self.edit_once(part, key, &mut change)).await {
                Err(error) if error.is_conflict() => error,
                result => return result,
            };
            match pauses.next(&clock) {
                Some(pause) => sleep(pause).await,
                None => return Err(error),
            }
        }
    }

    async fn edit_once<M: Mutated>(
        &self,
        part: Part,
        key: &ObjectKey,
        change: &mut (impl FnMut(&mut K) -> M + Send),
    ) -> Result<K, Error> {
        let found = self.get(key).await?;
        let mut wanted = found.clone();
        self.run_mutate(key, &mut wanted, change)?;
        // The preconditions of the write are those of the read.
        let (meta, read) = (wanted.meta_mut(), found.meta());
        meta.resource_version.clone_from(&read.resource_version);
        meta.uid.clone_from(&read.uid);
        match part {
            Part::Object => {
                let (now, _) = Box::pin(self.update_to(key, found, wanted)).await?;
                Ok(now)
            }
            Part::Status => {
                let (is, should) = (self.plain(key, &found)?, self.plain(key, &wanted)?);
                if is.get("status") == should.get("status") {
                    return Ok(found);
                }
                self.update_status(&wanted).await
            }
        }
    }
}

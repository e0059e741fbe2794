//! Waiting for a state of one object: a list and a watch of that object alone.

use std::time::Duration;

use kube_core::params::ListParams;
use kube_core::{DynamicObject, ObjectMeta, PartialObjectMeta, WatchEvent};
use tokio::time::{Instant, sleep, timeout};

use crate::answer::decode;
use crate::client::Client;
use crate::error::Error;
use crate::key::ObjectKey;
use crate::object::{AnyObject, Object};
use crate::objects::Objects;
use crate::transport::{Endpoint, Limits, Lines, Scope, Selection, Transport, WatchRequest};

/// The time after which the server ends a watch; then the object is listed again.
const WATCH: Duration = Duration::from_secs(290);
/// A watch that is silent for longer is dead.
const SILENCE: Duration = Duration::from_secs(300);
/// The pause after the first round, a list and a watch. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Client {
    /// Waits until `condition` holds for the object `key`, at most for `limit`, and returns the object. An object that
    /// does not exist yet is waited for (kube-rs: `await_condition`; `kubectl wait`).
    ///
    /// For programs that end, and for tests: each call has a watch of its own. A controller watches the kind instead.
    /// Requires `list` and `watch`; without the right to `watch` it lists every 5 s at most.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use reeve_client::{Client, Error, ObjectKey};
    ///
    /// async fn rolled_out(client: &Client, key: &ObjectKey) -> Result<Deployment, Error> {
    ///     let minute = Duration::from_secs(60);
    ///     client
    ///         .wait_for(key, minute, |web: &Deployment| {
    ///             let status = web.status.as_ref();
    ///             status.is_some_and(|status| {
    ///                 status.observed_generation == web.metadata.generation
    ///                     && status.unavailable_replicas.unwrap_or(0) == 0
    ///             })
    ///         })
    ///         .await
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotReached`] after `limit`, with what was seen last; or at once when the server refuses the list for a
    /// reason that does not pass, such as 403.
    pub async fn wait_for<K: Object>(
        &self,
        key: &ObjectKey,
        limit: Duration,
        condition: impl FnMut(&K) -> bool + Send,
    ) -> Result<K, Error> {
        self.objects().wait_for(key, limit, condition).await
    }

    /// Waits until the object `key` does not exist, at most for `limit`; at once if there is none, or if the server does
    /// not serve its kind. An object of the same name that was created since is another one.
    ///
    /// # Errors
    /// As [`Client::wait_for`]; the error names the finalizers that the object waits for.
    pub async fn wait_until_deleted<K: Object>(
        &self,
        key: &ObjectKey,
        limit: Duration,
    ) -> Result<(), Error> {
        self.objects::<K>().wait_until_deleted(key, limit).await
    }
}

impl<K: AnyObject> Objects<K> {
    /// As [`Client::wait_for`].
    ///
    /// # Errors
    /// As [`Client::wait_for`].
    pub async fn wait_for(
        &self,
        key: &ObjectKey,
        limit: Duration,
        mut condition: impl FnMut(&K) -> bool + Send,
    ) -> Result<K, Error> {
        let look = |object: Option<K>| match object {
            Some(object) if condition(&object) => Ok(object),
            Some(object) => Err(described(object.meta())),
            None => Err("there is no such object".to_owned()),
        };
        self.wait(key, limit, look).await
    }

    /// As [`Client::wait_until_deleted`].
    ///
    /// # Errors
    /// As [`Client::wait_until_deleted`].
    pub async fn wait_until_deleted(&self, key: &ObjectKey, limit: Duration) -> Result<(), Error> {
        let mut first = None;
        let look = |object: Option<K>| {
            let Some(object) = object else {
                return Ok(());
            };
            let meta = object.meta();
            if *first.get_or_insert_with(|| meta.uid.clone()) == meta.uid {
                Err(described(meta))
            } else {
                Ok(())
            }
        };
        self.wait(key, limit, look).await
    }

    /// Calls `look` with each state, until it returns a value. Its error describes the state.
    async fn wait<T>(
        &self,
        key: &ObjectKey,
        limit: Duration,
        mut look: impl FnMut(Option<K>) -> Result<T, String> + Send,
    ) -> Result<T, Error> {
        let key = self.client().key_in_namespace(key);
        let kind = &self.endpoint().resource().kind;
        let request = format!("wait for {} {key}", kind.to_lowercase());
        if key.namespace.is_none() && self.endpoint().namespaced() == Some(true) {
            let message = format!("objects of kind {kind} are in a namespace: name one");
            return Err(Error::Invalid { request, message });
        }
        let mut last = "no answer yet".to_owned();
        let followed = timeout(limit, self.follow(&key, &mut look, &mut last)).await;
        followed.unwrap_or_else(|_| {
            Err(Error::NotReached {
                request,
                after: limit,
                last,
            })
        })
    }

    async fn follow<T>(
        &self,
        key: &ObjectKey,
        look: &mut (impl FnMut(Option<K>) -> Result<T, String> + Send),
        last: &mut String,
    ) -> Result<T, Error> {
        let mut pause = FIRST_PAUSE;
        loop {
            let begin = Instant::now();
            let mut refused = Duration::ZERO;
            match self.round(key, look, last).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    // Without its kind the object does not exist either.
                    if error.is_not_served()
                        && let Ok(found) = look(None)
                    {
                        return Ok(found);
                    }
                    refused = error.retry_after().unwrap_or_default();
                    *last = error.to_string();
                }
            }
            if begin.elapsed() >= LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            sleep(pause.max(refused)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Lists the object, and watches it until the watch ends.
    async fn round<T>(
        &self,
        key: &ObjectKey,
        look: &mut (impl FnMut(Option<K>) -> Result<T, String> + Send),
        last: &mut String,
    ) -> Result<Option<T>, Error> {
        let mut look = |object: Option<K>| match look(object) {
            Ok(found) => Some(found),
            Err(seen) => {
                *last = seen;
                None
            }
        };
        let namespace = key.namespace.as_deref();
        let params = ListParams::default().fields(&selector(key));
        let list = self.list(namespace, &params).await?;
        let is_cluster_scoped = self.endpoint().namespaced() == Some(false);
        let is_it = |object: &K| {
            let meta = object.meta();
            meta.name.as_deref() == Some(&*key.name)
                && (is_cluster_scoped || meta.namespace.as_deref() == key.namespace.as_deref())
        };
        if let Some(found) = look(list.items.into_iter().find(is_it)) {
            return Ok(Some(found));
        }
        let version = list.metadata.resource_version.unwrap_or_default();
        // A watch that fails is not an error of the wait: the next round lists again.
        let Ok(mut lines) = self.watch(key, version).await else {
            return Ok(None);
        };
        while let Ok(Some(line)) = lines.next_line(SILENCE).await {
            let event = decode(|| format!("watch {key}"), &line)?;
            let seen = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, true),
                WatchEvent::Deleted(object) => (object, false),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(_) => return Ok(None),
            };
            let (mut object, exists) = seen;
            if !is_it(&object) {
                continue;
            }
            self.endpoint().stamp(&mut object);
            if let Some(found) = look(exists.then_some(object)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn watch(
        &self,
        key: &ObjectKey,
        resource_version: String,
    ) -> Result<Lines, crate::transport::Error> {
        let resource = self.endpoint().resource();
        let endpoint = if self.endpoint().metadata_only {
            Endpoint::for_type::<PartialObjectMeta<DynamicObject>>(resource)
        } else {
            Endpoint::for_type::<DynamicObject>(resource)
        };
        let namespace = key.namespace.as_ref();
        let namespace = namespace.filter(|_| self.endpoint().namespaced() != Some(false));
        let selection = Selection {
            scope: namespace.map_or(Scope::Cluster, |name| Scope::Namespace(name.clone())),
            fields: selector(key),
            ..Selection::default()
        };
        let request = WatchRequest {
            resource_version,
            send_initial_events: false,
            timeout: WATCH,
        };
        let request = request.build(&endpoint, &selection)?;
        let limits = Limits::new().deadline(self.client().settings.deadline);
        let transport = Transport::new(self.client().kube().clone(), limits);
        transport.watch(request).await
    }
}

fn selector(key: &ObjectKey) -> String {
    format!("metadata.name={}", key.name)
}

/// The state of an object that is not the expected one.
fn described(meta: &ObjectMeta) -> String {
    let version = meta.resource_version.as_deref().unwrap_or("none");
    let mut text = format!("it exists, in the resourceVersion {version}");
    if meta.deletion_timestamp.is_some() {
        let finalizers = meta.finalizers.as_deref().unwrap_or_default();
        text = format!("{text}, and is being deleted, with the finalizers {finalizers:?}");
    }
    text
}

/// Whether the same request will fail again.
fn is_final(error: &Error) -> bool {
    match error.status() {
        Some(status) => {
            (400..500).contains(&status.code) && !matches!(status.code, 404 | 408 | 410 | 429)
        }
        None => !error.is_outage(),
    }
}

//! Several finalizers of one kind, added and run in the order they were registered.

use std::fmt;
use std::future::Future;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube_core::Resource;
use serde::Serialize;
use serde_json::json;

use super::{add, contains, is_deleting, remove};
use crate::client::patch::{self, Patch, difference, locked};
use crate::client::{self, Client, Object};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The cleanup before an object of kind `K` is removed.
///
/// `C` is the context of the cleanup: for example the [`Context`](crate::Context) of a reconcile.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a finalizer of `{K}`",
    label = "not a finalizer",
    note = "an async function of a context and an object becomes one with `finalizer::function(function)`"
)]
pub trait Finalizer<K, C>: Send + Sync + 'static {
    /// The error of the cleanup.
    type Error: Into<BoxError>;

    /// Runs the cleanup. It runs again until it succeeds, so it must be idempotent. It may change the object,
    /// especially its status.
    fn finalize(
        &self,
        context: &C,
        object: &mut K,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// A [`Finalizer`] of a function that does not change the object.
#[derive(Clone, Copy, Debug)]
pub struct Function<F>(F);

/// Makes a [`Finalizer`] of a function, which gets clones of the context and the object.
pub fn function<F>(function: F) -> Function<F> {
    Function(function)
}

impl<K, C, F, A, E> Finalizer<K, C> for Function<F>
where
    K: Clone + Send + Sync,
    C: Clone + Send + Sync,
    F: Fn(C, K) -> A + Send + Sync + 'static,
    A: Future<Output = Result<(), E>> + Send,
    E: Into<BoxError>,
{
    type Error = E;

    fn finalize(&self, context: &C, object: &mut K) -> impl Future<Output = Result<(), E>> + Send {
        (self.0)(context.clone(), object.clone())
    }
}

trait Erased<K, C>: Send + Sync {
    fn finalize<'a>(
        &'a self,
        context: &'a C,
        object: &'a mut K,
    ) -> BoxFuture<'a, Result<(), BoxError>>;
}

impl<K: Send + Sync, C: Send + Sync, T: Finalizer<K, C>> Erased<K, C> for T {
    fn finalize<'a>(
        &'a self,
        context: &'a C,
        object: &'a mut K,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        async move {
            let done = Finalizer::finalize(self, context, object).await;
            done.map_err(Into::into)
        }
        .boxed()
    }
}

/// A finalizer of this name exists already.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the finalizer {name} is registered already")]
pub struct DuplicateName {
    /// The name.
    pub name: String,
}

/// A finalizer failed. Those before it have succeeded, those after it have not run.
#[derive(Debug, thiserror::Error)]
#[error("the finalizer {name} failed")]
pub struct Error {
    /// Its name.
    pub name: String,
    /// The cause.
    #[source]
    pub source: BoxError,
}

/// The result of [`Finalizers::run`].
#[derive(Debug)]
#[must_use = "write the changes (`Run::write`), then check the result"]
pub struct Run {
    /// Whether the finalizers of the object changed: write it.
    pub changed: bool,
    /// Whether a finalizer changed the status: write it before the object, which may be gone after. The object then has
    /// another version.
    pub status_changed: bool,
    /// Whether every finalizer that ran succeeded.
    pub result: Result<(), Error>,
}

/// The finalizers of one kind, in the order of adding them to objects and of running them at the deletion. One runs
/// only when those before it are done, in this run or an earlier one (controller-runtime: in no order, all of them).
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use reeve_controller::finalizer::{Finalizers, function};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let finalizers = Finalizers::<ConfigMap, ()>::new()
///     .register("example.com/records", function(|(), map: ConfigMap| async move {
///         println!("removing the records of {:?}", map.metadata.name);
///         Ok::<_, std::io::Error>(())
///     }))?;
/// let mut map = ConfigMap::default();
/// let run = finalizers.run(&(), &mut map).await;
/// assert!(run.changed, "it is not being deleted, so the finalizer was added");
/// # Ok(())
/// # }
/// ```
///
/// In a reconcile, `read` is the object from the cache:
///
/// ```
/// # use std::sync::Arc;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use reeve_controller::{Context, Outcome, finalizer::{Finalizers, is_deleting}, reconcile};
/// # async fn reconcile(
/// #     finalizers: &Finalizers<ConfigMap, Context>, ctx: Context, read: Arc<ConfigMap>,
/// # ) -> Result<Outcome, reconcile::Error> {
/// let mut map = ConfigMap::clone(&read);
/// let run = finalizers.run(&ctx, &mut map).await;
/// run.write(ctx.client(), &*read, &map).await?;
/// run.result?;
/// if is_deleting(&map) {
///     return Ok(Outcome::done());
/// }
/// // The work of the reconcile.
/// # Ok(Outcome::done())
/// # }
/// ```
pub struct Finalizers<K, C> {
    registered: Vec<(String, Box<dyn Erased<K, C>>)>,
}

// === impl Finalizers ===

impl<K, C> Finalizers<K, C>
where
    K: Resource + Serialize + Send + Sync + 'static,
    C: Send + Sync + 'static,
{
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self {
            registered: Vec::new(),
        }
    }

    /// Adds one after the existing ones. The name is the entry in `metadata.finalizers`: `example.com/what`.
    ///
    /// # Errors
    /// When the name exists already.
    pub fn register(
        mut self,
        name: impl Into<String>,
        finalizer: impl Finalizer<K, C>,
    ) -> Result<Self, DuplicateName> {
        let name = name.into();
        if self.registered.iter().any(|(known, _)| *known == name) {
            return Err(DuplicateName { name });
        }
        self.registered.push((name, Box::new(finalizer)));
        Ok(self)
    }

    /// Adds the missing finalizers to an object that is not being deleted. Runs those of a deleted object in order, and
    /// removes the ones that are done; the first failure ends the run.
    ///
    /// Write the changes, whatever the result, with [`Run::write`].
    pub async fn run(&self, context: &C, object: &mut K) -> Run {
        let mut run = Run {
            changed: false,
            status_changed: false,
            result: Ok(()),
        };
        if !is_deleting(object) {
            for (name, _) in &self.registered {
                run.changed |= add(object, name);
            }
            return run;
        }
        let mut status = None;
        for (name, finalizer) in &self.registered {
            if !contains(object, name) {
                continue;
            }
            status.get_or_insert_with(|| status_of(object));
            if let Err(source) = finalizer.finalize(context, object).await {
                let name = name.clone();
                run.result = Err(Error { name, source });
                break;
            }
            run.changed |= remove(object, name);
        }
        run.status_changed = status.is_some_and(|before| before != status_of(object));
        run
    }
}

impl Run {
    /// Writes the changes of the run: the status, and then the object, each by a merge patch of the difference from
    /// `before`, the object as read. The patch of the object keeps the finalizers of others: it is refused when another
    /// write than this status write changed the object meanwhile. Does nothing without changes.
    ///
    /// By hand: a write of the status raises the version of the object, so a
    /// [`Patch::merge_from_locked`] of the state before is always refused after it.
    ///
    /// # Errors
    /// [`client::Error::is_conflict`] when another client changed the object: the next reconcile runs the finalizers
    /// again. Or when a call fails, as for a kind without the subresource `status` whose status a finalizer changed.
    pub async fn write<K: Object>(
        &self,
        client: &Client,
        before: &K,
        object: &K,
    ) -> Result<(), client::Error> {
        let key = client::key_of(before.meta());
        let (mut before, mut object) = (before.clone(), object.clone());
        if self.status_changed {
            let status =
                status_patch(&before, &object).map_err(|error| client::Error::Invalid {
                    request: format!("write the status of {key}, which finalizers changed"),
                    message: error.to_string(),
                })?;
            let written: K = client.patch_status(&key, status).await?;
            for copy in [&mut before, &mut object] {
                let version = &mut copy.meta_mut().resource_version;
                version.clone_from(&written.meta().resource_version);
            }
        }
        if self.changed {
            super::write(&client.objects(), &before, &object).await?;
        }
        Ok(())
    }
}

/// The patch of the changed status, refused when another client changed the object since `before`.
fn status_patch<K: Resource + Serialize>(before: &K, object: &K) -> Result<Patch, patch::Error> {
    let status = difference(&status_of(before), &status_of(object));
    Ok(Patch::merge(locked(before, json!({ "status": status }))?))
}

fn status_of<K: Serialize>(object: &K) -> serde_json::Value {
    let value = serde_json::to_value(object).unwrap_or_default();
    value.get("status").cloned().unwrap_or_default()
}

impl<K, C> Default for Finalizers<K, C> {
    fn default() -> Self {
        Self {
            registered: Vec::new(),
        }
    }
}

impl<K, C> fmt::Debug for Finalizers<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.registered.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use parking_lot::Mutex;

    use super::*;

    type Log = Arc<Mutex<Vec<&'static str>>>;

    /// Records its runs; fails while the flag is set.
    fn noting(
        log: &Log,
        name: &'static str,
        fails: &Arc<Mutex<bool>>,
    ) -> impl Finalizer<ConfigMap, ()> {
        let (log, fails) = (Arc::clone(log), Arc::clone(fails));
        function(move |(), _: ConfigMap| {
            log.lock().push(name);
            let failed = *fails.lock();
            async move {
                if failed {
                    return Err(std::io::Error::other("the gateway is down"));
                }
                Ok(())
            }
        })
    }

    fn deleting(finalizers: &[&str]) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.deletion_timestamp = Some(Time("2026-01-01T00:00:00Z".parse().unwrap()));
        map.metadata.finalizers = Some(finalizers.iter().map(|name| (*name).to_owned()).collect());
        map
    }

    #[tokio::test]
    async fn finalizers_are_added_and_run_in_the_order_they_were_registered() {
        let (log, fine) = (Log::default(), Arc::new(Mutex::new(false)));
        let finalizers = Finalizers::new()
            .register("z/1", noting(&log, "z/1", &fine))
            .and_then(|some| some.register("a/2", noting(&log, "a/2", &fine)))
            .and_then(|some| some.register("m/3", noting(&log, "m/3", &fine)))
            .unwrap();
        let mut map = ConfigMap::default();
        let run = finalizers.run(&(), &mut map).await;
        assert!(run.changed && run.result.is_ok() && log.lock().is_empty());
        assert_eq!(
            map.metadata.finalizers.as_ref().unwrap(),
            &["z/1", "a/2", "m/3"]
        );
        assert!(!finalizers.run(&(), &mut map).await.changed);

        // The finalizer of another controller stays, and a missing one does not run.
        let mut map = deleting(&["m/3", "other/x", "z/1"]);
        let run = finalizers.run(&(), &mut map).await;
        assert!(run.changed && !run.status_changed && run.result.is_ok());
        assert_eq!(*log.lock(), ["z/1", "m/3"]);
        assert_eq!(map.metadata.finalizers.as_ref().unwrap(), &["other/x"]);
        assert!(!finalizers.run(&(), &mut map).await.changed);
    }

    #[tokio::test]
    async fn a_failure_ends_the_run_and_what_was_done_before_stays_done() {
        let (log, fine, fails) = (Log::default(), Arc::default(), Arc::new(Mutex::new(true)));
        let finalizers = Finalizers::new()
            .register("a/1", noting(&log, "a/1", &fine))
            .and_then(|some| some.register("a/2", noting(&log, "a/2", &fails)))
            .and_then(|some| some.register("a/3", noting(&log, "a/3", &fine)))
            .unwrap();
        let mut map = deleting(&["a/1", "a/2", "a/3"]);
        let run = finalizers.run(&(), &mut map).await;
        let failed = run.result.unwrap_err();
        assert_eq!(
            crate::error_chain(&failed).to_string(),
            "the finalizer a/2 failed: the gateway is down"
        );
        assert!(run.changed);
        assert_eq!(map.metadata.finalizers.as_ref().unwrap(), &["a/2", "a/3"]);
        *fails.lock() = false;
        assert!(finalizers.run(&(), &mut map).await.result.is_ok());
        assert_eq!(*log.lock(), ["a/1", "a/2", "a/2", "a/3"]);
    }

    #[test]
    fn a_name_is_registered_once() {
        let (log, fine) = (Log::default(), Arc::default());
        let twice = Finalizers::new()
            .register("a/1", noting(&log, "a/1", &fine))
            .and_then(|some| some.register("a/1", noting(&log, "a/1", &fine)));
        assert_eq!(
            twice.unwrap_err().to_string(),
            "the finalizer a/1 is registered already"
        );
    }

    struct Report;

    impl Finalizer<Pod, ()> for Report {
        type Error = std::convert::Infallible;

        async fn finalize(&self, (): &(), pod: &mut Pod) -> Result<(), Self::Error> {
            pod.status.get_or_insert_default().reason = Some("Released".into());
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_finalizer_that_changes_the_status_is_distinguished() {
        let finalizers = Finalizers::new().register("a/1", Report).unwrap();
        let mut pod = Pod {
            metadata: deleting(&["a/1"]).metadata,
            ..Pod::default()
        };
        let run = finalizers.run(&(), &mut pod).await;
        assert!(run.changed && run.status_changed);
    }

    #[tokio::test(start_paused = true)]
    async fn the_status_and_then_the_finalizers_are_written_without_a_conflict() {
        let server = reeve_apiserver::ApiServer::builder().start().await.unwrap();
        let client = Client::new(server.client());
        let key = reeve_informer::ObjectKey::namespaced("default", "web");
        let web: Deployment = serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": "web", "finalizers": ["other/x"]},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}}))
        .unwrap();
        let created = client.create(&web).await.unwrap();
        let finalizers = Finalizers::new().register("a/1", Report).unwrap();
        let run = async |read: &Deployment| {
            let mut web = read.clone();
            let run = finalizers.run(&(), &mut web).await;
            run.write(&client, read, &web).await
        };
        run(&created).await.unwrap();
        let read: Deployment = client.get(&key).await.unwrap();
        let names = |web: &Deployment| web.metadata.finalizers.clone().unwrap();
        assert_eq!(names(&read), ["other/x", "a/1"]);
        // Without changes nothing is written.
        let version = server.resource_version();
        run(&read).await.unwrap();
        assert_eq!(server.resource_version(), version);

        let params = kube_core::params::DeleteParams::default();
        client.delete::<Deployment>(&key, &params).await.unwrap();
        let read: Deployment = client.get(&key).await.unwrap();
        run(&read).await.unwrap();
        let left: Deployment = client.get(&key).await.unwrap();
        assert_eq!(names(&left), ["other/x"]);
        assert_eq!(left.status.unwrap().observed_generation, Some(7));
        // A stale state is not written.
        assert!(run(&read).await.unwrap_err().is_conflict());
    }

    impl Finalizer<Deployment, ()> for Report {
        type Error = std::convert::Infallible;

        async fn finalize(&self, (): &(), web: &mut Deployment) -> Result<(), Self::Error> {
            web.status.get_or_insert_default().observed_generation = Some(7);
            Ok(())
        }
    }
}

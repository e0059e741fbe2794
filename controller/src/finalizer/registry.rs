//! Several finalizers of one kind, added and run in the order they were registered.

use std::fmt;
use std::future::Future;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube_core::Resource;
use serde::Serialize;

use super::{add, contains, is_deleting, remove};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What is to be done before an object of kind `K` may go.
///
/// `C` is what it is done with: the [`Context`](crate::Context) of a reconcile, say.
pub trait Finalizer<K, C>: Send + Sync + 'static {
    /// Why it could not be done.
    type Error: Into<BoxError>;

    /// Does it. It is run again until it succeeds, so doing it twice must be as good as once. It may change the object,
    /// its status above all.
    fn finalize(
        &self,
        context: &C,
        object: &mut K,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// A [`Finalizer`] of a function that does not change the object.
#[derive(Clone, Copy, Debug)]
pub struct Function<F>(F);

/// Makes a [`Finalizer`] of a function, which is given clones of the context and the object.
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

/// There is a finalizer of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the finalizer {name} is registered already")]
pub struct DuplicateName {
    /// The name.
    pub name: String,
}

/// A finalizer failed. Those before it have done their work, those after it have not begun.
#[derive(Debug, thiserror::Error)]
#[error("the finalizer {name} failed")]
pub struct Error {
    /// Its name.
    pub name: String,
    /// Why.
    #[source]
    pub source: BoxError,
}

/// What [`Finalizers::run`] did.
#[derive(Debug)]
#[must_use = "the changed object is to be written, and then the result to be looked at"]
pub struct Run {
    /// Whether the object has other finalizers now: it is to be written.
    pub changed: bool,
    /// Whether a finalizer changed the status: it is to be written, before the object.
    pub status_changed: bool,
    /// Whether every finalizer whose turn it was succeeded.
    pub result: Result<(), Error>,
}

/// The finalizers of one kind, in the order they are added to objects and run when those are deleted. One is run only
/// when those before it are done, on this run or an earlier one (controller-runtime: in no order, all of them).
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
pub struct Finalizers<K, C> {
    registered: Vec<(String, Box<dyn Erased<K, C>>)>,
}

// === impl Finalizers ===

impl<K, C> Finalizers<K, C>
where
    K: Resource + Serialize + Send + Sync + 'static,
    C: Send + Sync + 'static,
{
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            registered: Vec::new(),
        }
    }

    /// Adds one, to come after those that are there. The name is the entry in `metadata.finalizers`:
    /// `example.com/what`.
    ///
    /// # Errors
    /// When there is one of the name.
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

    /// Of an object that is not being deleted: adds the finalizers it lacks. Of one that is: runs those it has, each in
    /// its turn, and takes away what is done; the first failure ends it.
    ///
    /// Write what changed, whatever the result: [`Patch::merge_from_locked`](crate::client::Patch::merge_from_locked)
    /// keeps the finalizers of others.
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

    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use parking_lot::Mutex;

    use super::*;

    type Log = Arc<Mutex<Vec<&'static str>>>;

    /// Notes its turns; fails while it is told to.
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

        // Another's finalizer stays, and one that is not there is not run.
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
    async fn a_finalizer_that_changes_the_status_is_told_apart() {
        let finalizers = Finalizers::new().register("a/1", Report).unwrap();
        let mut pod = Pod {
            metadata: deleting(&["a/1"]).metadata,
            ..Pod::default()
        };
        let run = finalizers.run(&(), &mut pod).await;
        assert!(run.changed && run.status_changed);
    }
}

//! An informer that runs as a task.

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::error::RunError;
use super::shared_informer::SharedInformer;
use crate::object::Stored;

/// An informer that runs as a task: [`SharedInformer::spawn`]. Dropped, it stops the informer at once.
#[derive(Debug)]
#[must_use = "the informer stops when this is dropped"]
pub struct RunningInformer {
    stop: CancellationToken,
    task: AbortOnDropHandle<Result<(), RunError>>,
}

impl<S: Stored + ?Sized> SharedInformer<S> {
    /// Runs as a task of this runtime, until [`RunningInformer::stop`] or until the result is dropped.
    /// [`SharedInformer::run`] is the same as a future of the caller's own.
    ///
    /// ```no_run
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use reeve_informer::{ObjectKey, SharedInformer, connect};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = connect::infer(&connect::Options::new()).await?;
    /// let informer = SharedInformer::<ConfigMap>::builder(client).build();
    /// let running = informer.spawn();
    /// informer.wait_synced().await?;
    /// let map = informer.lister().get(&ObjectKey::namespaced("default", "settings"));
    /// println!("{:?}", map.and_then(|map| map.data.clone()));
    /// running.stop().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn(&self) -> RunningInformer {
        let (informer, stop) = (self.clone(), CancellationToken::new());
        let stopped = stop.clone();
        // Made here and not in the task, which may be dropped before it is polled.
        let end = self.end_unless_run();
        let run = async move {
            let _end = end;
            informer.run(stopped).await
        };
        RunningInformer::of(stop, run.boxed())
    }
}

// === impl RunningInformer ===

impl RunningInformer {
    /// Not in the generic caller: see [`tasks`](crate::tasks).
    fn of(stop: CancellationToken, run: BoxFuture<'static, Result<(), RunError>>) -> Self {
        let task = AbortOnDropHandle::new(tokio::spawn(run));
        Self { stop, task }
    }

    /// Stops the informer, and returns when the callbacks in flight are over.
    ///
    /// # Errors
    /// [`RunError::StartedBefore`] if the informer ran already when it was spawned.
    ///
    /// # Panics
    /// When the run panicked.
    pub async fn stop(self) -> Result<(), RunError> {
        self.stop.cancel();
        match self.task.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is shut down.
            Err(_) => Ok(()),
        }
    }
}

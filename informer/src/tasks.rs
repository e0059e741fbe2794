//! Tasks of one type for all kinds of objects.
//!
//! tokio has about 250 functions for each type of future that is spawned, a half of them for each of its two schedulers. An
//! informer of another kind would have them compiled again for each of its tasks.

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

/// Runs `task` in `runtime`.
pub(crate) fn spawn(runtime: &Handle, task: BoxFuture<'static, ()>) -> JoinHandle<()> {
    runtime.spawn(task)
}

/// Runs `work` in a thread for blocking work.
///
/// # Panics
/// Outside a tokio runtime.
pub(crate) fn block(work: Box<dyn FnOnce() + Send>) -> JoinHandle<()> {
    spawn_blocking(work)
}

//! The running handlers of an informer.

use std::future::pending;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::task::JoinSet;

/// The running handlers of an informer.
#[derive(Default)]
pub(super) struct RunningHandlers {
    /// Handlers with a task of their own.
    tasks: JoinSet<()>,
    /// Handlers that share the informer's task.
    inline: FuturesUnordered<BoxFuture<'static, ()>>,
}

// === impl RunningHandlers ===

impl RunningHandlers {
    /// Starts a handler. It is boxed, so that tokio's part of a task is compiled once.
    pub(super) fn start(&mut self, handler: BoxFuture<'static, ()>, inline: bool) {
        if inline {
            self.inline.push(handler);
        } else {
            self.tasks.spawn(handler);
        }
    }

    /// Polls the handlers that share this task. Never returns.
    pub(super) async fn work(&mut self) {
        while self.inline.next().await.is_some() {}
        pending::<()>().await;
    }

    /// Drops tasks that have ended.
    pub(super) fn prune(&mut self) {
        while self.tasks.try_join_next().is_some() {}
    }

    /// Returns when all handlers have ended.
    pub(super) async fn ended(&mut self) {
        while self.inline.next().await.is_some() {}
        while self.tasks.join_next().await.is_some() {}
    }
}

//! Waiting for the store.

use std::sync::Arc;

use super::{Inner, SharedInformer, Stage};
use crate::entry::Stored;
use crate::transport::Scope;
use crate::version::ResourceVersion;

/// What was waited for will not come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The informer ended.
    #[error("the informer {name} stopped before that")]
    Stopped {
        /// The informer's name.
        name: Arc<str>,
    },
    /// The informer does not watch there.
    #[error("the informer {name} does not watch {scope}")]
    OutOfScope {
        /// The informer's name.
        name: Arc<str>,
        /// Where it was to look.
        scope: Scope,
    },
}

impl<S: Stored> SharedInformer<S> {
    /// Returns once everything in scope is in the store: the first list, and of a set of namespaces those of all
    /// that it has then. So after a change of the set it waits for what came with it.
    ///
    /// # Errors
    /// [`WaitError::Stopped`] if the informer ends before.
    pub async fn wait_synced(&self) -> Result<(), WaitError> {
        self.until(|inner| inner.has_synced().then_some(Ok(())))
            .await
    }

    /// Returns once what is watched of `scope` is in the store, whatever else is still to be listed.
    ///
    /// # Errors
    /// [`WaitError::OutOfScope`] if the informer does not watch there (any more), [`WaitError::Stopped`] if it ends
    /// before.
    pub async fn wait_synced_in(&self, scope: &Scope) -> Result<(), WaitError> {
        self.until(|inner| {
            if !inner.covers(scope) {
                return Some(Err(WaitError::OutOfScope {
                    name: Arc::clone(&inner.name),
                    scope: scope.clone(),
                }));
            }
            inner.has_synced_in(scope).then_some(Ok(()))
        })
        .await
    }

    /// Returns once the store holds what happened in `scope` up to `version`, which an object or a list
    /// bears: after that, readers see it. Without other changes of the kind this may take until the next
    /// bookmark, about a minute, unless `version` is of an object that this informer watches.
    ///
    /// An opaque version is taken as reached.
    ///
    /// # Errors
    /// [`WaitError::OutOfScope`] if the informer does not watch there (of a set of namespaces: as one, or any
    /// more), [`WaitError::Stopped`] if it ends before.
    pub async fn wait_for_resource_version(
        &self,
        scope: &Scope,
        version: &ResourceVersion,
    ) -> Result<(), WaitError> {
        self.until(|inner| {
            if !inner.covers(scope) {
                return Some(Err(WaitError::OutOfScope {
                    name: Arc::clone(&inner.name),
                    scope: scope.clone(),
                }));
            }
            let feeds = inner.feeds();
            let mut of_scope = feeds.iter().filter(|feed| feed.meets(scope)).peekable();
            of_scope.peek()?;
            of_scope
                .all(|feed| feed.has_synced() && feed.version().reaches(version))
                .then_some(Ok(()))
        })
        .await
    }

    /// Returns what `done` says as soon as it says something, or that the informer has stopped.
    async fn until<T>(
        &self,
        done: impl Fn(&Inner<S>) -> Option<Result<T, WaitError>>,
    ) -> Result<T, WaitError> {
        let (mut moved, mut stage) = (self.inner.moved.subscribe(), self.inner.stage.subscribe());
        loop {
            if let Some(result) = done(&self.inner) {
                return result;
            }
            // The senders live as long as `self`.
            tokio::select! {
                biased;
                _ = moved.changed() => {}
                _ = stage.wait_for(|stage| *stage == Stage::Stopped) => {
                    return Err(WaitError::Stopped {
                        name: Arc::clone(&self.inner.name),
                    });
                }
            }
        }
    }
}

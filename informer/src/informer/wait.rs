//! Waiting for the store.

use std::sync::Arc;

use super::{SharedInformer, Stage};
use crate::entry::Stored;
use crate::transport::Scope;
use crate::version::ResourceVersion;

/// What was waited for will not come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The informer ended.
    #[error("the informer {name} stopped before that")]
    Stopped {
        /// The informer's name.
        name: Arc<str>,
    },
    /// The informer does not watch there.
    #[error("the informer {name} does not watch {scope:?}")]
    OutOfScope {
        /// The informer's name.
        name: Arc<str>,
        /// Where it was to look.
        scope: Scope,
    },
}

impl<S: Stored> SharedInformer<S> {
    /// Returns once the first list is in the store.
    ///
    /// # Errors
    /// [`WaitError::Stopped`] if the informer ends before.
    pub async fn wait_synced(&self) -> Result<(), WaitError> {
        let mut synced = self.inner.synced.subscribe();
        tokio::select! {
            biased;
            Ok(_) = synced.wait_for(|synced| *synced) => Ok(()),
            error = self.stopped() => Err(error),
        }
    }

    /// Returns once the store holds what happened in `scope` up to `version`, which an object or a list
    /// bears: after that, readers see it. Without other changes of the kind this may take until the next
    /// bookmark, about a minute, unless `version` is of an object that this informer watches.
    ///
    /// An opaque version is taken as reached.
    ///
    /// # Errors
    /// [`WaitError::OutOfScope`] if the informer does not watch there, [`WaitError::Stopped`] if it ends before.
    pub async fn wait_for_resource_version(
        &self,
        scope: &Scope,
        version: &ResourceVersion,
    ) -> Result<(), WaitError> {
        if !self.inner.selection.scope.contains(scope) {
            return Err(WaitError::OutOfScope {
                name: Arc::clone(&self.inner.name),
                scope: scope.clone(),
            });
        }
        self.wait_synced().await?;
        let mut versions = self.inner.version.subscribe();
        tokio::select! {
            biased;
            Ok(_) = versions.wait_for(|held| held.reaches(version)) => Ok(()),
            error = self.stopped() => Err(error),
        }
    }

    async fn stopped(&self) -> WaitError {
        let mut stage = self.inner.stage.subscribe();
        // The sender lives as long as `self`.
        let _ = stage.wait_for(|stage| *stage == Stage::Stopped).await;
        WaitError::Stopped {
            name: Arc::clone(&self.inner.name),
        }
    }
}

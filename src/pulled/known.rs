//! The blocks and lists in the cache.

use std::sync::Arc;

use kube_core::{ObjectMeta, PartialObjectMeta};
use reeve_controller::cache::{ReadError, View};
use reeve_controller::{Caches, ObjectKey};

use super::lists::KnownLists;
use super::sink::Known;
use crate::api::{BlockList, IPBlock};
use crate::outbound::BoxFuture;

/// The blocks, and the metadata of lists, that the cache of the operator holds.
#[derive(Clone)]
pub(super) struct Cached(Caches);

// === impl Cached ===

impl Cached {
    /// Over `caches`.
    #[must_use]
    pub(super) fn new(caches: Caches) -> Self {
        Self(caches)
    }
}

impl Known for Cached {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<IPBlock>> {
        let lister = self.0.lister::<IPBlock>().ok()?;
        lister.get(&ObjectKey::namespaced(namespace, name)).ok()?
    }

    fn all(&self, namespace: &str) -> Result<Vec<Arc<IPBlock>>, String> {
        let lister = self.0.lister::<IPBlock>();
        let lister = lister.map_err(|error| error.to_string())?;
        lister
            .namespace(namespace)
            .map_err(|error| error.to_string())
    }
}

impl KnownLists for Cached {
    fn lists<'a>(
        &'a self,
        namespace: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Vec<ObjectMeta>, String>> {
        Box::pin(async move {
            let lists = View::<PartialObjectMeta<BlockList>>::metadata();
            let lister = self.0.view(&lists).map_err(|error| error.to_string())?;
            let lists = match namespace {
                Some(namespace) => lister.namespace(namespace),
                None => lister.list(),
            };
            match lists {
                Ok(lists) => Ok(lists.iter().map(|list| list.metadata.clone()).collect()),
                Err(ReadError::NotSynced { .. }) => Err("the BlockLists are not read yet, or their kind is not installed: apply manifests/base/crd.yaml".into()),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

impl std::fmt::Debug for Cached {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cached").finish_non_exhaustive()
    }
}

//! The policy of the stored roles and bindings.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::Policy;
use crate::store::Store;

const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

/// The policy made of the stored roles and bindings, cached until one of them changes.
#[derive(Debug, Default)]
pub(crate) struct PolicyCache(Mutex<Option<([u64; 4], Arc<Policy>)>>);

// === impl PolicyCache ===

impl PolicyCache {
    /// The current policy.
    pub(crate) fn current(&self, store: &Store) -> Arc<Policy> {
        let versions = [ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS]
            .map(|storage| store.last_change(storage));
        let mut cached = self.0.lock();
        if let Some((of, policy)) = &*cached
            && *of == versions
        {
            return policy.clone();
        }
        let list = |storage: &str| -> Vec<Arc<Value>> {
            let objects = store.list(storage, "").1;
            objects.iter().map(|object| object.value()).collect()
        };
        let (roles, cluster_roles, bindings, cluster_bindings) = (
            list(ROLES),
            list(CLUSTER_ROLES),
            list(ROLE_BINDINGS),
            list(CLUSTER_ROLE_BINDINGS),
        );
        let policy = Arc::new(Policy::new(
            roles.iter().map(|object| &**object),
            cluster_roles.iter().map(|object| &**object),
            bindings.iter().map(|object| &**object),
            cluster_bindings.iter().map(|object| &**object),
        ));
        *cached = Some((versions, policy.clone()));
        policy
    }
}

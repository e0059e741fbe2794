//! Who asks and whether they may: credentials, impersonation and the policy that is stored.

use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::Value;

use crate::authn::Impersonation;
use crate::core::Core;
use crate::rbac::{Attributes, Policy, User};
use crate::status::Status;
use crate::store::Object;

const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

/// The policy made of the stored roles and bindings, kept until one of them changes.
#[derive(Debug, Default)]
pub(crate) struct PolicyCache(Mutex<Option<([u64; 4], Arc<Policy>)>>);

// === impl PolicyCache ===

impl PolicyCache {
    /// The policy as it is now.
    pub(crate) fn current(&self, core: &Core) -> Arc<Policy> {
        let versions = [ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS]
            .map(|storage| core.store.last_change(storage));
        let mut cached = self.0.lock();
        if let Some((of, policy)) = &*cached
            && *of == versions
        {
            return policy.clone();
        }
        let list = |storage: &str| core.store.list(storage, "").1;
        let (roles, cluster_roles, bindings, cluster_bindings) = (
            list(ROLES),
            list(CLUSTER_ROLES),
            list(ROLE_BINDINGS),
            list(CLUSTER_ROLE_BINDINGS),
        );
        fn values(objects: &[Arc<Object>]) -> impl Iterator<Item = &Value> {
            objects.iter().map(|object| object.value())
        }
        let policy = Arc::new(Policy::new(
            values(&roles),
            values(&cluster_roles),
            values(&bindings),
            values(&cluster_bindings),
        ));
        *cached = Some((versions, policy.clone()));
        policy
    }
}

/// The uid of a service account, if it is there.
pub(crate) fn account_uid(core: &Core, namespace: &str, name: &str) -> Option<String> {
    let key = format!("{namespace}/{name}");
    let account = core.store.get("serviceaccounts", &key)?;
    account.uid().map(str::to_owned)
}

/// The policy, where requests are checked against one.
pub(crate) fn policy(core: &Core) -> Option<Arc<Policy>> {
    core.options.rbac.then(|| core.policy.current(core))
}

/// Tells who asks; refuses who may not.
///
/// # Errors
/// 401 and 403; 400 for impersonation without a user.
pub(crate) fn check(
    core: &Core,
    headers: &HeaderMap,
    attributes: &Attributes,
) -> Result<User, Status> {
    let accounts = |namespace: &str, name: &str| account_uid(core, namespace, name);
    let mut user = core
        .authenticator
        .authenticate(headers, core.clock.now(), &accounts)?;
    let policy = policy(core);
    if let Some(wanted) = Impersonation::of(headers)? {
        user = match &policy {
            Some(policy) => wanted.apply(&user, policy, attributes)?,
            // Everyone may everything.
            None => wanted.apply(&User::admin(), &Policy::default(), attributes)?,
        };
    }
    if let Some(policy) = policy {
        let decision = policy.authorize(&user, attributes);
        if !decision.allowed {
            return Err(attributes.forbidden(&user, &decision));
        }
    }
    Ok(user)
}

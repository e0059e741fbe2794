//! The user of a request and its rights: credentials, impersonation and the stored policy.

use std::sync::Arc;

use http::HeaderMap;
use reeve_serve::http::ClientCertificate;
use serde_json::Value;

use crate::authn::Impersonation;
use crate::core::Core;
use crate::rbac::{Attributes, Policy, User};
use crate::status::Status;
use crate::store::Key;

/// The object that a token depends on, if it exists.
pub(crate) fn object_of_token(
    core: &Core,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Option<Arc<Value>> {
    let key = Key::new(Some(namespace).filter(|one| !one.is_empty()), name);
    Some(core.store.get(resource, key.as_str())?.value())
}

/// The policy, if requests are checked against one.
pub(crate) fn policy(core: &Core) -> Option<Arc<Policy>> {
    core.options.rbac.then(|| core.policy.current(&core.store))
}

/// Returns the user of a request; refuses a request that the policy does not allow.
///
/// # Errors
/// 401 and 403; 400 for impersonation without a user.
pub(crate) fn check(
    core: &Core,
    headers: &HeaderMap,
    certificate: Option<&ClientCertificate>,
    attributes: &Attributes,
) -> Result<User, Status> {
    let objects = |resource: &str, namespace: &str, name: &str| {
        object_of_token(core, resource, namespace, name)
    };
    let now = core.clock.now();
    let mut user = core
        .authenticator
        .authenticate(headers, certificate, now, &objects)?;
    let policy = policy(core);
    if let Some(wanted) = Impersonation::of(headers)? {
        user = match &policy {
            Some(policy) => wanted.apply(&user, policy, attributes)?,
            // Without a policy everything is allowed.
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

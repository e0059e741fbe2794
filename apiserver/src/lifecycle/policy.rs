//! The roles and bindings that every cluster has.

use super::internal::internal_request;
use crate::core::Core;
use crate::rbac;
use crate::store::Key;
use crate::verbs::create::create;

/// Creates the roles and bindings that are not there.
pub(super) fn bootstrap(core: &Core) {
    for object in rbac::bootstrap_objects() {
        let (Some(kind), Some(name)) =
            (object["kind"].as_str(), object["metadata"]["name"].as_str())
        else {
            continue;
        };
        let served = core.registry.served();
        let Some(info) = served.of_kind("rbac.authorization.k8s.io", "v1", kind) else {
            continue;
        };
        let key = Key::new(object["metadata"]["namespace"].as_str(), name);
        if core.store.get(&info.storage, key.as_str()).is_some() {
            continue;
        }
        let request = internal_request(core, info, &key);
        if let Err(status) = create(core, &request, object.clone()) {
            tracing::warn!(%status, name, "could not create the default role");
        }
    }
}

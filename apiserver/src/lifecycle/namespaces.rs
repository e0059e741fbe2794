//! Namespaces: created with a ServiceAccount, emptied when they terminate, then removed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::internal::internal_request;
use crate::core::Core;
use crate::kinds::NAMESPACE_FINALIZER;
use crate::meta;
use crate::ownership::{API_SERVER, CONTROLLERS, Writer};
use crate::request::Request;
use crate::status::GroupResource;
use crate::store::{Chore, CommitError, Expected, Key, Object};
use crate::verbs::delete::{self, Options, Propagation};

/// Namespaces every cluster has.
const INITIAL: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// The rest of a namespace: objects by resource, and their number for each finalizer.
#[derive(Default)]
pub(super) struct Left {
    resources: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

/// Creates the namespaces that every cluster has.
pub(crate) fn create_initial(core: &Core) {
    let Some(info) = core.registry.of_storage("namespaces") else {
        return;
    };
    for name in INITIAL {
        if core.store.get("namespaces", name).is_some() {
            continue;
        }
        let request = Request {
            agent: API_SERVER.to_owned(),
            ..internal_request(core, &info, &Key::from(*name))
        };
        let namespace = json!({"metadata": {"name": name}});
        if let Err(status) = crate::verbs::create::create(core, &request, namespace) {
            tracing::warn!(%status, name, "could not create the namespace");
        }
    }
}

/// Brings a namespace to the state that it asks for: its ServiceAccount, or its end.
pub(crate) fn process(core: &Core, name: &str) {
    let Some(namespace) = core.store.get("namespaces", name) else {
        core.store.set_terminating(name, false);
        return;
    };
    if namespace.is_terminating() {
        empty(core, &namespace);
    } else {
        create_account(core, name);
    }
}

/// Creates the ServiceAccount `default` of a namespace.
fn create_account(core: &Core, namespace: &str) {
    let key = Key::new(Some(namespace), "default");
    let Some(info) = core.registry.of_storage("serviceaccounts") else {
        return;
    };
    if core.store.get(&info.storage, key.as_str()).is_some() {
        return;
    }
    let request = internal_request(core, &info, &key);
    let account = json!({"metadata": {"name": "default", "namespace": namespace}});
    if let Err(status) = crate::verbs::create::create(core, &request, account) {
        tracing::debug!(%status, namespace, "could not create the default ServiceAccount");
    }
}

/// Deletes the objects of a terminating namespace, and removes it when nothing is left.
fn empty(core: &Core, namespace: &Object) {
    let name = namespace.name();
    core.store.set_terminating(name, true);
    let left = delete_contents(core, name);
    finish(core, namespace, &left);
}

/// Writes what is left in the namespace to its status, or removes it. A namespace of the same name that was created
/// meanwhile stays as it is.
pub(super) fn finish(core: &Core, namespace: &Object, left: &Left) {
    let name = namespace.name();
    loop {
        let current = core.store.get("namespaces", name);
        let same = current.filter(|current| current.uid() == namespace.uid());
        let Some(current) = same.filter(|current| current.is_terminating()) else {
            // A namespace that has the name now gets a chore of its own.
            core.store.set_terminating(name, false);
            core.store.add_chore(Chore::Namespace(name.to_owned()));
            return;
        };
        let mut next = current.value().clone();
        if left.resources.is_empty() {
            drop_own_finalizer(&mut next);
        } else {
            let now = meta::time(core.clock.now());
            set_conditions(&mut next, left, &now);
        }
        if next != *current.value()
            && let Some(info) = core.registry.of_storage("namespaces")
        {
            let subresource = if left.resources.is_empty() {
                "finalize"
            } else {
                "status"
            };
            Writer::internal(core, &info, subresource, CONTROLLERS)
                .record(current.value(), &mut next);
        }
        let waits = current.finalizers().next().is_some() || next["spec"]["finalizers"].is_array();
        let goes = left.resources.is_empty() && !waits;
        if !goes && next == *current.value() {
            return;
        }
        let expected = Expected::Version(current.version());
        let written = core
            .store
            .commit("namespaces", name, expected, (!goes).then_some(next));
        match written {
            Ok(_) => {
                if goes {
                    core.store.set_terminating(name, false);
                }
                return;
            }
            Err(CommitError::Raced) => {}
            Err(error) => {
                tracing::warn!(%error, namespace = name, "could not finish the namespace");
                return;
            }
        }
    }
}

/// Removes the namespace controller's finalizer; others stay.
fn drop_own_finalizer(namespace: &mut Value) {
    let spec = meta::map_at(meta::object_mut(namespace), "spec");
    let Some(finalizers) = spec.get_mut("finalizers").and_then(Value::as_array_mut) else {
        return;
    };
    finalizers.retain(|finalizer| finalizer != NAMESPACE_FINALIZER);
    if finalizers.is_empty() {
        spec.remove("finalizers");
    }
}

fn delete_contents(core: &Core, name: &str) -> Left {
    let prefix = format!("{name}/");
    let mut left = Left::default();
    for storage in core.store.storages() {
        let Some(info) = core.registry.of_storage(&storage) else {
            continue;
        };
        if !info.namespaced {
            continue;
        }
        for object in core.store.list(&storage, &prefix).1 {
            let request = internal_request(core, &info, &object.key());
            let options = Options {
                propagation: Some(Propagation::Background),
                ..Options::default()
            };
            if !object.is_terminating()
                && let Err(status) = delete::delete(core, &request, &options)
                && status.code != 404
            {
                tracing::warn!(%status, object = %object.key(), "could not delete an object with its namespace");
            }
            let Some(kept) = core.store.get(&storage, object.key().as_str()) else {
                continue;
            };
            let resource = GroupResource {
                group: &info.group,
                resource: &info.plural,
            };
            *left
                .resources
                .entry(format!("{}.{}", resource.resource, resource.group))
                .or_default() += 1;
            for finalizer in kept.finalizers() {
                *left.finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
        }
    }
    left
}

/// Sets the conditions that name what keeps a namespace. (kubernetes: `pkg/controller/namespace/deletion/status_condition_utils.go`.)
fn set_conditions(namespace: &mut Value, left: &Left, now: &str) {
    let counted = |what: &BTreeMap<String, usize>, between: &str| {
        let parts: Vec<String> = what
            .iter()
            .map(|(name, count)| format!("{name} {between} {count} resource instances"))
            .collect();
        parts.join(", ")
    };
    let remaining = format!(
        "Some resources are remaining: {}",
        counted(&left.resources, "has")
    );
    let waiting = if left.finalizers.is_empty() {
        (
            "False",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished".to_owned(),
        )
    } else {
        let finalizers = counted(&left.finalizers, "in");
        (
            "True",
            "SomeFinalizersRemain",
            format!("Some content in the namespace has finalizers remaining: {finalizers}"),
        )
    };
    let wanted = [
        (
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered".to_owned(),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization".to_owned(),
        ),
        (
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            remaining,
        ),
        (
            "NamespaceFinalizersRemaining",
            waiting.0,
            waiting.1,
            waiting.2,
        ),
    ];
    let status = meta::map_at(meta::object_mut(namespace), "status");
    let conditions = meta::list_at(status, "conditions");
    for (kind, state, reason, message) in wanted {
        let since = conditions
            .iter()
            .find(|condition| condition["type"] == kind && condition["status"] == state)
            .map_or_else(
                || json!(now),
                |condition| condition["lastTransitionTime"].clone(),
            );
        let condition = json!({
            "type": kind, "status": state, "reason": reason, "message": message,
            "lastTransitionTime": since,
        });
        match conditions
            .iter_mut()
            .find(|condition| condition["type"] == kind)
        {
            Some(found) => *found = condition,
            None => conditions.push(condition),
        }
    }
}

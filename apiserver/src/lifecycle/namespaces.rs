//! Namespaces: created with a ServiceAccount, emptied when they terminate, then removed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::internal::{Part, internal_request, is_stored};
use super::work::Work;
use crate::kinds::NAMESPACE_FINALIZER;
use crate::meta;
use crate::request::Request;
use crate::status::GroupResource;
use crate::store::{Chore, Key, Object};
use crate::verbs::delete::{self, Options, Propagation};
use crate::verbs::update;

const PODS: &str = "pods";

/// The rest of a namespace: objects by resource, and their number for each finalizer.
#[derive(Default)]
pub(super) struct Left {
    resources: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    /// Whether the deletion of an object was refused.
    is_refused: bool,
}

/// Brings a namespace to the state that it asks for: its ServiceAccount, or its end. Returns `false` if a write was
/// refused.
pub(crate) async fn process(work: &Work<'_>, name: &str) -> bool {
    let Some(namespace) = work.store.get("namespaces", name) else {
        work.store.set_terminating(name, false);
        return true;
    };
    if !work.options.namespace_controller {
        // Creations in a terminating namespace are refused also if no controller empties it.
        work.store.set_terminating(name, namespace.is_terminating());
        true
    } else if namespace.is_terminating() {
        empty(work, &namespace).await
    } else {
        create_account(work, name).await
    }
}

/// Creates the ServiceAccount `default` of a namespace.
async fn create_account(work: &Work<'_>, namespace: &str) -> bool {
    let key = Key::new(Some(namespace), "default");
    let Some(info) = work.registry.of_storage("serviceaccounts") else {
        return true;
    };
    if work.store.get(&info.storage, key.as_str()).is_some() {
        return true;
    }
    let request = internal_request(work, &info, &key, Part::ServiceAccountController);
    let account = json!({"metadata": {"name": "default", "namespace": namespace}});
    if let Err(status) = crate::verbs::create::create(work, &request, account).await {
        tracing::debug!(%status, namespace, "could not create the default ServiceAccount: it is retried");
        return false;
    }
    true
}

/// Deletes the objects of a terminating namespace, and removes it when nothing is left.
async fn empty(work: &Work<'_>, namespace: &Object) -> bool {
    let name = namespace.name();
    work.store.set_terminating(name, true);
    let left = delete_contents(work, name).await;
    finish(work, namespace, &left).await && !left.is_refused
}

/// Writes what is left in the namespace to its status, or removes it. A namespace of the same name that was created
/// meanwhile stays as it is. Returns `false` if the write was refused.
pub(super) async fn finish(work: &Work<'_>, namespace: &Object, left: &Left) -> bool {
    let name = namespace.name();
    let Some(info) = work.registry.of_storage("namespaces") else {
        return true;
    };
    let is_empty = left.resources.is_empty();
    let request = Request {
        subresource: if is_empty { "finalize" } else { "status" }.to_owned(),
        ..internal_request(work, &info, namespace.key(), Part::NamespaceController)
    };
    let written = update::modify(work, &request, &|old| {
        let is_same = Some(meta::text(old, "uid")) == namespace.uid();
        if !is_same || meta::text(old, "deletionTimestamp").is_empty() {
            return Err(request.not_found());
        }
        let mut new = old.clone();
        if is_empty {
            drop_own_finalizer(&mut new);
        } else {
            set_conditions(&mut new, left, &request.time());
        }
        Ok(new)
    })
    .await;
    let refusal = written.err().filter(|_| is_stored(work, &info, namespace));
    if let Some(status) = &refusal {
        tracing::warn!(%status, namespace = name, "could not finish the namespace: it is retried");
    }
    let current = work.store.get("namespaces", name);
    if current.is_none_or(|current| current.uid() != namespace.uid()) {
        // A namespace that has the name now gets a chore of its own.
        work.store.set_terminating(name, false);
        work.store.add_chore(Chore::Namespace(name.to_owned()));
    }
    refusal.is_none()
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

/// Deletes what is in a namespace while it terminates, Pods first: they may need the rest until they are gone. (kubernetes:
/// `OrderedNamespaceDeletion`.) A restore may bring it back meanwhile, with what is in it.
pub(super) async fn delete_contents(work: &Work<'_>, name: &str) -> Left {
    let prefix = format!("{name}/");
    let mut left = Left::default();
    let mut storages = work.store.storages();
    storages.sort_by_key(|storage| storage != PODS);
    for storage in storages {
        let Some(info) = work.registry.of_storage(&storage) else {
            continue;
        };
        if !info.namespaced {
            continue;
        }
        for object in work.store.list(&storage, &prefix).1 {
            let namespace = work.store.get("namespaces", name);
            if !namespace.is_some_and(|namespace| namespace.is_terminating()) {
                return left;
            }
            let request = internal_request(work, &info, object.key(), Part::NamespaceController);
            let options = Options {
                propagation: Some(Propagation::Background),
                ..Options::default()
            };
            if !object.is_terminating()
                && let Err(status) = delete::delete(work, &request, &options).await
                && is_stored(work, &info, &object)
            {
                tracing::warn!(%status, object = %object.key(), "could not delete an object with its namespace: it is retried");
                left.is_refused = true;
            }
            let Some(kept) = work.store.get(&storage, object.key().as_str()) else {
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
        if storage == PODS && !left.resources.is_empty() {
            return left;
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

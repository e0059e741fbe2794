//! Finalizers: the entries in `metadata.finalizers` that keep a deleted object until its cleanup is done.
//!
//! The helpers change the object in memory and return whether they did; the caller writes it (controller-runtime:
//! `controllerutil.AddFinalizer`, `RemoveFinalizer`, `ContainsFinalizer`).
//!
//! | to have | see |
//! |---|---|
//! | one finalizer around a reconcile (kube-rs: `finalizer`) | [`apply_or_cleanup`] |
//! | several, in order (controller-runtime: package `finalizer`) | [`Finalizers`] |

mod event;
mod registry;

use kube_core::Resource;
use serde_json::{Value, json};

use crate::client::{self, AnyObject, AsObject, Objects, Patch};

pub use event::{Event, apply_or_cleanup, apply_or_cleanup_in};
pub use registry::{DuplicateName, Error, Finalizer, Finalizers, Run, function};

/// Whether `object` carries the finalizer `name`.
pub fn contains<Form>(object: &impl AsObject<Form>, name: &str) -> bool {
    carries(object.as_object(), name)
}

/// Whether `object` is being deleted and waits for its finalizers.
pub fn is_deleting<Form>(object: &impl AsObject<Form>) -> bool {
    object.as_object().meta().deletion_timestamp.is_some()
}

/// Adds the finalizer `name` at the end. True when it was not there.
pub fn add<K: Resource>(object: &mut K, name: &str) -> bool {
    if carries(object, name) {
        return false;
    }
    object
        .meta_mut()
        .finalizers
        .get_or_insert_default()
        .push(name.to_owned());
    true
}

/// Removes the finalizer `name`, and its duplicates. True when it was there.
pub fn remove<K: Resource>(object: &mut K, name: &str) -> bool {
    let Some(finalizers) = &mut object.meta_mut().finalizers else {
        return false;
    };
    let before = finalizers.len();
    finalizers.retain(|finalizer| finalizer != name);
    finalizers.len() != before
}

/// A merge patch that adds the finalizer `name`, or `None` when it is there already.
///
/// A merge patch replaces the whole list, so it carries the resourceVersion `object` was read at: the server answers
/// 409 when another client changed the object meanwhile, instead of dropping its finalizer.
pub fn add_patch<Form>(object: &impl AsObject<Form>, name: &str) -> Option<Value> {
    let object = object.as_object();
    if carries(object, name) {
        return None;
    }
    let mut finalizers = list(object).to_vec();
    finalizers.push(name.to_owned());
    Some(patch(object, &finalizers))
}

/// A merge patch that removes the finalizer `name`, or `None` when it is not there. See [`add_patch`].
pub fn remove_patch<Form>(object: &impl AsObject<Form>, name: &str) -> Option<Value> {
    let object = object.as_object();
    if !carries(object, name) {
        return None;
    }
    let finalizers: Vec<String> = list(object)
        .iter()
        .filter(|finalizer| *finalizer != name)
        .cloned()
        .collect();
    Some(patch(object, &finalizers))
}

/// Writes the difference between two states of an object, unless another write changed it since `before`. Returns the
/// new state.
async fn write<K: AnyObject>(
    objects: &Objects<K>,
    before: &K,
    after: &K,
) -> Result<K, client::Error> {
    let key = client::key_of(before.meta());
    let patch =
        Patch::merge_from_locked(before, after).map_err(|error| client::Error::Invalid {
            request: format!("write the finalizers of {key}"),
            message: error.to_string(),
        })?;
    objects.patch(&key, patch).await
}

fn carries<K: Resource>(object: &K, name: &str) -> bool {
    list(object).iter().any(|finalizer| finalizer == name)
}

fn list<K: Resource>(object: &K) -> &[String] {
    object.meta().finalizers.as_deref().unwrap_or_default()
}

fn patch<K: Resource>(object: &K, finalizers: &[String]) -> Value {
    let mut metadata = json!({ "finalizers": finalizers });
    // The uid keeps the patch off an object that was deleted and created again under the name.
    if let Some(version) = &object.meta().resource_version {
        metadata["resourceVersion"] = json!(version);
    }
    if let Some(uid) = &object.meta().uid {
        metadata["uid"] = json!(uid);
    }
    json!({ "metadata": metadata })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn with(finalizers: &[&str]) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.resource_version = Some("7".into());
        object.metadata.finalizers = Some(finalizers.iter().map(|f| (*f).to_owned()).collect());
        object
    }

    #[test]
    fn adding_twice_changes_once() {
        let mut object = ConfigMap::default();
        assert!(add(&mut object, "example.com/a"));
        assert!(!add(&mut object, "example.com/a"));
        assert_eq!(object.metadata.finalizers.unwrap(), ["example.com/a"]);
    }

    #[test]
    fn removing_takes_duplicates_and_keeps_the_order_of_others() {
        let mut object = with(&["a/1", "b/2", "a/1", "c/3"]);
        assert!(remove(&mut object, "a/1"));
        assert!(!remove(&mut object, "a/1"));
        assert_eq!(object.metadata.finalizers.unwrap(), ["b/2", "c/3"]);
    }

    #[test]
    fn a_patch_keeps_other_finalizers_and_the_version_it_was_read_at() {
        let patch = add_patch(&with(&["b/2"]), "a/1").unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {"finalizers": ["b/2", "a/1"], "resourceVersion": "7"}})
        );
        let patch = remove_patch(&with(&["b/2", "a/1"]), "a/1").unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!(["b/2"]));
        assert!(remove_patch(&with(&["b/2"]), "a/1").is_none());
        assert!(add_patch(&with(&["b/2"]), "b/2").is_none());
    }
}

//! Namespaces: their defaults and their finalizer.

use serde_json::Value;

use crate::meta;

/// The entry of `spec.finalizers` that stands for the contents of the namespace.
pub(crate) const FINALIZER: &str = "kubernetes";

/// Completes a Namespace: a spec, and the label that holds its name.
pub(super) fn default(object: &mut Value) {
    let name = meta::text(object, "name").to_owned();
    meta::map_at(meta::object_mut(object), "spec");
    if !name.is_empty() {
        let labels = meta::map_at(meta::metadata_mut(object), "labels");
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
}

/// Adds [`FINALIZER`] to a new Namespace.
pub(super) fn add_finalizer(object: &mut Value) {
    let spec = meta::map_at(meta::object_mut(object), "spec");
    let finalizers = meta::list_at(spec, "finalizers");
    if !finalizers.iter().any(|one| one == FINALIZER) {
        finalizers.push(FINALIZER.into());
    }
}

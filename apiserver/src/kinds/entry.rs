//! The entry of a kind in the list of its file.

use schemars::JsonSchema;
use schemars::generate::SchemaGenerator;

use super::strategy::Strategy;

/// A kind, its rules, and its descriptions.
pub(crate) struct Entry {
    /// Empty for core.
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    pub(super) strategy: &'static dyn Strategy,
    /// Adds the descriptions of the types of its versions.
    pub(crate) texts: Texts,
}

/// Adds the descriptions of types.
pub(crate) type Texts = fn(&mut SchemaGenerator);

/// Adds the descriptions of `T` and of the types in it.
pub(crate) fn texts<T: JsonSchema>(generator: &mut SchemaGenerator) {
    generator.subschema_for::<T>();
}

/// Adds nothing: the version that `k8s-openapi` was built for has no such type.
#[allow(
    dead_code,
    reason = "the final binary chooses the version of k8s-openapi"
)]
pub(super) fn no_texts(_: &mut SchemaGenerator) {}

// === impl Entry ===

impl Entry {
    /// The kind `plural` of `group`, whose only version has the type `T`.
    pub(super) const fn of<T: JsonSchema>(
        group: &'static str,
        plural: &'static str,
        strategy: &'static dyn Strategy,
    ) -> Self {
        Self::new(group, plural, strategy, texts::<T>)
    }

    /// The kind `plural` of `group`, in all its versions.
    pub(super) const fn new(
        group: &'static str,
        plural: &'static str,
        strategy: &'static dyn Strategy,
        texts: Texts,
    ) -> Self {
        Self {
            group,
            plural,
            strategy,
            texts,
        }
    }
}

//! The annotation of client-side apply, while kubectl changes over to server-side apply.
//!
//! (apimachinery: `lastAppliedManager`, `lastAppliedUpdater`.)

use serde_json::Value;

use super::super::schema::Schema;
use super::super::set::Set;
use super::super::walk::{self, Duplicates};

/// The manager for which the annotation counts.
pub(super) const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields that kubectl applied on the client's side and that have not changed since. An apply by kubectl may take
/// them from any manager. `None` without such an annotation in this version.
pub(super) fn unchanged(schema: &Schema, api_version: &str, live: &Value) -> Option<Set> {
    let applied = live["metadata"]["annotations"][ANNOTATION].as_str()?;
    let applied: Value = serde_json::from_str(applied).ok()?;
    if applied["apiVersion"] != api_version {
        return None;
    }
    let root = schema.root();
    for object in [live, &applied] {
        walk::validate(schema, root, object, Duplicates::Refused).ok()?;
    }
    let fields = walk::to_set(schema, root, &applied).ok()?;
    let changes = walk::compare(schema, root, &applied, live).ok()?;
    Some(
        fields
            .difference(&changes.modified)
            .difference(&changes.added)
            .difference(&changes.removed),
    )
}

/// Sets the annotation of `object`, if it has one, to the `applied` object.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    let Some(annotation) = object
        .pointer_mut("/metadata/annotations")
        .and_then(|annotations| annotations.get_mut(ANNOTATION))
        .filter(|annotation| annotation.as_str().is_some_and(|text| !text.is_empty()))
    else {
        return;
    };
    let mut applied = applied.clone();
    if let Some(annotations) = applied
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
    }
    let mut text = escaped(&applied.to_string());
    text.push('\n');
    *annotation = text.into();
}

/// JSON with the characters escaped that Go escapes for HTML.
fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            other => escaped.push(other),
        }
    }
    escaped
}

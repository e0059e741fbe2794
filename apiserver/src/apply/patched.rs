//! The merge of a policy's patch: as server-side apply, without owners. (apiserver: `policy/mutating/patch/smd.go`.)

use serde_json::Value;

use super::path::Element;
use super::schema::{ItemsBy, Schema, TypeId};
use super::walk::{self, Duplicates};

/// Merges `patch` into `live`.
///
/// # Errors
/// A part that is not of its type, or that would replace a list or map that is one value.
pub(crate) fn patched(schema: &Schema, live: &Value, patch: &Value) -> Result<Value, String> {
    let root = schema.root();
    walk::validate(schema, root, patch, Duplicates::Refused).map_err(|problems| {
        format!(
            "failed to convert patch object to typed object: {}",
            walk::text(&problems)
        )
    })?;
    let mut atomic = Vec::new();
    find_atomic(schema, root, patch, "", &mut atomic);
    if !atomic.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomic.join(", ")
        ));
    }
    walk::validate(schema, root, live, Duplicates::Allowed).map_err(|problems| {
        format!(
            "failed to convert original object to typed object: {}",
            walk::text(&problems)
        )
    })?;
    walk::merge(schema, root, live, patch)
        .map_err(|problems| format!("failed to merge patch: {}", walk::text(&problems)))
}

/// Finds the lists and maps of `value` that are one value.
fn find_atomic(schema: &Schema, of: TypeId, value: &Value, path: &str, found: &mut Vec<String>) {
    let atom = schema.atom(of);
    match value {
        Value::Object(fields) => {
            let Some(map) = &atom.map else { return };
            if map.atomic {
                found.push(path.to_owned());
            }
            for (name, value) in fields {
                if let Some(field) = map.fields.get(name) {
                    let path = format!("{path}{}", Element::field(name.as_str()));
                    find_atomic(schema, field.of, value, &path, found);
                }
            }
        }
        Value::Array(items) => {
            let Some(list) = &atom.list else { return };
            if list.by == ItemsBy::Nothing {
                found.push(path.to_owned());
            }
            for (at, item) in items.iter().enumerate() {
                find_atomic(schema, list.items, item, &format!("{path}[{at}]"), found);
            }
        }
        _ => {}
    }
}

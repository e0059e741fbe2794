//! Applying a patch of one of the three formats.

use serde_json::Value;

use super::error::Error;
use super::types::Type;
use super::{json, strategic};
use crate::field::quote;
use crate::json_text::{self, Node};
use crate::kinds::data;

/// Maximum number of operations in a JSON patch; more are refused with 413.
const MAX_JSON_PATCH_OPERATIONS: usize = 10_000;

/// The fields of an operation of a JSON patch.
const OPERATION: [&str; 4] = ["op", "path", "from", "value"];

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// RFC 6902, `application/json-patch+json`.
    Json,
    /// RFC 7386, `application/merge-patch+json`.
    Merge,
    /// Kubernetes' own, for kinds whose merge keys the server has.
    Strategic,
}

// === impl Format ===

impl Format {
    /// The format of a Content-Type without its parameters.
    pub(crate) fn from_content_type(content_type: &str) -> Option<Self> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match media_type {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            _ => None,
        }
    }
}

/// Applies `patch` to `original`; the type `of` the object has the merge keys.
///
/// The result may have nulls where a JSON patch set them.
///
/// # Errors
/// The patch is malformed or does not fit; see [`Error`].
pub(crate) fn apply(
    format: Format,
    of: Option<&'static data::Type>,
    original: &Value,
    patch: &[u8],
) -> Result<Value, Error> {
    match format {
        Format::Json => {
            let operations = json_operations(patch)?;
            if operations.len() > MAX_JSON_PATCH_OPERATIONS {
                return Err(Error::TooLarge(format!(
                    "The allowed maximum operations in a JSON patch is {MAX_JSON_PATCH_OPERATIONS}, got {}",
                    operations.len()
                )));
            }
            json::apply(original, &operations)
        }
        Format::Merge => {
            let patch = document(patch, "error decoding patch: ")?;
            if patch.is_null() {
                return Err(Error::Malformed("Invalid JSON Patch".to_owned()));
            }
            let mut patched = original.clone();
            merge(&mut patched, patch);
            Ok(patched)
        }
        Format::Strategic => {
            let patch = document(patch, "")?;
            if patch.is_null() {
                return Ok(original.clone());
            }
            strategic::apply(Type::of_kind(of), original, patch)
        }
    }
}

/// Applies a merge patch, RFC 7386, as the library of real servers does: where a list takes the place of an object, its
/// nulls stay. (evanphx/json-patch v4: `merge`.)
fn merge(current: &mut Value, patch: Value) {
    match (current, patch) {
        (Value::Object(members), Value::Object(patch)) => {
            for (name, patch) in patch {
                match members.get_mut(&name) {
                    _ if patch.is_null() => {
                        members.remove(&name);
                    }
                    None | Some(Value::Null) => {
                        members.insert(name, without_nulls(patch));
                    }
                    Some(member) => merge(member, patch),
                }
            }
        }
        (current @ Value::Object(_), patch) => *current = patch,
        (current, patch) => *current = without_nulls(patch),
    }
}

/// A value without the members that are null, at any depth. A null in a list stays.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().filter(|(_, member)| !member.is_null());
            Value::Object(
                members
                    .map(|(name, it)| (name, without_nulls(it)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// Applies the JSON patch of a webhook, which may have any number of operations.
///
/// # Errors
/// As of [`apply`].
pub(crate) fn apply_json(original: &Value, patch: &[u8]) -> Result<Value, Error> {
    json::apply(original, &json_operations(patch)?)
}

/// The number of operations in the JSON patch of a webhook.
///
/// # Errors
/// The text of Go's decoder of the library that applies such patches.
pub(crate) fn operations(patch: &[u8]) -> Result<usize, String> {
    let wrong = |node: &Node, wanted: &str| {
        let found = node.go_type();
        format!("json: cannot unmarshal {found} into Go value of type jsonpatch.{wanted}")
    };
    match json_text::parse(patch).map_err(|error| error.to_string())? {
        Node::Null => Ok(0),
        Node::Array(items) => {
            let is_operation = |node: &&Node| matches!(node, Node::Object(_) | Node::Null);
            match items.iter().find(|item| !is_operation(item)) {
                Some(item) => Err(wrong(item, "Operation")),
                None => Ok(items.len()),
            }
        }
        other => Err(wrong(&other, "Patch")),
    }
}

/// What strict decoding has to say of a patch, for field validation.
pub(crate) fn strict_errors(format: Format, patch: &[u8]) -> Vec<String> {
    let Ok(node) = json_text::parse(patch) else {
        return Vec::new();
    };
    let prefix = match format {
        Format::Json => "json patch ",
        Format::Merge | Format::Strategic => "",
    };
    let mut errors = Vec::new();
    if let (Format::Json, Node::Array(items)) = (format, &node) {
        for (at, item) in items.iter().enumerate() {
            let Node::Object(members) = item else {
                continue;
            };
            let unknown = members.iter().map(|(name, _)| name);
            let unknown = unknown.filter(|name| !OPERATION.contains(&&***name));
            errors.extend(unknown.map(|name| {
                let field = quote(&format!("[{at}].{name}"));
                format!("json patch unknown field {field}")
            }));
        }
    }
    let duplicates = json_text::duplicate_fields(&node);
    let duplicates = duplicates.iter();
    errors.extend(duplicates.map(|path| format!("{prefix}duplicate field {}", quote(path))));
    errors
}

fn document(patch: &[u8], prefix: &str) -> Result<Value, Error> {
    let fail = |text: String| Error::Malformed(format!("{prefix}{text}"));
    match json_text::parse(patch).map_err(|error| fail(error.to_string()))? {
        Node::Object(_) | Node::Null => {
            serde_json::from_slice(patch).map_err(|error| fail(error.to_string()))
        }
        other => Err(fail(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            other.go_type()
        ))),
    }
}

fn json_operations(patch: &[u8]) -> Result<Vec<json::Operation>, Error> {
    let fail = |text: String| Error::Malformed(format!("error decoding patch: {text}"));
    let items = match json_text::parse(patch).map_err(|error| fail(error.to_string()))? {
        Node::Array(items) => items,
        Node::Null => return Ok(Vec::new()),
        other => {
            return Err(fail(format!(
                "json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
                other.go_type()
            )));
        }
    };
    for item in &items {
        let members = match item {
            Node::Object(members) => members,
            Node::Null => continue,
            other => {
                return Err(fail(format!(
                    "json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
                    other.go_type()
                )));
            }
        };
        for (name, member) in members {
            let text = matches!(member, Node::String(_) | Node::Null);
            if matches!(name.as_ref(), "op" | "path" | "from") && !text {
                return Err(fail(format!(
                    "json: cannot unmarshal {} into Go struct field jsonPatchOp.{name} of type string",
                    member.go_type()
                )));
            }
        }
    }
    let values: Vec<Value> =
        serde_json::from_slice(patch).map_err(|error| fail(error.to_string()))?;
    Ok(values.into_iter().map(json::Operation::read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn patch(format: Format, original: &Value, patch: &str) -> Result<Value, Error> {
        apply(
            format,
            data::root("", "v1", "Pod"),
            original,
            patch.as_bytes(),
        )
    }

    #[test]
    fn the_content_type_chooses_the_format() {
        let cases = [
            ("application/json-patch+json", Some(Format::Json)),
            (
                "application/merge-patch+json; charset=utf-8",
                Some(Format::Merge),
            ),
            (
                "application/strategic-merge-patch+json",
                Some(Format::Strategic),
            ),
            ("application/apply-patch+yaml", None),
            ("application/json", None),
            ("", None),
        ];
        for (content_type, expected) in cases {
            assert_eq!(
                Format::from_content_type(content_type),
                expected,
                "{content_type}"
            );
        }
    }

    #[test]
    fn malformed_patches_are_refused_in_the_words_of_a_real_server() {
        let cases = [
            (
                Format::Json,
                "{\"op\":\"add\"}",
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (
                Format::Json,
                "[1]",
                "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
            ),
            (
                Format::Json,
                "nope",
                "error decoding patch: invalid character 'o' in literal null (expecting 'u')",
            ),
            (
                Format::Json,
                "[{\"op\":1}]",
                "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
            ),
            (
                Format::Merge,
                "nope",
                "error decoding patch: invalid character 'o' in literal null (expecting 'u')",
            ),
            (
                Format::Merge,
                "[]",
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            (Format::Merge, "null", "Invalid JSON Patch"),
            (
                Format::Merge,
                "{}x",
                "error decoding patch: invalid character 'x' after top-level value",
            ),
            (
                Format::Strategic,
                "nope",
                "invalid character 'o' in literal null (expecting 'u')",
            ),
            (
                Format::Strategic,
                "[]",
                "json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
        ];
        for (format, text, expected) in cases {
            assert_eq!(
                patch(format, &json!({}), text),
                Err(Error::Malformed(expected.to_owned())),
                "{format:?} {text}"
            );
        }
    }

    #[test]
    fn more_than_ten_thousand_operations_are_too_large() {
        let operation = json!({"op": "test", "path": "/a", "value": 1});
        let text = Value::from(vec![operation; 10_001]).to_string();
        assert_eq!(
            patch(Format::Json, &json!({"a": 1}), &text),
            Err(Error::TooLarge(
                "The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned()
            ))
        );
    }

    #[test]
    fn a_merge_patch_sets_removes_and_replaces_lists() {
        let original = json!({"a": {"b": 1, "c": 2}, "d": [1, 2]});
        let patched = patch(
            Format::Merge,
            &original,
            r#"{"a":{"b":null,"e":{"f":null,"g":1}},"d":[3]}"#,
        )
        .unwrap();
        assert_eq!(patched, json!({"a": {"c": 2, "e": {"g": 1}}, "d": [3]}));
    }

    fn any_object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..9).prop_map(Value::from)
        ];
        let value = leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[a-d]", value, 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn an_empty_patch_changes_nothing(original in any_object()) {
            for (format, text) in [(Format::Merge, "{}"), (Format::Strategic, "{}"), (Format::Json, "[]")] {
                prop_assert_eq!(&patch(format, &original, text).unwrap(), &original);
            }
        }

        #[test]
        fn a_difference_written_as_json_patch_leads_from_one_object_to_the_other(
            from in any_object(), to in any_object()
        ) {
            let difference = serde_json::to_string(&json_patch::diff(&from, &to)).unwrap();
            prop_assert_eq!(patch(Format::Json, &from, &difference).unwrap(), to);
        }

        #[test]
        fn patching_with_itself_changes_nothing(original in any_object()) {
            let text = original.to_string();
            prop_assert_eq!(&patch(Format::Merge, &original, &text).unwrap(), &original);
            prop_assert_eq!(&patch(Format::Strategic, &original, &text).unwrap(), &original);
        }
    }
}

//! Label selectors.

use serde_json::{Map, Value};

use crate::field::{Errors, FieldError, Path};
use crate::labels::check_labels;
use crate::names;
use crate::table::cells::{items, string};

/// Checks a selector; a missing one is valid.
pub(super) fn validate(selector: &Value, path: &Path, errors: &mut Errors) {
    check_labels(&selector["matchLabels"], &path.child("matchLabels"), errors);
    let path = path.child("matchExpressions");
    for (at, expression) in items(&selector["matchExpressions"]).iter().enumerate() {
        requirement(expression, &path.index(at), errors);
    }
}

fn requirement(expression: &Value, path: &Path, errors: &mut Errors) {
    let values = items(&expression["values"]);
    let of_values = path.child("values");
    match string(&expression["operator"]) {
        "In" | "NotIn" => {
            if values.is_empty() {
                errors.push(FieldError::required(
                    &of_values,
                    "must be specified when `operator` is 'In' or 'NotIn'",
                ));
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                errors.push(FieldError::forbidden(
                    &of_values,
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                ));
            }
        }
        other => errors.push(FieldError::invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        )),
    }
    let key = string(&expression["key"]);
    for problem in names::qualified_name(key) {
        errors.push(FieldError::invalid(&path.child("key"), key, problem));
    }
    for (at, value) in values.iter().enumerate() {
        let value = string(value);
        for problem in names::label_value(value) {
            errors.push(FieldError::invalid(&of_values.index(at), value, problem));
        }
    }
}

/// Whether a selector can be used.
pub(super) fn is_valid(selector: &Value) -> bool {
    let mut errors = Errors::new();
    validate(selector, &Path::root(), &mut errors);
    errors.is_empty()
}

/// Whether a selector has no requirement, and so selects everything.
pub(super) fn is_empty(selector: &Value) -> bool {
    selector["matchLabels"]
        .as_object()
        .is_none_or(Map::is_empty)
        && items(&selector["matchExpressions"]).is_empty()
}

/// Whether a selector selects these labels. A missing one selects nothing.
pub(super) fn matches(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    let mut equal = selector["matchLabels"].as_object().into_iter().flatten();
    equal.all(|(key, value)| labels.get(key) == Some(value))
        && items(&selector["matchExpressions"])
            .iter()
            .all(|expression| {
                let found = labels.get(string(&expression["key"]));
                let listed =
                    found.is_some_and(|found| items(&expression["values"]).contains(found));
                match string(&expression["operator"]) {
                    "In" => listed,
                    "NotIn" => !listed,
                    "Exists" => found.is_some(),
                    "DoesNotExist" => found.is_none(),
                    _ => false,
                }
            })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions_of_a_selector_count_as_its_labels_do() {
        let labels = json!({"app": "x"});
        for (expression, expected) in [
            (
                json!({"key": "app", "operator": "In", "values": ["x"]}),
                true,
            ),
            (
                json!({"key": "app", "operator": "In", "values": ["y"]}),
                false,
            ),
            (
                json!({"key": "app", "operator": "NotIn", "values": ["y"]}),
                true,
            ),
            (json!({"key": "app", "operator": "Exists"}), true),
            (json!({"key": "app", "operator": "DoesNotExist"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
        ] {
            let selector = json!({"matchExpressions": [expression]});
            assert_eq!(matches(&selector, &labels), expected, "{expression}");
        }
    }

    #[test]
    fn each_mistake_of_a_selector_has_its_field() {
        let fields = |selector: Value| {
            let mut errors = Errors::new();
            validate(&selector, &Path::new("s"), &mut errors);
            let mut fields: Vec<String> = errors
                .iter()
                .map(|error| error.path.as_str().to_owned())
                .collect();
            fields.dedup();
            fields
        };
        for (selector, expected) in [
            (json!(null), &[][..]),
            (json!({"matchLabels": {"a": "b c"}}), &["s.matchLabels"]),
            (
                json!({"matchExpressions": [{"key": "a b", "operator": "In"}]}),
                &["s.matchExpressions[0].values", "s.matchExpressions[0].key"],
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
                &["s.matchExpressions[0].values"],
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "in", "values": ["b c"]}]}),
                &[
                    "s.matchExpressions[0].operator",
                    "s.matchExpressions[0].values[0]",
                ],
            ),
        ] {
            assert_eq!(fields(selector.clone()), expected, "{selector}");
        }
    }
}

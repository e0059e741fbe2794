//! Label selectors of the Kubernetes API.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::object::{items, strings};

/// Whether a `LabelSelector` selects `labels` (apimachinery: `LabelSelectorAsSelector`). One that is missing selects
/// nothing, and an empty one selects everything. An unknown operator selects everything: a rule then denies too much.
pub(super) fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    selector.is_object()
        && has_all(&selector["matchLabels"], labels)
        && items(&selector["matchExpressions"]).all(|one| holds(one, labels))
}

/// Whether `labels` has all labels of a map.
pub(super) fn has_all(map: &Value, labels: &BTreeMap<String, String>) -> bool {
    let wanted = strings(map);
    wanted
        .iter()
        .all(|(name, value)| labels.get(name) == Some(value))
}

fn holds(expression: &Value, labels: &BTreeMap<String, String>) -> bool {
    let label = expression["key"].as_str().and_then(|key| labels.get(key));
    let is_listed = label.is_some_and(|label| {
        let mut values = items(&expression["values"]);
        values.any(|value| value == label.as_str())
    });
    match expression["operator"].as_str() {
        Some("In") => is_listed,
        Some("NotIn") => !is_listed,
        Some("Exists") => label.is_some(),
        Some("DoesNotExist") => label.is_none(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_expressions_must_all_hold() {
        let labels = [("app".to_owned(), "web".to_owned())].into();
        let expression = |operator: &str, key: &str| {
            let one = json!({"key": key, "operator": operator, "values": ["web", "api"]});
            json!({"matchExpressions": [one]})
        };
        for (selector, expected) in [
            (Value::Null, false),
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "api"}}), false),
            (expression("In", "app"), true),
            (expression("In", "tier"), false),
            (expression("NotIn", "app"), false),
            (expression("NotIn", "tier"), true),
            (expression("Exists", "app"), true),
            (expression("Exists", "tier"), false),
            (expression("DoesNotExist", "app"), false),
            (expression("DoesNotExist", "tier"), true),
            (expression("Like", "tier"), true),
        ] {
            assert_eq!(selects(&selector, &labels), expected, "{selector}");
        }
    }
}

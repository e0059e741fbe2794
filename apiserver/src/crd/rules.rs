//! Validation of the `x-kubernetes-validations` of a schema.

use serde_json::{Map, Value};

use super::expressions;
use super::fields::{items, member, text};
use crate::cel;
use crate::field::{self, ErrorKind, Errors, FieldError, Path};

const REASONS: &[&str] = &[
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// Validates the rules of a schema and below.
pub(super) fn validate(schema: &Value, path: &Path, errors: &mut Errors) {
    walk(schema, path, true, None, errors);
}

/// `uncorrelatable` is the list above whose items cannot be matched with their old values.
fn walk(
    schema: &Value,
    path: &Path,
    whole: bool,
    uncorrelatable: Option<&Path>,
    errors: &mut Errors,
) {
    let Value::Object(map) = schema else { return };
    for (index, rule) in items(schema, "x-kubernetes-validations").iter().enumerate() {
        let path = path.child("x-kubernetes-validations").index(index);
        validate_rule(schema, rule, &path, whole, uncorrelatable, errors);
    }
    for (name, of) in member(map, "properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        walk(
            of,
            &path.child("properties").key(name),
            false,
            uncorrelatable,
            errors,
        );
    }
    if let Some(of) = member(map, "additionalProperties") {
        walk(
            of,
            &path.child("additionalProperties"),
            false,
            uncorrelatable,
            errors,
        );
    }
    if let Some(of) = member(map, "items") {
        let is_map = text(map.get("x-kubernetes-list-type")) == "map";
        let uncorrelatable = uncorrelatable.or((!is_map).then_some(path));
        walk(of, &path.child("items"), false, uncorrelatable, errors);
    }
}

fn validate_rule(
    schema: &Value,
    rule: &Value,
    path: &Path,
    whole: bool,
    uncorrelatable: Option<&Path>,
    errors: &mut Errors,
) {
    let expression = text(rule.get("rule"));
    let message = rule.get("message").and_then(Value::as_str);
    if expression.trim().is_empty() {
        errors.push(FieldError::required(
            &path.child("rule"),
            "rule is not specified",
        ));
        return;
    }
    match message {
        Some(message) if !message.is_empty() && message.trim().is_empty() => {
            errors.push(FieldError::invalid(
                &path.child("message"),
                message,
                "must be non-empty if specified",
            ));
        }
        Some(message) if message.trim().contains('\n') => {
            errors.push(FieldError::invalid(
                &path.child("message"),
                message,
                "must not contain line breaks",
            ));
        }
        None | Some("") if expression.trim().contains('\n') => {
            errors.push(FieldError::required(
                &path.child("message"),
                "message must be specified if rule contains line breaks",
            ));
        }
        _ => {}
    }
    let message_expression = text(rule.get("messageExpression"));
    if !message_expression.is_empty() && message_expression.trim().is_empty() {
        errors.push(FieldError::required(
            &path.child("messageExpression"),
            "must be non-empty if specified",
        ));
    }
    let reason = text(rule.get("reason"));
    if !reason.is_empty() && !REASONS.contains(&reason) {
        errors.push(FieldError::not_supported(
            &path.child("reason"),
            reason,
            REASONS,
        ));
    }
    let field_path = text(rule.get("fieldPath"));
    let leads_somewhere =
        field_path.starts_with(['.', '[']) && schema_at(schema, field_path).is_some();
    if !field_path.is_empty() && !leads_somewhere {
        errors.push(FieldError::invalid(
            &path.child("fieldPath"),
            field_path,
            "must be a valid path",
        ));
    }
    if let Some(why) = expressions::check(expression, schema, whole) {
        errors.push(refused(rule, &path.child("rule"), &why));
        return;
    }
    if let Some(why) = Some(message_expression)
        .filter(|text| !text.trim().is_empty())
        .and_then(cel::compile_error)
    {
        let why = format!("messageExpression compilation failed: {why}");
        errors.push(refused(rule, &path.child("messageExpression"), &why));
    }
    let transition = cel::uses_old_self(expression);
    if let (true, Some(list)) = (transition, uncorrelatable) {
        errors.push(FieldError::invalid(
            &path.child("rule"),
            expression,
            format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
            ),
        ));
    }
    if rule
        .get("optionalOldSelf")
        .is_some_and(|value| !value.is_null())
        && !transition
    {
        errors.push(FieldError::invalid(
            &path.child("optionalOldSelf"),
            rule["optionalOldSelf"].clone(),
            "may not be set if oldSelf is not used in rule",
        ));
    }
}

/// An error with the whole rule, in the format of a real server's struct.
fn refused(rule: &Value, path: &Path, why: &str) -> FieldError {
    let quoted = |name: &str| field::json_text(&Value::from(text(rule.get(name))));
    let reason = match text(rule.get("reason")) {
        "" => "null".to_owned(),
        reason => field::json_text(&Value::from(reason)),
    };
    let detail = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\"OptionalOldSelf\":{}}}: {why}",
        quoted("rule"),
        quoted("message"),
        quoted("messageExpression"),
        quoted("fieldPath"),
        rule["optionalOldSelf"],
    );
    FieldError::new(ErrorKind::Invalid, path, None, detail)
}

/// The schema at a path of fields.
pub(super) fn schema_at<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    cel::split_field_path(path)
        .into_iter()
        .try_fold(schema, |schema, name| {
            let map: &Map<String, Value> = schema.as_object()?;
            member(map, "properties")
                .and_then(|properties| properties.get(&name))
                .or_else(|| member(map, "additionalProperties").filter(|of| of.is_object()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::aggregate;
    use serde_json::json;

    fn errors(rule: Value) -> String {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": [rule]});
        let mut errors = Errors::new();
        validate(&schema, &Path::new("S"), &mut errors);
        aggregate(&errors)
    }

    /// Texts of kube-apiserver 1.36.
    #[test]
    fn a_rule_that_cannot_hold_is_refused_in_the_words_of_a_real_server() {
        let cases = [
            (
                json!({"rule": "self.a == 'x'", "message": "m", "reason": "FieldValueForbidden", "fieldPath": ".a"}),
                "",
            ),
            (
                json!({"rule": " "}),
                "S.x-kubernetes-validations[0].rule: Required value: rule is not specified",
            ),
            (
                json!({"rule": "true", "message": "a\nb"}),
                r#"S.x-kubernetes-validations[0].message: Invalid value: "a\nb": must not contain line breaks"#,
            ),
            (
                json!({"rule": "true", "message": "  "}),
                r#"S.x-kubernetes-validations[0].message: Invalid value: "  ": must be non-empty if specified"#,
            ),
            (
                json!({"rule": "true ||\n false"}),
                "S.x-kubernetes-validations[0].message: Required value: message must be specified if rule contains line breaks",
            ),
            (
                json!({"rule": "true", "reason": "Foo"}),
                r#"S.x-kubernetes-validations[0].reason: Unsupported value: "Foo": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired""#,
            ),
            (
                json!({"rule": "true", "fieldPath": ".b"}),
                r#"S.x-kubernetes-validations[0].fieldPath: Invalid value: ".b": must be a valid path"#,
            ),
            (
                json!({"rule": "true", "fieldPath": "a"}),
                r#"S.x-kubernetes-validations[0].fieldPath: Invalid value: "a": must be a valid path"#,
            ),
            (
                json!({"rule": "true", "optionalOldSelf": true}),
                "S.x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
            ),
        ];
        for (rule, expected) in cases {
            assert_eq!(errors(rule.clone()), expected, "{rule}");
        }
        let broken = errors(json!({"rule": "self.x =="}));
        assert!(
            broken.starts_with("S.x-kubernetes-validations[0].rule: Invalid value: "),
            "{broken}"
        );
        assert!(broken.contains("compilation failed: "), "{broken}");
    }

    #[test]
    fn a_transition_rule_needs_items_with_distinct_keys() {
        let list = |list_type: Value| {
            json!({"type": "object", "properties": {"a": {
                "type": "array", "x-kubernetes-list-type": list_type,
                "items": {"type": "object", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
            }}})
        };
        let errors = |schema: Value| {
            let mut errors = Errors::new();
            validate(&schema, &Path::new("S"), &mut errors);
            aggregate(&errors)
        };
        assert_eq!(
            errors(list(json!(null))),
            r#"S.properties[a].items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within S.properties[a]"#
        );
        assert_eq!(errors(list(json!("map"))), "");
    }
}

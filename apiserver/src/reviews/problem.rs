//! What is wrong with a review, and the answer 422 that lists it.

use serde_json::{Value, json};

use super::{AUTHORIZATION, strings};
use crate::status::{Details, Status};

pub(super) struct Problem {
    pub(super) field: String,
    pub(super) text: String,
}

impl Problem {
    pub(super) fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        Self {
            field: field.to_owned(),
            text: format!("Invalid value: {value}: {detail}"),
        }
    }
}

pub(super) fn check_question(spec: &Value, errors: &mut Vec<Problem>) {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() && path.is_object() {
        errors.push(Problem::invalid(
            "spec.nonResourceAttributes",
            &shown_path(path),
            "cannot be specified in combination with resourceAttributes",
        ));
    } else if !resource.is_object() && !path.is_object() {
        errors.push(Problem::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ));
    }
}

/// In Go's format of the struct: with the names of its fields.
pub(super) fn shown_path(attributes: &Value) -> Value {
    json!({"Path": attributes["path"], "Verb": attributes["verb"]})
}

pub(super) fn check_subject(spec: &Value, errors: &mut Vec<Problem>) {
    check_question(spec, errors);
    if spec["user"].as_str().unwrap_or_default().is_empty() && strings(&spec["groups"]).is_empty() {
        errors.push(Problem::invalid(
            "spec.user",
            &json!(""),
            "at least one of user or group must be specified",
        ));
    }
}

/// Reviews have no metadata except managedFields, and `allowed`.
pub(super) fn check_metadata(body: &Value, allowed: &[&str], errors: &mut Vec<Problem>) {
    let metadata = &body["metadata"];
    let own = metadata.as_object().into_iter().flatten();
    let unwanted = own
        .filter(|(key, value)| {
            *key != "managedFields" && !allowed.contains(&key.as_str()) && !value.is_null()
        })
        .count();
    if unwanted > 0 {
        errors.push(Problem::invalid("metadata", metadata, "must be empty"));
    }
}

pub(super) fn refuse(errors: Vec<Problem>) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    // The real server has no kind here.
    Err(invalid(AUTHORIZATION, "", "", errors))
}

pub(super) fn invalid(group: &str, kind: &str, name: &str, problems: Vec<Problem>) -> Status {
    let texts: Vec<String> = problems
        .iter()
        .map(|problem| format!("{}: {}", problem.field, problem.text))
        .collect();
    let text = match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let mut status = Status::new(
        422,
        "Invalid",
        format!("{kind}.{group} \"{name}\" is invalid: {text}"),
    )
    .with_details(Details {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
        ..Details::default()
    });
    for problem in problems {
        status = status.with_cause("FieldValueInvalid", problem.field, problem.text);
    }
    status
}

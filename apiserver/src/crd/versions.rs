//! The parts of a definition's versions: schema, subresources, columns, selectable fields.

use serde_json::Value;

use super::fields::{items, text};
use super::{rules, structure};
use crate::field::{Errors, FieldError, Path};
use crate::table::json_path::JsonPath;

const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &[
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
/// The parts that all versions have in common: a real server validates those once, with the paths that they
/// had before there were versions (`spec.validation`, `spec.subresources`, …).
pub(super) struct Shared {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

// === impl Shared ===

impl Shared {
    pub(super) fn of(versions: &[Value]) -> Self {
        let same = |name: &str| {
            versions
                .windows(2)
                .all(|pair| pair[0].get(name) == pair[1].get(name))
        };
        Self {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable: same("selectableFields"),
        }
    }

    pub(super) fn validate_apart(&self, version: &Value, path: &Path, errors: &mut Errors) {
        let schema = &version["schema"]["openAPIV3Schema"];
        if !self.schema || schema.is_null() {
            let path = path.child("schema").child("openAPIV3Schema");
            if schema.is_null() {
                errors.push(FieldError::required(&path, ""));
            } else {
                errors.extend(structure::validate(schema, &path));
            }
        }
        if !self.subresources {
            validate_scale(
                &version["subresources"],
                &path.child("subresources"),
                errors,
            );
        }
        if !self.columns {
            validate_columns(version, path, errors);
        }
        if !self.selectable {
            validate_selectable(version, path, errors);
        }
    }

    pub(super) fn validate_together(&self, version: &Value, path: &Path, errors: &mut Errors) {
        let schema = &version["schema"]["openAPIV3Schema"];
        if self.schema && !schema.is_null() {
            let path = path.child("validation").child("openAPIV3Schema");
            errors.extend(structure::validate(schema, &path));
        }
        if self.subresources {
            validate_scale(
                &version["subresources"],
                &path.child("subresources"),
                errors,
            );
        }
        if self.columns {
            validate_columns(version, path, errors);
        }
        if self.selectable {
            validate_selectable(version, path, errors);
        }
    }
}

fn validate_scale(subresources: &Value, path: &Path, errors: &mut Errors) {
    let scale = &subresources["scale"];
    if scale.is_null() {
        return;
    }
    let path = path.child("scale");
    let mut check = |name: &str, roots: &[&str], required: bool| {
        let value = text(scale.get(name));
        let path = path.child(name);
        if value.is_empty() {
            if required {
                errors.push(FieldError::required(&path, ""));
            }
            return;
        }
        let below = roots.iter().any(|root| {
            value
                .strip_prefix(root)
                .is_some_and(|rest| rest.starts_with('.'))
        });
        if !below {
            let roots = roots.join(" or ");
            let wrong = format!("should be a json path under {roots}");
            errors.push(FieldError::invalid(&path, value, wrong));
        } else if JsonPath::parse(value)
            .ok()
            .is_none_or(|parsed| parsed.fields().is_none())
        {
            let wrong = "should be a simple json path of fields";
            errors.push(FieldError::invalid(&path, value, wrong));
        }
    };
    check("specReplicasPath", &[".spec"], true);
    check("statusReplicasPath", &[".status"], true);
    check("labelSelectorPath", &[".spec", ".status"], false);
}

fn validate_columns(version: &Value, path: &Path, errors: &mut Errors) {
    for (index, column) in items(version, "additionalPrinterColumns")
        .iter()
        .enumerate()
    {
        let path = path.child("additionalPrinterColumns").index(index);
        if text(column.get("name")).is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        }
        let mut one_of = |name: &str, allowed: &[&str], required: bool| {
            let value = text(column.get(name));
            if value.is_empty() && required {
                errors.push(FieldError::required(
                    &path.child(name),
                    format!("must be one of {}", allowed.join(",")),
                ));
            } else if !value.is_empty() && !allowed.contains(&value) {
                errors.push(FieldError::invalid(
                    &path.child(name),
                    value,
                    format!("must be one of {}", allowed.join(",")),
                ));
            }
        };
        one_of("type", COLUMN_TYPES, true);
        one_of("format", COLUMN_FORMATS, false);
        let value = text(column.get("jsonPath"));
        let path = path.child("JSONPath");
        if value.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if !value.starts_with('.') {
            errors.push(FieldError::invalid(
                &path,
                value,
                "must be a simple json path starting with .",
            ));
        }
    }
}

fn validate_selectable(version: &Value, path: &Path, errors: &mut Errors) {
    let schema = &version["schema"]["openAPIV3Schema"];
    let mut seen: Vec<&str> = Vec::new();
    let fields = items(version, "selectableFields");
    if fields.len() > 8 {
        errors.push(FieldError::too_many(
            &path.child("selectableFields"),
            fields.len(),
            8,
        ));
    }
    for (index, field) in fields.iter().enumerate() {
        let path = path
            .child("selectableFields")
            .index(index)
            .child("jsonPath");
        let value = text(field.get("jsonPath"));
        if value.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        if !value.starts_with(['.', '[']) {
            let first = value.chars().next().unwrap_or_default();
            errors.push(FieldError::invalid(
                &path,
                value,
                format!("is an invalid path: expected [ or . but got: {first}"),
            ));
            continue;
        }
        let kind = rules::schema_at(schema, value).map(|schema| text(schema.get("type")));
        let in_metadata = value.starts_with(".metadata");
        match kind {
            Some("string" | "integer" | "boolean") if !in_metadata => {
                if seen.contains(&value) {
                    errors.push(FieldError::duplicate(&path, value));
                }
                seen.push(value);
            }
            Some(other) if !in_metadata => errors.push(FieldError::invalid(
                &path,
                value,
                format!("must point to a field of type string, boolean or integer, but {value} is of type {other}"),
            )),
            _ => errors.push(FieldError::invalid(
                &path,
                value,
                "is an invalid path: does not refer to a valid field",
            )),
        }
    }
}

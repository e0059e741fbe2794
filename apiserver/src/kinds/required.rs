//! The checks that follow from the types: texts that must not be empty, and values of a fixed set.

use serde_json::Value;

use super::data::{Field, Form, Scalar, Type};
use crate::field::{Errors, FieldError, Path};

/// Checks a value of a type.
pub(super) fn structure(of: &Type, object: &Value, path: &Path, errors: &mut Errors) {
    // The metadata of a template has rules of its own.
    if of.name == "meta.v1.ObjectMeta" || !object.is_object() {
        return;
    }
    for field in &of.fields {
        value(field, &object[field.name], &path.child(field.name), errors);
    }
}

fn value(field: &Field, found: &Value, path: &Path, errors: &mut Errors) {
    match (&field.form, found) {
        (Form::Scalar(Scalar::Text, _), Value::String(text)) if text.is_empty() => {
            if field.required {
                errors.push(FieldError::required(path, ""));
            }
        }
        (Form::Scalar(..), Value::String(text)) => {
            let allowed = &field.enumeration;
            if !allowed.is_empty() && !allowed.contains(&text.as_str()) {
                errors.push(FieldError::not_supported(path, text.as_str(), allowed));
            }
        }
        (form, found) => inside(form, found, path, errors),
    }
}

fn inside(form: &Form, found: &Value, path: &Path, errors: &mut Errors) {
    match (form, found) {
        (Form::List(_, of), Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                inside(of, item, &path.index(at), errors);
            }
        }
        (Form::Named(_), found) => {
            if let Some(of) = form.named() {
                structure(of, found, path, errors);
            }
        }
        _ => {}
    }
}

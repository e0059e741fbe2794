//! The form in which Go's encoder writes an object of a built-in type.
//!
//! A field with `omitempty` is left out when it is false, zero or empty, unless it is a pointer; `"hostNetwork": false` and a
//! missing field are the same. A field without it is always written, and a struct as well.

use serde_json::{Map, Value, json};

use super::data::{Data, Field, Form, Scalar, Special, Type};

/// Leaves out what Go leaves out of an object of type `of`, and completes it with what Go writes always.
pub(crate) fn write(of: &Type, value: &mut Value) {
    named(of, value, true);
}

/// Only leaves out, so that defaults see what is absent.
pub(crate) fn leave_out(of: &Type, value: &mut Value) {
    named(of, value, false);
}

fn named(of: &Type, value: &mut Value, complete: bool) {
    match (of.special, value) {
        (None, Value::Object(map)) => structure(of, map, complete),
        (Some(Special::SchemaOrBoolean | Special::SchemaOrList), value) => {
            let Some(schema) = Data::get().named("apiextensions.v1.JSONSchemaProps") else {
                return;
            };
            match value {
                Value::Array(items) => items
                    .iter_mut()
                    .for_each(|item| named(schema, item, complete)),
                value => named(schema, value, complete),
            }
        }
        _ => {}
    }
}

fn structure(of: &Type, map: &mut Map<String, Value>, complete: bool) {
    // Definitions are stored in JSON, all others in protobuf, which has no empty lists.
    let keeps_empty = of.name.starts_with("apiextensions.");
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    // Both are sorted by name, so one walk over both finds each field.
    let mut entries = map.iter_mut().peekable();
    for field in of.sorted() {
        while entries
            .next_if(|(name, _)| name.as_str() < field.name)
            .is_some()
        {}
        let found = entries.next_if(|(name, _)| name.as_str() == field.name);
        match found.map(|(_, value)| value) {
            Some(value) if !value.is_null() => {
                form(&field.form, value, complete);
                if is_left_out(field, value) {
                    removed.push(field.name);
                } else if !keeps_empty && is_empty_list(field, value) {
                    *value = Value::Null;
                }
            }
            found => match (found, complete.then(|| zero(field)).flatten()) {
                (Some(null), Some(zero)) => *null = zero,
                (None, Some(zero)) => added.push((field.name, zero)),
                (Some(_), None) => removed.push(field.name),
                (None, None) => {}
            },
        }
    }
    for name in removed {
        map.remove(name);
    }
    for (name, zero) in added {
        map.insert(name.to_owned(), zero);
    }
}

fn form(of: &Form, value: &mut Value, complete: bool) {
    match (of, value) {
        (Form::List(_, of), Value::Array(items)) => {
            items.iter_mut().for_each(|item| form(of, item, complete));
        }
        (Form::Map(_, of), Value::Object(map)) => {
            map.values_mut().for_each(|value| form(of, value, complete));
        }
        (Form::Named(_), value) => {
            if let Some(of) = of.named() {
                named(of, value, complete);
            }
        }
        _ => {}
    }
}

/// Whether a field with this value is left out.
fn is_left_out(field: &Field, value: &Value) -> bool {
    if field.pointer || !(field.omit_empty || field.omit_zero) {
        return false;
    }
    match value {
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_i64() == Some(0) && is_scalar(field),
        Value::String(value) => value.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => {
            map.is_empty() && (field.omit_zero || matches!(field.form, Form::Map(..)))
        }
        Value::Null => true,
    }
}

fn is_empty_list(field: &Field, value: &Value) -> bool {
    !field.pointer
        && match value {
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty() && matches!(field.form, Form::Map(..)),
            _ => false,
        }
}

fn is_scalar(field: &Field) -> bool {
    matches!(field.form, Form::Scalar(..))
}

/// The value that is written for an absent field.
fn zero(field: &Field) -> Option<Value> {
    let of = field.form.named();
    if field.omit_zero || (field.omit_empty && (field.pointer || of.is_none())) {
        return None;
    }
    if field.pointer {
        return Some(Value::Null);
    }
    Some(match &field.form {
        Form::Scalar(Scalar::Text, _) => json!(""),
        Form::Scalar(Scalar::Boolean, _) => json!(false),
        Form::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Double, _) => json!(0),
        Form::Scalar(Scalar::Bytes, _) | Form::List(..) | Form::Map(..) => Value::Null,
        Form::Named(_) => match of.map(|of| (of, of.special)) {
            Some((of, None)) => {
                let mut map = Map::new();
                structure(of, &mut map, true);
                Value::Object(map)
            }
            Some((_, Some(Special::IntOrString))) => json!(0),
            Some((_, Some(Special::Quantity))) => json!("0"),
            Some((_, Some(Special::Text))) => json!("0s"),
            _ => Value::Null,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::data;
    use super::*;

    fn written(kind: (&str, &str), mut object: Value) -> Value {
        write(data::root(kind.0, "v1", kind.1).unwrap(), &mut object);
        object
    }

    #[test]
    fn zeros_of_fields_that_are_no_pointers_are_left_out() {
        let pod = json!({"spec": {"containers": [{"name": "a", "resources": {}, "tty": false}], "hostNetwork": false,
            "automountServiceAccountToken": false, "nodeSelector": {}, "tolerations": []}});
        assert_eq!(
            written(("", "Pod"), pod)["spec"],
            json!({"containers": [{"name": "a", "resources": {}}], "automountServiceAccountToken": false})
        );
    }

    #[test]
    fn fields_that_are_always_written_are_completed() {
        let written = written(("apps", "Deployment"), json!({"spec": {"replicas": 0}}));
        assert_eq!(
            written,
            json!({
                "metadata": {}, "status": {},
                "spec": {"replicas": 0, "selector": null, "strategy": {}, "template": {"metadata": {}, "spec": {"containers": null}}},
            })
        );
    }

    #[test]
    fn a_role_without_rules_has_them_as_null() {
        assert_eq!(
            written(("rbac.authorization.k8s.io", "Role"), json!({})),
            json!({"metadata": {}, "rules": null})
        );
    }
}

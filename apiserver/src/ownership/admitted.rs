//! The object as a real server decodes it: with defaults, and before admission and the strategy of its kind.
//!
//! Ownership follows that object. What is set later, such as the address of a Service, has no owner.

use serde_json::Value;

use crate::apply::take_managers;
use crate::kinds::defaults;
use crate::meta;
use crate::request::Request;

const LABELS: &str = "/metadata/labels";

/// The labels that were sent, for a kind that gets those of its template; `None` for other kinds.
pub(crate) struct Shared(Option<Option<Value>>);

/// A decoded object with the defaults that decoding sets. Its managedFields stay as they were sent.
///
/// Beside it, what it shares with a part that the server changes later.
pub(crate) fn as_decoded(request: &Request, sent: Value) -> (Value, Shared) {
    let info = &request.info;
    let strategy = info.strategy;
    let mut object = sent;
    let set_later: Vec<(&str, Option<Value>)> = strategy
        .set_later()
        .iter()
        .map(|path| (*path, object.pointer(path).cloned()))
        .collect();
    let labels = strategy
        .has_labels_of_template()
        .then(|| object.pointer(LABELS).cloned());
    let of_template = labels.as_ref().and_then(|_| {
        let found = object.pointer("/spec/template/metadata/labels");
        found.cloned()
    });
    let managers = take_managers(&mut object);
    if let Some(schema) = info.structural() {
        schema.set_defaults(&mut object);
    }
    defaults::set(info, &mut object);
    for (path, value) in set_later {
        restore(value, &mut object, path);
    }
    if let Some(labels) = &labels {
        // Without the labels that the server adds to the template later.
        restore(labels.clone(), &mut object, LABELS);
        if object.pointer(LABELS).is_none_or(is_empty)
            && let Some(labels) = of_template
        {
            meta::metadata_mut(&mut object).insert("labels".to_owned(), labels);
        }
    }
    drop_empty_metadata(&mut object);
    if let Some(managers) = managers {
        meta::metadata_mut(&mut object).insert("managedFields".to_owned(), managers);
    }
    (object, Shared(labels))
}

/// Leaves out what a decoded object shares with a part that the server changes later: a Job without labels gets those of
/// its template, and in a real server the labels that are added to the template are then in both.
pub(crate) fn leave_shared(shared: Shared, decoded: &mut Value) {
    if let Some(labels) = shared.0 {
        restore(labels, decoded, LABELS);
    }
}

fn is_empty(labels: &Value) -> bool {
    labels.as_object().is_none_or(serde_json::Map::is_empty)
}

/// Decoding reads metadata as a Go type, which leaves out what is empty.
fn drop_empty_metadata(object: &mut Value) {
    meta::metadata_mut(object).retain(|_, value| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    });
}

/// Gives the field at `path` the value that was sent.
fn restore(sent: Option<Value>, object: &mut Value, path: &str) {
    let Some((parent, field)) = path.rsplit_once('/') else {
        return;
    };
    let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut) else {
        return;
    };
    match sent {
        Some(value) => {
            parent.insert(field.to_owned(), value);
        }
        None => {
            parent.remove(field);
        }
    }
}

//! The object as a real server decodes it: with defaults, and before admission and the strategy of its kind.
//!
//! Ownership follows that object. What is set later, such as the address of a Service, has no owner.

use serde_json::Value;

use crate::apply::take_managers;
use crate::kinds::defaults;
use crate::meta;
use crate::request::Request;

/// A decoded object with the defaults that decoding sets. Its managedFields stay as they were sent.
///
/// Beside it, what was sent, for kinds of which a part is restored later.
pub(crate) fn as_decoded(request: &Request, sent: Value) -> (Value, Option<Value>) {
    let info = &request.info;
    let strategy = info.strategy;
    let is_restored = !strategy.set_later().is_empty() || strategy.has_labels_of_template();
    let (mut object, sent) = if is_restored {
        (sent.clone(), Some(sent))
    } else {
        (sent, None)
    };
    let managers = take_managers(&mut object);
    if let Some(schema) = info.structural() {
        schema.set_defaults(&mut object);
    }
    defaults::set(info, &mut object);
    if let Some(sent) = &sent {
        for path in strategy.set_later() {
            restore(sent, &mut object, path);
        }
        if strategy.has_labels_of_template() {
            // Without the labels that the server adds to the template later.
            restore(sent, &mut object, "/metadata/labels");
            if object.pointer("/metadata/labels").is_none_or(is_empty)
                && let Some(labels) = sent.pointer("/spec/template/metadata/labels")
            {
                meta::metadata_mut(&mut object).insert("labels".to_owned(), labels.clone());
            }
        }
    }
    drop_empty_metadata(&mut object);
    if let Some(managers) = managers {
        meta::metadata_mut(&mut object).insert("managedFields".to_owned(), managers);
    }
    (object, sent)
}

/// Leaves out what a decoded object shares with a part that the server changes later: a Job without labels gets those of
/// its template, and in a real server the labels that are added to the template are then in both.
pub(crate) fn leave_shared(request: &Request, sent: Option<&Value>, decoded: &mut Value) {
    if let Some(sent) = sent
        && request.info.strategy.has_labels_of_template()
    {
        restore(sent, decoded, "/metadata/labels");
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

/// Gives the field at `path` the value that it has in `sent`.
fn restore(sent: &Value, object: &mut Value, path: &str) {
    let Some((parent, field)) = path.rsplit_once('/') else {
        return;
    };
    let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut) else {
        return;
    };
    match sent.pointer(path) {
        Some(value) => {
            parent.insert(field.to_owned(), value.clone());
        }
        None => {
            parent.remove(field);
        }
    }
}

//! The options of a request, as admission sees them.

use serde_json::{Value, json};

use crate::admission::Operation;
use crate::request::Request;

/// CreateOptions or UpdateOptions, also of a patch; a connection has none.
pub(crate) fn of(request: &Request, operation: Operation) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Value::Null,
    };
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    if request.dry_run {
        options["dryRun"] = json!(["All"]);
    }
    for field in ["fieldManager", "fieldValidation"] {
        let text = request.query.get(field).unwrap_or_default();
        if !text.is_empty() && operation != Operation::Delete {
            options[field] = json!(text);
        }
    }
    options
}

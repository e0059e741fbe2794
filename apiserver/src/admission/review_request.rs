//! The request of an AdmissionReview.

use serde_json::{Map, Value, json};

use super::request::AdmissionRequest;
use crate::rbac::User;
use crate::resource::ResourceInfo;

/// The request of a review without uid and objects, as conditions see it, too.
pub(super) fn review_request(asked: &AdmissionRequest<'_>, info: &ResourceInfo) -> Value {
    let of = asked.request;
    let kind = |info: &ResourceInfo| {
        let (group, version, kind) = asked.kind(info);
        json!({"group": group, "version": version, "kind": kind})
    };
    let resource = |info: &ResourceInfo| json!({"group": info.group, "version": info.version, "resource": info.plural});
    let mut request = json!({
        "kind": kind(info),
        "resource": resource(info),
        "requestKind": kind(&of.info),
        "requestResource": resource(&of.info),
        "operation": asked.operation.name(),
        "userInfo": user(&of.user),
        "dryRun": of.dry_run,
        "options": asked.options,
    });
    for (field, text) in [
        ("subResource", of.subresource.as_str()),
        ("requestSubResource", &of.subresource),
        ("name", asked.name()),
        ("namespace", asked.namespace()),
    ] {
        if !text.is_empty() {
            request[field] = json!(text);
        }
    }
    request
}

fn user(user: &User) -> Value {
    let mut info = Map::new();
    info.insert("username".to_owned(), json!(user.name));
    if !user.uid.is_empty() {
        info.insert("uid".to_owned(), json!(user.uid));
    }
    if !user.groups.is_empty() {
        info.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra".to_owned(), json!(user.extra));
    }
    Value::Object(info)
}

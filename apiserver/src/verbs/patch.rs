//! PATCH: JSON patch, JSON merge patch, strategic merge patch for the kinds that have merge keys, and server-side apply.

use bytes::Bytes;
use serde_json::Value;

use super::{Written, apply, metadata, prepare, update};
use crate::core::Core;
use crate::field::{FieldError, Path};
use crate::http::media;
use crate::meta;
use crate::patch::{self, Format};
use crate::request::Request;
use crate::status::{Details, Status};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Changes the named object by a patch.
///
/// # Errors
/// 415 for a type of patch that the resource does not accept; 400 for a malformed one; 422 for one
/// that cannot be applied; and those of an update.
pub(crate) async fn patch(
    core: &Core,
    request: &Request,
    content_type: Option<&str>,
    body: &Bytes,
) -> Result<Written, Status> {
    if is_apply(request, content_type)? {
        return apply::apply(core, request, body).await;
    }
    let format = format(request, content_type)?;
    if request.query.flag("force") {
        return Err(forbidden_option(
            "force",
            "may not be specified for non-apply patch",
        ));
    }
    let strict = patch::strict_errors(format, body);
    update::modify(core, request, &|old| {
        let mut new = patched(request, format, old, body)?;
        for field in ["apiVersion", "kind"] {
            if new.get(field).is_none_or(Value::is_null) {
                meta::object_mut(&mut new).insert(field.to_owned(), old[field].clone());
            }
        }
        // The text is that of the object before its type is settled, which changes most objects nowhere.
        let text = |patched: &Value| match format {
            Format::Strategic => go_map(body),
            Format::Json | Format::Merge => patched.to_string(),
        };
        let before = (!prepare::is_settled(request, &new)).then(|| text(&new));
        let shown = |patched: &Value| before.clone().unwrap_or_else(|| text(patched));
        prepare::settle_type(core, request, &mut new)
            .map_err(|status| unpatchable(request, &shown(&new), status))?;
        prepare::prune_patched(request, old, &mut new, &strict, &shown)?;
        refuse_other_uid(request, old, &new)?;
        metadata::settle_namespace(request, &mut new)?;
        if meta::text(&new, "name") != request.name {
            return Err(Status::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                meta::text(&new, "name"),
                request.name
            )));
        }
        Ok(new)
    })
    .await
}

/// Whether the patch is a server-side apply.
///
/// # Errors
/// 422 for an apply without a manager.
pub(crate) fn is_apply(request: &Request, content_type: Option<&str>) -> Result<bool, Status> {
    if media::essence(content_type.unwrap_or_default()) != APPLY {
        return Ok(false);
    }
    let manager = request.query.get("fieldManager").unwrap_or_default();
    if manager.is_empty() {
        let path = Path::new("fieldManager");
        let error = FieldError::required(&path, "is required for apply patch");
        return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
    }
    Ok(true)
}

/// A patched built-in object of another kind cannot be decoded: the patch is at fault.
fn unpatchable(request: &Request, shown: &str, status: Status) -> Status {
    if request.info.custom {
        return status;
    }
    let why = status
        .message
        .split_once(&format!("cannot be handled as a {}: ", request.info.kind))
        .map_or(status.message.as_str(), |(_, why)| why);
    let error = FieldError::invalid(&Path::new("patch"), shown, why);
    Status::invalid("", "", "", &[error])
}

/// For a patch, another uid is not a precondition but a wrong field.
pub(super) fn refuse_other_uid(request: &Request, old: &Value, new: &Value) -> Result<(), Status> {
    let uid = meta::text(new, "uid");
    if uid.is_empty() || uid == meta::text(old, "uid") {
        return Ok(());
    }
    let path = Path::new("metadata").child("uid");
    let error = FieldError::invalid(&path, uid, "field is immutable");
    Err(request.invalid(&request.name, &[error.clone(), error]))
}

/// `current` with the patch applied.
pub(crate) fn patched(
    request: &Request,
    format: Format,
    current: &Value,
    body: &Bytes,
) -> Result<Value, Status> {
    let info = &request.info;
    patch::apply(format, info.of, current, body).map_err(|error| match error {
        patch::Error::Malformed(text) => Status::bad_request(text),
        patch::Error::TooLarge(text) => Status::too_large(text),
        patch::Error::Unprocessable(_) => Status::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .with_details(Details::default()),
        patch::Error::Directive(text) => Status::internal_text(text),
    })
}

/// The format of a patch that is not an apply.
///
/// # Errors
/// 415 naming the types that the resource accepts.
pub(crate) fn format(request: &Request, content_type: Option<&str>) -> Result<Format, Status> {
    let essence = media::essence(content_type.unwrap_or_default());
    let format = Format::from_content_type(&essence);
    let accepted: &[&str] = if request.info.custom {
        &[JSON, MERGE, APPLY]
    } else {
        &[JSON, MERGE, STRATEGIC, APPLY]
    };
    match format {
        Some(Format::Strategic) if request.info.custom => {
            Err(Status::unsupported_media_type(accepted))
        }
        Some(format) => Ok(format),
        // Another type does not reach the handler of a built-in kind.
        None if !request.info.custom => {
            let mut status =
                Status::unsupported_media_type(accepted).with_details(Details::default());
            "415: Unsupported Media Type".clone_into(&mut status.message);
            Err(status)
        }
        None => Err(Status::unsupported_media_type(accepted)),
    }
}

/// A JSON object in the format of a Go map.
fn go_map(body: &Bytes) -> String {
    fn print(value: &Value, out: &mut String) {
        match value {
            Value::Object(map) => {
                out.push_str("map[");
                for (at, (key, value)) in map.iter().enumerate() {
                    if at > 0 {
                        out.push(' ');
                    }
                    out.push_str(key);
                    out.push(':');
                    print(value, out);
                }
                out.push(']');
            }
            Value::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(' ');
                    }
                    print(item, out);
                }
                out.push(']');
            }
            Value::Null => out.push_str("<nil>"),
            Value::String(text) => out.push_str(text),
            other => out.push_str(&other.to_string()),
        }
    }
    let mut out = String::new();
    print(&serde_json::from_slice(body).unwrap_or_default(), &mut out);
    out
}

fn forbidden_option(field: &str, detail: &str) -> Status {
    Status::invalid(
        "meta.k8s.io",
        "PatchOptions",
        "",
        &[FieldError::forbidden(&Path::new(field), detail)],
    )
}

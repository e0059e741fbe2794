//! The question to a webhook, and the check of its answer.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::hook::ReviewVersion;
use crate::admission::AdmissionRequest;
use crate::admission::review_request::review_request;
use crate::field::quote;
use crate::resource::ResourceInfo;
use crate::schema::{Additional, BYTES, ObjectSchema};
use crate::status::{Details, Status};
use crate::webhooks::document::{ReviewKind, list, plain, shown_type, status, structure, text};

/// What a webhook answered.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub(super) is_allowed: bool,
    /// `status` of the answer; null without one.
    pub(super) status: Value,
    pub(super) warnings: Vec<String>,
    /// The text of a patch; empty for none.
    pub(super) patch: Vec<u8>,
    /// The type of the patch; empty without one.
    pub(super) patch_type: String,
}

/// The AdmissionReview about a write, as one of `info`: `object` and `old` are in its version.
pub(super) fn question(
    version: ReviewVersion,
    uid: &str,
    asked: &AdmissionRequest<'_>,
    info: &ResourceInfo,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Value {
    let mut request = review_request(asked, info);
    let map = crate::meta::object_mut(&mut request);
    map.insert("uid".to_owned(), json!(uid));
    map.insert("object".to_owned(), object.cloned().unwrap_or_default());
    map.insert("oldObject".to_owned(), old.cloned().unwrap_or_default());
    json!({
        "kind": "AdmissionReview",
        "apiVersion": version.api_version(),
        "request": request,
    })
}

static REVIEWS: LazyLock<ReviewKind> = LazyLock::new(|| {
    let mut annotations = plain("object", "");
    annotations.additional = Additional::Of(Box::new(text("")));
    let mut patch = plain("string", "byte");
    patch.go_type = Some(BYTES.to_owned());
    let response = structure(
        "v1.AdmissionResponse",
        [
            ("uid", text("types.UID")),
            ("allowed", plain("boolean", "")),
            ("status", status()),
            ("patch", patch),
            ("patchType", text("v1.PatchType")),
            ("auditAnnotations", annotations),
            ("warnings", list(text(""))),
        ],
    );
    ReviewKind {
        group: "admission.k8s.io",
        kind: "AdmissionReview",
        schema: ObjectSchema::built_in(structure("v1.AdmissionReview", [("response", response)])),
    }
});

/// Reads the document of an answer as a review of the question's version.
///
/// # Errors
/// The text of Go's decoder.
pub(super) fn read(version: ReviewVersion, body: &[u8]) -> Result<Value, String> {
    let mut review = REVIEWS.read(version.name(), body)?;
    REVIEWS.schema.prune(&mut review);
    Ok(review)
}

/// Reads the answer to the question `uid`.
///
/// # Errors
/// What is invalid.
pub(super) fn verdict(
    version: ReviewVersion,
    uid: &str,
    is_mutating: bool,
    review: &Value,
) -> Result<Verdict, String> {
    let Some(response) = review["response"].as_object() else {
        return Err("webhook response was absent".to_owned());
    };
    let text = |field: &str| response.get(field).and_then(Value::as_str);
    let patch = text("patch").unwrap_or_default();
    let patch_type = text("patchType");
    if version == ReviewVersion::V1 {
        check_envelope(uid, review, text("uid").unwrap_or_default())?;
        check_patch(is_mutating, patch, patch_type)?;
    }
    // Go's decoder takes line breaks.
    let patch: String = patch
        .chars()
        .filter(|c| !matches!(c, '\r' | '\n'))
        .collect();
    let patch = STANDARD
        .decode(patch)
        .map_err(|error| format!("response.patch is not valid base64: {error}"))?;
    let patch_type = match version {
        ReviewVersion::V1Beta1 if !patch.is_empty() => "JSONPatch",
        _ => patch_type.unwrap_or_default(),
    };
    let warnings = response.get("warnings").and_then(Value::as_array);
    let warnings = warnings.into_iter().flatten().filter_map(Value::as_str);
    Ok(Verdict {
        is_allowed: response.get("allowed") == Some(&Value::Bool(true)),
        status: response.get("status").cloned().unwrap_or_default(),
        warnings: warnings.map(str::to_owned).collect(),
        patch,
        patch_type: patch_type.to_owned(),
    })
}

fn check_envelope(uid: &str, review: &Value, answered: &str) -> Result<(), String> {
    if answered != uid {
        return Err(format!(
            "expected response.uid={}, got {}",
            quote(uid),
            quote(answered)
        ));
    }
    let found = shown_type(review);
    let wanted = "admission.k8s.io/v1, Kind=AdmissionReview";
    if found != wanted {
        return Err(format!(
            "expected webhook response of {wanted}, got {found}"
        ));
    }
    Ok(())
}

fn check_patch(is_mutating: bool, patch: &str, patch_type: Option<&str>) -> Result<(), String> {
    let why = match (is_mutating, patch.is_empty(), patch_type) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, false, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, true, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(()),
    };
    Err(why.to_owned())
}

/// The answer to a write that the webhook `name` denied with `status`.
pub(super) fn denied(name: &str, status: &Value) -> Status {
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    let by = format!("admission webhook {} denied the request", quote(name));
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let code = status["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok());
    let code = code
        .filter(|code| (400..1000).contains(code))
        .unwrap_or(400);
    let denied = Status::new(code, text("reason").to_owned(), message);
    match Details::read(&status["details"]) {
        Some(details) => denied.with_details(details),
        None => denied,
    }
}

//! The question to a webhook, and the check of its answer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::hook::ReviewVersion;
use crate::admission::AdmissionRequest;
use crate::admission::review_request::review_request;
use crate::field::quote;
use crate::json_text::Node;
use crate::resource::ResourceInfo;
use crate::status::{Details, Status};

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

/// Refuses a document that is no review of the question's version.
///
/// # Errors
/// The text of Go's decoder.
pub(super) fn check_type(version: ReviewVersion, review: &Value) -> Result<(), String> {
    if let Some((field, found, wanted)) = misfit(review) {
        return Err(format!(
            "json: cannot unmarshal {} into Go struct field {field} of type {wanted}",
            Node::from_value(found).go_type()
        ));
    }
    let (asked, other) = match version {
        ReviewVersion::V1 => ("v1", "v1beta1"),
        ReviewVersion::V1Beta1 => ("v1beta1", "v1"),
    };
    let is_other = review["kind"] == "AdmissionReview"
        && review["apiVersion"] == format!("admission.k8s.io/{other}");
    if is_other {
        return Err(format!(
            "converting ({other}.AdmissionReview) to ({asked}.AdmissionReview): unknown conversion"
        ));
    }
    Ok(())
}

/// The first field of a type that a review does not have there.
fn misfit(review: &Value) -> Option<(String, &Value, &'static str)> {
    let response = &review["response"];
    let is_texts = |value: &Value| {
        let mut items = value.as_array().into_iter().flatten();
        value.is_array() && items.all(Value::is_string)
    };
    let checks: [(&str, bool, &str); 6] = [
        ("uid", response["uid"].is_string(), "types.UID"),
        ("allowed", response["allowed"].is_boolean(), "bool"),
        ("status", response["status"].is_object(), "v1.Status"),
        ("patch", response["patch"].is_string(), "[]uint8"),
        (
            "patchType",
            response["patchType"].is_string(),
            "v1.PatchType",
        ),
        ("warnings", is_texts(&response["warnings"]), "[]string"),
    ];
    if !response.is_object() && !response.is_null() {
        let field = "AdmissionReview.response".to_owned();
        return Some((field, response, "v1.AdmissionResponse"));
    }
    // A null is as good as an absent field.
    let mut wrong = checks
        .into_iter()
        .filter(|(field, fits, _)| !fits && !response[*field].is_null());
    let (field, _, wanted) = wrong.next()?;
    Some((
        format!("AdmissionResponse.response.{field}"),
        &response[field],
        wanted,
    ))
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
    let text = |field: &str| review[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if (group, version, kind) != ("admission.k8s.io", "v1", "AdmissionReview") {
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{version}, Kind={kind}"
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

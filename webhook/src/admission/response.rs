//! The answer to an admission review.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use serde::Serialize;
use serde_json::{Value, json};

use super::verdict::Denial;
use super::{Verdict, warnings};

/// The answer to an admission review, as the API server gets it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Response {
    /// The identifier of the request.
    pub uid: String,
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The status of a denial: `code`, `reason`, `message`, `details.causes`.
    pub status: Option<Value>,
    /// The changes of the object, in the order in which they are applied. Empty for an unchanged object.
    pub patch: Patch,
    /// Warnings within the limits of the API server.
    pub warnings: Vec<String>,
    /// Annotations for the audit log, without the name of the webhook.
    pub audit_annotations: BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: &'a Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Wire<'a>,
}

// === impl Response ===

impl Response {
    pub(super) fn of(uid: &str, verdict: &Verdict, patch: Patch) -> Self {
        Self {
            uid: uid.to_owned(),
            allowed: verdict.is_allowed(),
            status: verdict.denial.as_ref().map(status),
            patch,
            warnings: warnings::limited(&verdict.warnings),
            audit_annotations: warnings::annotations(&verdict.audit),
        }
    }

    /// The AdmissionReview with this answer, as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let changed = !self.patch.0.is_empty();
        let patch = changed.then(|| STANDARD.encode(self.patch.to_string()));
        let envelope = Envelope {
            api_version: "admission.k8s.io/v1",
            kind: "AdmissionReview",
            response: Wire {
                uid: &self.uid,
                allowed: self.allowed,
                status: &self.status,
                patch_type: changed.then_some("JSONPatch"),
                patch,
                warnings: &self.warnings,
                audit_annotations: &self.audit_annotations,
            },
        };
        serde_json::to_vec(&envelope).expect("texts and JSON values can be encoded")
    }

    /// The message of a denial; empty if there is none.
    #[must_use]
    pub fn message(&self) -> &str {
        let message = self
            .status
            .as_ref()
            .and_then(|status| status["message"].as_str());
        message.unwrap_or_default()
    }
}

fn status(denial: &Denial) -> Value {
    let mut status = json!({
        "status": "Failure",
        "message": denial.message,
        "code": denial.code,
    });
    if !denial.reason.is_empty() {
        status["reason"] = json!(denial.reason);
    }
    if !denial.causes.is_empty() {
        let causes: Vec<Value> = denial
            .causes
            .iter()
            .map(|cause| {
                json!({"field": cause.field, "reason": cause.reason, "message": cause.message})
            })
            .collect();
        status["details"] = json!({"causes": causes});
    }
    status
}

//! The answer to a call, read as the API server reads it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::admission::Form;

/// The answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    response: Value,
    object: Option<Value>,
}

// === impl Reply ===

impl Reply {
    /// Reads an AdmissionReview. The rules are those of kube-apiserver, `VerifyAdmissionResponse`.
    pub(super) fn checked(answer: &[u8], uid: &str, form: Form, object: Option<&Value>) -> Self {
        let mut review: Value = serde_json::from_slice(answer).expect("an answer in JSON");
        assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(review["kind"], "AdmissionReview");
        let response = review["response"].take();
        assert_eq!(response["uid"], uid, "the answer to another call");
        let mut object = object.cloned();
        let patch = response["patch"].as_str();
        assert_eq!(
            patch.is_some(),
            response["patchType"] == "JSONPatch",
            "a patch and its type come together"
        );
        if let Some(patch) = patch {
            assert_eq!(form, Form::Mutating, "a validating webhook sent a patch");
            let patch = STANDARD.decode(patch).expect("a patch in base64");
            let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a JSON patch");
            let object = object.as_mut().expect("an object to patch");
            json_patch::patch(object, &patch).expect("a patch that applies");
        }
        Self { response, object }
    }

    /// Whether the request is allowed.
    #[must_use]
    pub fn allowed(&self) -> bool {
        self.response["allowed"] == true
    }

    /// The code of a denial.
    #[must_use]
    pub fn code(&self) -> Option<u64> {
        self.response["status"]["code"].as_u64()
    }

    /// The message of a denial; empty if there is none.
    #[must_use]
    pub fn message(&self) -> &str {
        self.response["status"]["message"]
            .as_str()
            .unwrap_or_default()
    }

    /// The fields of the causes of a denial.
    #[must_use]
    pub fn fields(&self) -> Vec<&str> {
        let causes = self.response["status"]["details"]["causes"].as_array();
        let causes = causes.into_iter().flatten();
        causes.filter_map(|cause| cause["field"].as_str()).collect()
    }

    /// The warnings.
    #[must_use]
    pub fn warnings(&self) -> Vec<&str> {
        let warnings = self.response["warnings"].as_array().into_iter().flatten();
        warnings.filter_map(Value::as_str).collect()
    }

    /// The audit annotation `name`.
    #[must_use]
    pub fn audit(&self, name: &str) -> Option<&str> {
        self.response["auditAnnotations"][name].as_str()
    }

    /// Whether the object was changed.
    #[must_use]
    pub fn is_patched(&self) -> bool {
        !self.response["patch"].is_null()
    }

    /// The object with the changes of the webhook.
    ///
    /// # Panics
    /// When the request has no object, or it is no `K`.
    #[must_use]
    pub fn object<K: DeserializeOwned>(&self) -> K {
        let object = self.object.clone().expect("a request with an object");
        serde_json::from_value(object).expect("an object of this type")
    }

    /// The response as JSON.
    #[must_use]
    pub fn response(&self) -> &Value {
        &self.response
    }
}

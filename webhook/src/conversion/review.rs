//! Conversion reviews on the wire, `apiextensions.k8s.io/v1`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::admission::{Failure, type_of};

const KIND: &str = "ConversionReview";
const GROUP: &str = "apiextensions.k8s.io";

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(default, borrow)]
    request: Option<Review<'a>>,
}

/// A request to convert objects.
#[derive(Deserialize)]
pub(super) struct Review<'a> {
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default, rename = "desiredAPIVersion")]
    pub(super) desired: String,
    #[serde(default, borrow)]
    pub(super) objects: Vec<&'a RawValue>,
}

/// What every object has.
#[derive(Deserialize)]
pub(super) struct Head<'a> {
    #[serde(default, borrow, rename = "apiVersion")]
    pub(super) api_version: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(default)]
    pub(super) metadata: Value,
}

/// A converted object, or one that had the version already.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Converted<'a> {
    Same(&'a RawValue),
    Other(Value),
}

// === impl Review ===

impl<'a> Review<'a> {
    pub(super) fn of(body: &'a [u8]) -> Result<Self, Failure> {
        type_of(body, GROUP, KIND)?;
        let body: Body<'a> = serde_json::from_slice(body).map_err(|source| Failure::Malformed {
            expected: KIND,
            source,
        })?;
        let review = body.request.ok_or(Failure::Missing("request"))?;
        if review.uid.is_empty() {
            return Err(Failure::Missing("uid in its request"));
        }
        Ok(review)
    }
}

/// The review with the objects, or with the reason why one was not converted.
pub(super) fn answer(uid: &str, result: Result<Vec<Converted<'_>>, String>) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Envelope<'a> {
        api_version: &'static str,
        kind: &'static str,
        response: Response<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Response<'a> {
        uid: &'a str,
        converted_objects: Vec<Converted<'a>>,
        result: Status,
    }
    #[derive(Serialize)]
    struct Status {
        status: &'static str,
        #[serde(skip_serializing_if = "String::is_empty")]
        message: String,
    }
    let (converted_objects, status, message) = match result {
        Ok(objects) => (objects, "Success", String::new()),
        Err(message) => (Vec::new(), "Failure", message),
    };
    let envelope = Envelope {
        api_version: "apiextensions.k8s.io/v1",
        kind: KIND,
        response: Response {
            uid,
            converted_objects,
            result: Status { status, message },
        },
    };
    serde_json::to_vec(&envelope).expect("texts and JSON values can be encoded")
}

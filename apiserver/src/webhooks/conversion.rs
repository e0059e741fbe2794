//! The conversion of custom resources by a webhook. (apiextensions-apiserver: `conversion/webhook_converter.go`.)

use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::backend::Backend;
use super::document::{ReviewKind, list, shown_type, status, structure, text};
use super::metadata;
use super::network::Network;
use crate::field::quote;
use crate::json_text::Node;
use crate::meta::{self, items, string};
use crate::schema::{ObjectSchema, Schema};

/// The time for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest answer in bytes: it has all objects of a list.
const LONGEST: usize = 256 << 20;

const GROUP: &str = "apiextensions.k8s.io";

static REVIEWS: LazyLock<ReviewKind> = LazyLock::new(|| {
    let object = Schema {
        go_type: Some("runtime.RawExtension".to_owned()),
        ..Schema::default()
    };
    let response = structure(
        "v1.ConversionResponse",
        [
            ("uid", text("types.UID")),
            ("convertedObjects", list(object)),
            ("result", status()),
        ],
    );
    ReviewKind {
        group: GROUP,
        kind: "ConversionReview",
        schema: ObjectSchema::built_in(structure("v1.ConversionReview", [("response", response)])),
    }
});

/// The webhook of a definition.
#[derive(Debug)]
pub(crate) struct ConversionWebhook {
    /// `spec.conversion.webhook`.
    source: Value,
    /// The version of ConversionReview, if the webhook reads one that the server writes.
    version: Option<ReviewVersion>,
    backend: Backend,
}

/// The versions of ConversionReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReviewVersion {
    V1,
    V1Beta1,
}

// === impl ConversionWebhook ===

impl ConversionWebhook {
    /// Reads `spec.conversion.webhook`.
    pub(crate) fn read(source: &Value) -> Self {
        let mut versions = items(&source["conversionReviewVersions"]).iter();
        let mut config = source["clientConfig"].clone();
        let bundle = STANDARD.decode(string(&config["caBundle"]));
        if bundle.is_ok_and(|bundle| bundle.trim_ascii().is_empty()) {
            config["caBundle"].take();
        }
        Self {
            version: versions.find_map(|version| match string(version) {
                "v1" => Some(ReviewVersion::V1),
                "v1beta1" => Some(ReviewVersion::V1Beta1),
                _ => None,
            }),
            backend: Backend::read(&config),
            source: source.clone(),
        }
    }

    /// Whether both were read from the same source.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.source == other.source
    }

    /// Converts objects, each with its `apiVersion`, to the version `to`. Those that have it already are not sent. The whole
    /// list is one call.
    ///
    /// # Errors
    /// The text of a real server.
    pub(crate) async fn convert(
        &self,
        network: Network<'_>,
        objects: &mut [Value],
        to: &str,
    ) -> Result<(), String> {
        let mut others: Vec<&mut Value> = objects
            .iter_mut()
            .filter(|object| object["apiVersion"] != to)
            .collect();
        let Some(first) = others.first() else {
            return Ok(());
        };
        let (from, kind) = (string(&first["apiVersion"]), string(&first["kind"]));
        let of = format!("conversion webhook for {from}, Kind={kind}");
        let Some(version) = self.version else {
            return Err("no supported conversion review versions".to_owned());
        };
        let sent = others.iter().map(|object| (**object).clone()).collect();
        let converted = self.ask(network, version, sent, to).await;
        let converted = converted.map_err(|why| format!("{of} failed: {why}"))?;
        if converted.len() != others.len() {
            return Err(format!(
                "{of} returned {} objects, expected {}",
                converted.len(),
                others.len()
            ));
        }
        for (at, (object, mut new)) in others.iter_mut().zip(converted).enumerate() {
            if !new.is_object() {
                let found = Node::from_value(&new).go_type();
                return Err(format!(
                    "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
                ));
            }
            check_type(object, &new, to)
                .map_err(|why| format!("{of} returned invalid object at index {at}: {why}"))?;
            metadata::check(object, &new)
                .map_err(|why| format!("{of} returned invalid object: {why}"))?;
            metadata::restore(object, &mut new)
                .map_err(|why| format!("{of} returned invalid metadata: {why}"))?;
            **object = new;
        }
        Ok(())
    }

    /// Sends one review, and returns the converted objects.
    async fn ask(
        &self,
        network: Network<'_>,
        version: ReviewVersion,
        objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>, String> {
        let uid = meta::uid(network.clock);
        let review = json!({
            "kind": "ConversionReview",
            "apiVersion": version.api_version(),
            "request": {"uid": uid, "desiredAPIVersion": to, "objects": objects},
        });
        let answer = self.backend.convert(network, &review, TIMEOUT, LONGEST);
        let mut answer = REVIEWS.read(version.name(), &answer.await?)?;
        let (found, wanted) = (shown_type(&answer), shown_type(&review));
        if version == ReviewVersion::V1 && found != wanted {
            return Err(format!(
                "expected webhook response of {wanted}, got {found}"
            ));
        }
        let mut response = answer["response"].take();
        if !response.is_object() {
            return Err("no response provided".to_owned());
        }
        let echoed = string(&response["uid"]);
        if version == ReviewVersion::V1 && echoed != uid {
            return Err(format!(
                "expected response.uid={}, got {}",
                quote(&uid),
                quote(echoed)
            ));
        }
        let result = &response["result"];
        if result["status"] != "Success" {
            return Err(match string(&result["message"]) {
                "" => format!(
                    "response.result.status was '{}', not 'Success'",
                    string(&result["status"])
                ),
                message => message.to_owned(),
            });
        }
        match response["convertedObjects"].take() {
            Value::Array(converted) => Ok(converted),
            _ => Ok(Vec::new()),
        }
    }
}

/// Checks that the object has the wanted version and its old kind.
fn check_type(object: &Value, new: &Value, to: &str) -> Result<(), String> {
    let (version, kind) = (string(&new["apiVersion"]), string(&new["kind"]));
    if version != to {
        return Err(format!(
            "invalid groupVersion (expected {to}, received {version})"
        ));
    }
    if object["kind"] != kind {
        return Err(format!(
            "invalid kind (expected {}, received {kind})",
            string(&object["kind"])
        ));
    }
    Ok(())
}

// === impl ReviewVersion ===

impl ReviewVersion {
    fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }

    fn api_version(self) -> String {
        format!("{GROUP}/{}", self.name())
    }
}

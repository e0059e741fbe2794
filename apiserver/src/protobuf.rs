//! Bodies of requests in protobuf, decoded to the equivalent JSON. The crate reeve-wire has the format.
//!
//! Bodies are untrusted: the depth and the number of values are bounded, and every error is a text for a 400.

use reeve_wire::{Cause, Envelope, Limits};
use serde_json::Value;

use crate::json_text;

/// Maximum number of values of a body. The largest body, of 3 MiB, has fewer in any real object; one of the shortest
/// fields alone would fill hundreds of megabytes.
const MAX_VALUES: usize = 500_000;

/// Error of decoding a body.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Error {
    /// The envelope is invalid, or its kind is unknown.
    #[error("{0}")]
    Envelope(Cause),
    /// The object in the envelope is invalid.
    #[error("{cause}")]
    Object {
        /// Group and version.
        api_version: String,
        /// The kind.
        kind: String,
        /// The cause.
        cause: Cause,
    },
}

/// Decodes a body to the equivalent JSON object, with `apiVersion` and `kind`; a missing one in the envelope is the
/// `expected` one.
///
/// # Errors
/// For a body that is not such an object, and for a kind that is not in the table.
pub(crate) fn decode(body: &[u8], expected: (&str, &str)) -> Result<Value, Error> {
    let mut envelope = Envelope::parse(body).map_err(Error::Envelope)?;
    envelope.set_missing(expected.0, expected.1);
    envelope.message().map_err(Error::Envelope)?;
    let limits = Limits::default()
        .depth(json_text::MAX_DEPTH)
        .values(MAX_VALUES);
    envelope.decode(limits).map_err(|error| Error::Object {
        api_version: envelope.api_version.clone().into_owned(),
        kind: envelope.kind.clone().into_owned(),
        cause: error.cause().clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_that_can_be_sent_is_in_the_table() {
        for info in crate::kinds::builtin() {
            for kind in [&info.kind, &info.list_kind] {
                let known = reeve_wire::Message::of(&info.api_version(), kind);
                let is_review = info.storage.is_empty() && *kind == info.list_kind;
                assert!(
                    known.is_some() || is_review,
                    "{} {kind}",
                    info.api_version()
                );
            }
        }
    }

    #[test]
    fn what_decodes_is_not_deeper_than_a_json_body_may_be() {
        // Schemas that hold schemas: `not` is field 28.
        let nested = |levels: usize| {
            let mut schema = json_text_schema();
            for _ in 0..levels {
                schema = serde_json::json!({"not": schema});
            }
            let version = serde_json::json!({"name": "v1", "schema": {"openAPIV3Schema": schema}});
            let definition = serde_json::json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "spec": {"versions": [version]},
            });
            decode(&reeve_wire::to_vec(&definition).unwrap(), ("", ""))
        };
        let deepest = (1..130)
            .take_while(|levels| nested(*levels).is_ok())
            .count();
        assert!(deepest > 100, "{deepest}");
        let value = nested(deepest).unwrap();
        assert!(json_text::parse(value.to_string().as_bytes()).is_ok());
        let error = nested(deepest + 1).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Object {
                    cause: Cause::Depth,
                    ..
                }
            ),
            "{error}"
        );
    }

    fn json_text_schema() -> Value {
        serde_json::json!({"required": ["x"]})
    }
}

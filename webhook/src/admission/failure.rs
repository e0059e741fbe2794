//! The reasons why a call has no answer.

use std::time::Duration;

use http::StatusCode;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a call of a webhook has no answer. The API server then applies the failure policy of the webhook: a failure
/// is not a denial.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The body is not JSON, or not a review.
    #[error("the body is not {expected}: {source}")]
    Malformed {
        /// The kind of review that the webhook takes.
        expected: &'static str,
        /// The position and the problem.
        source: serde_json::Error,
    },
    /// The body is a review of another version or of another kind.
    #[error(
        "the body is {found}, and {expected} of v1 is expected: name v1 alone in the review versions of the webhook configuration"
    )]
    Version {
        /// The kind of review that the webhook takes.
        expected: &'static str,
        /// Kind and version of the body.
        found: String,
    },
    /// The review has no request.
    #[error("the review has no {0}")]
    Missing(&'static str),
    /// The request is for another kind than the handler's.
    #[error(
        "{webhook} takes {expected}, and the request has {found}: correct the rules of the webhook configuration"
    )]
    Kind {
        /// The name of the webhook.
        webhook: String,
        /// Group, version and kind of the handler.
        expected: String,
        /// Group, version and kind of the request.
        found: String,
    },
    /// The handler changed the object of a deletion or a connection, which the API server refuses. An object that it
    /// returned as it is makes no patch.
    #[error("{webhook} changed the object of a request for {operation}, which has none to change")]
    Unchangeable {
        /// The name of the webhook.
        webhook: String,
        /// The operation.
        operation: &'static str,
    },
    /// The changed object cannot be written as JSON.
    #[error("{webhook} returned an object that cannot be encoded: {source}")]
    Encode {
        /// The name of the webhook.
        webhook: String,
        /// The problem.
        source: serde_json::Error,
    },
    /// The handler returned an error.
    #[error("{webhook} failed: {source}")]
    Handler {
        /// The name of the webhook.
        webhook: String,
        /// The error of the handler.
        source: BoxError,
    },
    /// The handler panicked.
    #[error("{0} panicked; its log has the message")]
    Panicked(String),
    /// The handler took longer than the API server waits.
    #[error("{webhook} did not answer within {after:?}")]
    Late {
        /// The name of the webhook.
        webhook: String,
        /// The time that the call had.
        after: Duration,
    },
}

// === impl Failure ===

impl Failure {
    /// The status of the HTTP answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Malformed { .. }
            | Self::Version { .. }
            | Self::Missing(_)
            | Self::Kind { .. } => StatusCode::BAD_REQUEST,
            Self::Late { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Unchangeable { .. }
            | Self::Encode { .. }
            | Self::Handler { .. }
            | Self::Panicked(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

//! The reason of a refusal, and the answer to the request.

use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, StatusCode};

use super::ReviewError;
use super::reviewer::REVIEW_TIMEOUT;
use crate::http::{Answer, text};

/// The reason of a refusal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The request has no token, or a token without a user.
    #[error("Unauthorized")]
    Unknown,
    /// The user is not allowed to send the request.
    #[error("Authorization denied for user {0}")]
    Denied(String),
    /// The token could not be reviewed.
    #[error("Authentication failed")]
    Authentication(#[source] ReviewError),
    /// The user's access could not be reviewed.
    #[error("Authorization for user {user} failed")]
    Authorization {
        /// The name of the user.
        user: String,
        /// The reason why there is no review.
        source: ReviewError,
    },
    /// The reviewer did not answer in time.
    #[error("{0} failed: the API server did not answer in {REVIEW_TIMEOUT:?}")]
    Silence(&'static str),
}

// === impl Refusal ===

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::Denied(_) => StatusCode::FORBIDDEN,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The error with its cause, for the log.
    fn with_cause(&self) -> String {
        match self {
            Self::Authentication(source) | Self::Authorization { source, .. } => {
                format!("{self}: {source}")
            }
            _ => self.to_string(),
        }
    }

    /// The answer to the client. The cause stays in the log.
    pub(super) fn answer(&self, path: &str) -> Answer {
        let status = self.status();
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::warn!(
                path,
                error = self.with_cause(),
                "could not review a request"
            );
        } else {
            tracing::debug!(path, reason = %self, "request refused");
        }
        let mut answer = text(status, format!("{self}\n"));
        if status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            answer.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        answer
    }
}

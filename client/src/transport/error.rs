//! Errors of a request, by their remedy.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use kube_core::Status;
use kube_core::response::StatusDetails;

/// A request without a usable answer. A message holds no part of a body except the message of a Status, and not the
/// text of its source: print errors with their sources.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration of the informer does not make a request.
    #[error("the request for {path} cannot be built")]
    Request {
        /// The requested path.
        path: String,
        /// The cause.
        source: http::Error,
    },
    /// No connection, or it broke.
    #[error("the connection to the API server failed")]
    Connection(#[source] kube_client::Error),
    /// No complete answer in time.
    #[error("no complete answer within {after:?}")]
    Deadline {
        /// The deadline.
        after: Duration,
    },
    /// No data on a watch, not even a bookmark.
    #[error("the watch was silent for {after:?}")]
    Silent {
        /// The deadline.
        after: Duration,
    },
    /// The server refused the request.
    #[error("the API server answered {code} {reason}: {message}", code = .status.code, reason = .status.reason, message = .status.message)]
    Status {
        /// The server's status.
        status: Box<Status>,
        /// The delay that the server requests.
        retry_after: Option<Duration>,
    },
    /// The answer is larger than the limit.
    #[error(
        "an answer, or a line of a watch, is larger than the {limit} bytes of `Limits::body`: raise the limit, or list in smaller pages"
    )]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The answer has an unexpected form.
    #[error(transparent)]
    Decode(Box<dyn std::error::Error + Send + Sync>),
}

// === impl Error ===

impl Error {
    /// Wraps a Status that came inside a stream.
    #[must_use]
    pub fn from_status(status: Box<Status>) -> Self {
        let seconds = status
            .details
            .as_ref()
            .map_or(0, |details| details.retry_after_seconds);
        Self::Status {
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
            status,
        }
    }

    fn status(&self) -> Option<&Status> {
        match self {
            Self::Status { status, .. } => Some(status),
            _ => None,
        }
    }

    /// The status code, if the server answered with one.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// The requested version or continue token has expired (client-go: `isExpiredError`: reason
    /// Expired or Gone).
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| {
            status.code == 410 || status.reason == "Expired" || status.reason == "Gone"
        })
    }

    /// The server has not reached the requested version yet (client-go: `isTooLargeResourceVersionError`, with
    /// the two encodings of old servers).
    #[must_use]
    pub fn is_too_large_version(&self) -> bool {
        const MESSAGE: &str = "Too large resource version";
        self.status().is_some_and(|status| {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let mut too_large = causes.map(|cause| {
                cause.reason == "ResourceVersionTooLarge"
                    || (status.reason == "Timeout" && cause.message == MESSAGE)
            });
            too_large.any(|too_large| too_large)
                || (status.reason == "Timeout" && status.message.contains(MESSAGE))
        })
    }

    /// The server could not read a changed object, for example one that was corrupt and then deleted by force: from that
    /// version on it cannot send events.
    #[must_use]
    pub fn is_unreadable_store(&self) -> bool {
        self.status()
            .is_some_and(|status| status.reason == "StoreReadError")
    }

    /// The request is too much for one answer: too large, or not complete in time.
    #[must_use]
    pub fn is_unwieldy(&self) -> bool {
        matches!(self, Self::TooLarge { .. } | Self::Deadline { .. })
    }

    /// The delay that the server requests.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The class of the failure, one word for logs and health.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Request { .. } => "request",
            Self::Connection(_) => "connection",
            Self::Deadline { .. } => "deadline",
            Self::Silent { .. } => "silent",
            Self::TooLarge { .. } => "too large",
            Self::Decode(_) => "decode",
            Self::Status { .. } if self.is_expired() => "expired",
            Self::Status { .. } if self.is_too_large_version() => "too large version",
            Self::Status { status, .. } => match status.code {
                401 => "unauthorized",
                403 => "forbidden",
                404 => "not found",
                _ => "status",
            },
        }
    }
}

/// `Retry-After` in seconds; the API server never sends the date form.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(http::header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

/// The error of an answer without success. Priority and fairness sends its 429 as plain text, and proxies
/// send HTML: then only the code counts, and the text is not quoted.
#[doc(hidden)]
#[must_use]
pub fn from_answer(code: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Error {
    let mut status = status_of(body)
        .filter(|status| {
            status.code != 0 || !status.reason.is_empty() || !status.message.is_empty()
        })
        .unwrap_or_else(|| Status {
            message: "the answer carries no Kubernetes Status".to_owned(),
            reason: reason_of(code).to_owned(),
            details: None::<StatusDetails>,
            ..Status::default()
        });
    if status.code == 0 {
        status.code = code.as_u16();
    }
    match Error::from_status(Box::new(status)) {
        Error::Status {
            status,
            retry_after: in_status,
        } => Error::Status {
            status,
            retry_after: retry_after.max(in_status),
        },
        error => error,
    }
}

/// The Status of a body, in either encoding.
fn status_of(body: &[u8]) -> Option<Status> {
    if !body.starts_with(reeve_wire::PREFIX) {
        return crate::json::from_slice(body).ok();
    }
    let envelope = reeve_wire::Envelope::parse(body).ok()?;
    if envelope.kind != "Status" {
        return None;
    }
    envelope.decode(reeve_wire::Limits::default()).ok()
}

fn reason_of(code: StatusCode) -> &'static str {
    match code.as_u16() {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        410 => "Gone",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn an_error_and_its_source_are_each_printed_once() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let connection = Error::Connection(kube_client::Error::Service(refused.into()));
        let request = Error::Request {
            path: "/api/v1/pods".to_owned(),
            source: http::Request::get("a b").body(()).unwrap_err(),
        };
        for error in [connection, request] {
            let source = error.source().expect("there is one").to_string();
            assert!(!error.to_string().contains(&source), "{error}");
            let chain = crate::error_chain(&error).to_string();
            assert!(chain.starts_with(&error.to_string()), "{chain}");
            assert_eq!(chain.matches(&source).count(), 1, "{chain}");
        }
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = kube_client::Error::Service(refused.into());
        let chain = crate::error_chain(&error).to_string();
        assert_eq!(chain.matches("connection refused").count(), 1, "{chain}");
    }

    fn answer(code: u16, body: &str) -> Error {
        from_answer(StatusCode::from_u16(code).unwrap(), None, body.as_bytes())
    }

    #[test]
    fn a_plain_text_429_is_understood_and_not_quoted() {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "3".parse().unwrap());
        let error = from_answer(
            StatusCode::TOO_MANY_REQUESTS,
            retry_after(&headers),
            b"Too many requests, please try again later.",
        );
        assert_eq!(error.code(), Some(429));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
        assert!(!error.to_string().contains("try again"), "{error}");
    }

    #[test]
    fn a_status_is_read_in_either_encoding() {
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "too old",
            "reason": "Expired", "code": 410,
            "details": {"name": "n", "kind": "pods", "retryAfterSeconds": 5, "causes": [{"reason": "R", "message": "m"}]},
        });
        let binary = reeve_wire::to_vec(&status).unwrap();
        let code = StatusCode::GONE;
        let [json, binary] = [status.to_string().as_bytes(), &binary]
            .map(|body| format!("{:?}", from_answer(code, None, body)));
        assert!(json.contains("too old"), "{json}");
        assert_eq!(json, binary);
        // An object of another kind is not a Status.
        let map =
            serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let map = reeve_wire::to_vec(&map).unwrap();
        let error = from_answer(code, None, &map);
        assert!(
            error.to_string().contains("no Kubernetes Status"),
            "{error}"
        );
        assert_eq!(from_answer(code, None, &map[..9]).code(), Some(410));
    }

    #[test]
    fn expired_and_gone_are_the_same() {
        assert!(answer(410, "").is_expired());
        assert!(
            answer(
                410,
                r#"{"kind":"Status","code":410,"reason":"Expired","message":"m"}"#
            )
            .is_expired()
        );
        assert!(answer(500, r#"{"reason":"Gone","message":"m"}"#).is_expired());
        assert!(!answer(404, "").is_expired());
    }

    #[test]
    fn a_too_large_version_is_seen_in_its_three_encodings() {
        for body in [
            r#"{"reason":"Timeout","message":"m","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"x"}]}}"#,
            r#"{"reason":"Timeout","message":"m","details":{"causes":[{"message":"Too large resource version"}]}}"#,
            r#"{"reason":"Timeout","message":"Too large resource version: 9, current: 5"}"#,
        ] {
            assert!(answer(504, body).is_too_large_version(), "{body}");
        }
        assert!(!answer(504, r#"{"reason":"Timeout","message":"slow"}"#).is_too_large_version());
    }
}

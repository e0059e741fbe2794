//! Bodies of requests: short, complete, and in time.

use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use reeve_serve::http::{Answer, BodyError, Budget, Incoming, WholeBody};
use tokio::time::timeout;

use crate::cloud::Refusal;

/// The longest body, in bytes.
const LONGEST: usize = 1 << 20;

/// Reads a body.
///
/// # Errors
/// A refusal with the status 408 for a body that takes longer than `within`, 413 for a long one, 400 for one that ends early, and 503 when
/// the bodies of other requests use up `budget`.
pub(super) async fn read(
    budget: &Budget,
    body: Incoming,
    within: Duration,
) -> Result<WholeBody, Refusal> {
    let error = match timeout(within, budget.read(body, LONGEST)).await {
        Ok(Ok(body)) => return Ok(body),
        Ok(Err(error)) => error,
        Err(_) => {
            let message = format!("The body did not arrive within {within:?}.");
            return Err(Refusal::new(408, "RequestTimeout", message));
        }
    };
    let (status, code) = match error {
        BodyError::TooLarge(_) => (413, "RequestTooLarge"),
        BodyError::Busy => (503, "ServiceUnavailable"),
        _ => (400, "InvalidRequest"),
    };
    Err(Refusal::new(status, code, error.to_string()))
}

/// The status of a refusal.
pub(super) fn status(refusal: &Refusal) -> StatusCode {
    StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST)
}

/// An answer to a request whose body was not read to its end: the connection ends with it.
pub(super) fn last(mut answer: Answer) -> Answer {
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
    answer
}

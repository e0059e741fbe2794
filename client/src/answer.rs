//! Decoding of the body of an answer, as an object or as a refusal.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use kube_core::response::{Status, StatusDetails};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::json;

/// The server's answer to a successful call.
#[derive(Clone)]
pub struct Answer(pub(crate) Bytes);

// === impl Answer ===

impl Answer {
    /// The body as received: JSON. It may hold a Secret.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.0
    }

    /// The answer with the body `value`.
    ///
    /// # Errors
    /// When it does not encode.
    pub fn of(value: &impl Serialize) -> Result<Self, Error> {
        match serde_json::to_vec(value) {
            Ok(body) => Ok(Self(body.into())),
            Err(error) => Err(Error::Invalid {
                request: "an answer of an interceptor".to_owned(),
                message: error.to_string(),
            }),
        }
    }

    /// Decodes the body as `T`: the type of the object, or a [`serde_json::Value`].
    ///
    /// # Errors
    /// [`Error::Decode`].
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        decode(|| "an intercepted answer".to_owned(), &self.0)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may hold a Secret.
        write!(f, "Answer({} bytes)", self.0.len())
    }
}

/// Decodes `body`; `request` describes the call, for the error.
pub(crate) fn decode<T: DeserializeOwned>(
    request: impl FnOnce() -> String,
    body: &[u8],
) -> Result<T, Error> {
    json::from_slice(body).map_err(|error| {
        // serde's own text quotes the value, which may be a secret.
        let category = match error.classify() {
            serde_json::error::Category::Io => "unreadable",
            serde_json::error::Category::Syntax => "not JSON",
            serde_json::error::Category::Data => "another type than declared",
            serde_json::error::Category::Eof => "cut short",
        };
        Error::Decode {
            request: request(),
            kind: short_name::<T>().to_owned(),
            line: error.line(),
            column: error.column(),
            category,
        }
    })
}

fn short_name<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    let end = name.find('<').unwrap_or(name.len());
    name[..end].rsplit("::").next().unwrap_or(name)
}

/// The longest header that is honoured: a proxy before a server that is down may name an hour.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The answer of the server.
pub(crate) struct Reply {
    pub(crate) code: http::StatusCode,
    /// Its header.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
}

/// The error of an answer without success.
pub(crate) fn refusal(request: String, reply: &Reply) -> Error {
    let mut status = status_of(reply.code, &reply.body);
    // Priority and fairness refuses in plain text, with the header alone.
    if let Some(header) = reply.retry_after {
        let seconds = header.min(LONGEST_RETRY_AFTER).as_secs();
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        let details = status.details.get_or_insert_with(no_details);
        details.retry_after_seconds = details.retry_after_seconds.max(seconds);
    }
    Error::Api {
        request,
        status: Box::new(status),
    }
}

fn no_details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

/// The Status in `body`, or one made from the code when a proxy answered.
fn status_of(code: http::StatusCode, body: &[u8]) -> Status {
    match json::from_slice::<Status>(body) {
        Ok(mut status) if !status.message.is_empty() || !status.reason.is_empty() => {
            if status.code == 0 {
                status.code = code.as_u16();
            }
            status
        }
        _ => Status::failure(code.canonical_reason().unwrap_or("an unknown status"), "")
            .with_code(code.as_u16()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_of_the_header_and_the_status_is_waited_for() {
        let status =
            r#"{"kind":"Status","reason":"TooManyRequests","details":{"retryAfterSeconds":5}}"#;
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (code, header, body, expected) in [
            (
                429,
                seconds(3),
                "Too many requests, please try again later.",
                seconds(3),
            ),
            (429, seconds(3), status, seconds(5)),
            (429, seconds(8), status, seconds(8)),
            (503, None, status, seconds(5)),
            (500, seconds(1), "<html>", seconds(1)),
            (404, seconds(1), "<html>", None),
            (429, seconds(0), "", None),
            (502, seconds(3600), "<html>", seconds(60)),
        ] {
            let reply = Reply {
                code: http::StatusCode::from_u16(code).unwrap(),
                retry_after: header,
                body: Bytes::from(body),
            };
            let error = refusal("get a".into(), &reply);
            assert_eq!(error.retry_after(), expected, "{code} {header:?} {body}");
        }
    }
}

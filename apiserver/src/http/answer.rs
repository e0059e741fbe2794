//! Answers: documents, Status errors and plain text as HTTP responses.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::Value;

use super::body::{self, Body};
use super::media::Encoding;
use super::warnings::Warnings;
use crate::status::Status;

/// A response of `content_type`.
pub(crate) fn bytes(code: u16, content_type: &str, content: impl Into<Bytes>) -> Response<Body> {
    of_body(code, content_type, body::full(content))
}

/// The same with a body that may be sent in pieces.
pub(crate) fn of_body(code: u16, content_type: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    set(&mut response, CONTENT_TYPE, content_type);
    set(&mut response, CACHE_CONTROL, "no-cache, private");
    response
}

/// A document in the negotiated encoding. `pretty` indents JSON.
pub(crate) fn document(
    code: u16,
    encoding: Encoding,
    pretty: bool,
    value: &Value,
) -> Response<Body> {
    let content = match encoding {
        Encoding::Json => json(value, pretty),
        Encoding::Yaml => crate::yaml::write(value).into_bytes(),
        Encoding::Protobuf => match reeve_wire::to_vec(value) {
            Ok(content) => content,
            Err(error) => {
                // Only kinds with a message are shown in protobuf.
                tracing::error!(%error, "could not write an answer in protobuf");
                return document(code, Encoding::Json, pretty, value);
            }
        },
    };
    bytes(code, encoding.content_type(), content)
}

/// Already encoded JSON as JSON or YAML.
pub(crate) fn encoded(
    code: u16,
    encoding: Encoding,
    pretty: bool,
    content: Bytes,
) -> Response<Body> {
    if encoding == Encoding::Json && !pretty {
        return bytes(code, encoding.content_type(), content);
    }
    match serde_json::from_slice(&content) {
        Ok(value) => document(code, encoding, pretty, &value),
        Err(_) => bytes(code, Encoding::Json.content_type(), content),
    }
}

fn json(value: &Value, pretty: bool) -> Vec<u8> {
    let encoded = if pretty {
        serde_json::to_vec_pretty(value)
    } else {
        serde_json::to_vec(value)
    };
    let mut content = encoded.unwrap_or_default();
    content.push(b'\n');
    content
}

/// Plain text.
pub(crate) fn text(code: u16, content: &str) -> Response<Body> {
    let mut response = bytes(code, "text/plain; charset=utf-8", content.to_owned());
    set(
        &mut response,
        HeaderName::from_static("x-content-type-options"),
        "nosniff",
    );
    response
}

/// A Status error.
pub(crate) fn failure(status: &Status, encoding: Encoding, pretty: bool) -> Response<Body> {
    let mut response = if status.plain_text {
        text(status.code, &status.message)
    } else {
        document(status.code, encoding, pretty, &status.to_value())
    };
    let retry_after = status
        .details
        .as_ref()
        .and_then(|details| details.retry_after_seconds);
    if let Some(seconds) = retry_after {
        set(&mut response, RETRY_AFTER, &seconds.to_string());
    }
    for (name, value) in &status.headers {
        set(&mut response, HeaderName::from_static(name), value);
    }
    response
}

/// Adds one `Warning` header for each warning.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &Warnings) {
    for header in warnings.headers() {
        response.headers_mut().append(http::header::WARNING, header);
    }
}

/// Sets a header, if its value is valid.
pub(crate) fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

//! One request of the control API: its parts, its parameters, its body.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, Method};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::state::Control;
use crate::core::Core;
use crate::http::query::Parameters;
use crate::status::Status;

/// Maximum size of a request body in bytes.
const LARGEST_BODY: usize = 64 * 1024;

/// A request of the control API.
pub(super) struct Call<'a> {
    pub(super) core: &'a Arc<Core>,
    pub(super) control: &'a Control,
    pub(super) method: Method,
    /// The parts of the path below the prefix.
    pub(super) path: Vec<String>,
    pub(super) query: Parameters,
    pub(super) body: Value,
}

/// The answer to a [`Call`]: its code and its document.
pub(super) type Answer = Result<(u16, Value), Failure>;

/// The answer to a call that fails.
pub(super) enum Failure {
    Status(Status),
    /// 405, with the methods of the path.
    Method(&'static str),
}

/// No options.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

// === impl Failure ===

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

// === impl Call ===

impl Call<'_> {
    /// The body as `T`.
    ///
    /// # Errors
    /// 400 for a field that `T` does not have, and for a value of a wrong type.
    pub(super) fn body<T: DeserializeOwned>(&mut self) -> Result<T, Status> {
        serde_json::from_value(self.body.take())
            .map_err(|error| Status::bad_request(format!("the body: {error}")))
    }

    /// Refuses parameters and a body with content.
    pub(super) fn no_options(&mut self) -> Result<(), Status> {
        self.parameters(&[])?;
        self.body().map(|Nothing {}| ())
    }

    /// Refuses parameters that are not in `known`.
    pub(super) fn parameters(&self, known: &[&str]) -> Result<(), Status> {
        // `pretty` has its usual meaning on every path.
        let mut names = self.query.names();
        match names.find(|name| *name != "pretty" && !known.contains(name)) {
            None => Ok(()),
            Some(name) if known.is_empty() => Err(Status::bad_request(format!(
                "the parameter {name:?} is unknown: this path has none"
            ))),
            Some(name) => Err(Status::bad_request(format!(
                "the parameter {name:?} is unknown: this path has {}",
                known.join(", ")
            ))),
        }
    }

    /// A parameter as a number between 0 and `most`.
    pub(super) fn count(&self, name: &str, most: usize) -> Result<Option<usize>, Status> {
        let Some(text) = self.query.get(name) else {
            return Ok(None);
        };
        let number = text.parse().ok().filter(|number| *number <= most);
        number.map(Some).ok_or_else(|| {
            Status::bad_request(format!("{name}: {text:?} is not a number up to {most}"))
        })
    }
}

/// Refuses requests of web pages: on a server without authentication, any page in a browser on this machine could send them.
pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), Status> {
    if headers.contains_key(ORIGIN) {
        let text = "the control API has no answers for web pages: the request has an Origin";
        return Err(Status::new(403, "Forbidden", text));
    }
    Ok(())
}

/// The JSON of a body; an empty one is an empty object.
pub(super) fn document(headers: &HeaderMap, body: &[u8]) -> Result<Value, Status> {
    if body.len() > LARGEST_BODY {
        return Err(Status::too_large(format_args!("limit is {LARGEST_BODY}")));
    }
    if body.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let content_type = headers.get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let content_type = content_type.and_then(|text| text.split(';').next());
    let content_type = content_type.unwrap_or_default().trim();
    if !content_type.eq_ignore_ascii_case("application/json") {
        let text = format!("the body is {content_type:?}, and has to be application/json");
        return Err(Status::new(415, "UnsupportedMediaType", text));
    }
    serde_json::from_slice(body)
        .map_err(|error| Status::bad_request(format!("the body is not JSON: {error}")))
}

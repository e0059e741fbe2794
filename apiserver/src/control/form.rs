//! Bodies and parameters of calls.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Call;
use crate::status::Status;

/// The longest time that the clock is advanced by, in seconds: ten years.
const LONGEST_ADVANCE: f64 = 315_576_000.0;
/// The longest outage in seconds.
const LONGEST_OUTAGE: f64 = 3_600.0;

/// No options.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// A version, as objects have it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct UpTo {
    resource_version: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Seconds {
    seconds: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Switches {
    pub(super) bookmarks: Option<bool>,
    pub(super) streaming_lists: Option<bool>,
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

    /// Refuses a body with content.
    pub(super) fn no_body(&mut self) -> Result<(), Status> {
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

// === impl UpTo ===

impl UpTo {
    /// `None`: all versions.
    pub(super) fn version(self) -> Result<Option<u64>, Status> {
        let text = self.resource_version;
        text.map(|text| {
            text.parse().map_err(|_| {
                Status::bad_request(format!("resourceVersion: {text:?} is not a version"))
            })
        })
        .transpose()
    }
}

// === impl Seconds ===

impl Seconds {
    pub(super) fn to_advance(&self) -> Result<Duration, Status> {
        self.within(LONGEST_ADVANCE)
    }

    pub(super) fn of_outage(&self) -> Result<Duration, Status> {
        self.within(LONGEST_OUTAGE)
    }

    fn within(&self, longest: f64) -> Result<Duration, Status> {
        let seconds = self.seconds;
        if !(0.0..=longest).contains(&seconds) {
            return Err(Status::bad_request(format!(
                "seconds: {seconds} is not between 0 and {longest}"
            )));
        }
        Ok(Duration::from_secs_f64(seconds))
    }
}

/// A JSON body as a value of a document: JSON stays JSON, other text is text, and other bytes are base64.
pub(super) fn shown(body: &[u8]) -> Value {
    use base64::Engine as _;
    match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(_) => match std::str::from_utf8(body) {
            Ok(text) => text.into(),
            Err(_) => base64::engine::general_purpose::STANDARD
                .encode(body)
                .into(),
        },
    }
}

//! Bodies of calls.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::status::Status;

/// The longest time that the clock is advanced by, in seconds: ten years.
const LONGEST_ADVANCE: f64 = 315_576_000.0;
/// The longest outage in seconds.
const LONGEST_OUTAGE: f64 = 3_600.0;

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

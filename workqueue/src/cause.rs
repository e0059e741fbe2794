//! Causes of failures, for limiters and for snapshots.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a message, in bytes.
const KEPT: usize = 256;

/// Cause of a failed run. See [`Item::retry_because`](crate::Item::retry_because).
///
/// ```
/// # use std::time::Duration;
/// use reeve_workqueue::Cause;
/// let cause = Cause::new("the gateway is busy").class("throttled").retry_after(Duration::from_secs(7));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    class: &'static str,
    message: Arc<str>,
    retry_after: Option<Duration>,
}

// === impl Cause ===

impl Cause {
    /// A cause with a message for people. Its first 256 bytes are kept until the item succeeds.
    #[must_use]
    pub fn new(message: impl fmt::Display) -> Self {
        let mut text = message.to_string();
        let end = (0..=KEPT.min(text.len()))
            .rev()
            .find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        Self {
            class: "",
            message: text.into(),
            retry_after: None,
        }
    }

    /// Sets the kind of failure, for limiters that treat kinds differently. Default: empty.
    #[must_use]
    pub fn class(mut self, class: &'static str) -> Self {
        self.class = class;
        self
    }

    /// Minimum delay that the server requested (HTTP: `Retry-After`). The item waits at least that long,
    /// whatever its limiter returns; an immediate add still makes it ready.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The kind of failure; empty if none was set.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.class
    }

    /// The minimum delay, if one was set.
    #[must_use]
    pub fn wait_at_least(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Serialises as a map of `class`, `message` and `retry_after` in seconds.
#[cfg(feature = "serde")]
impl serde::Serialize for Cause {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("Cause", 3)?;
        fields.serialize_field("class", self.class)?;
        fields.serialize_field("message", &*self.message)?;
        let seconds = self.retry_after.map(|wait| wait.as_secs_f64());
        fields.serialize_field("retry_after", &seconds)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let cause = Cause::new("ä".repeat(200) + "b");
        assert_eq!(cause.message(), "ä".repeat(128));
        let cause = Cause::new("b".to_owned() + &"ä".repeat(200));
        assert_eq!(cause.message().len(), 255);
    }
}

//! What a source lists.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::target::Target;

/// An address that a source lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// How long it is to be banned from now on.
    pub(crate) duration: Duration,
    pub(crate) reason: String,
}

/// The addresses that a source lists now.
pub(crate) type Entries = BTreeMap<Target, Entry>;

/// The outcome of a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pulled {
    pub(super) entries: Entries,
    /// Wrong lines, ranges that are not wanted, and entries past the limit.
    pub(super) left_out: usize,
    /// Whether the list is another than at the pull before.
    pub(super) changed: bool,
}

/// Why a pull brought nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(super) struct Fault {
    pub(super) why: String,
    /// When to try again, if the server names a time.
    pub(super) after: Option<Duration>,
}

// === impl Fault ===

impl Fault {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            after: None,
        }
    }

    /// The fault of an answer with an error status. Its body may be anything, so it is not repeated.
    pub(super) fn of(answer: &http::Response<bytes::Bytes>) -> Self {
        let after = answer.headers().get(http::header::RETRY_AFTER);
        let after = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        Self {
            why: format!("the server answered HTTP {}", answer.status().as_u16()),
            after: after.map(Duration::from_secs),
        }
    }
}

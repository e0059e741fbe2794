//! The own writes that the caches do not show yet, in a form that can be printed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The own writes of a controller. A key whose writes the caches show by now counts until it comes back, or for about a
/// second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct WritesReport {
    /// The controller.
    pub controller: String,
    /// Keys with writes that hold them back.
    pub keys: usize,
    /// The end of the oldest run with such writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
    /// The time after which a key no longer waits, in milliseconds.
    pub limit_millis: u64,
    /// Written objects that no cache has shown: they are read from the server when their cache has passed the write.
    pub hidden: usize,
    /// The writes by kind, as `Deployment.apps`.
    pub kinds: Vec<KindReport>,
}

/// The own writes to objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KindReport {
    /// The kind.
    pub kind: String,
    /// Writes that no cache has shown.
    pub writes: usize,
    /// Those among them without an answer: a live read finds their effect.
    pub unknown: usize,
}

// === impl KindReport ===

impl KindReport {
    /// Writes to objects of `kind`.
    pub(crate) fn new(kind: String, writes: usize, unknown: usize) -> Self {
        Self {
            kind,
            writes,
            unknown,
        }
    }
}

// === impl WritesReport ===

impl WritesReport {
    /// Writes without an answer, of all kinds.
    #[must_use]
    pub fn unknown(&self) -> usize {
        self.kinds.iter().map(|kind| kind.unknown).sum()
    }
}

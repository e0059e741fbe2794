//! The second round of the steps that change objects.

use std::collections::BTreeSet;

use serde_json::Value;

/// The second round of the steps that change objects.
#[derive(Debug, Default)]
pub(crate) struct Reinvocation {
    /// Whether a second round follows.
    pub(crate) is_due: bool,
    /// Whether this is the second.
    pub(crate) is_second: bool,
    pub(crate) policies: Reinvoked,
    pub(crate) webhooks: Reinvoked,
}

/// The webhooks or policies of one write that are asked again if a later step changes the object.
#[derive(Debug, Default)]
pub(crate) struct Reinvoked {
    /// Asked already, and not yet due again.
    pub(super) asked: BTreeSet<String>,
    /// Due again.
    pub(super) due: BTreeSet<String>,
    /// The object after the last of them.
    pub(super) last: Option<Value>,
}

// === impl Reinvoked ===

impl Reinvoked {
    /// Makes those due that were asked before the object changed.
    pub(super) fn require(&mut self) {
        self.due.append(&mut self.asked);
    }
}

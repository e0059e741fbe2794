//! One chore while it is worked off.

use std::ops::Deref;

use crate::core::Core;
use crate::store::Decision;

/// The server, and the time at which the chore began: what it writes is refused once a restore has begun.
pub(super) struct Work<'a> {
    core: &'a Core,
    decision: Decision,
}

// === impl Work ===

impl<'a> Work<'a> {
    /// Begins a chore, after the end of a restore that runs. It must read what is stored after this.
    pub(super) async fn begin(core: &'a Core) -> Self {
        let decision = core.store.begin_decision().await;
        Self { core, decision }
    }

    pub(super) fn decision(&self) -> Decision {
        self.decision
    }

    /// Whether no restore has begun since.
    pub(super) fn stands(&self) -> bool {
        self.core.store.stands(self.decision)
    }
}

impl Deref for Work<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        self.core
    }
}

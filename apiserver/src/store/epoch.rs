//! Restores, as the background task sees them: what it decided before the end of one is not written after that.
//!
//! The task reads, decides and then writes. The version of the written object does not protect a decision about other
//! objects: a dependent whose owner comes back has not changed. So a [`Decision`] notes the restores that had ended when
//! it began, and each of its writes is refused when another one has begun since, in the order of writes.

use super::objects::Store;

/// The number of restores, and of those that run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Restores {
    begun: u64,
    running: usize,
}

/// The time at which a decision began, in restores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision(u64);

/// Refuses the writes of decisions that began earlier, until it is dropped.
#[must_use]
pub(crate) struct Restoring<'a>(&'a Store);

// === impl Restores ===

impl Restores {
    pub(super) fn allow(self, decision: Decision) -> bool {
        self.running == 0 && self.begun == decision.0
    }
}

// === impl Store ===

impl Store {
    /// Begins a restore: earlier decisions of the background task write nothing any more.
    pub(crate) fn begin_restore(&self) -> Restoring<'_> {
        // Between two batches of writes.
        let _log = self.log.lock();
        self.restores.send_modify(|restores| {
            restores.begun += 1;
            restores.running += 1;
        });
        Restoring(self)
    }

    /// Begins a decision, after the end of running restores.
    pub(crate) async fn begin_decision(&self) -> Decision {
        let mut restores = self.restores.subscribe();
        let ended = restores.wait_for(|restores| restores.running == 0).await;
        Decision(ended.map_or(u64::MAX, |restores| restores.begun))
    }

    /// Whether the writes of a decision are accepted.
    pub(crate) fn stands(&self, decision: Decision) -> bool {
        self.restores.borrow().allow(decision)
    }
}

// === impl Restoring ===

impl Drop for Restoring<'_> {
    fn drop(&mut self) {
        self.0
            .restores
            .send_modify(|restores| restores.running -= 1);
    }
}

//! An engine that only records its calls.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::{Ban, Capabilities, Engine, Error, Kind, Remaining, Unban};
use crate::outbound::BoxFuture;
use crate::target::Target;

/// Keeps the set of banned targets in memory, and logs each call.
#[derive(Debug, Default)]
pub struct DryRun {
    banned: Mutex<BTreeSet<Target>>,
}

// === impl DryRun ===

impl DryRun {
    /// Nothing banned.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Engine for DryRun {
    fn capabilities(&self) -> Capabilities {
        Kind::DryRun.capabilities()
    }

    fn endpoint(&self) -> &'static str {
        ""
    }

    fn ban<'a>(
        &'a self,
        target: &'a Target,
        remaining: Option<Remaining>,
    ) -> BoxFuture<'a, Result<Ban, Error>> {
        Box::pin(async move {
            let seconds = remaining.map(Remaining::as_secs);
            tracing::info!(%target, seconds, "dry run: would ban");
            if self.banned.lock().insert(*target) {
                Ok(Ban::Added)
            } else {
                Ok(Ban::Already)
            }
        })
    }

    fn unban<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Unban, Error>> {
        Box::pin(async move {
            tracing::info!(%target, "dry run: would unban");
            if self.banned.lock().remove(target) {
                Ok(Unban::Removed)
            } else {
                Ok(Unban::Absent)
            }
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Option<BTreeSet<Target>>, Error>> {
        Box::pin(async move { Ok(Some(self.banned.lock().clone())) })
    }
}

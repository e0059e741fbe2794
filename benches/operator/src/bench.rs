//! What scenarios share: the cluster, the gateway, the operator that is measured, and the report.

use std::time::Duration;

use jiff::SignedDuration;
use kube_client::Client;
use tokio::time::Instant;

use crate::blocks::{self, Result};
use crate::cluster::{Cluster, Requests};
use crate::gateway::Gateway;
use crate::report::Report;
use crate::subject::{Recipe, Subject};

/// The state that scenarios share.
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) gateway: Gateway,
    pub(crate) recipe: Recipe,
    pub(crate) name: String,
    pub(crate) report: Report,
    /// One reading of both clocks, to put monotonic times on the wall clock.
    pub(crate) clocks: (Instant, jiff::Timestamp),
}

// === impl Bench ===

impl Bench {
    /// Starts the operator and gives it two seconds to become ready.
    pub(crate) async fn start(&mut self) -> Result<Subject> {
        self.gateway.clear();
        let subject = self.recipe.start()?;
        // The operators have no common sign of readiness.
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(subject)
    }

    /// Waits until there was no write for two seconds (at most two minutes), and returns the writes so far.
    pub(crate) async fn settled(&self) -> Result<Requests> {
        let mut last = self.cluster.requests().await?;
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let now = self.cluster.requests().await?;
            if now.writes == last.writes {
                return Ok(now);
            }
            last = now;
        }
        Ok(last)
    }

    /// Starts the operator again, at once, leaving the gateway as it is.
    pub(crate) async fn start_again(&mut self) -> Result<Subject> {
        self.recipe.start()
    }

    /// Ends the operator and empties server and gateway.
    pub(crate) async fn finish(&mut self, subject: Subject) -> Result<()> {
        subject.kill().await?;
        blocks::clear(&self.client).await?;
        self.gateway.clear();
        Ok(())
    }

    /// The wall time at `at`.
    pub(crate) fn wall(&self, at: Instant) -> jiff::Timestamp {
        let since = SignedDuration::try_from(at.saturating_duration_since(self.clocks.0))
            .unwrap_or_default();
        self.clocks.1 + since
    }
}

//! A runnable with a lease of its own.

use std::sync::{Arc, OnceLock};

use reeve_clock::Clock;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    ElectionMetrics, Elector, Fence, Lost, Options, SharedStatus, add_checks, remove_checks,
};
use crate::debug::{Candidate, Elections};
use crate::health::Health;
use crate::lifecycle::Name;
use crate::lifecycle::Runnable;
use crate::metrics::{Metrics, Series};
use reeve_client::Client;

/// The lease of one controller: contended for while it runs, given up after it has ended.
pub(crate) struct Own {
    client: Client,
    options: Options,
    clock: Clock,
    metrics: ElectionMetrics,
    /// Shown at `/debug/election`.
    candidate: Arc<Candidate>,
    health: Health,
    fence: Fence,
    leading: watch::Sender<bool>,
    /// Whether the controller has ended all its work as the leader.
    rests: watch::Sender<bool>,
    /// The time limit for the release of the lease, once the manager stops.
    release_by: Arc<OnceLock<Instant>>,
    /// Before the name: the next holder of the name begins its own series.
    series: Series,
    /// The name in use: nothing else in this manager contends for it.
    #[expect(dead_code, reason = "held, so that it is taken")]
    name: Name,
}

/// A controller's view of its lease, and the report of its rest.
pub(crate) struct Term {
    leading: watch::Receiver<bool>,
    /// `None` for the manager's lease, whose loss ends the manager and all that it runs.
    rests: Option<watch::Sender<bool>>,
}

// === impl Term ===

impl Term {
    /// Under the lease of the manager.
    pub(crate) fn shared(leading: watch::Receiver<bool>) -> Self {
        Self {
            leading,
            rests: None,
        }
    }

    /// Whether this replica leads.
    pub(crate) fn leads(&self) -> bool {
        *self.leading.borrow()
    }

    /// Waits until this replica leads; false if it never will.
    pub(crate) async fn begin(&mut self) -> bool {
        let leads = self.leading.wait_for(|leads| *leads).await.is_ok();
        if leads && let Some(rests) = &self.rests {
            rests.send_replace(false);
        }
        leads
    }

    /// Waits for the loss of the lease; never returns for the manager's lease.
    pub(crate) async fn lost(&self) {
        let mut leading = self.leading.clone();
        let lost = async { leading.wait_for(|leads| !*leads).await.is_ok() };
        if self.rests.is_none() || !lost.await {
            std::future::pending::<()>().await;
        }
    }

    /// Reports that all work as the leader has ended.
    pub(crate) fn rest(&self) {
        if let Some(rests) = &self.rests {
            rests.send_replace(true);
        }
    }
}

// === impl Own ===

impl Own {
    /// `elections` shows the lease as that of the controller of this name.
    #[expect(clippy::too_many_arguments, reason = "the parts of a manager")]
    pub(crate) fn new(
        options: Options,
        name: Name,
        client: Client,
        clock: &Clock,
        metrics: &Metrics,
        health: &Health,
        elections: (&Elections, &str),
        release_by: Arc<OnceLock<Instant>>,
    ) -> Self {
        // One identity for all electors that follow one another.
        let options = options.identified(clock);
        let (elections, controller) = elections;
        let status = SharedStatus::new(&options, clock);
        Self {
            candidate: elections.add(Some(controller), status),
            metrics: metrics.election(options.name()),
            fence: Fence::closed(clock.clone()),
            client,
            clock: clock.clone(),
            health: health.clone(),
            leading: watch::channel(false).0,
            rests: watch::channel(true).0,
            release_by,
            series: metrics.lease_series(options.name()),
            options,
            name,
        }
    }

    /// The fence that the client of the runnable checks before a write.
    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    /// For the runnable.
    pub(crate) fn term(&self) -> Term {
        Term {
            leading: self.leading.subscribe(),
            rests: Some(self.rests.clone()),
        }
    }

    /// `runnable`, beside the contender for the lease, which releases it after the end of the runnable. When the lease
    /// is lost, the runnable stands by, and the contender starts again.
    pub(crate) fn around(mut self, mut runnable: Runnable) -> Runnable {
        runnable.contend = Some(Box::new(move |ticket, ended| {
            let contending = async move {
                let lease = self.options.name().to_owned();
                add_checks(&self.health, &lease, &self.fence);
                self.contend(&ended).await;
                remove_checks(&self.health, &lease);
                if !ticket.is_asked_to_stop() {
                    // The manager stops, too.
                    self.series.keep();
                }
            };
            Box::pin(contending)
        }));
        runnable
    }

    /// Takes the lease, keeps it, and takes it again when it was lost, until `ended`; then gives it up.
    async fn contend(&self, ended: &CancellationToken) {
        let mut duplicate = false;
        loop {
            let elector = Elector::with_fence(
                self.client.clone(),
                self.options.clone(),
                self.clock.clone(),
                self.fence.clone(),
            )
            .expect("the builder has validated the options")
            .with_metrics(self.metrics.clone())
            .with_status(self.candidate.status().clone())
            .duplicate_identity(duplicate)
            .releasing_by(Arc::clone(&self.release_by));
            let lead = elector.lead(ended.clone(), self.leading.clone());
            let Err(lost) = lead.await else {
                return;
            };
            tracing::warn!(lease = self.options.name(), cause = %lost, "controller lost its lease; standing by");
            duplicate = matches!(lost, Lost::DuplicateIdentity { .. });
            // A decision under the old lease must not be written under the next.
            let mut rests = self.rests.subscribe();
            tokio::select! {
                biased;
                () = ended.cancelled() => return,
                rests = rests.wait_for(|rests| *rests) => if rests.is_err() {
                    return;
                },
            }
        }
    }
}

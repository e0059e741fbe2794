//! A runnable with a lease of its own.

use std::sync::Arc;

use reeve_clock::Clock;
use tokio::pin;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::{Elector, Fence, Options, add_checks, remove_checks};
use crate::client::Client;
use crate::health::Health;
use crate::manager::Runnable;
use crate::manager::names::Name;
use crate::metrics::Metrics;

/// The lease of one controller: contended for while it runs, given up after it has ended.
pub(crate) struct Own {
    elector: Elector,
    lease: String,
    health: Health,
    fence: Fence,
    leading: watch::Sender<bool>,
    /// Nobody else in this manager contends for it.
    name: Name,
}

// === impl Own ===

impl Own {
    pub(crate) fn new(
        options: Options,
        name: Name,
        client: Client,
        clock: &Clock,
        metrics: &Metrics,
        health: &Health,
    ) -> Self {
        let (lease, fence) = (options.name.clone(), Fence::closed(clock.clone()));
        let marks = metrics.leader(&lease);
        Self {
            elector: Elector::new(client, options, clock.clone(), fence.clone(), marks),
            lease,
            health: health.clone(),
            fence,
            leading: watch::channel(false).0,
            name,
        }
    }

    /// What the client of the runnable asks before it writes.
    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Whether the lease is ours.
    pub(crate) fn leads(&self) -> watch::Receiver<bool> {
        self.leading.subscribe()
    }

    /// `runnable`, contending for the lease while it runs. Told to stop, it ends and then the lease is given up; when
    /// the lease is lost, it is dropped, and the loss is its error.
    pub(crate) fn around(self, runnable: Runnable) -> Runnable {
        let name = runnable.name().to_owned();
        Runnable::told(name, move |ticket, stop| async move {
            let Self {
                elector,
                lease,
                health,
                fence,
                leading,
                name: _name,
            } = self;
            add_checks(&health, &lease, &fence);
            let ended = CancellationToken::new();
            let lead = elector.lead(ended.clone(), leading);
            pin!(lead);
            let mut run = (runnable.run)(Arc::clone(&ticket), stop);
            let result = tokio::select! {
                biased;
                lost = &mut lead => {
                    // At once: another may lead soon.
                    drop(run);
                    lost.map_err(BoxError::from)
                }
                result = &mut run => {
                    drop(run);
                    ended.cancel();
                    let released = lead.await.map_err(BoxError::from);
                    result.and(released)
                }
            };
            remove_checks(&health, &lease);
            result
        })
    }
}

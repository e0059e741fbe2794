//! Load balancers of this cluster whose Service does not exist: what a Service leaves behind whose finalizer someone
//! removed by force. They are searched by the tag of the cluster, reported, and deleted on request.
//!
//! The same search deletes the [leftovers](Provider::leftovers) of interrupted calls, which serve nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use reeve_controller::client::{self, Client, optional};
use reeve_controller::{CancellationToken, ObjectKey};
use tokio::time::{Instant, sleep};

use crate::identity::{SERVICE_TAG, UID_TAG};
use crate::metrics::Metrics;
use crate::model::{LbId, LoadBalancer, State};
use crate::provider::{self, Provider};
use crate::settings::Settings;

/// Searches for orphans.
pub(crate) struct Orphans {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    /// Those of the last search. Only an orphan of two searches in a row is reported or deleted: a Service may have been
    /// deleted between the reads of the first.
    pub(crate) before: BTreeSet<LbId>,
    /// The leftovers of the last search, and when each was first seen. A call that was under way then may use it by now.
    pub(crate) leftovers: BTreeMap<String, Instant>,
}

/// The wait after a search that failed.
const AGAIN: Duration = Duration::from_secs(60);
/// The failed reads of Services after which a search is given up: the server is away.
const MOST_FAILURES: usize = 5;

/// A search failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("search load balancers: {0}")]
    Cloud(#[from] provider::Error),
    #[error("read a Service: {0}")]
    Cluster(#[from] client::Error),
}

// === impl Orphans ===

impl Orphans {
    /// Searches regularly until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let searches = async {
            let period = self.settings.orphan_period;
            let mut wait = period;
            loop {
                sleep(wait).await;
                wait = match self.search().await {
                    Ok(()) => period,
                    Err(error) => {
                        tracing::warn!(%error, "could not search for orphans");
                        period.min(AGAIN)
                    }
                };
                if let Err(error) = self.tidy().await {
                    tracing::warn!(%error, "could not search for leftovers");
                }
            }
        };
        let _ = stop.run_until_cancelled(searches).await;
    }

    async fn search(&mut self) -> Result<(), Error> {
        let tags = self.settings.cluster.tags();
        let mut now = BTreeSet::new();
        let mut failed = Vec::new();
        for balancer in self.provider.find(&tags).await? {
            if balancer.state == State::Deleting {
                continue;
            }
            // One that is not checked stays what it was.
            let mut orphan = self.before.contains(&balancer.id);
            if failed.len() < MOST_FAILURES {
                match self.has_service(&balancer).await {
                    Ok(true) => orphan = false,
                    Ok(false) => {
                        self.found(&balancer).await;
                        orphan = true;
                    }
                    Err(error) => failed.push(error),
                }
            }
            if orphan {
                now.insert(balancer.id);
            }
        }
        self.metrics.orphans(now.len());
        self.before = now;
        failed.into_iter().next().map_or(Ok(()), Err)
    }

    /// Deletes the leftovers that are unused for as long as two searches are apart.
    async fn tidy(&mut self) -> Result<(), provider::Error> {
        let now = Instant::now();
        let mut leftovers = BTreeMap::new();
        for id in self.provider.leftovers().await? {
            let first = self.leftovers.get(&id).copied().unwrap_or(now);
            let old = now.duration_since(first) >= self.settings.orphan_period;
            if old && !self.settings.dry_run {
                match self.provider.delete_leftover(&id).await {
                    Ok(()) => {
                        tracing::info!(id, "deleted what an interrupted call left in the cloud");
                        continue;
                    }
                    Err(error) => {
                        tracing::warn!(id, %error, "could not delete what an interrupted call left in the cloud");
                    }
                }
            }
            leftovers.insert(id, first);
        }
        self.leftovers = leftovers;
        Ok(())
    }

    /// Whether the Service of `balancer` exists, by a read of the server: its uid counts, not its name.
    async fn has_service(&self, balancer: &LoadBalancer) -> Result<bool, Error> {
        let tag = |key: &str| balancer.tags.get(key).map(String::as_str);
        let name = tag(SERVICE_TAG).and_then(|name| name.split_once('/'));
        let (Some(uid), Some((namespace, name))) = (tag(UID_TAG), name) else {
            // Not enough is known to call it an orphan.
            return Ok(true);
        };
        let key = ObjectKey::namespaced(namespace, name);
        let live = optional(self.client.get_metadata::<Service>(&key).await)?;
        Ok(live.is_some_and(|live| live.uid.as_deref() == Some(uid)))
    }

    async fn found(&self, balancer: &LoadBalancer) {
        if !self.before.contains(&balancer.id) {
            return;
        }
        let (id, service) = (&balancer.id, balancer.tags.get(SERVICE_TAG));
        if !self.settings.gc_orphans || self.settings.dry_run {
            tracing::warn!(%id, service, "load balancer without a Service; delete it, or run with --gc-orphans");
            return;
        }
        match self.delete(&balancer.id).await {
            Ok(()) => tracing::info!(%id, service, "deleted load balancer without a Service"),
            Err(error) => {
                tracing::warn!(%id, %error, "could not delete load balancer without a Service");
            }
        }
    }

    /// Deletes a load balancer, unless it is preserved meanwhile: a search may be old, a description is not.
    async fn delete(&self, id: &LbId) -> Result<(), provider::Error> {
        let Some(balancer) = self.provider.describe(id).await? else {
            return Ok(());
        };
        let tags = self.settings.cluster.tags();
        if tags
            .iter()
            .any(|(key, value)| balancer.tags.get(key) != Some(value))
        {
            return Ok(());
        }
        if balancer.delete_protection {
            self.provider
                .set_delete_protection(&balancer.id, false)
                .await?;
        }
        self.provider.delete(&balancer.id).await
    }
}

//! The operator put together: a manager with the reconcilers, the triggers and the notifications.

mod assembly;
mod outside;
mod runnables;
mod settings;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_controller::cache::{CacheOptions, KindOptions, Selected, StoreForm};
use reeve_controller::{Manager, controller, leader_election, manager, source};
use tokio_util::sync::CancellationToken;

use self::assembly::{assemble, serve_page};
pub use self::settings::{Settings, infrastructure};
use crate::api::IPBlock;
use crate::config::CONFIG_MAP;
use crate::decide::Coverage;
use crate::guard::Discovery;
use crate::lock::KeyedLocks;
use crate::outbound;
use crate::page;
use crate::sets::Sets;
use crate::target::Target;
use crate::trigger::Triggers;

/// The name of the lease.
pub const LEASE: &str = "ipblock-operator";

/// Blocks that stay decoded in the cache: a run reads its block twice.
const DECODED: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// Why the operator does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The manager.
    #[error(transparent)]
    Manager(#[from] manager::Error),
    /// A controller.
    #[error(transparent)]
    Controller(#[from] controller::BuildError),
    /// The HTTP client for hooks.
    #[error("no HTTP client: {0}")]
    Outbound(#[from] outbound::Error),
    /// A request for the start could not be queued.
    #[error(transparent)]
    Source(#[from] source::SendError),
    /// The page.
    #[error(transparent)]
    Page(#[from] page::Error),
    /// The page's address is not known.
    #[error("the page: {0}")]
    Listener(#[from] std::io::Error),
}

/// An operator that is ready to run.
#[derive(Clone)]
pub struct Operator {
    manager: Manager,
    triggers: Arc<Triggers>,
    sets: Arc<Sets>,
    page: Option<SocketAddr>,
    kept: Kept,
}

/// The operator's memory of blocks beside the cache. It shrinks with the blocks.
#[derive(Clone, Debug, Default)]
struct Kept {
    coverage: Arc<Mutex<Coverage>>,
    locks: KeyedLocks<Target>,
}

// === impl Operator ===

impl Operator {
    /// Puts the operator together and binds its servers. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub async fn build(client: kube_client::Client, settings: Settings) -> Result<Self, Error> {
        // One ConfigMap, not all of the cluster.
        let configuration = KindOptions::new()
            .in_namespace(settings.namespace.as_str(), Selected::new())
            .fields(format!("metadata.name={CONFIG_MAP}"));
        // Blocks are many, alike, and read one at a time.
        let blocks = KindOptions::new()
            .form(StoreForm::Compact)
            .cache_decoded(DECODED)
            .pack();
        let cache = CacheOptions::new()
            .for_kind::<ConfigMap>(configuration)
            .for_kind::<IPBlock>(blocks);
        let cache = Discovery::cache(cache);
        let mut builder = Manager::builder(client.clone())
            .cache(cache)
            .clock(settings.clock.clone())
            .metrics(settings.metrics.clone());
        if let Some(namespace) = &settings.watch_namespace {
            builder = builder.namespace(namespace.as_str());
        }
        if let Some(identity) = &settings.identity {
            let election = leader_election::Options::new(settings.namespace.as_str(), LEASE);
            builder = builder.leader_election(election.identity(identity.as_str()));
        }
        if let Some(address) = settings.health_address {
            builder = builder.health_address(address);
        }
        if let Some(server) = &settings.metrics_server {
            builder = builder.metrics_server(server.clone());
        }
        if let Some(levels) = &settings.log_levels {
            builder = builder.log_levels(levels.clone());
        }
        let manager = builder.build().await?;
        let kept = Kept::default();
        let assembled = assemble(&manager, client.clone(), &settings, &kept)?;
        let page = serve_page(&manager, client, &settings, &assembled).await?;
        Ok(Self {
            manager,
            triggers: assembled.triggers,
            sets: assembled.sets,
            page,
            kept,
        })
    }

    /// The manager, for its addresses and checks.
    #[must_use]
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    /// The triggers, for the addresses they listen at.
    #[must_use]
    pub fn triggers(&self) -> &Arc<Triggers> {
        &self.triggers
    }

    /// The engines that follow the set of bans, for the addresses they are served at.
    #[must_use]
    pub fn sets(&self) -> &Arc<Sets> {
        &self.sets
    }

    /// Where the page is served, with the port that was chosen.
    #[must_use]
    pub fn page_address(&self) -> Option<SocketAddr> {
        self.page
    }

    /// Runs until `stop` is cancelled or something fails.
    ///
    /// # Errors
    /// See [`manager::Error`].
    pub async fn run(&self, stop: CancellationToken) -> Result<(), Error> {
        Ok(self.manager.run(stop).await?)
    }

    /// Runs until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// See [`manager::Error`].
    pub async fn run_until_signal(&self) -> Result<(), Error> {
        Ok(self.manager.run_until_signal().await?)
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Operator")
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

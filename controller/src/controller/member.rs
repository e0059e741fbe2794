//! Members of a controller, with their readiness: watches whose handlers are registered, and sources.

use std::sync::Arc;
use std::time::Duration;

use reeve_informer::{Activity, CacheHealth};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::reading::Gauge;
use crate::cache::Registration;
use crate::lifecycle::Unavailable;

/// The period of the check for a missing optional kind, while the workers wait to start.
const CHECK_PERIOD: Duration = Duration::from_millis(100);

/// A watch or a source.
#[derive(Clone)]
pub(super) enum Member {
    Watch(Arc<Registered>),
    Source(Arc<Gauge>),
}

/// A handler that is registered.
pub(super) struct Registered {
    pub(super) registration: Registration,
    pub(super) optional: bool,
    /// Cancelled when the handler is removed.
    pub(super) removed: CancellationToken,
}

// === impl Member ===

impl Member {
    /// Returns when a watch has seen its first objects or its optional kind is missing, or when a source has started.
    pub(super) async fn attached(&self) {
        match self {
            Self::Watch(registered) => registered.attached().await,
            Self::Source(gauge) => gauge.started().await,
        }
    }

    pub(super) fn is_attached(&self) -> bool {
        match self {
            Self::Watch(registered) => registered.is_attached(),
            Self::Source(gauge) => gauge.is_started(),
        }
    }

    pub(super) fn is_removed(&self) -> bool {
        match self {
            Self::Watch(registered) => registered.removed.is_cancelled(),
            Self::Source(gauge) => gauge.is_removed(),
        }
    }

    /// The cause, if it adds no requests.
    pub(super) fn trouble(&self) -> Option<Unavailable> {
        match self {
            Self::Watch(registered) => registered.trouble(),
            Self::Source(gauge) => gauge.trouble(),
        }
    }
}

// === impl Registered ===

impl Registered {
    /// Returns when the handler has seen its first objects or is removed, or the kind is optional and the server does
    /// not have it.
    async fn attached(&self) {
        tokio::select! {
            biased;
            () = self.removed.cancelled() => {}
            () = self.registration.wait_synced() => {}
            () = self.missing(), if self.optional => {}
        }
    }

    fn is_attached(&self) -> bool {
        let missing = || self.registration.health().activity == Activity::Missing;
        self.registration.has_synced() || (self.optional && missing())
    }

    /// Returns when the server does not have the kind.
    async fn missing(&self) {
        while self.registration.health().activity != Activity::Missing {
            sleep(CHECK_PERIOD).await;
        }
    }

    /// The cause, if the handler has not seen its first objects.
    pub(super) fn trouble(&self) -> Option<Unavailable> {
        if self.registration.has_synced() || self.removed.is_cancelled() {
            return None;
        }
        let health = self.registration.health();
        let cause = match &health.failure {
            _ if health.activity == Activity::Missing => "not found",
            Some(failure) => failure.class,
            None => "not synced",
        };
        let message = health.trouble().unwrap_or_else(|| waiting(&health));
        Some(Unavailable {
            optional: self.optional && health.activity == Activity::Missing,
            informer: health.name,
            cause,
            message,
        })
    }
}

/// The text for a healthy informer whose handler has not seen all first objects.
fn waiting(health: &CacheHealth) -> String {
    format!("{}: delivering {} objects", health.name, health.objects)
}

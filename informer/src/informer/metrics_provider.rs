//! Where an informer's measurements go: [`MetricsProvider`].

use std::sync::{Arc, Weak};

use crate::health::CacheHealth;
use crate::metrics::InformerMetrics;

/// Makes a receiver of measurements for each informer (client-go: `InformerMetricsProvider`, `SetReflectorMetricsProvider`).
/// [`prometheus::Metrics`](crate::prometheus::Metrics), behind the feature `prometheus`, is one.
pub trait MetricsProvider: Send + Sync + 'static {
    /// Returns the receiver of a new informer's measurements. Gauges (objects, versions, backlogs) are read from
    /// `gauges` on demand, for as long as the informer lives.
    fn informer(
        &self,
        informer: &InformerIdentity,
        gauges: Weak<dyn Gauges>,
    ) -> Box<dyn InformerMetrics>;
}

/// The state of an informer, which can be read at any time.
pub trait Gauges: Send + Sync {
    /// The state now.
    fn read(&self) -> CacheHealth;
}

/// The identity of an informer in metrics (client-go: `InformerNameAndResource`). Two informers of one identity are
/// measured as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct InformerIdentity {
    /// The informer's name.
    pub name: Arc<str>,
    /// The group of the kind; empty for the core group.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The resource, `configmaps`.
    pub resource: String,
}

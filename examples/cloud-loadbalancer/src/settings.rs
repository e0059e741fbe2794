//! The settings of the program.

use std::time::Duration;

use crate::backends::Readiness;
use crate::identity::ClusterId;

/// The program's own settings, in addition to the options of every program.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The id of the cluster.
    pub cluster: ClusterId,
    /// Whether Services without `spec.loadBalancerClass` are this controller's.
    pub default_class: bool,
    /// Whether nodes that are not ready get traffic.
    pub readiness: Readiness,
    /// The time between two full comparisons of a load balancer whose Service does not change.
    pub drift_period: Duration,
    /// The time between two searches for orphans.
    pub orphan_period: Duration,
    /// Whether orphans are deleted.
    pub gc_orphans: bool,
    /// Whether plans are only reported.
    pub dry_run: bool,
    /// The number of Services that are reconciled at once.
    pub workers: usize,
    /// The largest number of requests to the cloud in a second. Fewer are sent while the cloud throttles.
    pub calls_per_second: u32,
}

// === impl Settings ===

impl Settings {
    /// The defaults for `cluster`: all Services without a class, a full comparison and a search for orphans every ten
    /// minutes, three workers, fifty calls a second.
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            default_class: true,
            readiness: Readiness::Ignore,
            drift_period: Duration::from_secs(600),
            orphan_period: Duration::from_secs(600),
            gc_orphans: false,
            dry_run: false,
            workers: 3,
            calls_per_second: 50,
        }
    }
}

//! From a kind to its engine.

use std::sync::Arc;

use super::{DryRun, Endpoint, Engine, Follows, Iptables, Kind, Xdp};
use crate::outbound::Outbound;

// === impl Kind ===

impl Kind {
    /// The engine of this kind, without [`Guarded`](super::Guarded). `endpoint` is called if the kind calls a gateway.
    ///
    /// # Errors
    /// Those of `endpoint`.
    pub fn connect<E>(
        self,
        endpoint: impl FnOnce() -> Result<Endpoint, E>,
        outbound: Arc<dyn Outbound>,
    ) -> Result<Arc<dyn Engine>, E> {
        let engine: Arc<dyn Engine> = match self {
            Self::Iptables => Arc::new(Iptables::new(endpoint()?, outbound)),
            Self::Xdp => Arc::new(Xdp::new(endpoint()?, outbound)),
            Self::DryRun => Arc::new(DryRun::new()),
            Self::Sets => Arc::new(Follows),
        };
        Ok(engine)
    }
}

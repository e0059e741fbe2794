//! The parts of the server that steps of admission use.

use std::sync::Arc;

use reeve_clock::Clock;

use crate::rbac::{Policy, PolicyCache};
use crate::registry::Registry;
use crate::store::Store;
use crate::webhooks::{Backends, Network};

/// The parts of the server that steps of admission use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server<'a> {
    pub(crate) store: &'a Store,
    pub(crate) registry: &'a Registry,
    pub(crate) clock: &'a Clock,
    /// Webhooks in this process.
    pub(crate) backends: &'a Backends,
    /// `None` if everything is allowed.
    pub(crate) policy: Option<&'a PolicyCache>,
}

// === impl Server ===

impl Server<'_> {
    /// The parts that calls of webhooks use.
    pub(crate) fn network(&self) -> Network<'_> {
        Network {
            store: self.store,
            backends: self.backends,
            clock: self.clock,
        }
    }

    /// The policy, if requests are checked against one.
    pub(crate) fn policy(&self) -> Option<Arc<Policy>> {
        self.policy.map(|policy| policy.current(self.store))
    }
}

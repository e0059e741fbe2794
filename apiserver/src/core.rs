//! What all requests share: the store, the resources that are served, the policy, and the faults.

use std::sync::Arc;

use reeve_clock::Clock;
use tokio::sync::watch;

use crate::admission::{self, Chain};
use crate::authn::Authenticator;
use crate::definitions::Installed;
use crate::faults::Faults;
use crate::identity::Identity;
use crate::kinds::{Claims, ServiceRange};
use crate::openapi::OpenApiCache;
use crate::rbac::PolicyCache;
use crate::record::Record;
use crate::registry::Registry;
use crate::store::Store;
use crate::webhooks::{Backends, Network};

/// Options of the server.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The minor version of Kubernetes 1 in `/version`.
    pub(crate) minor: u32,
    /// Whether requests are checked against RBAC.
    pub(crate) rbac: bool,
    /// Whether a server that checks rights also has the roles of the controllers of a control plane.
    pub(crate) controller_roles: bool,
    /// Whether streaming lists are offered.
    pub(crate) streaming_lists: bool,
    /// Whether dependents of deleted owners are collected.
    pub(crate) garbage_collection: bool,
    /// Further names in certificates.
    pub(crate) tls_san: Vec<String>,
    /// Whether namespaces get a ServiceAccount and are emptied.
    pub(crate) namespace_controller: bool,
    /// The cluster addresses of Services.
    pub(crate) service_range: ServiceRange,
}

/// The server without its transports.
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) definitions: Installed,
    pub(crate) clock: Clock,
    pub(crate) authenticator: Authenticator,
    pub(crate) identity: Identity,
    pub(crate) policy: PolicyCache,
    pub(crate) open_api: OpenApiCache,
    pub(crate) faults: Faults,
    pub(crate) record: Record,
    pub(crate) options: Options,
    /// The steps of admission.
    pub(crate) admission: Chain,
    /// Webhooks in this process.
    pub(crate) backends: Backends,
    /// Addresses and node ports of Services that are being written.
    pub(crate) claims: Claims,
    /// Changes when open watches must end.
    pub(crate) closing: watch::Sender<u64>,
    /// False while the server is down: no request is answered.
    pub(crate) up: watch::Sender<bool>,
}

// === impl Core ===

impl Core {
    /// A core that serves `resources`.
    pub(crate) fn new(
        store: Store,
        (registry, definitions): (Registry, Installed),
        clock: Clock,
        authenticator: Authenticator,
        identity: Identity,
        admission: Chain,
        options: Options,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            registry,
            definitions,
            faults: Faults::new(clock.clone()),
            record: Record::default(),
            clock,
            authenticator,
            identity,
            policy: PolicyCache::default(),
            open_api: OpenApiCache::default(),
            options,
            admission,
            backends: Backends::default(),
            claims: Claims::default(),
            closing: watch::Sender::new(0),
            up: watch::Sender::new(true),
        })
    }

    /// The parts that admission uses.
    pub(crate) fn of_admission(&self) -> admission::Server<'_> {
        admission::Server {
            store: &self.store,
            registry: &self.registry,
            clock: &self.clock,
            backends: &self.backends,
            policy: self.options.rbac.then_some(&self.policy),
        }
    }

    /// The parts that calls of webhooks use.
    pub(crate) fn network(&self) -> Network<'_> {
        Network {
            store: &self.store,
            backends: &self.backends,
            clock: &self.clock,
        }
    }

    /// Whether watches can start with initial events.
    pub(crate) fn streaming_lists(&self) -> bool {
        self.options.streaming_lists && !self.faults.refuses_streaming_lists()
    }

    /// Takes the server down as if it had been killed.
    pub(crate) fn go_down(&self) {
        self.up.send_replace(false);
        self.close_watches();
    }

    /// Brings it up again, without its history.
    pub(crate) fn come_up(&self) {
        self.store.forget(u64::MAX);
        self.up.send_replace(true);
    }

    /// Ends every open watch, without a last event.
    pub(crate) fn close_watches(&self) {
        self.closing.send_modify(|generation| *generation += 1);
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

//! What all requests share: the store, what is served, who may, and what shall go wrong.

use std::sync::Arc;

use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::watch;

use crate::access::PolicyCache;
use crate::authn::Authenticator;
use crate::documents::OpenApiCache;
use crate::faults::Faults;
use crate::identity::Identity;
use crate::kinds;
use crate::lifecycle::definitions::Installed;
use crate::record::Record;
use crate::registry::Registry;
use crate::store::Store;
use crate::verbs::Request;

/// Choices made when the server is built.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// What `/version` says: minor version of Kubernetes 1.
    pub(crate) minor: u32,
    /// Requests are checked against RBAC.
    pub(crate) rbac: bool,
    /// Streaming lists are offered.
    pub(crate) streaming_lists: bool,
    /// Owners' dependents are collected.
    pub(crate) garbage_collection: bool,
}

/// The server without its faces.
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
    /// Held from the choice of a Service's addresses and node ports until the Service is stored.
    pub(crate) service_allocation: Mutex<()>,
    /// Changes when open watches are to end.
    pub(crate) closing: watch::Sender<u64>,
    /// False while the server is down: no request is answered.
    pub(crate) up: watch::Sender<bool>,
}

// === impl Core ===

impl Core {
    /// A core that serves the built-in resources.
    pub(crate) fn new(
        store: Store,
        clock: Clock,
        authenticator: Authenticator,
        identity: Identity,
        options: Options,
    ) -> Arc<Self> {
        let registry = Registry::default();
        for info in kinds::builtin() {
            if !info.storage.is_empty() {
                store.create_table(&info.storage);
            }
            registry.set(&info.storage.clone(), vec![info]);
        }
        Arc::new(Self {
            store,
            registry,
            definitions: Installed::default(),
            faults: Faults::new(clock.clone()),
            record: Record::default(),
            clock,
            authenticator,
            identity,
            policy: PolicyCache::default(),
            open_api: OpenApiCache::default(),
            options,
            service_allocation: Mutex::default(),
            closing: watch::Sender::new(0),
            up: watch::Sender::new(true),
        })
    }

    /// Whether a watch may ask for initial events.
    pub(crate) fn streaming_lists(&self, _request: &Request) -> bool {
        self.options.streaming_lists && !self.faults.refuses_streaming_lists()
    }

    /// Ends every open watch, without a last word.
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

//! The client: a kube client, the settings of its calls, and the layers that every call passes.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::gate::{self, Gate};
use crate::intercept::Layer;
use crate::mapper::Known;
use crate::measure::{Counted, RequestMetrics};
use crate::memory::WithoutEffect;
use crate::observe::{self, WriteObserver};
use crate::settings::Settings;
use crate::warning::Warnings;

/// Reads and writes objects, each call within a deadline. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
    pub(crate) settings: Arc<Settings>,
    /// Observes the begin and the end of each write.
    pub(crate) observer: Option<Arc<dyn WriteObserver>>,
    /// Refuses writes while it is closed.
    pub(crate) gated: Option<Arc<GatedKube>>,
    /// The warnings of the server that were logged already.
    pub(crate) warnings: Arc<Warnings>,
    /// The kinds found by discovery.
    pub(crate) known: Arc<Known>,
    /// Changes without effect, which are not sent again.
    pub(crate) without_effect: Arc<WithoutEffect>,
    /// The interceptors before the server.
    pub(crate) intercepted: Option<Arc<Layer>>,
}

/// The kube client underneath: for sending requests, and as [`Client::kube`] returns it.
pub(crate) struct Inner {
    pub(crate) counted: Counted,
    kube: kube_client::Client,
}

/// A gate, and the kube client that checks it, made on first use.
pub(crate) struct GatedKube {
    pub(crate) gate: Arc<dyn Gate>,
    kube: OnceLock<kube_client::Client>,
}

// === impl Client ===

impl Client {
    /// Wraps a kube client. [`connect`](crate::connect::connect) builds one that finds dead peers, too.
    #[must_use]
    pub fn new(inner: kube_client::Client) -> Self {
        Self::counted(Counted::new(inner, None))
    }

    /// Wraps a kube client, and counts every request in `metrics`, including those of [`Client::kube`].
    /// Must be called inside a tokio runtime.
    #[must_use]
    pub fn measured(inner: kube_client::Client, metrics: RequestMetrics) -> Self {
        Self::counted(Counted::new(inner, Some(metrics)))
    }

    fn counted(counted: Counted) -> Self {
        let kube = counted.kube();
        Self {
            inner: Arc::new(Inner { counted, kube }),
            settings: Arc::default(),
            observer: None,
            gated: None,
            warnings: Arc::default(),
            known: Arc::default(),
            without_effect: Arc::default(),
            intercepted: None,
        }
    }

    /// The same client with an observer of its writes, beside those it has already. An observer stays: a client without it
    /// is one that it was not added to.
    #[must_use]
    pub fn observed(mut self, observer: Arc<dyn WriteObserver>) -> Self {
        self.observer = Some(observe::and(self.observer, observer));
        self
    }

    /// The same client, which refuses writes while `gate` is closed ([`Error::NotLeader`](crate::Error::NotLeader)), or
    /// one of the gates it has already. A gate stays: a client without it is one that it was not added to.
    #[must_use]
    pub fn gated(mut self, gate: Arc<dyn Gate>) -> Self {
        self.gated = Some(Arc::new(GatedKube {
            gate: gate::and(self.gate(), gate),
            kube: OnceLock::new(),
        }));
        self
    }

    /// The gate that this client checks before a write; of several, one that is open while all are.
    #[must_use]
    pub fn gate(&self) -> Option<&Arc<dyn Gate>> {
        self.gated.as_ref().map(|gated| &gated.gate)
    }

    /// The kube client underneath, for calls that this client does not offer. Its writes are not observed, but it refuses
    /// writes while the gate is closed. Must be called inside a tokio runtime.
    #[must_use]
    pub fn kube(&self) -> &kube_client::Client {
        match &self.gated {
            None => &self.inner.kube,
            Some(gated) => {
                let kube = || gate::guard(&gated.gate, &self.inner.kube);
                gated.kube.get_or_init(kube)
            }
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("settings", &self.settings)
            .field("intercepted", &self.intercepted)
            .finish_non_exhaustive()
    }
}

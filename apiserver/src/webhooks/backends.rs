//! Webhooks in this process.

use std::collections::HashMap;
use std::sync::Arc;

use http::{Request, Response};
use kube_client::client::Body;
use parking_lot::Mutex;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

/// A server in this process.
pub(super) type InProcess = BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>;

/// Servers in this process that take the place of Services, by namespace and name.
#[derive(Clone, Default)]
pub(crate) struct Backends(Arc<Mutex<HashMap<(String, String), InProcess>>>);

// === impl Backends ===

impl Backends {
    /// Sends the calls of the Service `namespace/name` to `service`.
    pub(crate) fn set<S>(&self, namespace: &str, name: &str, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        let key = (namespace.to_owned(), name.to_owned());
        let service = BoxCloneSyncService::new(service.map_err(Into::into));
        self.0.lock().insert(key, service);
    }

    /// Ends that.
    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.0.lock().remove(&key);
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<InProcess> {
        let key = (namespace.to_owned(), name.to_owned());
        self.0.lock().get(&key).cloned()
    }
}

impl std::fmt::Debug for Backends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.lock().keys()).finish()
    }
}

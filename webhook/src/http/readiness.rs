//! Whether a server can answer the calls of the API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reeve_serve::health::{Checks, Health};

/// The readiness of a webhook server: its certificate, the checks that were added, and whether it is stopping. It is
/// independent of the readiness of controllers, so that one failing controller does not take the webhooks of its program
/// away. Clones share it.
///
/// The server answers `/readyz` on its own port, for a probe of scheme HTTPS: it passes only if a client can complete a
/// handshake.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    health: Health,
    stopping: Arc<AtomicBool>,
}

// === impl Readiness ===

impl Readiness {
    pub(super) fn new() -> Self {
        let readiness = Self::default();
        let stopping = Arc::clone(&readiness.stopping);
        readiness.health.ready().add("stopping", move || {
            if stopping.load(Ordering::Relaxed) {
                return Err("the server is stopping; other replicas answer".to_owned());
            }
            Ok(())
        });
        readiness
    }

    /// The checks, for more of them: caches that the handlers read, for example.
    #[must_use]
    pub fn checks(&self) -> &Checks {
        self.health.ready()
    }

    /// `Ok` if all checks pass. An asynchronous check is not run: its last result counts, and one that never ran has not
    /// failed.
    ///
    /// # Errors
    /// The failed checks with their reasons.
    pub fn check(&self) -> Result<(), String> {
        self.health.ready().check()
    }

    /// Fails from now on: the server answers for some more time and then stops.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn health(&self) -> &Health {
        &self.health
    }
}

//! Who uses an informer of a factory, and for how long it is kept when nobody does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// How many use an informer.
#[derive(Clone, Debug)]
pub(super) struct Users(Arc<watch::Sender<usize>>);

/// One use of an informer; its end, when dropped.
#[derive(Debug)]
pub(crate) struct Lease(Users);

// === impl Users ===

impl Users {
    pub(super) fn none() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(super) fn lease(&self) -> Arc<Lease> {
        self.0.send_modify(|users| *users += 1);
        Arc::new(Lease(self.clone()))
    }

    /// Whether both are of the same informer.
    pub(super) fn are(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Returns when there have been no users for `linger`.
    pub(super) async fn gone_for(&self, linger: Duration) {
        let mut users = self.0.subscribe();
        loop {
            // The sender lives as long as `self`.
            let _ = users.wait_for(|users| *users == 0).await;
            let taken = users.wait_for(|users| *users > 0);
            if timeout(linger, taken).await.is_err() {
                return;
            }
        }
    }
}

// === impl Lease ===

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.0.send_modify(|users| *users -= 1);
    }
}

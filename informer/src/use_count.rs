//! The number of handles to an informer of a factory, and the moment when the last of them has been gone for a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// The number of uses of one informer.
#[derive(Clone, Debug)]
pub(crate) struct UseCount(Arc<watch::Sender<usize>>);

/// One use of an informer. It ends when dropped.
#[derive(Debug)]
pub(crate) struct InUse(UseCount);

// === impl UseCount ===

impl UseCount {
    pub(crate) fn none() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn begin(&self) -> Arc<InUse> {
        self.0.send_modify(|uses| *uses += 1);
        Arc::new(InUse(self.clone()))
    }

    /// True if both count the uses of the same informer.
    pub(crate) fn are(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Returns when the count has been 0 for `linger`.
    pub(crate) async fn gone_for(&self, linger: Duration) {
        let mut uses = self.0.subscribe();
        loop {
            // The sender lives as long as `self`.
            let _ = uses.wait_for(|uses| *uses == 0).await;
            let begun = uses.wait_for(|uses| *uses > 0);
            if timeout(linger, begun).await.is_err() {
                return;
            }
        }
    }
}

// === impl InUse ===

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.0.send_modify(|uses| *uses -= 1);
    }
}

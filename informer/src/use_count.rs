//! The number of handles to an informer of a factory, and the moment when the last of them has been gone for a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// The number of uses of one informer.
#[derive(Clone, Debug)]
pub(crate) struct UseCount(Arc<watch::Sender<Uses>>);

/// The uses so far.
#[derive(Debug, Default)]
struct Uses {
    present: usize,
    /// The number of uses that ever began: one may begin and end before a waiting task runs.
    begun: u64,
}

/// One use of an informer. It ends when dropped.
#[derive(Debug)]
pub(crate) struct InUse(UseCount);

// === impl UseCount ===

impl UseCount {
    pub(crate) fn none() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn begin(&self) -> Arc<InUse> {
        self.0.send_modify(|uses| {
            uses.present += 1;
            uses.begun += 1;
        });
        Arc::new(InUse(self.clone()))
    }

    /// True if both count the uses of the same informer.
    pub(crate) fn are(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().present == 0
    }

    /// Returns when there was no use for `linger`.
    pub(crate) async fn gone_for(&self, linger: Duration) {
        let mut uses = self.0.subscribe();
        loop {
            // The sender lives as long as `self`.
            let gone = uses.wait_for(|uses| uses.present == 0).await;
            let begun = gone.map_or(0, |uses| uses.begun);
            let again = uses.wait_for(|uses| uses.begun != begun);
            if timeout(linger, again).await.is_err() {
                return;
            }
        }
    }
}

// === impl InUse ===

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.0.send_modify(|uses| uses.present -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_use_that_ends_before_the_waiting_task_runs_begins_the_linger_again() {
        let linger = Duration::from_secs(30);
        let uses = UseCount::none();
        let mut gone = Box::pin(uses.gone_for(linger));
        assert_eq!(gone.as_mut().now_or_never(), None);
        advance(linger / 2).await;
        drop(uses.begin());
        assert_eq!(gone.as_mut().now_or_never(), None);
        advance(linger / 2).await;
        assert_eq!(gone.as_mut().now_or_never(), None, "half of the linger");
        advance(linger / 2).await;
        assert_eq!(gone.as_mut().now_or_never(), Some(()));
    }
}

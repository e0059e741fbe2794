//! Lets what a reflector has queued reach the handlers before it looks for more: [`Handover`].

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// A pause of a reflector for the steps after it, which the same task takes.
///
/// Without it the reflector asks the connection for more before a change reaches the handlers. There is no pause where more
/// has arrived already, so that a batch holds several changes.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// The reflector waits to be polled again.
    due: AtomicBool,
}

// === impl Handover ===

impl Handover {
    /// Returns when it is polled again. Nothing wakes the task for that: the task asks [`Handover::take`] each time it has
    /// taken the steps.
    pub(crate) async fn pause(&self) {
        let mut polled = false;
        poll_fn(|_| {
            if std::mem::replace(&mut polled, true) {
                return Poll::Ready(());
            }
            self.due.store(true, Ordering::Relaxed);
            Poll::Pending
        })
        .await;
    }

    /// True if the reflector waits to be polled again.
    pub(crate) fn is_due(&self) -> bool {
        self.due.load(Ordering::Relaxed)
    }

    /// As [`Handover::is_due`]. The caller polls the reflector.
    pub(crate) fn take(&self) -> bool {
        self.is_due() && self.due.swap(false, Ordering::Relaxed)
    }
}

//! Guards that stop an informer when they are dropped.

use std::sync::Arc;

use super::inner::Inner;
use crate::object::Stored;

/// Stops the informer when its run ends in any way.
pub(super) struct StopOnDrop<S: Stored + ?Sized>(pub(super) Arc<Inner<S>>);

/// Stops an informer that was never run.
pub(crate) struct StopUnlessRun<S: Stored + ?Sized>(pub(super) Arc<Inner<S>>);

impl<S: Stored + ?Sized> Drop for StopOnDrop<S> {
    fn drop(&mut self) {
        self.0.end(|_| true);
    }
}

impl<S: Stored + ?Sized> Drop for StopUnlessRun<S> {
    fn drop(&mut self) {
        self.0.end_unless_run();
    }
}

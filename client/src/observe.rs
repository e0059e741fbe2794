//! Observers of the writes of a client, for a cache that waits until it shows them.

use std::fmt;

use kube_core::ObjectMeta;

use crate::answer::Answer;
use crate::call::Call;
use crate::error::Error;

/// Observes the writes of a client: [`Client::observed`](crate::Client::observed). Dry runs are left out.
pub trait WriteObserver: fmt::Debug + Send + Sync + 'static {
    /// A write is about to be sent. `None` leaves it unobserved.
    fn begin(&self, call: &Call) -> Option<Box<dyn PendingWrite>>;
}

/// One write in flight. Dropped without an answer (its future was cancelled), the write may have taken effect.
pub trait PendingWrite: Send {
    /// The server took the write and answered with `answer`; `object` is the metadata of the answer where it was decoded
    /// as an object of the kind.
    fn answered(self: Box<Self>, answer: &Answer, object: Option<&ObjectMeta>);

    /// The write failed. [`Error::is_ambiguous`] shows whether it may have taken effect.
    fn failed(self: Box<Self>, error: &Error);
}

//! The result of a reconcile: done, or when to run again.

use std::time::Duration;

use super::error::Error;

/// The result of a reconcile: done, or when to run again.
#[derive(Debug)]
#[must_use]
pub struct Outcome {
    pub(crate) next: Next,
    pub(crate) priority: Option<i32>,
}

/// What a reconcile returns, and with another `T` a step of it: `reconcile::Result`, `reconcile::Result<()>`.
pub type Result<T = Outcome, E = Error> = std::result::Result<T, E>;

#[derive(Debug)]
pub(crate) enum Next {
    Done,
    RequeueAfter(Duration),
    Retry,
    Terminal(Error),
}

// === impl Outcome ===

impl Outcome {
    /// Nothing is left to do until something changes.
    pub fn done() -> Self {
        Self::of(Next::Done)
    }

    /// Succeeds, and requeues the request after `delay`. Zero is [`Outcome::done`].
    ///
    /// An event for the key requeues it earlier and removes this timer, so return the next delay each time.
    pub fn requeue_after(delay: Duration) -> Self {
        if delay.is_zero() {
            return Self::done();
        }
        Self::of(Next::RequeueAfter(delay))
    }

    /// Not done yet, though nothing failed: requeues after the key's back-off, which grows.
    pub fn retry() -> Self {
        Self::of(Next::Retry)
    }

    /// A retry cannot help until something changes: counted and logged as an error, not retried.
    pub fn terminal(error: impl Into<Error>) -> Self {
        Self::of(Next::Terminal(error.into()))
    }

    /// Requeues the request at this priority. Unset, it keeps the priority of this run.
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    fn of(next: Next) -> Self {
        Self {
            next,
            priority: None,
        }
    }
}

impl From<()> for Outcome {
    /// [`Outcome::done`].
    fn from((): ()) -> Self {
        Self::done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_of_zero_is_done() {
        assert!(matches!(
            Outcome::requeue_after(Duration::ZERO).next,
            Next::Done
        ));
    }
}

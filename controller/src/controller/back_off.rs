//! The default back-off of failed requests.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use reeve_workqueue::{Delay, Failure, ItemExponentialFailure, RateLimiter};

use crate::reconcile::{OUTAGE, RATE_LIMITED, RequestKey};

/// The longest default back-off of a request after an [outage](crate::reconcile::Error::outage). A server that
/// recovers after hours is used again within a minute.
pub const OUTAGE_BACK_OFF: Duration = Duration::from_secs(60);

/// The first pause · 2ⁿ: up to the longest after failures of the request itself, and up to [`OUTAGE_BACK_OFF`] after
/// outages. Outages do not lengthen the back-off of later failures.
pub(super) struct BackOff<R> {
    own: ItemExponentialFailure,
    /// Outages among an item's failures in a row.
    outages: Mutex<HashMap<R, u32>>,
}

// === impl BackOff ===

impl<R> BackOff<R> {
    pub(super) fn new(own: ItemExponentialFailure) -> Self {
        Self {
            own,
            outages: Mutex::default(),
        }
    }
}

impl<R: RequestKey> RateLimiter<R> for BackOff<R> {
    fn when(&self, failure: &Failure<'_, R>) -> Delay {
        let mut outages = self.outages.lock();
        let outage = |cause: &reeve_workqueue::Cause| matches!(cause.kind(), OUTAGE | RATE_LIMITED);
        if failure.cause.is_some_and(outage) {
            let count = outages.entry(failure.item.clone()).or_default();
            *count = (*count).min(failure.failures) + 1;
            let delay = self.own.jittered(failure.failures, failure.random);
            return Delay::exactly(delay.min(OUTAGE_BACK_OFF));
        }
        let outages = outages.get(failure.item).copied().unwrap_or(0);
        let failures = failure.failures.saturating_sub(outages);
        Delay::exactly(self.own.jittered(failures, failure.random))
    }

    fn forget(&self, item: &R) {
        self.outages.lock().remove(item);
    }
}

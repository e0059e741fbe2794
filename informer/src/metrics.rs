//! What an informer measures, for whoever wants to keep it.

use std::sync::Arc;
use std::time::Duration;

/// Receives measurements. What is a gauge (objects, versions, backlogs) is pulled from
/// [`CacheHealth`](crate::CacheHealth) when a scrape asks; this is the push side.
///
/// Called on the way of the data: it must not block.
pub trait Metrics: Send + Sync + 'static {
    /// Notes `measurement` of the informer called `informer`.
    fn record(&self, informer: &str, measurement: Measurement);
}

/// One thing that happened in an informer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Measurement {
    /// A list was read (client-go: `reflector_lists_total`, `reflector_list_duration_seconds`).
    Listed {
        /// How many objects it held.
        items: usize,
        /// How long it took, all pages.
        duration: Duration,
        /// It came as a stream of initial events.
        streamed: bool,
    },
    /// A list failed.
    ListFailed,
    /// A watch ended (client-go: `reflector_watches_total`, `reflector_watch_duration_seconds`).
    Watched {
        /// How many events it brought.
        events: u64,
        /// How long it lasted.
        duration: Duration,
        /// It ended at once and brought nothing (client-go: `reflector_short_watches_total`).
        short: bool,
    },
    /// A watch could not be opened.
    WatchFailed,
    /// A watch was silent past its deadline and was replaced.
    WatchStalled,
    /// An event older than what is known was dropped.
    StaleEvent,
    /// A list older than what is known was refused.
    StaleList,
    /// Several lists in a row were older than what was known: the server was restored, and its present state
    /// was taken.
    NewEpoch,
    /// An object could not be read.
    Quarantined,
    /// A version of an object is in the store and did not decode when somebody read it, for the first time.
    Unreadable,
    /// A batch went through the store to the handlers (client-go: `informer_processing_latency_seconds`).
    Processed {
        /// How many deltas it held.
        deltas: usize,
        /// How long that took.
        duration: Duration,
    },
    /// A handler panicked.
    HandlerPanicked,
    /// Events were dropped because a handler's queue was full.
    HandlerDropped {
        /// How many.
        events: usize,
    },
}

/// Where measurements go, and under which name.
#[derive(Clone)]
pub(crate) struct Recorder {
    informer: Arc<str>,
    metrics: Option<Arc<dyn Metrics>>,
}

impl Recorder {
    pub(crate) fn new(informer: Arc<str>, metrics: Option<Arc<dyn Metrics>>) -> Self {
        Self { informer, metrics }
    }

    pub(crate) fn record(&self, measurement: Measurement) {
        if let Some(metrics) = &self.metrics {
            metrics.record(&self.informer, measurement);
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("informer", &self.informer)
            .finish_non_exhaustive()
    }
}

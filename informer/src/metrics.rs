//! What an informer measures, for whoever wants to keep it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::health::CacheHealth;

/// Gives informers something to measure into (client-go: `InformerMetricsProvider`, `SetReflectorMetricsProvider`).
/// [`prometheus::Metrics`](crate::prometheus::Metrics), behind the feature `prometheus`, is one.
pub trait MetricsProvider: Send + Sync + 'static {
    /// Where the measurements of a new informer go. What is a gauge (objects, versions, backlogs) is read from
    /// `gauges` when somebody asks, for as long as the informer lives.
    fn informer(
        &self,
        informer: &InformerIdentity,
        gauges: Weak<dyn Gauges>,
    ) -> Box<dyn InformerMetrics>;
}

/// Receives the measurements of one informer. Called on the way of the data: it must not block. If it panics, that is
/// logged once, and it receives nothing more.
pub trait InformerMetrics: Send + Sync + 'static {
    /// Notes `measurement`.
    fn record(&self, measurement: Measurement);
}

/// What can be read of an informer at any time.
pub trait Gauges: Send + Sync {
    /// How it is doing.
    fn read(&self) -> CacheHealth;
}

/// Which informer it is (client-go: `InformerNameAndResource`). Two may have one identity; then they are measured
/// as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct InformerIdentity {
    /// The informer's name.
    pub name: Arc<str>,
    /// The group of the kind; empty for the core group.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The resource, `configmaps`.
    pub resource: String,
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

/// Where measurements go, if anywhere.
#[derive(Clone, Default)]
pub(crate) struct Recorder {
    sink: Option<Arc<Sink>>,
}

struct Sink {
    metrics: Box<dyn InformerMetrics>,
    panicked: AtomicBool,
}

// === impl Recorder ===

impl Recorder {
    pub(crate) fn new(metrics: Option<Box<dyn InformerMetrics>>) -> Self {
        let sink = |metrics| {
            Arc::new(Sink {
                metrics,
                panicked: AtomicBool::new(false),
            })
        };
        Self {
            sink: metrics.map(sink),
        }
    }

    /// Passes `measurement` on. What keeps measurements is not to end what is measured.
    pub(crate) fn record(&self, measurement: Measurement) {
        let Some(sink) = &self.sink else { return };
        if sink.panicked.load(Ordering::Relaxed) {
            return;
        }
        let told = catch_unwind(AssertUnwindSafe(|| sink.metrics.record(measurement)));
        if told.is_err() {
            sink.panicked.store(true, Ordering::Relaxed);
            tracing::error!(
                ?measurement,
                "what keeps an informer's measurements panicked; it is told nothing more"
            );
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

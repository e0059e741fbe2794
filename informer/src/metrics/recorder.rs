//! Passes measurements on to an [`InformerMetrics`], and survives its panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::measurement::{InformerMetrics, Measurement};

/// The receiver of measurements, if there is one.
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

    /// Passes `measurement` on. A panic of the receiver does not reach the caller.
    pub(crate) fn record(&self, measurement: Measurement) {
        let Some(sink) = &self.sink else { return };
        if sink.panicked.load(Ordering::Relaxed) {
            return;
        }
        let recorded = catch_unwind(AssertUnwindSafe(|| sink.metrics.record(measurement)));
        if recorded.is_err() {
            sink.panicked.store(true, Ordering::Relaxed);
            tracing::error!(
                ?measurement,
                "metrics recorder panicked; disabled for this informer"
            );
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

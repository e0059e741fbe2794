//! What an informer measures, and the trait that receives it.

use std::time::Duration;

/// Receives the measurements of one informer. Called on the way of the data, so it must not block. After a panic, which
/// is logged once, it receives nothing more.
pub trait InformerMetrics: Send + Sync + 'static {
    /// Records `measurement`.
    fn record(&self, measurement: Measurement);
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
        /// It arrived as a stream of initial events.
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
    /// Several lists in a row were older than the store: the server was restored, and its present state was accepted.
    NewEpoch,
    /// An object could not be read.
    Quarantined,
    /// A version of an object in the store did not decode at its first read.
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

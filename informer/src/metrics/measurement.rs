//! The measurements of an informer, and the trait that receives them.

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
        /// The number of objects in it.
        items: usize,
        /// The time for all of its pages.
        duration: Duration,
        /// It arrived as a stream of initial events.
        streamed: bool,
    },
    /// A list failed.
    ListFailed,
    /// A watch ended (client-go: `reflector_watches_total`, `reflector_watch_duration_seconds`).
    Watched {
        /// The number of events that it brought.
        events: u64,
        /// Its duration.
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
    /// The server refused protobuf, or what it sent as that could not be read: JSON is requested from now on.
    FellBackToJson,
    /// An object could not be read.
    Quarantined,
    /// A version of an object in the store did not decode at its first read.
    Unreadable,
    /// A batch went through the store to the handlers (client-go: `informer_processing_latency_seconds`).
    Processed {
        /// The number of deltas in it.
        deltas: usize,
        /// The time for it, without the turns of other tasks while a list is applied.
        duration: Duration,
    },
    /// A handler panicked.
    HandlerPanicked,
    /// Events were dropped because a handler's queue was full.
    HandlerDropped {
        /// Their number.
        events: usize,
    },
}

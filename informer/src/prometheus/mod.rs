//! Metrics of informers and their reflectors through `prometheus-client`, behind the feature `prometheus`. Each has
//! the labels `name`, `group`, `version` and `resource`, as client-go's.
//!
//! | metric | type | from |
//! |---|---|---|
//! | `informer_queued_items` | gauge | client-go |
//! | `informer_processing_latency_seconds` | histogram | client-go |
//! | `informer_store_resource_version` | gauge, the last 15 digits | client-go |
//! | `reflector_lists_total` | counter | client-go, until 1.10 |
//! | `reflector_list_duration_seconds` | histogram | client-go, until 1.10 |
//! | `reflector_items_per_list` | histogram | client-go, until 1.10 |
//! | `reflector_watches_total`, `reflector_short_watches_total` | counter | client-go, until 1.10 |
//! | `reflector_watch_duration_seconds`, `reflector_items_per_watch` | histogram | client-go, until 1.10 |
//! | `reflector_last_resource_version` | gauge, the last 15 digits; the newest of several watches | client-go, until 1.10 |
//! | `reflector_failures_total` | counter; `reason`: `list`, `watch`, `stalled`, `stale_list`, `stale_event`, `new_epoch`, `protobuf` | |
//! | `informer_activity` | gauge, 1 for the present activity, 0 for the others; `activity` | |
//! | `informer_synced` | gauge, 1 once everything is in the store | |
//! | `informer_last_heard_timestamp_seconds` | gauge, the time of the last answer of the API server | |
//! | `informer_objects`, `informer_store_bytes` | gauge | the bytes of typed objects are a lower bound: see [`StoreBytes`](crate::StoreBytes) |
//! | `informer_quarantined_objects`, `informer_unreadable_objects_total` | gauge, counter | |
//! | `informer_handler_backlog` | gauge; `handler` | |
//! | `informer_handler_events_total` | counter; `handler`, `result`: `delivered`, `dropped`, `panicked` | |
//!
//! The gauges, and the counters of handlers, are read from the informers at each scrape. Informers of one identity are
//! measured as one. When one of them is gone, the counts of its handlers up to the last scrape stay in the sum.
//!
//! An informer's name holds its namespace and selectors, so informers that come and go would leave series without end
//! (client-go removed its reflector's metrics for that reason, kubernetes#74636). Here all series of an identity are
//! removed with its last informer, and those of a handler with the last handler of its name. A later informer of the same
//! identity counts from zero. While objects of a gone informer are still held, its counts are reported once more.

mod metrics;
mod scrape;

pub use metrics::Metrics;

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
//! | `reflector_failures_total` | counter; `reason`: `list`, `watch`, `stalled`, `stale_list`, `stale_event`, `new_epoch` | |
//! | `informer_activity` | gauge, 1 for what it is doing; `activity` | |
//! | `informer_synced` | gauge, 1 once everything is in the store | |
//! | `informer_last_heard_timestamp_seconds` | gauge, when the API server was heard last | |
//! | `informer_objects`, `informer_store_bytes` | gauge | the bytes of typed objects are a lower bound: see [`StoreBytes`](crate::StoreBytes) |
//! | `informer_quarantined_objects`, `informer_unreadable_objects_total` | gauge, counter | |
//! | `informer_handler_backlog` | gauge; `handler` | |
//! | `informer_handler_events_total` | counter; `handler`, `result`: `delivered`, `dropped`, `panicked` | |
//!
//! The gauges, and what handlers count, are read from the informers at each scrape. Informers of one identity are told
//! as one: when one of them goes, what its handlers counted until the last scrape still counts.
//!
//! An informer's name holds its namespace and selectors, so informers that come and go would leave series without end
//! (client-go took its reflector's metrics out for that, kubernetes#74636). Here all series of an identity go with its
//! last informer, and those of a handler with the last handler of its name; an informer that comes later under the
//! same identity counts from zero. Of a gone informer whose objects somebody still holds, what was counted is told once
//! more.

mod metrics;
mod scrape;

pub use metrics::Metrics;

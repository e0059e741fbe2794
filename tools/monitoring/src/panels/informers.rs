//! Informers and their reflectors.

use super::panel::{Row, graph};

pub(super) const INFORMERS: Row = Row {
    title: "Informers",
    panels: &[
        graph(
            "Synced",
            "none",
            "0 while a replica does not have all objects of a kind.",
            &[(
                "min by (name, resource) (informer_synced{$program})",
                "{{name}}",
            )],
        ),
        graph(
            "Activity",
            "none",
            "Informers by what they do.",
            &[(
                "sum by (activity) (informer_activity{$program})",
                "{{activity}}",
            )],
        ),
        graph(
            "Since the last answer",
            "s",
            "Seconds since the API server sent an object, a bookmark or a list. It sends a bookmark about every minute.",
            &[(
                "time() - min by (name, resource) (informer_last_heard_timestamp_seconds{$program} > 0)",
                "{{name}}",
            )],
        ),
        graph(
            "Objects",
            "short",
            "Objects in the stores, the most of any replica, and those that do not decode.",
            &[
                (
                    "max by (name, resource) (informer_objects{$program})",
                    "{{name}}",
                ),
                (
                    "max by (name, resource) (informer_quarantined_objects{$program} > 0)",
                    "{{name}} unreadable",
                ),
            ],
        ),
        graph(
            "Memory of the stores",
            "bytes",
            "Bytes of the objects; of typed objects a lower bound.",
            &[(
                "max by (name, resource) (informer_store_bytes{$program})",
                "{{name}}",
            )],
        ),
        graph(
            "Failures",
            "ops",
            "Lists and watches that failed, watches that fell silent, and answers older than the store.",
            &[
                (
                    "sum by (resource, reason) (rate(reflector_failures_total{$program}[$__rate_interval])) > 0",
                    "{{resource}} {{reason}}",
                ),
                (
                    "sum by (resource) (rate(informer_unreadable_objects_total{$program}[$__rate_interval])) > 0",
                    "{{resource}} unreadable",
                ),
            ],
        ),
        graph(
            "Behind the watch",
            "none",
            "Versions of the API server between the newest event of a watch and the store, and changes on the way.",
            &[
                (
                    "max by (name, resource) (reflector_last_resource_version{$program} - informer_store_resource_version{$program})",
                    "{{name}} versions",
                ),
                (
                    "max by (name, resource) (informer_queued_items{$program})",
                    "{{name}} changes",
                ),
            ],
        ),
        graph(
            "Lists and watches",
            "ops",
            "Lists and watches that ended. Each watch ends after some minutes; short ones ended at once without an event.",
            &[
                (
                    "sum by (resource) (rate(reflector_lists_total{$program}[$__rate_interval]))",
                    "{{resource}} lists",
                ),
                (
                    "sum by (resource) (rate(reflector_watches_total{$program}[$__rate_interval]))",
                    "{{resource}} watches",
                ),
                (
                    "sum by (resource) (rate(reflector_short_watches_total{$program}[$__rate_interval]))",
                    "{{resource}} short watches",
                ),
            ],
        ),
        graph(
            "Duration of lists, processing of changes",
            "s",
            "99th percentile: of all pages of a list, and from the watch to the handlers' queues.",
            &[
                (
                    "histogram_quantile(0.99, sum by (resource, le) (rate(reflector_list_duration_seconds_bucket{$program}[$__rate_interval])))",
                    "{{resource}} list",
                ),
                (
                    "histogram_quantile(0.99, sum by (resource, le) (rate(informer_processing_latency_seconds_bucket{$program}[$__rate_interval])))",
                    "{{resource}} processing",
                ),
            ],
        ),
        graph(
            "Events to handlers",
            "ops",
            "Events by result. Those whose handler panicked were delivered, too.",
            &[(
                "sum by (resource, result) (rate(informer_handler_events_total{$program}[$__rate_interval]))",
                "{{resource}} {{result}}",
            )],
        ),
        graph(
            "Backlog of handlers",
            "short",
            "Events that wait for a handler.",
            &[(
                "max by (resource, handler) (informer_handler_backlog{$program})",
                "{{resource}} {{handler}}",
            )],
        ),
    ],
};

//! Controllers and their queues.

use super::panel::{Row, graph};

pub(super) const RECONCILES: Row = Row {
    title: "Reconciles",
    panels: &[
        graph(
            "Reconciles by result",
            "ops",
            "Ends of reconciles a second.",
            &[(
                "sum by (controller, result) (rate(controller_runtime_reconcile_total{$selected}[$__rate_interval]))",
                "{{controller}} {{result}}",
            )],
        ),
        graph(
            "Duration of reconciles",
            "s",
            "Median and 99th percentile.",
            &[
                (
                    "histogram_quantile(0.5, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{$selected}[$__rate_interval])))",
                    "{{controller}} p50",
                ),
                (
                    "histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{$selected}[$__rate_interval])))",
                    "{{controller}} p99",
                ),
            ],
        ),
        graph(
            "Workers",
            "none",
            "Workers that reconcile right now, and their limit. At the limit keys wait in the queue.",
            &[
                (
                    "sum by (controller) (controller_runtime_active_workers{$selected})",
                    "{{controller}} active",
                ),
                (
                    "sum by (controller) (controller_runtime_max_concurrent_reconciles{$selected})",
                    "{{controller}} limit",
                ),
            ],
        ),
        graph(
            "Failures",
            "ops",
            "Errors include terminal errors, which are not retried, and time-outs. Keys are given up after their last retry.",
            &[
                (
                    "sum by (controller) (rate(controller_runtime_reconcile_errors_total{$selected}[$__rate_interval]))",
                    "{{controller}} errors",
                ),
                (
                    "sum by (controller) (rate(controller_runtime_terminal_reconcile_errors_total{$selected}[$__rate_interval]))",
                    "{{controller}} terminal",
                ),
                (
                    "sum by (controller) (rate(controller_runtime_reconcile_timeouts_total{$selected}[$__rate_interval]))",
                    "{{controller}} timed out",
                ),
                (
                    "sum by (controller) (rate(controller_runtime_reconcile_panics_total{$selected}[$__rate_interval]))",
                    "{{controller}} panicked",
                ),
                (
                    "sum by (controller) (rate(reeve_reconcile_given_up_total{$selected}[$__rate_interval]))",
                    "{{controller}} given up",
                ),
            ],
        ),
        graph(
            "Own writes",
            "ops",
            "Keys held back until the caches show their own writes. A time-out means that a key was reconciled with an older state.",
            &[
                (
                    "sum by (controller) (rate(reeve_read_your_writes_waits_total{$selected}[$__rate_interval]))",
                    "{{controller}} waited",
                ),
                (
                    "sum by (controller) (rate(reeve_read_your_writes_timeouts_total{$selected}[$__rate_interval]))",
                    "{{controller}} timed out",
                ),
            ],
        ),
        graph(
            "Kinds without news",
            "none",
            "1 for each informer or source that a controller cannot follow, with the cause.",
            &[(
                "max by (controller, informer, cause) (reeve_controller_informer_unavailable{$selected})",
                "{{controller}} {{informer}}: {{cause}}",
            )],
        ),
        graph(
            "Panics of watches, Events not recorded",
            "ops",
            "Panics of handlers and predicates. Events are dropped when their queue is full, as spam, or when the API server refuses them.",
            &[
                (
                    "sum by (controller) (rate(reeve_controller_watch_panics_total{$selected}[$__rate_interval]))",
                    "{{controller}} panics",
                ),
                (
                    "sum by (controller) (rate(reeve_events_dropped_total{$selected}[$__rate_interval]))",
                    "{{controller}} Events dropped",
                ),
            ],
        ),
    ],
};

pub(super) const QUEUE: Row = Row {
    title: "Queue",
    panels: &[
        graph(
            "Ready keys by priority",
            "short",
            "Keys that are due. Keys that wait for a time are not counted.",
            &[(
                "sum by (controller, priority) (workqueue_depth{$selected})",
                "{{controller}} priority {{priority}}",
            )],
        ),
        graph(
            "Adds and retries",
            "ops",
            "Adds merge with a key that waits already. Retries are adds after a failure.",
            &[
                (
                    "sum by (controller) (rate(workqueue_adds_total{$selected}[$__rate_interval]))",
                    "{{controller}} adds",
                ),
                (
                    "sum by (controller) (rate(workqueue_retries_total{$selected}[$__rate_interval]))",
                    "{{controller}} retries",
                ),
            ],
        ),
        graph(
            "Time in the queue",
            "s",
            "From the time that a key is due to its worker. The buckets are powers of ten, so the values are rough.",
            &[
                (
                    "histogram_quantile(0.5, sum by (controller, le) (rate(workqueue_queue_duration_seconds_bucket{$selected}[$__rate_interval])))",
                    "{{controller}} p50",
                ),
                (
                    "histogram_quantile(0.99, sum by (controller, le) (rate(workqueue_queue_duration_seconds_bucket{$selected}[$__rate_interval])))",
                    "{{controller}} p99",
                ),
            ],
        ),
        graph(
            "Work on a key",
            "s",
            "From the worker that takes a key to the end of its run.",
            &[
                (
                    "histogram_quantile(0.5, sum by (controller, le) (rate(workqueue_work_duration_seconds_bucket{$selected}[$__rate_interval])))",
                    "{{controller}} p50",
                ),
                (
                    "histogram_quantile(0.99, sum by (controller, le) (rate(workqueue_work_duration_seconds_bucket{$selected}[$__rate_interval])))",
                    "{{controller}} p99",
                ),
            ],
        ),
        graph(
            "Work in progress",
            "s",
            "Seconds of all runs in progress, and of the longest. Lines that rise at one second a second are runs that hang.",
            &[
                (
                    "sum by (controller) (workqueue_unfinished_work_seconds{$selected})",
                    "{{controller}} all",
                ),
                (
                    "max by (controller) (workqueue_longest_running_processor_seconds{$selected})",
                    "{{controller}} longest",
                ),
            ],
        ),
    ],
};

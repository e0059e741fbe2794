//! The state of a program at a glance.

use super::panel::Form::{Faults, Number, Share};
use super::panel::{Row, number};

pub(super) const HEALTH: Row = Row {
    title: "Health at a glance",
    panels: &[
        number(
            "Replicas",
            Number,
            "none",
            "Processes that answered the last scrape.",
            &[("count(process_start_time_seconds{$program})", "")],
        ),
        number(
            "Leading",
            Number,
            "none",
            "Leases that a replica holds. Without leader election there is no value.",
            &[("sum(leader_election_master_status{$program})", "")],
        ),
        number(
            "Kinds without news",
            Faults,
            "none",
            "Informers and sources that a controller needs and cannot follow. A standby counts those that it has not started.",
            &[(
                "count(reeve_controller_informer_unavailable{$selected} == 1) or vector(0)",
                "",
            )],
        ),
        number(
            "Informers not synced",
            Faults,
            "none",
            "Informers whose store does not have all objects yet.",
            &[("count(informer_synced{$program} == 0) or vector(0)", "")],
        ),
        number(
            "Failed reconciles",
            Share,
            "percentunit",
            "Share of the reconciles that failed.",
            &[(
                "sum(rate(controller_runtime_reconcile_errors_total{$selected}[$__rate_interval])) \
                     / (sum(rate(controller_runtime_reconcile_total{$selected}[$__rate_interval])) > 0) or vector(0)",
                "",
            )],
        ),
        number(
            "Failed requests",
            Share,
            "percentunit",
            "Share of the requests to the API server that got 429, 5xx or no answer.",
            &[(
                "sum(rate(rest_client_requests_total{$program, code=~\"5..|429|<error>\"}[$__rate_interval])) \
                     / (sum(rate(rest_client_requests_total{$program}[$__rate_interval])) > 0) or vector(0)",
                "",
            )],
        ),
        number(
            "Ready keys",
            Number,
            "short",
            "Keys that are due and wait for a worker.",
            &[("sum(workqueue_depth{$selected})", "")],
        ),
        number(
            "Longest reconcile in progress",
            Number,
            "s",
            "A value that grows without end is a reconcile that hangs.",
            &[(
                "max(workqueue_longest_running_processor_seconds{$selected})",
                "",
            )],
        ),
        number(
            "Panics in an hour",
            Faults,
            "none",
            "Panics of reconcilers, and of the handlers and predicates of watches.",
            &[(
                "sum(increase(controller_runtime_reconcile_panics_total{$selected}[1h])) \
                     + sum(increase(reeve_controller_watch_panics_total{$selected}[1h]))",
                "",
            )],
        ),
        number(
            "Keys given up in an hour",
            Faults,
            "none",
            "Keys that failed more often than they are retried.",
            &[(
                "sum(increase(reeve_reconcile_given_up_total{$selected}[1h]))",
                "",
            )],
        ),
        number(
            "Unreadable objects",
            Faults,
            "none",
            "Objects that the API server holds and that do not decode.",
            &[("sum(informer_quarantined_objects{$program})", "")],
        ),
        number(
            "Restarts in an hour",
            Faults,
            "none",
            "Processes that began again at the same address.",
            &[("sum(changes(process_start_time_seconds{$program}[1h]))", "")],
        ),
    ],
};

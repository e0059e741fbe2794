//! The dashboard of the IPBlock operator.

use super::panel::{Form, Row, graph, number};

pub(super) const HEALTH: Row = Row {
    title: "At a glance",
    panels: &[
        number(
            "Active bans",
            Form::Number,
            "short",
            "Bans that stand, by the leader's count.",
            &[(
                "sum(max by (namespace, job, engine) (ipblock_active{$program}))",
                "",
            )],
        ),
        number(
            "Bans in an hour",
            Form::Number,
            "short",
            "New bans that an engine took.",
            &[(
                r#"sum(increase(ipblock_bans_total{$program, result="success"}[1h]))"#,
                "",
            )],
        ),
        number(
            "Failed bans in an hour",
            Form::Faults,
            "short",
            "They are tried again until their time is over: docs/runbook.md, BanFailed.",
            &[(
                r#"sum(increase(ipblock_bans_total{$program, result="failed"}[1h]))"#,
                "",
            )],
        ),
        number(
            "Failing gateway calls",
            Form::Share,
            "percentunit",
            "The share within 5 minutes. The alert IPBlockGatewayFails fires above 20 %.",
            &[(
                r#"sum(rate(ipblock_engine_request_seconds_count{$program, outcome!="ok"}[5m])) / sum(rate(ipblock_engine_request_seconds_count{$program}[5m]))"#,
                "",
            )],
        ),
        number(
            "Refused configurations",
            Form::Faults,
            "short",
            "Edits of the ConfigMap within an hour that did not parse. The last good configuration is in force.",
            &[(
                r#"sum(increase(ipblock_config_reloads_total{$program, result="refused"}[1h]))"#,
                "",
            )],
        ),
        number(
            "Triggers that do not listen",
            Form::Faults,
            "short",
            "Addresses of triggers whose port is taken.",
            &[("sum(ipblock_triggers_unbound{$program})", "")],
        ),
    ],
};

pub(super) const BANS: Row = Row {
    title: "Bans and lifts",
    panels: &[
        graph(
            "Bans by source",
            "cpm",
            "A minute. Sources that are not well known are `other`.",
            &[(
                "sum by (source, result) (rate(ipblock_bans_total{$program}[$__rate_interval])) * 60",
                "{{source}} {{result}}",
            )],
        ),
        graph(
            "Lifts by cause",
            "cpm",
            "A minute: expired, unblocked, deleted, refused, rejected.",
            &[(
                "sum by (cause) (rate(ipblock_unbans_total{$program}[$__rate_interval])) * 60",
                "{{cause}}",
            )],
        ),
        graph(
            "Lifts after their end",
            "s",
            "How late bans are lifted. The alert IPBlockLiftsLate fires when the 99th percentile is above 10 s.",
            &[
                (
                    "histogram_quantile(0.5, sum by (le) (rate(ipblock_expiry_lag_seconds_bucket{$program}[$__rate_interval])))",
                    "50 %",
                ),
                (
                    "histogram_quantile(0.99, sum by (le) (rate(ipblock_expiry_lag_seconds_bucket{$program}[$__rate_interval])))",
                    "99 %",
                ),
            ],
        ),
        graph(
            "Active bans by engine",
            "short",
            "Bans that stand.",
            &[(
                "max by (namespace, job, engine) (ipblock_active{$program})",
                "{{engine}}",
            )],
        ),
        graph(
            "Refused blocks",
            "cpm",
            "A minute: allowlisted, protected, range_too_wide, …",
            &[(
                "sum by (reason) (rate(ipblock_skipped_total{$program}[$__rate_interval])) * 60",
                "{{reason}}",
            )],
        ),
        graph(
            "Deleted and released",
            "cpm",
            "A minute: blocks deleted after their retention, deletions that the API server refused, and blocks released by annotation.",
            &[
                (
                    "sum(rate(ipblock_collected_total{$program}[$__rate_interval])) * 60",
                    "deleted",
                ),
                (
                    "sum(rate(ipblock_collections_refused_total{$program}[$__rate_interval])) * 60",
                    "deletion refused",
                ),
                (
                    "sum(rate(ipblock_released_total{$program}[$__rate_interval])) * 60",
                    "released",
                ),
            ],
        ),
    ],
};

pub(super) const GATEWAY: Row = Row {
    title: "Gateway",
    panels: &[
        graph(
            "Calls by outcome",
            "reqps",
            "not_called: the gateway failed a moment ago, and is left alone for a while.",
            &[(
                "sum by (engine, op, outcome) (rate(ipblock_engine_request_seconds_count{$program}[$__rate_interval]))",
                "{{engine}} {{op}} {{outcome}}",
            )],
        ),
        graph(
            "Time of a call",
            "s",
            "99th percentile.",
            &[(
                "histogram_quantile(0.99, sum by (engine, op, le) (rate(ipblock_engine_request_seconds_bucket{$program}[$__rate_interval])))",
                "{{engine}} {{op}}",
            )],
        ),
        graph(
            "Bans that the gateway had lost",
            "cpm",
            "A minute, and made again: a restart of the gateway, or another program that changes its rules.",
            &[(
                "sum(rate(ipblock_drift_repaired_total{$program}[$__rate_interval])) * 60",
                "repaired",
            )],
        ),
    ],
};

pub(super) const RAILS: Row = Row {
    title: "Guard rails and set engines",
    panels: &[
        graph(
            "Brakes",
            "none",
            "1: engaged. Bans, lifts, or the clock.",
            &[("max by (kind) (ipblock_brake{$program})", "{{kind}}")],
        ),
        graph(
            "Waiting blocks",
            "short",
            "Blocks that wait for a cap or a brake.",
            &[("max by (reason) (ipblock_waiting{$program})", "{{reason}}")],
        ),
        graph(
            "Shadow mode",
            "cpm",
            "A minute: bans that were not made because their source is in shadow mode.",
            &[(
                "sum by (source) (rate(ipblock_shadow_total{$program}[$__rate_interval])) * 60",
                "{{source}}",
            )],
        ),
        graph(
            "Targets of set engines",
            "short",
            "What should stand and what stands; unsupported: the engine cannot express it; overflow: beyond its limit.",
            &[
                (
                    "max by (engine) (ipblock_engine_desired{$program})",
                    "{{engine}} desired",
                ),
                (
                    "max by (engine) (ipblock_engine_enforced{$program})",
                    "{{engine}} enforced",
                ),
                (
                    "max by (engine) (ipblock_engine_unsupported{$program})",
                    "{{engine}} unsupported",
                ),
                (
                    "max by (engine) (ipblock_engine_overflow{$program})",
                    "{{engine}} overflow",
                ),
            ],
        ),
        graph(
            "Batches",
            "cpm",
            "A minute: batches of changes sent to a set engine.",
            &[(
                "sum by (engine, outcome) (rate(ipblock_engine_batches_total{$program}[$__rate_interval])) * 60",
                "{{engine}} {{outcome}}",
            )],
        ),
        graph(
            "Agents",
            "short",
            "Agents that reported within five minutes.",
            &[(
                "sum by (engine, state) (ipblock_agents{$program})",
                "{{engine}} {{state}}",
            )],
        ),
    ],
};

pub(super) const ALERTS: Row = Row {
    title: "Alerts in, messages out",
    panels: &[
        graph(
            "Requests to triggers",
            "cpm",
            "A minute, by the status of the answer.",
            &[(
                "sum by (trigger, code) (rate(ipblock_webhook_requests_total{$program}[$__rate_interval])) * 60",
                "{{trigger}} {{code}}",
            )],
        ),
        graph(
            "Debounced alerts",
            "cpm",
            "A minute: alerts left alone because their address was written a moment ago.",
            &[(
                "sum(rate(ipblock_debounced_total{$program}[$__rate_interval])) * 60",
                "debounced",
            )],
        ),
        graph(
            "Notifications",
            "cpm",
            "A minute: sent, retried, failed, dropped, digested.",
            &[(
                "sum by (channel, outcome) (rate(ipblock_notifications_total{$program}[$__rate_interval])) * 60",
                "{{channel}} {{outcome}}",
            )],
        ),
    ],
};

pub(super) const REPLICAS: Row = Row {
    title: "Replicas",
    panels: &[
        graph(
            "Leader",
            "none",
            "1: this replica bans and lifts. 0: it stands by, and takes alerts.",
            &[(
                r#"max by (instance) (leader_election_master_status{$program, name="ipblock-operator"})"#,
                "{{instance}}",
            )],
        ),
        graph(
            "Clock",
            "s",
            "How far the node's clock is from the API server's, while bans end by the latter.",
            &[(
                "max by (instance) (abs(ipblock_clock_ahead_seconds{$program}))",
                "{{instance}}",
            )],
        ),
        graph(
            "Memory",
            "bytes",
            "Resident. docs/operate.md, \"How much memory\".",
            &[(
                "max by (instance) (process_resident_memory_bytes{$program} and on (namespace, job, instance) ipblock_config_reloads_total)",
                "{{instance}}",
            )],
        ),
    ],
};

//! The agents on the nodes: a row of the operator's dashboard.

use super::panel::{Form, Row, graph, number};

pub(super) const AGENTS: Row = Row {
    title: "Agents on the nodes",
    panels: &[
        number(
            "Nodes with an agent",
            Form::Number,
            "short",
            "Agents that are scraped.",
            &[("count(ipblock_agent_list_age_seconds{$namespaced})", "")],
        ),
        number(
            "Nodes without the newest list",
            Form::Faults,
            "short",
            "No answer of the operator for 5 minutes: IPBlockAgentListOld. The bans of these nodes go on.",
            &[(
                "count(ipblock_agent_list_age_seconds{$namespaced} > 300) or vector(0)",
                "",
            )],
        ),
        number(
            "Refusals of kernels in an hour",
            Form::Faults,
            "short",
            "Changes that a kernel did not take: IPBlockAgentFails. They are tried again.",
            &[(
                r#"sum(increase(ipblock_agent_errors_total{$namespaced, kind=~"netlink.*|panic"}[1h])) or vector(0)"#,
                "",
            )],
        ),
        number(
            "Entries left out",
            Form::Faults,
            "short",
            "The most on one node beyond --max-entries: IPBlockAgentTooManyEntries.",
            &[(
                r#"max(ipblock_agent_refused{$namespaced, reason="overflow"})"#,
                "",
            )],
        ),
        number(
            "Held lifts",
            Form::Faults,
            "short",
            "The most on one node that wait for a confirmation: IPBlockAgentLiftsHeld.",
            &[("max(ipblock_agent_held_lifts{$namespaced})", "")],
        ),
        number(
            "Dropped packets in an hour",
            Form::Number,
            "short",
            "Packets of banned addresses, on all nodes.",
            &[(
                "sum(increase(ipblock_agent_dropped_packets_total{$namespaced}[1h]))",
                "",
            )],
        ),
        graph(
            "Elements in the kernels",
            "short",
            "The node with the most and that with the fewest. They differ for moments, and where nodes refuse entries.",
            &[
                (
                    "max by (family) (ipblock_agent_entries{$namespaced})",
                    "{{family}} most",
                ),
                (
                    "min by (family) (ipblock_agent_entries{$namespaced})",
                    "{{family}} fewest",
                ),
            ],
        ),
        graph(
            "Dropped packets",
            "pps",
            "The ten nodes that drop the most.",
            &[(
                "topk(10, sum by (node) (rate(ipblock_agent_dropped_packets_total{$namespaced}[$__rate_interval])))",
                "{{node}}",
            )],
        ),
        graph(
            "Dropped traffic",
            "Bps",
            "The sum over all nodes.",
            &[(
                "sum by (family) (rate(ipblock_agent_dropped_bytes_total{$namespaced}[$__rate_interval]))",
                "{{family}}",
            )],
        ),
        graph(
            "Age of the list",
            "s",
            "The five oldest. Below 45 s while all is well.",
            &[(
                "topk(5, max by (node) (ipblock_agent_list_age_seconds{$namespaced}))",
                "{{node}}",
            )],
        ),
        graph(
            "Errors",
            "cpm",
            "A minute: of the list and of the kernel.",
            &[(
                "sum by (kind) (rate(ipblock_agent_errors_total{$namespaced}[$__rate_interval])) * 60",
                "{{kind}}",
            )],
        ),
        graph(
            "Changes and repairs",
            "cpm",
            "A minute: changes of the list, tables or chains that another program damaged, elements that it changed.",
            &[
                (
                    "sum(rate(ipblock_agent_applied_total{$namespaced}[$__rate_interval])) * 60",
                    "changes",
                ),
                (
                    "sum(rate(ipblock_agent_table_restored_total{$namespaced}[$__rate_interval])) * 60",
                    "repaired tables",
                ),
                (
                    "sum(rate(ipblock_agent_drift_repaired_total{$namespaced}[$__rate_interval])) * 60",
                    "repaired elements",
                ),
            ],
        ),
        graph(
            "Refused entries",
            "short",
            "The most on one node, by reason: docs/agent.md.",
            &[(
                "max by (reason) (ipblock_agent_refused{$namespaced})",
                "{{reason}}",
            )],
        ),
    ],
};

//! Requests to the API server, leader election, and the process.

use super::panel::{Row, graph};

pub(super) const CLIENT: Row = Row {
    title: "API client",
    panels: &[
        graph(
            "Requests by code",
            "reqps",
            "<error> is a request without an answer.",
            &[(
                "sum by (code) (rate(rest_client_requests_total{$program}[$__rate_interval]))",
                "{{code}}",
            )],
        ),
        graph(
            "Requests by method",
            "reqps",
            "A watch is one GET.",
            &[(
                "sum by (method) (rate(rest_client_requests_total{$program}[$__rate_interval]))",
                "{{method}}",
            )],
        ),
        graph(
            "Time to the head of the answer",
            "s",
            "99th percentile. Empty unless the program calls Metrics::measure_requests.",
            &[(
                "histogram_quantile(0.99, sum by (verb, le) (rate(rest_client_request_duration_seconds_bucket{$program}[$__rate_interval])))",
                "{{verb}}",
            )],
        ),
        graph(
            "Bodies",
            "Bps",
            "Bytes of requests and answers, watches excepted. Empty unless the program calls Metrics::measure_requests.",
            &[
                (
                    "sum by (verb) (rate(rest_client_request_size_bytes_sum{$program}[$__rate_interval]))",
                    "{{verb}} sent",
                ),
                (
                    "sum by (verb) (rate(rest_client_response_size_bytes_sum{$program}[$__rate_interval]))",
                    "{{verb}} received",
                ),
            ],
        ),
    ],
};

pub(super) const ELECTION: Row = Row {
    title: "Leader election",
    panels: &[
        graph(
            "Leader",
            "none",
            "1 for the replica that holds the lease.",
            &[(
                "max by (name, instance) (leader_election_master_status{$program})",
                "{{name}} {{instance}}",
            )],
        ),
        graph(
            "Changes of the leader in an hour",
            "none",
            "Replicas that began or ended to lead.",
            &[(
                "sum by (name) (changes(leader_election_master_status{$program}[1h]))",
                "{{name}}",
            )],
        ),
        graph(
            "Renewals that failed at first",
            "ops",
            "Renewals that had to read the lease, because the first write failed.",
            &[(
                "sum by (name) (rate(leader_election_slowpath_total{$program}[$__rate_interval]))",
                "{{name}}",
            )],
        ),
    ],
};

pub(super) const PROCESS: Row = Row {
    title: "Process",
    panels: &[
        graph(
            "Resident memory",
            "bytes",
            "Of each replica.",
            &[("process_resident_memory_bytes{$program}", "{{instance}}")],
        ),
        graph(
            "CPU",
            "none",
            "Cores in use.",
            &[(
                "rate(process_cpu_seconds_total{$program}[$__rate_interval])",
                "{{instance}}",
            )],
        ),
        graph(
            "Open files",
            "percentunit",
            "Share of the limit of file descriptors.",
            &[(
                "process_open_fds{$program} / process_max_fds{$program}",
                "{{instance}}",
            )],
        ),
        graph(
            "Network of the Pod",
            "Bps",
            "Bytes of the network namespace, which containers of a Pod share.",
            &[
                (
                    "rate(process_network_receive_bytes_total{$program}[$__rate_interval])",
                    "{{instance}} received",
                ),
                (
                    "rate(process_network_transmit_bytes_total{$program}[$__rate_interval])",
                    "{{instance}} sent",
                ),
            ],
        ),
        graph(
            "Uptime",
            "s",
            "Seconds since the process started.",
            &[(
                "time() - process_start_time_seconds{$program}",
                "{{instance}}",
            )],
        ),
        graph(
            "Certificates of servers",
            "ops",
            "Reads of certificates, and reads that failed. The previous certificate stays in use.",
            &[
                (
                    "sum by (instance) (rate(certwatcher_read_certificate_total{$program}[$__rate_interval]))",
                    "{{instance}} read",
                ),
                (
                    "sum by (instance) (rate(certwatcher_read_certificate_errors_total{$program}[$__rate_interval]))",
                    "{{instance}} failed",
                ),
            ],
        ),
    ],
};

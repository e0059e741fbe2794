//! The panels of the dashboards: their titles, queries and units.
//!
//! `$program` and `$selected` stand for the label matchers of a dashboard's variables: namespace and job, and with the
//! controller; `$namespaced` for that of the namespace alone.

mod agents;
mod controllers;
mod health;
mod informers;
mod operator;
mod panel;
mod process;

pub use panel::{Form, Panel, Row};

/// The rows, from the top.
pub const ROWS: [Row; 7] = [
    health::HEALTH,
    controllers::RECONCILES,
    controllers::QUEUE,
    informers::INFORMERS,
    process::CLIENT,
    process::ELECTION,
    process::PROCESS,
];

/// The rows of the operator's own dashboard, from the top.
pub const OPERATOR_ROWS: [Row; 7] = [
    operator::HEALTH,
    operator::BANS,
    operator::GATEWAY,
    operator::RAILS,
    operator::ALERTS,
    agents::AGENTS,
    operator::REPLICAS,
];

/// Exported families that no panel shows, each with the reason.
pub const NOT_SHOWN: [(&str, &str); 5] = [
    (
        "process_virtual_memory_bytes",
        "address space that is reserved, which costs nothing",
    ),
    (
        "process_virtual_memory_max_bytes",
        "containers have no limit of address space",
    ),
    (
        "reflector_items_per_list",
        "informer_objects shows the size of a kind",
    ),
    (
        "reflector_items_per_watch",
        "a watch ends by a timer, so its number of events is the rate of events",
    ),
    (
        "reflector_watch_duration_seconds",
        "the server ends watches after a random time; short ones have a counter",
    ),
];

//! The Grafana dashboards of the metrics of any program made with Reeve and of the operator, and what the checks of the
//! dashboards and the alerts read.

pub mod dashboard;
pub mod panels;
pub mod promql;
pub mod rules;

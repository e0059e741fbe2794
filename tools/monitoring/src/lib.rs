//! The Grafana dashboard of the metrics of any program made with Reeve, and what the checks of the dashboard and the
//! alerts read.

pub mod dashboard;
pub mod panels;
pub mod promql;
pub mod rules;

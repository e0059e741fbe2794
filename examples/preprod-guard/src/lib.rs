//! An admission webhook that keeps pre-release callers from changing production objects.
//!
//! [`decision::decide`] is a pure function of a request, the state of the cluster and the time. [`webhook::Guard`] serves it,
//! [`watch::Watch`] fills the state, [`detector::Detector`] reports production objects that are deleted without a record, and
//! [`program::build`] runs all of it. Production callers are always allowed.

pub mod age;
pub mod audit;
pub mod commands;
pub mod config;
pub mod decision;
pub mod detector;
pub mod identity;
pub mod install;
pub mod kinds;
pub mod live;
pub mod metrics;
pub mod object;
pub mod program;
pub mod sink;
pub mod state;
pub mod target;
pub mod watch;
pub mod webhook;

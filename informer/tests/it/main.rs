//! The informer against scripted servers and random histories, nearly always under paused time.

#![allow(
    unreachable_pub,
    reason = "the modules of a test binary share what they like"
)]

mod apiserver;
mod asking;
mod backpressure;
mod conformance;
mod connect;
mod encodings;
mod factory;
mod faults;
mod forms;
mod framing;
mod harness;
mod health;
mod history;
mod informer;
mod inline;
mod kube_apiserver;
#[cfg(feature = "prometheus")]
mod metrics;
mod namespace_turns;
mod namespaces;
mod parallel;
mod protobuf;
mod reflecting;
mod reflector;
mod script;
mod servers;
mod setup;
mod spares;
mod stops;
mod turns;
mod world;
mod yielding;

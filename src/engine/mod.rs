//! Engines: what makes an address blocked.
//!
//! [`Engine`] bans and unbans; both are idempotent, so that a caller without an answer calls again. [`Iptables`] and [`Xdp`] call a gateway over HTTP as the first operator of
//! this kind did, [`DryRun`] only records. [`Guarded`] stands before an engine in production: it bounds
//! the calls in flight and, when the gateway does not answer, refuses further ones at once, so that a
//! dead gateway holds up only what needs it.
//!
//! # When a call fails
//! The text of an [`Error`] fits a status message and does not change from one attempt to the next;
//! [`Error::reason`] is the same as one CamelCase word. Nothing is retried here: back-off belongs to the
//! queue.

mod breaker;
mod connect;
mod dry_run;
mod endpoint;
mod error;
mod follows;
mod guarded;
mod iptables;
mod kind;
mod metrics;
mod xdp;

pub use breaker::Settings as BreakerSettings;
pub use dry_run::DryRun;
pub use endpoint::{Endpoint, ParseEndpointError};
pub use error::Error;
pub use follows::Follows;
pub use guarded::{GuardSettings, Guarded};
pub use iptables::Iptables;
pub use kind::{Ban, Capabilities, Engine, Kind, Remaining, Unban, UnknownEngine};
pub use metrics::Metrics;
pub use xdp::Xdp;

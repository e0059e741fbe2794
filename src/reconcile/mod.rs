//! The thin shell around [`crate::decide`]: reads the world, runs the plan, writes what it says.
//!
//! ```text
//! request ─ locks of its targets ─ object, config, coverage ─ decide ─┐
//!    ┌────────────────────────────────────────────────────────────────┘
//!    └ patch (finalizer, intent) ─ engine calls ─ status ─ patch (flags, finalizer) ─ Event, notification
//! ```
//!
//! # When something fails
//! A write that fails ends the run, which is tried again by the queue with growing delays; the next decision
//! sees what was written and goes on from there. Events and notifications follow the status at once, before the
//! last patch: a patch that fails cannot lose them. An engine call that fails is written to the status, once a
//! reason, and tried again in the same way. Nothing here sleeps until a ban is due: [`Outcome::requeue_after`]
//! says when to look again, and a jump of the wall clock makes every block be looked at.
//!
//! [`Outcome::requeue_after`]: reeve_controller::Outcome::requeue_after

mod act;
mod block;
mod configuration;
mod engines;
mod gateway;
mod live;
mod priority;
mod record;
mod sweep;
mod trust;

pub(crate) use act::status_patch;
pub use block::{BlockReconciler, Dependencies, Voice};
pub(crate) use block::{FIRST_RETRY, LONGEST_RETRY};
pub use configuration::{ConfigurationReconciler, Consumers};
pub use engines::{ConnectError, Connector, Credentials, Engines, Gateways};
pub(crate) use gateway::resolve;
pub use gateway::{Resolver, SystemResolver};
pub use live::{Live, State};
pub(crate) use priority::{LiftsFirst, alarm};
pub use record::{RECORD, Record};
pub(crate) use sweep::{request_all, request_of};

//! The thin shell around [`crate::decide`]: reads the world, decides, and performs the steps of the run.
//!
//! ```text
//! request ─ locks of its targets ─ object, config, coverage ─ decide ─ step ─ outcome ─ step ─ … ─ end
//! ```
//!
//! # When something fails
//! A write that fails ends the run, which the queue tries again with growing delays; the next decision reads what was
//! written and goes on from there: see [`run`](crate::decide::run). An engine call that fails is written to the status,
//! once a reason, and tried again in the same way. Nothing here sleeps until a ban is due:
//! [`Outcome::requeue_after`] sets the next wake, and a jump of the wall clock requests every block.
//!
//! [`Outcome::requeue_after`]: reeve_controller::Outcome::requeue_after

mod act;
mod block;
mod configuration;
mod engines;
mod gateway;
mod left;
mod live;
mod loss;
mod mirror;
mod outdated;
mod priority;
mod rails;
mod record;
mod released;
mod sweep;
mod trust;

pub(crate) use act::status_patch;
pub use block::{Announcer, BlockReconciler, Dependencies};
pub(crate) use block::{FIRST_RETRY, LONGEST_RETRY};
pub use configuration::{ConfigurationReconciler, Consumers};
pub use engines::{ConnectError, Connector, Credentials, Engines, Gateways};
pub use live::{Live, State};
pub(crate) use loss::Checks;
pub use loss::Losses;
pub(crate) use mirror::{MirrorReconciler, Standby};
pub(crate) use priority::{LiftsFirst, alarm, is_another_failure};
pub use record::{RECORD, Record};
pub(crate) use sweep::{Affected, Pages as BlockPages, request_all, request_of};

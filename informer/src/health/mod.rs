//! The state of an informer, for readiness, metrics and people.

mod activity;
mod cache_health;
mod cell;
mod handler_health;
mod quarantine;
mod watch_health;

pub use activity::Activity;
pub use cache_health::CacheHealth;
pub(crate) use cell::HealthCell;
pub use handler_health::HandlerHealth;
pub use quarantine::Quarantined;
pub use watch_health::{Failure, WatchHealth};

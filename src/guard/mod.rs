//! Guard rails: how much may be banned, how fast, and what holds back a mass of bans or lifts.
//!
//! ```text
//! decide ─ a new ban? ─ brake ─ caps of active blocks ─ caps of bans a minute ─ claim
//!                         └──────────────┴──────────────────────┴ held: `pending`, asked again when there is room
//! ```
//!
//! [`Limiter`] answers each new ban, a pure function of its own windows, the [counts](crate::decide::Coverage) and the
//! time. [`Guard`] is the shell around it: one lock, metrics, and the blocks that wait. [`brake`] judges what a policy
//! would lift, before the policy is in force; `resolved` counts
//! what resolved alerts lift. [`Discovery`] follows the addresses of the cluster, which are never banned. [`escalation`] computes the length of repeated bans.
//!
//! # What is never held
//! Lifts of bans whose own time is over, lifts by hand and deletions pass no guard. Neither do assertions of bans that stand and attempts of a ban
//! that was admitted before: a block with a claim is not asked again.
//!
//! # What a restart does
//! The bans of the last minute, and the lifts by resolved alerts of the last ten, are counted again from the blocks' times,
//! so a restart gives no second burst. A brake on
//! bans, and one on lifts by resolved alerts, is found again in the blocks that it held.

mod balancers;
pub mod brake;
mod cluster;
mod discovery;
pub mod escalation;
mod held;
mod limiter;
mod metrics;
mod queue;
mod resolved;
mod settings;
mod shell;
mod window;

pub use discovery::Discovery;
pub use escalation::Escalation;
pub use held::{Ask, Full, Held, Hold, Scope};
pub use limiter::Limiter;
pub use metrics::Metrics;
pub(crate) use resolved::WINDOW as RESOLVED_WINDOW;
pub use settings::{Brake, Limit, Limits, Settings};
pub use shell::Guard;
pub(crate) use window::MINUTE;

use crate::api::IPBlock;

/// The source that counts: a block without one was made by hand.
#[must_use]
pub fn source_of(block: &IPBlock) -> &str {
    let source = block.spec.source.as_deref().unwrap_or_default();
    if source.is_empty() { "manual" } else { source }
}

//! Notifications about bans, off the reconcile path.
//!
//! ```text
//!                        ┌▶ queue ≤ 1000 ─▶ worker ─ rate limit ─ Notifier ─▶ Lark
//! reconcile ─ send() ────┼▶ queue ≤ 1000 ─▶ worker ─ rate limit ─ Notifier ─▶ Slack
//!             never waits└▶ …                 │ flooded: many become one digest
//!                                             └ failed: back-off, then given up and counted
//! ```
//!
//! Nothing here can delay or fail a ban, and no channel holds up another. A notification is sent at most once to each
//! channel: it is lost when the process dies or the channel stays away, and it is not repeated after a restart. URLs hold
//! their secret, so neither errors nor logs ever hold a URL.

mod cloud_events;
mod dispatcher;
mod hook;
mod lark;
mod markup;
mod metrics;
mod notification;
mod pagerduty;
mod rate;
mod robot;
mod slack;
mod teams;
mod template;

pub use cloud_events::{CloudEvents, WebhookSecrets};
pub use dispatcher::{Channel, Notifications};
pub use hook::Transport;
pub use lark::Lark;
pub use markup::Markup;
pub use metrics::Metrics;
pub use notification::{Error, Event, Notification, Notifier};
pub use pagerduty::{PAGERDUTY_URL, PagerDuty, Severity};
pub use robot::{Brand, Robot};
pub use slack::Slack;
pub use teams::Teams;
pub use template::{Template, TemplateError, Templates};

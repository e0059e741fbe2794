//! Notifications about bans, off the reconcile path.
//!
//! ```text
//! reconcile ─ send() ─▶ queue ≤ 1000 ─▶ one worker ─ rate limit ─ Notifier ─▶ Lark
//!             never waits                 │ flooded: many become one digest
//!                                         └ failed: back-off, then given up and counted
//! ```
//!
//! Nothing here can delay or fail a ban. A notification is sent at most once: it is lost when the process
//! dies or the channel stays away, and it is not repeated after a restart. Hook URLs hold their
//! secret, so neither errors nor logs ever hold a URL.

mod dispatcher;
mod lark;
mod metrics;
mod notification;
mod rate;
mod template;

pub use dispatcher::Notifications;
pub use lark::{Lark, LarkSettings};
pub use metrics::Metrics;
pub use notification::{Error, Event, Notification, Notifier};
pub use template::{Template, TemplateError, Templates};

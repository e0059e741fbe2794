//! A notification, and the channel that delivers it.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

use serde_json::{Value, json};

use crate::outbound::BoxFuture;

/// The kind of a notification; also the name of its template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// An address was banned.
    Ban,
    /// A ban was lifted.
    Resolve,
    /// Anything else: trouble, digests.
    Common,
}

/// One notification. Texts that do not apply are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Its kind.
    pub event: Event,
    /// When it happened.
    pub at: Timestamp,
    /// The canonical target.
    pub ip: String,
    /// The reason of the ban.
    pub reason: String,
    /// Where the ban comes from.
    pub source: String,
    /// The person or system that requested it.
    pub by: String,
    /// How long it lasts, as written in the spec.
    pub duration: String,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// Which ban of this object it is.
    pub count: i64,
    /// What happened, in a sentence.
    pub message: String,
    /// The gateway that fails, as `iptables at 192.0.2.1:6080`; empty for anything else. Its trouble is one for all blocks.
    pub gateway: String,
}

/// A channel to people. Dyn-safe: the configuration chooses it.
pub trait Notifier: Send + Sync + fmt::Debug {
    /// The channel's name in metrics: `lark`.
    fn channel(&self) -> &'static str;

    /// The limits of the channel: each a number of notifications in a time.
    fn limits(&self) -> &'static [(usize, Duration)];

    /// Whether many waiting notifications become one, unless the configuration says otherwise. Not for a channel of
    /// programs, which need each event.
    fn digests(&self) -> bool {
        true
    }

    /// Delivers one notification.
    ///
    /// # Errors
    /// Whether it is worth trying again, and why it failed; never with the channel's URL.
    fn notify<'a>(&'a self, notification: &'a Notification) -> BoxFuture<'a, Result<(), Error>>;
}

/// Why a notification is not delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It may work later.
    #[error("{why}")]
    Later {
        /// What happened.
        why: String,
        /// When to try again, if the channel names a time.
        after: Option<Duration>,
    },
    /// It cannot work until the configuration changes.
    #[error("{0}")]
    Never(String),
}

// === impl Event ===

impl Event {
    /// Every event.
    pub const ALL: [Self; 3] = [Self::Ban, Self::Resolve, Self::Common];

    /// The event of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.name() == name)
    }

    /// `ban`, `resolve`, `common`: as in `notifyTemplate_<event>`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ban => "ban",
            Self::Resolve => "resolve",
            Self::Common => "common",
        }
    }
}

// === impl Notification ===

impl Notification {
    /// A notification that carries only a sentence.
    #[must_use]
    pub fn common(at: Timestamp, message: impl Into<String>) -> Self {
        Self {
            event: Event::Common,
            at,
            ip: String::new(),
            reason: String::new(),
            source: String::new(),
            by: String::new(),
            duration: String::new(),
            expires_at: None,
            count: 0,
            message: message.into(),
            gateway: String::new(),
        }
    }

    /// What happened, in two words and the address.
    #[must_use]
    pub fn title(&self) -> String {
        match (self.event, self.ip.as_str()) {
            (Event::Ban, ip) => format!("Banned {ip}"),
            (Event::Resolve, ip) => format!("Lifted {ip}"),
            (Event::Common, "") => "IPBlock operator".to_owned(),
            (Event::Common, ip) => format!("Trouble with {ip}"),
        }
    }

    /// The value of a template variable; `None` for one that does not exist.
    #[must_use]
    pub fn variable(&self, name: &str, zone: Offset) -> Option<String> {
        Some(match name {
            "title" => self.title(),
            "event" => self.event.name().to_owned(),
            "alarm_time" => time(self.at, zone),
            "reason" => self.reason.clone(),
            "count" => self.count.to_string(),
            "ip" => self.ip.clone(),
            "msg" | "message" => self.message.clone(),
            "duration" if self.duration.is_empty() => "without end".to_owned(),
            "duration" => self.duration.clone(),
            "source" => self.source.clone(),
            "by" => self.by.clone(),
            "expires_at" => match self.expires_at {
                Some(at) => time(at, zone),
                None => "never".to_owned(),
            },
            _ => return None,
        })
    }
}

impl Notification {
    /// All fields that apply, for programs.
    #[must_use]
    pub fn document(&self) -> Value {
        let mut document = json!({ "event": self.event.name(), "message": self.message });
        for (name, text) in [
            ("ip", &self.ip),
            ("reason", &self.reason),
            ("source", &self.source),
            ("by", &self.by),
            ("duration", &self.duration),
            ("gateway", &self.gateway),
        ] {
            if !text.is_empty() {
                document[name] = json!(text);
            }
        }
        if let Some(at) = self.expires_at {
            document["expiresAt"] = json!(at.to_string());
        }
        if self.count > 0 {
            document["count"] = json!(self.count);
        }
        document
    }
}

/// `2026-01-01 08:00:00 +08:00`, or `… UTC`.
fn time(at: Timestamp, zone: Offset) -> String {
    let local = at.to_zoned(TimeZone::fixed(zone));
    let date = local.strftime("%Y-%m-%d %H:%M:%S");
    if zone == Offset::UTC {
        format!("{date} UTC")
    } else {
        format!("{date} {}", local.strftime("%:z"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_name_their_zone() {
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(time(at, Offset::UTC), "2026-01-01 00:00:00 UTC");
        let shanghai = Offset::constant(8);
        assert_eq!(time(at, shanghai), "2026-01-01 08:00:00 +08:00");
    }
}

//! What the operator writes beside the spec: its finalizer and its intent; and the annotations that users may set.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::target::Target;

/// Holds an object until its ban is lifted.
pub const FINALIZER: &str = "ops.yiiong.top/lift";

/// Written before the engine is called: what may be enforced for this object, and where. See [`Intent`].
pub const INTENT: &str = "ops.yiiong.top/intent";

/// Set by a user to `true`: release the object without lifting its ban, for a gateway that is gone.
pub const RELEASE_ANNOTATION: &str = "ops.yiiong.top/release";

/// Set by a user to any new value (a time stamp): ban again once. Unlike `spec.trigger` it is not set
/// back, so a repository that is applied again and again bans once.
pub const TRIGGER_ANNOTATION: &str = "ops.yiiong.top/trigger";

/// Set by a user to a duration or to `never`: how long this object is kept after its ban ended, whatever made it.
pub const RETENTION_ANNOTATION: &str = "ops.yiiong.top/retention";

/// Written by a trigger: the alert that asked for the latest ban. See [`Alert`].
pub const ALERT_ANNOTATION: &str = "ops.yiiong.top/alert";

/// The alert behind a block, as its sender identifies it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// The name of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The fingerprint of the alert's labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// Written by triggers with `resolved: lift`: the alerts that keep the ban.
pub const ALERTS: &str = "ops.yiiong.top/alerts";

/// Written when the last alert of a ban was resolved: the time of that.
pub const RESOLVED: &str = "ops.yiiong.top/resolved-at";

/// An engine and the gateway it calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The engine's name: `iptables`, `xdp`, `dry-run`, `sets`.
    pub engine: String,
    /// `host:port`, with `https://` before it for TLS; empty for an engine without a gateway.
    #[serde(default)]
    pub endpoint: String,
}

/// One ban that may stand at a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Standing {
    /// What is banned.
    #[serde(with = "crate::target::as_text")]
    pub target: Target,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
}

/// What may be enforced for an object, written before the first engine call can make it true.
///
/// After a crash it names what to assert again or to lift, and where, even when the configuration has
/// changed since. `attempt` numbers the bans of an object: as long as it is above `status.banCount`
/// the outcome of that ban is unknown, and the ban is made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The ban that is wanted.
    #[serde(flatten)]
    pub standing: Standing,
    /// Which ban of this object this is: 1 is the first.
    pub attempt: i64,
    /// When this ban was asked for; absent: when its object was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
    /// The value of [`TRIGGER_ANNOTATION`] that this ban acts upon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// Earlier bans whose lift is not confirmed: at another gateway, or of another address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Standing>,
    /// Bans that may stand at gateways that no administrator configured. They are carried along so that they are lifted
    /// once their gateway is named; it is not called before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfollowed: Vec<Standing>,
    /// The configuration withdraws every gateway that this names: nothing counts as banned there. It is a mark of what is
    /// read, and is never written to an object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
}

/// An intent annotation that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the annotation {INTENT} cannot be read: {0}; remove it and the operator writes a new one")]
pub struct Unreadable(#[from] serde_json::Error);

// === impl Alert ===

impl Alert {
    /// The text of the annotation.
    #[must_use]
    pub fn text(&self) -> String {
        // Texts always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("alert")?;
        if let Some(rule) = &self.rule {
            write!(formatter, " {rule}")?;
        }
        if let Some(fingerprint) = &self.fingerprint {
            write!(formatter, " ({fingerprint})")?;
        }
        Ok(())
    }
}

impl FromStr for Alert {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

// === impl Place ===

impl Place {
    /// `engine` at `endpoint`.
    #[must_use]
    pub fn new(engine: impl Into<String>, endpoint: impl Into<String>) -> Self {
        Self {
            engine: engine.into(),
            endpoint: endpoint.into(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.endpoint.is_empty() && self.engine == "sets" {
            formatter.write_str("the set engines")
        } else if self.endpoint.is_empty() {
            formatter.write_str(&self.engine)
        } else {
            write!(formatter, "{} at {}", self.engine, self.endpoint)
        }
    }
}

// === impl Intent ===

impl Intent {
    /// The intent to ban `target` at `place`, as ban number `attempt` of its object.
    #[must_use]
    pub fn new(target: Target, place: Place, attempt: i64) -> Self {
        Self {
            standing: Standing { target, place },
            attempt,
            asked: None,
            trigger: None,
            also: Vec::new(),
            unfollowed: Vec::new(),
            withdrawn: false,
        }
    }

    /// Whether the wanted ban is at a gateway that is followed.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        !self.unfollowed.contains(&self.standing)
    }
}

impl fmt::Display for Intent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Strings and numbers only: it cannot fail.
        formatter.write_str(&serde_json::to_string(self).unwrap_or_default())
    }
}

impl FromStr for Intent {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        Ok(serde_json::from_str(text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intent_reads_back_as_written() {
        let mut intent = Intent::new(
            "192.0.2.7".parse().unwrap(),
            Place::new("iptables", "10.0.0.1:9521"),
            3,
        );
        assert_eq!(
            intent.to_string(),
            r#"{"target":"192.0.2.7","engine":"iptables","endpoint":"10.0.0.1:9521","attempt":3}"#
        );
        intent.also.push(Standing {
            target: "192.0.2.0/24".parse().unwrap(),
            place: Place::new("xdp", "10.0.0.2:8080"),
        });
        assert_eq!(intent.to_string().parse::<Intent>().unwrap(), intent);
    }

    #[test]
    fn an_intent_that_another_client_edited_is_an_error_not_a_panic() {
        for text in [
            "",
            "{}",
            "null",
            r#"{"target":"x","engine":"e","attempt":1}"#,
        ] {
            assert!(text.parse::<Intent>().is_err(), "{text}");
        }
    }
}

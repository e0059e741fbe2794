//! The status: where a block stands, since when and why.

use std::borrow::Cow;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::schema;

/// Where a block stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Requested, and not confirmed by the gateway yet.
    Pending,
    /// Enforced.
    Active,
    /// Lifted: its time is over, or `spec.unblock` was set.
    Expired,
    /// Not banned, because the address is allowlisted or protected.
    Skipped,
    /// Not banned, because the spec is wrong; nothing happens until it changes.
    Failed,
    /// A phase of some other version.
    Other(String),
}

/// How the last operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ResultCode {
    /// Banned.
    Success,
    /// Refused or failed.
    Failed,
    /// Lifted.
    Unblocked,
    /// Not banned, by a rule.
    Skipped,
    /// A result of some other version; the original writes an empty one at first.
    Other(String),
}

/// The state of a block as the operator last read or made it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPBlockStatus {
    /// Where the block stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// How the last operation ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultCode>,

    /// What happened, or what is wrong and what to do, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// When the present or last ban began (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_at: Option<String>,

    /// When the last ban was lifted (RFC 3339); absent while banned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unblocked_at: Option<String>,

    /// When the present ban will be lifted (RFC 3339); absent: never, or not banned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,

    /// Fingerprint of what is enforced: canonical target and engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_spec_hash: Option<String>,

    /// How often this block was banned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ban_count: Option<i64>,

    /// How the present or last ban was lengthened; absent without `escalation` in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<Escalated>,

    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The canonical target: what is really banned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,

    /// The engine that enforces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,

    /// Each engine that follows the set of bans, and whether it has this one; absent while not banned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = schema::engine_keys()))]
    pub engines: Vec<EngineStatus>,

    /// Ready, Enforced, Allowlisted, Shadow, Lifted, LiftHeld.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = schema::condition_keys()))]
    pub conditions: Vec<Condition>,

    /// The value of the trigger annotation that was last acted upon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_trigger: Option<String>,
}

/// What one engine does about a ban.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineStatus {
    /// The engine's name in the configuration.
    pub name: String,
    /// Whether it enforces the ban.
    pub enforced: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How a ban was lengthened because its address was banned before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Escalated {
    /// Which ban of a row this is: 1 is the first.
    pub step: i64,
    /// The duration that was requested.
    pub asked: String,
    /// How long the ban lasts.
    pub granted: String,
}

/// One aspect of a status, in the form of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Ready, Enforced, Allowlisted, Shadow, Lifted or LiftHeld.
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// The reason in one word.
    pub reason: String,
    /// The reason in a sentence.
    #[serde(default)]
    pub message: String,
    /// Since when `status` is what it is (RFC 3339).
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// The generation that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// The operator has no answer.
    Unknown,
}

/// The types of conditions.
pub mod condition {
    /// Nothing is left to do, and nothing is wrong.
    pub const READY: &str = "Ready";
    /// The gateway enforces the ban.
    pub const ENFORCED: &str = "Enforced";
    /// The target is allowlisted or protected, or holds an address that is.
    pub const ALLOWLISTED: &str = "Allowlisted";
    /// The source is in shadow mode: the ban is only shown.
    pub const SHADOW: &str = "Shadow";
    /// `False` while a lift fails, since its first failure; absent otherwise.
    pub const LIFTED: &str = "Lifted";
    /// `True` while a brake holds the lift of the ban, whatever else is wrong; absent otherwise.
    pub const LIFT_HELD: &str = "LiftHeld";
}

/// The reason of the conditions after a lift that `spec.unblock` asked for.
pub const UNBLOCKED: &str = "Unblocked";

macro_rules! lenient_text_enum {
    ($name:ident, $($variant:ident = $text:literal),+) => {
        impl $name {
            /// The text in the object.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(other) => other,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                Ok(Self::from(text.as_ref()))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                // The empty text is the original's "nothing yet".
                json_schema!({ "type": "string", "enum": [$($text,)+ ""] })
            }
        }
    };
}

lenient_text_enum!(
    Phase,
    Pending = "pending",
    Active = "active",
    Expired = "expired",
    Skipped = "skipped",
    Failed = "failed"
);

lenient_text_enum!(
    ResultCode,
    Success = "success",
    Failed = "failed",
    Unblocked = "unblocked",
    Skipped = "skipped"
);

// === impl Phase ===

impl Phase {
    /// Whether nothing is enforced, and nothing happens until something changes.
    #[must_use]
    pub fn is_over(&self) -> bool {
        *self == Self::Expired || self.is_refused()
    }

    /// Whether the block was not banned, and rests until it is triggered: it is refused again if it has to be.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Skipped | Self::Failed)
    }
}

// === impl IPBlockStatus ===

impl IPBlockStatus {
    /// When the present or last ban began. Any RFC 3339 offset is read; `None` when absent or unreadable.
    #[must_use]
    pub fn blocked_at(&self) -> Option<Timestamp> {
        read(self.blocked_at.as_deref())
    }

    /// When the present ban ends by itself. `None` when absent or unreadable.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        read(self.expires_at.as_deref())
    }

    /// When the last ban was lifted. `None` when absent or unreadable.
    #[must_use]
    pub fn unblocked_at(&self) -> Option<Timestamp> {
        read(self.unblocked_at.as_deref())
    }

    /// When `spec.unblock` ended this block's ban; `None` when something else did, and while it is banned.
    #[must_use]
    pub fn lifted_by_hand(&self) -> Option<Timestamp> {
        let ready = self.condition(condition::READY);
        let by_hand = self.is(&Phase::Expired) && ready.is_some_and(|it| it.reason == UNBLOCKED);
        self.unblocked_at().filter(|_| by_hand)
    }

    /// Whether the status shows a ban that did not end since. One that was begun and has no status yet is not shown.
    #[must_use]
    pub fn shows_ban(&self) -> bool {
        self.is(&Phase::Active) || (self.blocked_at.is_some() && self.unblocked_at.is_none())
    }

    /// How often this block was banned.
    #[must_use]
    pub fn bans(&self) -> i64 {
        self.ban_count.unwrap_or(0)
    }

    /// Whether the block stands in a phase that [is over](Phase::is_over).
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase.as_ref().is_some_and(Phase::is_over)
    }

    /// Whether the block stands in `phase`.
    #[must_use]
    pub fn is(&self, phase: &Phase) -> bool {
        self.phase.as_ref() == Some(phase)
    }

    /// The condition of a type, see [`condition`].
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }

    /// Removes the condition of a type.
    pub fn remove_condition(&mut self, kind: &str) {
        self.conditions.retain(|condition| condition.kind != kind);
    }

    /// Sets a condition; its time moves only when its status does.
    pub fn set_condition(
        &mut self,
        kind: &str,
        status: ConditionStatus,
        reason: &str,
        message: &str,
        at: Timestamp,
    ) {
        let generation = self.observed_generation;
        Condition::set(
            &mut self.conditions,
            (kind, status, reason, message),
            generation,
            at,
        );
    }
}

// === impl Condition ===

impl Condition {
    /// Sets the condition `(type, status, reason, message)` in `all`; its time moves only when its status does.
    pub(crate) fn set(
        all: &mut Vec<Self>,
        (kind, status, reason, message): (&str, ConditionStatus, &str, &str),
        generation: Option<i64>,
        at: Timestamp,
    ) {
        let fresh = |since: String| Self {
            kind: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: since,
            observed_generation: generation,
        };
        let mut present = all.iter_mut();
        match present.find(|condition| condition.kind == kind) {
            Some(present) => {
                let since = if present.status == status {
                    std::mem::take(&mut present.last_transition_time)
                } else {
                    // Clients decode this as metav1.Time, which has whole seconds.
                    seconds(at)
                };
                *present = fresh(since);
            }
            None => all.push(fresh(seconds(at))),
        }
    }

    /// Since when the condition has its status. `None` when unreadable.
    #[must_use]
    pub fn since(&self) -> Option<Timestamp> {
        read(Some(&self.last_transition_time))
    }
}

/// How times are written: UTC, to the millisecond, so that a ban lasts what it should.
#[must_use]
pub(crate) fn write(at: Timestamp) -> String {
    let milliseconds = Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
    if milliseconds.subsec_nanosecond() == 0 {
        format!("{milliseconds:.0}")
    } else {
        format!("{milliseconds:.3}")
    }
}

fn seconds(at: Timestamp) -> String {
    let whole = Timestamp::from_second(at.as_second()).unwrap_or(at);
    format!("{whole:.0}")
}

fn read(text: Option<&str>) -> Option<Timestamp> {
    text?.trim().parse().ok()
}

#[cfg(test)]
mod tests;

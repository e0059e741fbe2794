//! One line: what happened to which block, and why.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::{ALERT_ANNOTATION, Alert, IPBlock, IPBlockStatus};
use crate::decide::{Announcement, Cause, Effect};

/// Longer texts of users are cut to this many characters.
const MOST_TEXT: usize = 1024;

/// A line of the audit log. The fields that are not known are absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Line {
    /// When the operator did it.
    pub time: Timestamp,
    /// What it did.
    pub action: Action,
    /// The reason of the Event about it.
    pub event: String,
    /// The address or range, in canonical form.
    pub target: String,
    /// The namespace of the block.
    pub namespace: String,
    /// The name of the block.
    pub name: String,
    /// The UID of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// `spec.source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// `spec.by`: what the block says about its author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// `spec.reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The alert that asked for the latest ban.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<Alert>,
    /// `spec.duration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// When the ban ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// How often the block was banned.
    pub bans: i64,
    /// Why a ban was lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The note of the Event.
    pub message: String,
    /// The field manager that made the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_with: Option<String>,
    /// The field manager that changed the spec last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_with: Option<String>,
    /// The replica that did it.
    pub replica: String,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// A new ban.
    Banned,
    /// A ban that stands has another end.
    Extended,
    /// A ban was lifted.
    Lifted,
    /// Not banned: allowlisted or protected.
    Skipped,
    /// Not banned: the spec cannot be followed, or its time is over.
    Refused,
    /// A ban or a lift did not come about; it is tried again.
    Failed,
    /// The finalizer was removed without a lift at the gateway.
    Released,
    /// A ban that stood already was taken over, moved to another gateway, or asserted after failures.
    Kept,
    /// Anything else that an Event reports.
    Noted,
}

// === impl Line ===

impl Line {
    /// The line about a transition of `block` at `time`.
    #[must_use]
    pub fn of(
        block: &IPBlock,
        effect: Effect,
        announcement: &Announcement,
        time: Timestamp,
        replica: &str,
    ) -> Self {
        let status = block.status.as_ref();
        let spec = &block.spec;
        let target = status.and_then(|status| status.target.as_deref());
        let alert = block.annotation(ALERT_ANNOTATION);
        let cause = match effect {
            Effect::Lifted(cause, _) => Some(cause_name(cause).to_owned()),
            _ => None,
        };
        Self {
            time,
            action: Action::of(effect, announcement.reason),
            event: announcement.reason.to_owned(),
            target: cut(target.unwrap_or(&spec.ip)),
            namespace: block.metadata.namespace.clone().unwrap_or_default(),
            name: block.metadata.name.clone().unwrap_or_default(),
            uid: block.metadata.uid.clone(),
            source: text(&spec.source),
            by: text(&spec.by),
            reason: text(&spec.reason),
            alert: alert.and_then(|text| text.parse().ok()),
            duration: text(&spec.duration),
            until: status.and_then(IPBlockStatus::expires_at),
            engine: status.and_then(|status| status.engine.clone()),
            bans: status.map(IPBlockStatus::bans).unwrap_or_default(),
            cause,
            message: cut(&announcement.note),
            created_with: block.creator().map(str::to_owned),
            changed_with: block.last_editor().map(str::to_owned),
            replica: replica.to_owned(),
        }
    }

    /// The line with its line break.
    ///
    /// # Errors
    /// None: it holds texts and numbers only.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        Ok(line)
    }
}

// === impl Action ===

impl Action {
    fn of(effect: Effect, event: &str) -> Self {
        match (effect, event) {
            // Several Events may follow from one effect.
            (_, "LeftBehind") => Self::Failed,
            (_, "Released") => Self::Released,
            (_, "DurationChanged") => Self::Extended,
            (Effect::Banned, _) => Self::Banned,
            (Effect::Lifted(..), _) => Self::Lifted,
            (Effect::Skipped(_), "RangeTooWide") | (Effect::Rejected, _) => Self::Refused,
            (Effect::Skipped(_) | Effect::Shadowed, _) => Self::Skipped,
            (Effect::BanFailed | Effect::LiftFailed | Effect::KeepFailed, _) => Self::Failed,
            (Effect::Kept, "InvalidSpec") => Self::Refused,
            (Effect::Kept, _) => Self::Kept,
            (Effect::None, _) => Self::Noted,
        }
    }
}

fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Expired => "expired",
        Cause::Unblocked => "unblocked",
        Cause::Deleted => "deleted",
        Cause::Refused => "refused",
        Cause::Rejected => "rejected",
    }
}

fn text(field: &Option<String>) -> Option<String> {
    let text = field.as_deref().filter(|text| !text.is_empty());
    text.map(cut)
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

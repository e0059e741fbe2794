//! One block, as far as an answer names it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::{ALERT_ANNOTATION, Alert, IPBlock, IPBlockStatus, Phase, condition};
use crate::target::Target;

/// A block in an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it bans, in canonical form.
    #[serde(with = "crate::target::as_text")]
    pub target: Target,
    /// `status.phase`; empty before the operator has seen it.
    pub phase: String,
    /// Its deletion was requested, and its ban is not lifted yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// When the present or last ban began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// When the present ban ends; absent: never, or not banned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// When the last ban was lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// The last ban was lifted by `spec.unblock`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
    /// How often it was banned.
    #[serde(default)]
    pub bans: i64,
    /// `spec.source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// `spec.by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// `spec.reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `status.message`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The reason of the condition `Ready`, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// The alert that asked for the ban, where its trigger recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<Alert>,
    /// The field manager that wrote `spec.ip`, where `managedFields` is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
}

// === impl Entry ===

impl Entry {
    /// The entry of `block`; `None` when its address cannot be read.
    #[must_use]
    pub fn of(block: &IPBlock) -> Option<Self> {
        let status = block.status.as_ref();
        let banned = status.and_then(|status| status.target.as_deref());
        let banned = banned.and_then(|text| text.parse().ok());
        let target = match banned {
            Some(target) => target,
            None => block.spec.ip.trim().parse().ok()?,
        };
        let text = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
        let ready = status.and_then(|status| status.condition(condition::READY));
        let alert = block.annotation(ALERT_ANNOTATION);
        Some(Self {
            namespace: block.metadata.namespace.clone().unwrap_or_default(),
            name: block.metadata.name.clone().unwrap_or_default(),
            target,
            phase: status
                .and_then(|status| status.phase.as_ref())
                .map(|phase| phase.as_str().to_owned())
                .unwrap_or_default(),
            deleting: block.is_deleting(),
            began: status.and_then(IPBlockStatus::blocked_at),
            until: status.and_then(IPBlockStatus::expires_at),
            ended: status.and_then(IPBlockStatus::unblocked_at),
            by_hand: status.is_some_and(|status| status.lifted_by_hand().is_some()),
            bans: status.map(IPBlockStatus::bans).unwrap_or_default(),
            source: text(&block.spec.source),
            by: text(&block.spec.by),
            reason: text(&block.spec.reason),
            message: status.and_then(|status| text(&status.message)),
            ready: ready.map(|ready| ready.reason.clone()),
            alert: alert.and_then(|text| text.parse().ok()),
            manager: block.creator().map(str::to_owned),
        })
    }

    /// `namespace/name`.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether the gateway enforces it, as far as the status says.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.phase == Phase::Active.as_str()
    }

    /// Whether it is requested, and not enforced yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.phase.is_empty() || self.phase == Phase::Pending.as_str()
    }

    /// The order of relevance: what bans, what will, what did; the narrowest target first, then the longest ban.
    pub(super) fn rank(&self) -> impl Ord + use<> {
        let state = match (self.is_active(), self.is_pending()) {
            (true, _) => 0_u8,
            (_, true) => 1,
            _ => 2,
        };
        let latest = self.until.unwrap_or(Timestamp::MAX);
        let ended = self.ended.unwrap_or(Timestamp::MIN);
        (
            state,
            u8::MAX - self.target.prefix_len(),
            std::cmp::Reverse(latest),
            std::cmp::Reverse(ended),
            self.key(),
        )
    }

    /// What asked for it: `source grafana, alert HighLoginRate (9f2c), by alice, made with kubectl-create`.
    #[must_use]
    pub fn origin(&self) -> String {
        let mut parts = Vec::new();
        if let Some(source) = &self.source {
            parts.push(format!("source {source}"));
        }
        if let Some(alert) = &self.alert {
            parts.push(alert.to_string());
        }
        if let Some(by) = &self.by {
            parts.push(format!("by {by}"));
        }
        if let Some(manager) = &self.manager {
            parts.push(format!("made with {manager}"));
        }
        parts.join(", ")
    }
}

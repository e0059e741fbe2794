//! The object and its spec.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::annotation::{FINALIZER, INTENT, Intent, Place};
use super::schema;
use super::status::{IPBlockStatus, Phase};
use crate::duration;
use crate::target::Target;

/// An address or range to ban, for how long and why.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "ops.yiiong.top",
    version = "v1",
    kind = "IPBlock",
    plural = "ipblocks",
    singular = "ipblock",
    shortname = "ipb",
    category = "security",
    namespaced,
    status = "IPBlockStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "An IP address or range that is banned at the gateway until its time is over.",
    crates(
        kube_core = "::kube_core",
        k8s_openapi = "::k8s_openapi",
        schemars = "::schemars",
        serde = "::serde",
        serde_json = "::serde_json"
    ),
    printcolumn = r#"{"name":"IP","type":"string","jsonPath":".spec.ip","description":"Address or range as asked for"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase","description":"pending, active, expired, skipped or failed"}"#,
    printcolumn = r#"{"name":"Expires","type":"string","jsonPath":".status.expiresAt","description":"When the ban is lifted; empty: never, or not banned"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".spec.reason","description":"Why it is banned"}"#,
    printcolumn = r#"{"name":"Source","type":"string","jsonPath":".spec.source","description":"Where the ban comes from"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct IPBlockSpec {
    /// The address or range to ban: 192.0.2.7, 2001:db8::7, 192.0.2.0/24. It cannot be changed later.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = schema::ip_rules()))]
    pub ip: String,

    /// Why it is banned, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub reason: Option<String>,

    /// Where the ban comes from: manual, grafana, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub source: Option<String>,

    /// The person or system that requested it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub by: Option<String>,

    /// How long it lasts, counted from the ban: 10m, 1h30m, 2d, 1w. Empty: without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = schema::duration_rules()))]
    pub duration: Option<String>,

    /// Free labels, for example for dashboards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 256)))]
    pub tags: Vec<String>,

    /// Set to true to lift the ban now. The operator sets it back when it is lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unblock: Option<bool>,

    /// Set to true to ban again, with a new start of its time. The operator sets it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<bool>,
}

/// The operator's field manager.
const OPERATOR: &str = "ipblock-operator";
/// The fields of the spec that the operator sets back, as in `managedFields`.
const FLAGS: [&str; 3] = [".", "f:trigger", "f:unblock"];
/// Annotations by which tools recognize what they applied.
const APPLIED: [&str; 2] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "argocd.argoproj.io/tracking-id",
];
/// Labels by which tools recognize what they applied.
const APPLIED_LABELS: [&str; 3] = [
    "argocd.argoproj.io/instance",
    "kustomize.toolkit.fluxcd.io/name",
    "helm.toolkit.fluxcd.io/name",
];

// === impl IPBlock ===

impl IPBlock {
    /// An object as the operator's own triggers create it: with the finalizer and, when an engine is
    /// configured, the intent from birth, which saves the write that would add them.
    #[must_use]
    pub fn born(
        name: &str,
        namespace: &str,
        target: &Target,
        place: Option<&Place>,
        spec: IPBlockSpec,
    ) -> Self {
        let mut block = Self::new(name, spec);
        block.metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        if let Some(place) = place {
            let intent = Intent::new(*target, place.clone(), 1);
            block.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
            block.metadata.annotations =
                Some(BTreeMap::from([(INTENT.to_owned(), intent.to_string())]));
        }
        block
    }

    /// `namespace/name`, for messages.
    #[must_use]
    pub fn key(&self) -> String {
        format!(
            "{}/{}",
            self.metadata.namespace.as_deref().unwrap_or_default(),
            self.metadata.name.as_deref().unwrap_or_default()
        )
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(name))
            .map(String::as_str)
    }

    /// The field manager that wrote `spec.ip`; `None` where `managedFields` is not there, as in caches.
    #[must_use]
    pub fn creator(&self) -> Option<&str> {
        self.managers()
            .find(|(_, fields)| fields.pointer("/f:spec/f:ip").is_some())
            .map(|(manager, _)| manager)
    }

    /// The field manager that wrote the spec last, other than the operator that sets a flag back; `None` where
    /// `managedFields` is not there, as in caches. Its times are whole seconds, so of two in one second it is the one
    /// that did not make the block.
    #[must_use]
    pub fn last_editor(&self) -> Option<&str> {
        let entries = self.metadata.managed_fields.iter().flatten();
        let edits = entries.filter_map(|entry| {
            let fields = entry.fields_v1.as_ref()?.0.get("f:spec")?.as_object()?;
            let manager = entry.manager.as_deref()?;
            let only_flags = fields.keys().all(|field| FLAGS.contains(&field.as_str()));
            let own = only_flags && manager == OPERATOR;
            let time = entry.time.as_ref().map(|time| time.0);
            (!own).then_some(((time, !fields.contains_key("f:ip")), manager))
        });
        edits
            .max_by_key(|(order, _)| *order)
            .map(|(_, manager)| manager)
    }

    /// Whether a client that did not make the block wrote `spec.duration` for its present ban: before or during the first
    /// one, or since a later one began. The operator's triggers do not count. `false` where `managedFields` is not there, as
    /// in caches.
    ///
    /// `managedFields` has one time for all fields of a client. So where an alert banned again for the very duration that a
    /// person had set, a later edit of another field by the same client counts, too.
    #[must_use]
    pub fn has_edited_duration(&self) -> bool {
        let status = self.status.as_ref();
        let active = status.filter(|status| status.is(&Phase::Active));
        let begun = match active {
            Some(status) if status.bans() > 1 => status.blocked_at(),
            // An edit may have come before the request for the ban that is awaited.
            None if status.is_some_and(|status| status.bans() > 0) => return false,
            Some(_) | None => None,
        };
        let creator = self.creator();
        let entries = self.metadata.managed_fields.iter().flatten();
        let mut entries = entries.filter(|entry| {
            let fields = entry.fields_v1.as_ref();
            fields.is_some_and(|fields| fields.0.pointer("/f:spec/f:duration").is_some())
        });
        entries.any(|entry| {
            let manager = entry.manager.as_deref();
            let time = entry.time.as_ref().map(|time| time.0);
            manager != Some(OPERATOR) && manager != creator && (begun.is_none() || time > begun)
        })
    }

    fn managers(&self) -> impl Iterator<Item = (&str, &serde_json::Value)> {
        let entries = self.metadata.managed_fields.iter().flatten();
        entries.filter_map(|entry| Some((entry.manager.as_deref()?, &entry.fields_v1.as_ref()?.0)))
    }

    /// Whether the operator's finalizer holds this object.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.metadata
            .finalizers
            .as_ref()
            .is_some_and(|all| all.iter().any(|finalizer| finalizer == FINALIZER))
    }

    /// Whether another tool keeps this object as it has it: kubectl apply, Argo CD, Flux, Helm or an owner. A deletion or
    /// an edit here would be undone.
    pub fn is_kept_elsewhere(&self) -> bool {
        let labels = self.metadata.labels.as_ref();
        let label = |name: &str| labels.and_then(|all| all.get(name));
        APPLIED.iter().any(|name| self.annotation(name).is_some())
            || APPLIED_LABELS.iter().any(|name| label(name).is_some())
            || label("app.kubernetes.io/managed-by").is_some_and(|by| by == "Helm")
            || self
                .metadata
                .owner_references
                .as_ref()
                .is_some_and(|owners| !owners.is_empty())
    }

    /// Whether a ban was begun that the status does not count yet: its intent is written, and its outcome is not.
    #[must_use]
    pub fn has_begun_ban(&self) -> bool {
        let intent = self.annotation(INTENT).map(str::parse::<Intent>);
        let counted = self.status.as_ref().map_or(0, IPBlockStatus::bans);
        matches!(intent, Some(Ok(intent)) if intent.attempt > counted)
    }

    /// Whether its ban stands past its end, or past the one that its shortened spec requests: it is about to be lifted, or
    /// its gateway does not answer.
    #[must_use]
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        let status = self.status.as_ref();
        let Some(active) = status.filter(|status| status.is(&Phase::Active)) else {
            return false;
        };
        let asked = self.spec.duration.as_deref().map(duration::parse);
        let granted = active.granted(asked.and_then(Result::ok));
        let granted = granted.and_then(|granted| SignedDuration::try_from(granted).ok());
        let requested = active.blocked_at().zip(granted);
        let requested = requested.and_then(|(began, granted)| began.checked_add(granted).ok());
        let mut ends = active.expires_at().into_iter().chain(requested);
        ends.any(|end| end <= now)
    }

    /// Whether its deletion was requested.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether only the finalizers of other clients keep it, for as long as they like: to the operator it is gone.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.is_deleting() && !self.is_held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ResultCode;

    #[test]
    fn an_object_of_the_original_is_read_whole() {
        let block: IPBlock = serde_json::from_value(serde_json::json!({
            "apiVersion": "ops.yiiong.top/v1", "kind": "IPBlock",
            "metadata": {"name": "ipblock-6465ec74397c9126", "namespace": "default"},
            "spec": {"ip": "1.2.3.4", "duration": "10m", "reason": "scan", "source": "grafana", "tags": ["a"], "trigger": false},
            "status": {"phase": "active", "result": "success", "blockedAt": "2025-12-16T10:00:00+08:00",
                "message": "limited", "lastSpecHash": "ab12", "banCount": 2}
        }))
        .unwrap();
        let status = block.status.unwrap();
        assert_eq!(status.phase, Some(Phase::Active));
        assert_eq!(status.result, Some(ResultCode::Success));
        assert_eq!(status.ban_count, Some(2));
        assert_eq!(block.spec.duration.as_deref(), Some("10m"));
    }

    #[test]
    fn an_object_is_born_with_finalizer_and_intent_when_an_engine_is_known() {
        let target: Target = "192.0.2.7".parse().unwrap();
        let place = Place::new("iptables", "10.0.0.1:9521");
        let block = IPBlock::born(
            "a",
            "default",
            &target,
            Some(&place),
            IPBlockSpec::default(),
        );
        assert!(block.is_held());
        let intent: Intent = block.annotation(INTENT).unwrap().parse().unwrap();
        assert_eq!(intent.standing.target, target);
        let bare = IPBlock::born("a", "default", &target, None, IPBlockSpec::default());
        assert!(!bare.is_held());
    }

    #[test]
    fn what_a_tool_applies_or_an_object_owns_is_kept_elsewhere() {
        let kept = |metadata: serde_json::Value| {
            let block = serde_json::json!({"metadata": metadata, "spec": {"ip": "192.0.2.7"}});
            let block: IPBlock = serde_json::from_value(block).unwrap();
            block.is_kept_elsewhere()
        };
        assert!(!kept(serde_json::json!({"name": "a"})));
        let other = serde_json::json!({"app.kubernetes.io/managed-by": "another"});
        assert!(!kept(
            serde_json::json!({"labels": other, "annotations": {"note": "x"}})
        ));
        assert!(!kept(serde_json::json!({"ownerReferences": []})));
        for name in APPLIED {
            assert!(
                kept(serde_json::json!({"annotations": {name: ""}})),
                "{name}"
            );
        }
        for name in APPLIED_LABELS {
            assert!(kept(serde_json::json!({"labels": {name: ""}})), "{name}");
        }
        let helm = serde_json::json!({"app.kubernetes.io/managed-by": "Helm"});
        assert!(kept(serde_json::json!({"labels": helm})));
        let owner =
            serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"});
        assert!(kept(serde_json::json!({"ownerReferences": [owner]})));
    }
}

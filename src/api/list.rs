//! The kind BlockList: many bans in one object, for feeds and imports.
//!
//! Not `IPBlockList`: Kubernetes has that name for the list of IPBlocks, and the original's clients read it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube_core::ObjectMeta;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use super::status::{Condition, write};
use crate::target::Target;

/// The most entries of one list.
pub const MOST_ENTRIES: usize = 5_000;

/// The label of lists that the operator writes: the name of the source that is pulled.
pub const SOURCE_LABEL: &str = "ops.yiiong.top/source";

/// The label of the manager, and its value.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "ipblock-operator");

/// The annotation of such a list: when its last entry ends.
pub const LAST_END: &str = "ops.yiiong.top/last-end";

/// Addresses and ranges to ban, each until its own end.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "ops.yiiong.top",
    version = "v1",
    kind = "BlockList",
    plural = "blocklists",
    singular = "blocklist",
    shortname = "ipbl",
    category = "security",
    namespaced,
    status = "BlockListStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Up to 5,000 IP addresses or ranges that are banned by the engines that follow the set of bans, each until its end.",
    crates(
        kube_core = "::kube_core",
        k8s_openapi = "::k8s_openapi",
        schemars = "::schemars",
        serde = "::serde",
        serde_json = "::serde_json"
    ),
    printcolumn = r#"{"name":"Entries","type":"integer","jsonPath":".status.entries","description":"Entries of the spec"}"#,
    printcolumn = r#"{"name":"Enforced","type":"integer","jsonPath":".status.enforced","description":"Entries that every set engine has"}"#,
    printcolumn = r#"{"name":"Refused","type":"integer","jsonPath":".status.refused","description":"Entries that are never enforced: wrong, allowlisted, protected or too wide"}"#,
    printcolumn = r#"{"name":"Source","type":"string","jsonPath":".spec.source","description":"Where the list comes from"}"#,
    printcolumn = r#"{"name":"Next End","type":"string","jsonPath":".status.nextEnd","description":"When the next entry ends"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct BlockListSpec {
    /// What is banned. An entry that is wrong or refused is counted in the status, and the others are enforced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5000), extend("x-kubernetes-list-type" = "atomic"))]
    pub entries: Vec<ListEntry>,

    /// Where the list comes from: the name of a feed, an import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub source: Option<String>,

    /// How long an entry without an end lasts, counted from the last change of the spec: 10m, 12h, 7d. Empty: without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = schema::list_duration_rules()))]
    pub default_duration: Option<String>,

    /// Set to true to enforce nothing of this list for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
}

/// One ban of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListEntry {
    /// The address or range to ban: 192.0.2.7, 2001:db8::7, 192.0.2.0/24.
    #[schemars(length(min = 1, max = 64))]
    pub target: String,

    /// When the ban ends (RFC 3339). Empty: after the default duration of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub until: Option<String>,

    /// Why it is banned, for readers of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
}

/// What became of a list when the operator last read it. The counts follow the ends of entries within 15 minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockListStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Entries of the spec.
    #[serde(default)]
    pub entries: i64,

    /// Targets that every set engine has.
    #[serde(default)]
    pub enforced: i64,

    /// Entries whose end is past.
    #[serde(default)]
    pub ended: i64,

    /// Entries that are never enforced: wrong, allowlisted, protected or too wide.
    #[serde(default)]
    pub refused: i64,

    /// The first refused entries, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub refusals: Vec<EntryRefusal>,

    /// How much of the list each set engine has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = schema::engine_keys()))]
    pub engines: Vec<EngineShare>,

    /// When the next entry ends (RFC 3339); absent: none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_end: Option<String>,

    /// Ready, Enforced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = schema::condition_keys()))]
    pub conditions: Vec<Condition>,
}

/// An entry that is never enforced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EntryRefusal {
    /// The target as in the spec.
    pub target: String,
    /// The reason in one word.
    pub reason: String,
    /// The reason in a sentence.
    pub message: String,
}

/// How much of a list one engine has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineShare {
    /// The engine's name in the configuration.
    pub name: String,
    /// Targets of the list that it has.
    pub enforced: i64,
    /// Why not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

// === impl BlockList ===

impl BlockList {
    /// A list as an import makes it.
    #[must_use]
    pub fn of(name: &str, entries: impl IntoIterator<Item = (Target, Option<Timestamp>)>) -> Self {
        let entries = entries.into_iter().map(|(target, until)| ListEntry {
            target: target.to_string(),
            until: until.map(write),
            reason: None,
        });
        let spec = BlockListSpec {
            entries: entries.collect(),
            ..BlockListSpec::default()
        };
        Self::new(name, spec)
    }

    /// The labels of a list that the operator writes for `source`.
    #[must_use]
    pub fn labels_for(source: &str) -> BTreeMap<String, String> {
        let labels = [MANAGED_BY, (SOURCE_LABEL, source)];
        labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    /// The source that the operator wrote the list for; `None`: another client made it.
    #[must_use]
    pub fn written_for(metadata: &ObjectMeta) -> Option<&str> {
        let labels = metadata.labels.as_ref()?;
        let (key, value) = MANAGED_BY;
        let managed = labels.get(key).is_some_and(|it| it == value);
        let source = labels.get(SOURCE_LABEL).filter(|_| managed)?;
        Some(source)
    }

    /// When the spec changed last, by the times of its field managers. A list without them counts as unchanged since
    /// its creation.
    #[must_use]
    pub fn changed_at(&self) -> Option<Timestamp> {
        let managers = self.metadata.managed_fields.iter().flatten();
        let edits = managers.filter(|entry| {
            let fields = entry.fields_v1.as_ref();
            fields.is_some_and(|fields| fields.0.get("f:spec").is_some())
        });
        let edits = edits.filter_map(|entry| Some(entry.time.as_ref()?.0));
        let created = self.metadata.creation_timestamp.as_ref();
        edits.max().or(created.map(|time| time.0))
    }
}

// === impl BlockListStatus ===

impl BlockListStatus {
    /// The condition of a type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_time_of_the_spec_is_that_of_its_last_editor_and_not_of_the_status() {
        let list: BlockList = serde_json::from_value(json!({
            "metadata": {"name": "feed", "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [
                {"manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}},
                {"manager": "feed", "operation": "Apply", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:spec": {"f:entries": {}}}},
                {"manager": "ipblock-operator", "operation": "Update", "subresource": "status", "time": "2026-01-03T00:00:00Z",
                    "fieldsV1": {"f:status": {}}},
            ]},
            "spec": {"entries": [{"target": "192.0.2.7"}]},
        }))
        .unwrap();
        let at = |text: &str| Some(text.parse().unwrap());
        assert_eq!(list.changed_at(), at("2026-01-02T00:00:00Z"));
        let bare = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}});
        let bare: BlockList = serde_json::from_value(bare).unwrap();
        assert_eq!(bare.changed_at(), at("2026-01-01T00:00:00Z"));
    }
}

//! What the answer to a write says happened, read without knowing its type.

use reeve_informer::ObjectKey;
use serde::Deserialize;

use super::call::{Call, Verb};
use super::writes::Effect;

/// The few fields of an answer that tell what a write did.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Outline {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    metadata: Meta,
    /// Of a Status: the object a delete was about.
    #[serde(default)]
    details: Option<Details>,
    /// Of a list: what a delete of many was about.
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    #[serde(default)]
    metadata: Meta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Details {
    uid: Option<String>,
}

/// What a write is about, kept while it is under way.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    verb: Verb,
    key: ObjectKey,
    /// Whether its objects end gracefully: a delete marks them first.
    graceful: bool,
}

// === impl Subject ===

impl Subject {
    pub(super) fn of(call: &Call) -> Self {
        let resource = call.resource();
        Self {
            verb: call.verb,
            key: call.object_key(),
            graceful: resource.group.is_empty() && resource.kind == "Pod",
        }
    }
}

// === impl Outline ===

impl Outline {
    /// Reads an answer; `None` if it is none that can be.
    pub(super) fn of(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// What a write to `subject`, answered with this, did to which objects.
    pub(super) fn effects(&self, subject: &Subject) -> Vec<(ObjectKey, Effect)> {
        let key = || match self.metadata.name {
            // The name may have been made by the server.
            Some(_) if subject.key.name.is_empty() => self.metadata.key(),
            _ => subject.key.clone(),
        };
        match subject.verb {
            Verb::Get | Verb::List => Vec::new(),
            Verb::DeleteAllOf => {
                let each = self.items.iter();
                each.map(|item| item.deleted(subject.graceful)).collect()
            }
            Verb::Delete => vec![(key(), self.deleted())],
            // An eviction or a binding is answered with a Status: what became of the object is not said.
            _ if self.is_status() => vec![(key(), Effect::Unknown)],
            // A token or a review changed no object.
            _ if self.metadata.resource_version.is_none() => Vec::new(),
            _ => vec![(key(), self.metadata.written())],
        }
    }

    fn is_status(&self) -> bool {
        self.kind.as_deref() == Some("Status")
    }

    /// What a delete did: gone, or marked and waiting.
    fn deleted(&self) -> Effect {
        let meta = &self.metadata;
        if self.is_status() {
            let uid = self
                .details
                .as_ref()
                .and_then(|details| details.uid.clone());
            return Effect::Gone { uid, after: None };
        }
        let waits = meta.deletion_timestamp.is_some()
            && (!meta.finalizers.is_empty() || meta.deletion_grace_period_seconds.unwrap_or(0) > 0);
        if waits {
            meta.written()
        } else {
            Effect::Gone {
                uid: meta.uid.clone(),
                after: None,
            }
        }
    }
}

impl Item {
    /// What became of one of many, of which the server says how it was before: what has finalizers or ends gracefully
    /// was given another version, and only a read says which.
    fn deleted(&self, graceful: bool) -> (ObjectKey, Effect) {
        let meta = &self.metadata;
        let effect = if graceful || !meta.finalizers.is_empty() {
            Effect::Unknown
        } else {
            Effect::Gone {
                uid: meta.uid.clone(),
                after: None,
            }
        };
        (meta.key(), effect)
    }
}

impl Meta {
    fn key(&self) -> ObjectKey {
        let name = self.name.as_deref().unwrap_or_default();
        match self.namespace.as_deref().unwrap_or_default() {
            "" => ObjectKey::cluster(name),
            namespace => ObjectKey::namespaced(namespace, name),
        }
    }

    fn written(&self) -> Effect {
        Effect::Version {
            uid: self.uid.clone(),
            version: self.resource_version.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube_core::Resource;
    use serde_json::{Value, json};

    use super::*;
    use crate::client::endpoint::Endpoint;

    fn effects<K: Resource<DynamicType = ()> + 'static>(
        verb: Verb,
        subresource: Option<&str>,
        name: &str,
        answer: Value,
    ) -> Vec<(String, Effect)> {
        let call = Call::new(verb, &Arc::new(Endpoint::of::<K>(&())))
            .key(&ObjectKey::namespaced("ns", name))
            .subresource(subresource);
        let outline = Outline::of(answer.to_string().as_bytes()).unwrap();
        let effects = outline.effects(&Subject::of(&call)).into_iter();
        effects
            .map(|(key, effect)| (key.to_string(), effect))
            .collect()
    }

    fn version(version: &str) -> Effect {
        Effect::Version {
            uid: Some("u".into()),
            version: version.into(),
        }
    }

    #[test]
    fn each_answer_says_what_the_write_did() {
        let meta = |more: Value| {
            let mut meta =
                json!({"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"});
            meta.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({"kind": "ConfigMap", "metadata": meta})
        };
        let gone = Effect::Gone {
            uid: Some("u".into()),
            after: None,
        };
        let at = "2026-01-01T00:00:00Z";
        let status = json!({"kind": "Status", "metadata": {}, "details": {"uid": "u"}});
        for (case, verb, subresource, name, answer, expected) in [
            (
                "updated",
                Verb::Update,
                None,
                "a",
                meta(json!({})),
                Some(version("7")),
            ),
            (
                "its status",
                Verb::Patch,
                Some("status"),
                "a",
                meta(json!({})),
                Some(version("7")),
            ),
            (
                "named by the server",
                Verb::Create,
                None,
                "",
                meta(json!({})),
                Some(version("7")),
            ),
            (
                "a token",
                Verb::Create,
                Some("token"),
                "a",
                json!({"kind": "TokenRequest", "metadata": {}}),
                None,
            ),
            (
                "evicted",
                Verb::Create,
                Some("eviction"),
                "a",
                status.clone(),
                Some(Effect::Unknown),
            ),
            (
                "deleted",
                Verb::Delete,
                None,
                "a",
                status,
                Some(gone.clone()),
            ),
            (
                "deleted at once",
                Verb::Delete,
                None,
                "a",
                meta(json!({"deletionTimestamp": at})),
                Some(gone),
            ),
            (
                "waits for finalizers",
                Verb::Delete,
                None,
                "a",
                meta(json!({"deletionTimestamp": at, "finalizers": ["f/g"]})),
                Some(version("7")),
            ),
            (
                "ends gracefully",
                Verb::Delete,
                None,
                "a",
                meta(json!({"deletionTimestamp": at, "deletionGracePeriodSeconds": 30})),
                Some(version("7")),
            ),
        ] {
            let expected: Vec<_> = expected
                .map(|effect| ("ns/a".to_owned(), effect))
                .into_iter()
                .collect();
            assert_eq!(
                effects::<ConfigMap>(verb, subresource, name, answer),
                expected,
                "{case}"
            );
        }
    }

    #[test]
    fn of_many_those_that_wait_are_to_be_asked_for() {
        let list = json!({"kind": "List", "metadata": {"resourceVersion": "9"}, "items": [
            {"metadata": {"name": "a", "namespace": "ns", "uid": "u"}},
            {"metadata": {"name": "b", "namespace": "ns", "uid": "v", "finalizers": ["f/g"]}},
        ]});
        let gone = Effect::Gone {
            uid: Some("u".into()),
            after: None,
        };
        assert_eq!(
            effects::<ConfigMap>(Verb::DeleteAllOf, None, "", list.clone()),
            [
                ("ns/a".to_owned(), gone),
                ("ns/b".to_owned(), Effect::Unknown)
            ]
        );
        let pods = effects::<Pod>(Verb::DeleteAllOf, None, "", list);
        assert!(pods.iter().all(|(_, effect)| *effect == Effect::Unknown));
    }
}

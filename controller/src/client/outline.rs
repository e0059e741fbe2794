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
    /// It is a Namespace, and the namespace controller has not let go of it.
    #[serde(skip)]
    kept: bool,
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

/// What more a Namespace waits for when it is deleted.
#[derive(Deserialize)]
struct Kept {
    /// `None` where only metadata was asked for.
    spec: Option<Spec>,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(default)]
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
    /// Whether they are namespaces, which have finalizers in their spec, too.
    namespaces: bool,
}

// === impl Subject ===

impl Subject {
    pub(super) fn of(call: &Call) -> Self {
        let resource = call.resource();
        let is = |kind: &str| resource.group.is_empty() && resource.kind == kind;
        Self {
            verb: call.verb,
            key: call.object_key(),
            graceful: is("Pod"),
            namespaces: is("Namespace"),
        }
    }
}

// === impl Outline ===

impl Outline {
    /// Reads an answer about `subject`; `None` if it is none that can be.
    pub(super) fn of(body: &[u8], subject: &Subject) -> Option<Self> {
        let mut outline: Self = serde_json::from_slice(body).ok()?;
        if subject.namespaces {
            let kept: Option<Kept> = serde_json::from_slice(body).ok();
            let spec = kept.and_then(|kept| kept.spec);
            outline.kept = spec.is_none_or(|spec| !spec.finalizers.is_empty());
        }
        Some(outline)
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
            _ => vec![(key(), self.written())],
        }
    }

    /// What another write did: another version, or, if it took away what a deleted object waited for, the end of it.
    fn written(&self) -> Effect {
        let meta = &self.metadata;
        if meta.deletion_timestamp.is_none() || self.waits() {
            return meta.written();
        }
        // The answer bears the version the object had before. So it is no sign of the write itself, but a store that
        // has not come so far may not hold the object yet.
        Effect::Gone {
            uid: meta.uid.clone(),
            after: meta.resource_version.clone(),
        }
    }

    /// Whether a deleted object is there for a while yet.
    fn waits(&self) -> bool {
        let meta = &self.metadata;
        let graceful = meta.deletion_grace_period_seconds.unwrap_or(0) > 0;
        self.kept || graceful || !meta.finalizers.is_empty()
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
        if meta.deletion_timestamp.is_some() && self.waits() {
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

    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
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
        let subject = Subject::of(&call);
        let outline = Outline::of(answer.to_string().as_bytes(), &subject).unwrap();
        let effects = outline.effects(&subject).into_iter();
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
    fn a_write_after_which_a_deleted_object_waits_for_nothing_is_its_end() {
        let meta = |more: Value| {
            let mut meta = json!({"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7",
                "deletionTimestamp": "2026-01-01T00:00:00Z"});
            let more = more.as_object().unwrap().clone();
            meta.as_object_mut().unwrap().extend(more);
            json!({"kind": "ConfigMap", "metadata": meta})
        };
        // The server answers with the version before.
        let gone = Effect::Gone {
            uid: Some("u".into()),
            after: Some("7".into()),
        };
        for (case, more, expected) in [
            ("no finalizer is left", json!({}), gone.clone()),
            (
                "nor a grace",
                json!({"deletionGracePeriodSeconds": 0}),
                gone,
            ),
            ("one is left", json!({"finalizers": ["f/g"]}), version("7")),
            (
                "it ends gracefully",
                json!({"deletionGracePeriodSeconds": 30}),
                version("7"),
            ),
        ] {
            for verb in [Verb::Update, Verb::Patch, Verb::Apply] {
                let found = effects::<ConfigMap>(verb, None, "a", meta(more.clone()));
                assert_eq!(found, [("ns/a".to_owned(), expected.clone())], "{case}");
            }
        }
    }

    #[test]
    fn a_namespace_is_there_until_its_controller_lets_go_of_it() {
        let answer = |spec: Value| {
            json!({"kind": "Namespace", "spec": spec, "metadata": {"name": "a", "uid": "u",
                "resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        };
        let waits = answer(json!({"finalizers": ["kubernetes"]}));
        let found = effects::<Namespace>(Verb::Delete, None, "a", waits.clone());
        assert_eq!(found[0].1, version("7"));
        let found = effects::<Namespace>(Verb::Update, None, "a", waits);
        assert_eq!(found[0].1, version("7"));
        // Of metadata alone nobody can tell.
        let found = effects::<Namespace>(Verb::Patch, None, "a", answer(Value::Null));
        assert_eq!(found[0].1, version("7"));
        let last = effects::<Namespace>(Verb::Update, Some("finalize"), "a", answer(json!({})));
        assert!(matches!(last[0].1, Effect::Gone { .. }), "{last:?}");
        // A spec of another kind may have anything of that name.
        let other =
            json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"finalizers": 3}});
        let found = effects::<ConfigMap>(Verb::Update, None, "a", other);
        assert_eq!(found[0].1, version("7"));
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

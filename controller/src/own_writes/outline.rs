//! The effect of a write, decoded from its answer without the type.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_core::ObjectMeta;
use reeve_informer::ObjectKey;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::effect::{Effect, State};
use reeve_client::{Call, Verb};

/// The few fields of an answer that show the effect of a write.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Outline {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    metadata: Meta,
    /// It is a Namespace that the namespace controller still holds.
    #[serde(skip)]
    kept: bool,
    /// Of a Status: the object of a delete.
    #[serde(default)]
    details: Option<Details>,
    /// Of a list: the objects of a delete of many.
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
    deletion_timestamp: Option<Deleted>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Vec<String>,
    /// `None` if they may not be those of the object.
    labels: Option<BTreeMap<String, String>>,
}

/// The mark of an object that is being deleted; its time is not needed.
#[derive(Debug)]
struct Deleted;

impl<'de> Deserialize<'de> for Deleted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// The further condition for the end of a deleted Namespace.
#[derive(Deserialize)]
struct Kept {
    /// `None` in metadata-only answers.
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

/// The subject of a write, kept while it is under way.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) verb: Verb,
    pub(super) key: ObjectKey,
    /// Whether its objects end gracefully: a delete marks them first.
    graceful: bool,
    /// Whether they are namespaces, which have finalizers in their spec, too.
    namespaces: bool,
    /// Whether the answer has the labels of the object: some subresources are answered with objects of their own.
    labelled: bool,
}

// === impl Subject ===

impl Subject {
    pub(super) fn of(call: &Call) -> Self {
        let resource = call.resource();
        let is = |kind: &str| resource.group.is_empty() && resource.kind == kind;
        Self {
            verb: call.verb(),
            key: call.object_key(),
            graceful: is("Pod"),
            namespaces: is("Namespace"),
            labelled: matches!(call.subresource_name(), None | Some("status")),
        }
    }
}

// === impl Outline ===

impl Outline {
    /// Decodes an answer about `subject`; `None` if it does not decode.
    pub(super) fn of(body: &[u8], subject: &Subject) -> Option<Self> {
        let mut outline: Self = serde_json::from_slice(body).ok()?;
        if subject.namespaces {
            let kept: Option<Kept> = serde_json::from_slice(body).ok();
            let spec = kept.and_then(|kept| kept.spec);
            outline.kept = spec.is_none_or(|spec| !spec.finalizers.is_empty());
        }
        let labels = outline.metadata.labels.take();
        outline.metadata.labels = subject.labelled.then(|| labels.unwrap_or_default());
        Some(outline)
    }

    /// As [`Outline::of`], for an answer that was decoded as an object already. `None` if that is not enough: it has no
    /// version, so it may be a Status, or it is a Namespace.
    pub(super) fn of_object(meta: &ObjectMeta, subject: &Subject) -> Option<Self> {
        if meta.resource_version.is_none() || subject.namespaces {
            return None;
        }
        let metadata = Meta {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            deletion_timestamp: meta.deletion_timestamp.as_ref().map(|_| Deleted),
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            labels: (subject.labelled).then(|| meta.labels.clone().unwrap_or_default()),
        };
        Some(Self {
            metadata,
            ..Self::default()
        })
    }

    /// The effects on objects of a write to `subject` with this answer.
    pub(super) fn effects(&self, subject: &Subject) -> Vec<(ObjectKey, Effect)> {
        let key = || match self.metadata.name {
            // The server may have generated the name.
            Some(_) if subject.key.name.is_empty() => self.metadata.key(),
            _ => subject.key.clone(),
        };
        match subject.verb {
            Verb::Get | Verb::List => Vec::new(),
            // It does not name them.
            Verb::DeleteAllOf if self.is_status() => vec![(subject.key.clone(), Effect::UNKNOWN)],
            Verb::DeleteAllOf => {
                let each = self.items.iter();
                each.map(|item| item.deleted(subject.graceful)).collect()
            }
            Verb::Delete => vec![(key(), self.deleted())],
            // An eviction or a binding is answered with a Status, without the effect on the object.
            _ if self.is_status() => vec![(key(), Effect::UNKNOWN)],
            // A token or a review changed no object.
            _ if self.metadata.resource_version.is_none() => Vec::new(),
            _ => vec![(key(), self.written())],
        }
    }

    /// The effect of another write: another version, or the end of a deleted object that now waits for nothing.
    fn written(&self) -> Effect {
        let meta = &self.metadata;
        if meta.deletion_timestamp.is_none() || self.waits() {
            return meta.written();
        }
        // The answer has the version that the object had before. So it does not show the write itself, but a store that
        // has not reached it may not hold the object yet.
        Effect::Gone {
            uid: meta.uid.clone(),
            after: meta.resource_version.is_some().then(|| meta.state()),
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

    /// The effect of a delete: gone, or marked and waiting.
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
    /// The effect on one of many, whose answer has the state before: an object with finalizers or a graceful end got
    /// another version, and only a read returns it.
    fn deleted(&self, graceful: bool) -> (ObjectKey, Effect) {
        let meta = &self.metadata;
        let effect = if graceful || !meta.finalizers.is_empty() {
            Effect::UNKNOWN
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
            state: self.state(),
        }
    }

    fn state(&self) -> State {
        State {
            version: self.resource_version.clone().unwrap_or_default(),
            labels: self.labels.clone().map(Arc::new),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
    use kube_core::Resource;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use reeve_client::Endpoint;

    fn effects<K: Resource<DynamicType = ()> + DeserializeOwned + 'static>(
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
        let effects_of = |outline: Outline| -> Vec<(String, Effect)> {
            let effects = outline.effects(&subject).into_iter();
            effects
                .map(|(key, effect)| (key.to_string(), effect))
                .collect()
        };
        let by_body = effects_of(outline);
        // The object in the answer shows the same effects, or nothing.
        if let Ok(object) = serde_json::from_value::<K>(answer)
            && !matches!(verb, Verb::Delete | Verb::DeleteAllOf)
            && let Some(outline) = Outline::of_object(object.meta(), &subject)
        {
            assert_eq!(effects_of(outline), by_body);
        }
        by_body
    }

    /// A state without labels.
    fn state(version: &str) -> State {
        State {
            version: version.into(),
            labels: Some(Arc::default()),
        }
    }

    fn version(version: &str) -> Effect {
        Effect::Version {
            uid: Some("u".into()),
            state: state(version),
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
                Some(Effect::UNKNOWN),
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
            after: Some(state("7")),
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
        // Metadata alone does not show it.
        let found = effects::<Namespace>(Verb::Patch, None, "a", answer(Value::Null));
        assert_eq!(found[0].1, version("7"));
        let last = effects::<Namespace>(Verb::Update, Some("finalize"), "a", answer(json!({})));
        assert!(matches!(last[0].1, Effect::Gone { .. }), "{last:?}");
        // The spec of another kind may have any field of that name.
        let other =
            json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"finalizers": 3}});
        let found = effects::<ConfigMap>(Verb::Update, None, "a", other);
        assert_eq!(found[0].1, version("7"));
    }

    #[test]
    fn an_object_that_may_not_say_all_says_nothing() {
        let of = |meta: &ObjectMeta, call: Call| Outline::of_object(meta, &Subject::of(&call));
        let call = |endpoint: Endpoint| Call::new(Verb::Patch, &Arc::new(endpoint));
        let mut meta = ObjectMeta::default();
        // It may be a Status.
        assert!(of(&meta, call(Endpoint::of::<Pod>(&()))).is_none());
        meta.resource_version = Some("7".into());
        assert!(of(&meta, call(Endpoint::of::<Pod>(&()))).is_some());
        assert!(of(&meta, call(Endpoint::of::<Namespace>(&()))).is_none());
    }

    #[test]
    fn the_labels_are_those_of_the_object_and_not_of_what_a_subresource_answers_with() {
        let answer = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u",
            "resourceVersion": "7", "labels": {"app": "web"}}});
        let labels = |verb, subresource| {
            let found = effects::<ConfigMap>(verb, subresource, "a", answer.clone());
            let labels = found[0].1.state().unwrap().labels.clone();
            labels.map(|labels| labels["app"].clone())
        };
        let web = Some("web".to_owned());
        for verb in [Verb::Create, Verb::Update, Verb::Patch, Verb::Apply] {
            assert_eq!(labels(verb, None), web, "{verb:?}");
        }
        assert_eq!(labels(Verb::Update, Some("status")), web);
        assert_eq!(labels(Verb::Update, Some("scale")), None);
        let meta: ObjectMeta = serde_json::from_value(answer["metadata"].clone()).unwrap();
        for (subresource, expected) in [(None, web), (Some("scale"), None)] {
            let endpoint = Arc::new(Endpoint::of::<ConfigMap>(&()));
            let call = Call::new(Verb::Update, &endpoint).subresource(subresource);
            let subject = Subject::of(&call);
            let outline = Outline::of_object(&meta, &subject).unwrap();
            let state = outline.metadata.state();
            let label = state.labels.map(|labels| labels["app"].clone());
            assert_eq!(label, expected, "{subresource:?}");
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
                ("ns/b".to_owned(), Effect::UNKNOWN)
            ]
        );
        let pods = effects::<Pod>(Verb::DeleteAllOf, None, "", list);
        assert!(pods.iter().all(|(_, effect)| *effect == Effect::UNKNOWN));
    }
}

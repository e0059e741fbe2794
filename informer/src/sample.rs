//! Objects for unit tests, and how many cases their property tests try.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use serde_json::Value;

use crate::event::{Event, UpdateReason};
use crate::object::{SkipPath, Stored};

/// `name@version` or `name@version/uid`.
pub(crate) fn map(text: &str) -> Arc<ConfigMap> {
    let (name, rest) = text.split_once('@').expect("name@version");
    let (version, uid) = rest.split_once('/').unwrap_or((rest, "u"));
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.metadata.namespace = Some("n".to_owned());
    map.metadata.uid = Some(uid.to_owned());
    map.metadata.resource_version = Some(version.to_owned());
    Arc::new(map)
}

pub(crate) fn text(map: &ConfigMap) -> String {
    format!("{}@{}", map.name(), map.resource_version())
}

/// `+a@1`, `~a@1-2`, `-a@2`; `*` marks initial, `!` a tombstone, `s` a resync, `r` a relist. `-a@3<1` is the deletion at
/// version 3 of what the handler saw at version 1.
pub(crate) fn line(event: &Event<ConfigMap>) -> String {
    match event {
        Event::Added { object, initial } => {
            format!("+{}{}", text(object), if *initial { "*" } else { "" })
        }
        Event::Updated { old, new, reason } => {
            let mark = match reason {
                UpdateReason::Changed => "",
                UpdateReason::Relist => "r",
                UpdateReason::Resync => "s",
            };
            format!("~{}-{}{mark}", text(old), new.resource_version())
        }
        Event::Deleted {
            key,
            last,
            seen,
            tombstone,
        } => {
            let version = |state: &Option<Arc<ConfigMap>>| {
                let state = state.as_ref();
                state.map_or("?", |map| map.resource_version()).to_owned()
            };
            let (last, seen) = (version(last), version(seen));
            let differs = (last != seen).then(|| format!("<{seen}"));
            format!(
                "-{}@{last}{}{}",
                key.name,
                differs.unwrap_or_default(),
                if *tombstone { "!" } else { "" }
            )
        }
    }
}

pub(crate) fn added(object: &str) -> Event<ConfigMap> {
    Event::Added {
        object: map(object),
        initial: false,
    }
}

pub(crate) fn initial(object: &str) -> Event<ConfigMap> {
    Event::Added {
        object: map(object),
        initial: true,
    }
}

pub(crate) fn updated(old: &str, new: &str, reason: UpdateReason) -> Event<ConfigMap> {
    Event::Updated {
        old: map(old),
        new: map(new),
        reason,
    }
}

pub(crate) fn deleted(object: &str) -> Event<ConfigMap> {
    let last = map(object);
    Event::Deleted {
        key: last.key(),
        last: Some(Arc::clone(&last)),
        seen: Some(last),
        tombstone: false,
    }
}

/// `default` random cases, or as many as `PROPTEST_CASES` says.
pub(crate) fn cases(default: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = default;
    }
    config
}

/// A path through a document of fields `a` to `d`, or any other.
#[derive(Clone, Debug)]
pub(crate) struct TestPath(Vec<String>);

impl TestPath {
    /// Of a path of simple names.
    pub(crate) fn of(text: &str) -> Self {
        let steps = text.replace("[*]", ".*");
        Self(steps.split('.').skip(1).map(str::to_owned).collect())
    }

    pub(crate) fn skip(&self) -> SkipPath {
        let step = |step: &String| match step.as_str() {
            "*" => "[*]".to_owned(),
            name => format!(".{name}"),
        };
        let text: String = self.0.iter().map(step).collect();
        text.parse().expect("a path")
    }

    /// Leaves the path out of `value`, the slow way.
    pub(crate) fn leave_out(&self, value: &mut Value) {
        fn walk(value: &mut Value, steps: &[String]) {
            let [step, rest @ ..] = steps else { return };
            match (step.as_str(), value) {
                ("*", Value::Array(elements)) if rest.is_empty() => elements.clear(),
                ("*", Value::Array(elements)) => {
                    elements.iter_mut().for_each(|element| walk(element, rest));
                }
                // A step for elements does not concern a field of that name.
                ("*", _) => {}
                (name, Value::Object(fields)) if rest.is_empty() => {
                    fields.remove(name);
                }
                (name, Value::Object(fields)) => {
                    if let Some(value) = fields.get_mut(name) {
                        walk(value, rest);
                    }
                }
                _ => {}
            }
        }
        walk(value, &self.0);
    }
}

pub(crate) fn any_path() -> impl Strategy<Value = TestPath> {
    let step = prop_oneof![3 => "[a-d]", 1 => Just("*".to_owned())];
    proptest::collection::vec(step, 1..4).prop_map(TestPath)
}

/// A value with fields `a` to `d`.
pub(crate) fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            1 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            2 => proptest::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

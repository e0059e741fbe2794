//! What a run leaves: objects, without what differs from run to run.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

/// Fields whose values differ from run to run, or count writes, and those that the server allots one after the other.
const VARIABLE: [&str; 11] = [
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "healthCheckNodePort",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
    "generation",
    "observedGeneration",
];

/// The objects of the resources that a run wrote to, and the world outside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// By resource.
    objects: BTreeMap<String, Vec<Value>>,
    /// The world outside.
    pub(super) outside: Value,
}

/// Paths of leaves that are not compared.
#[derive(Clone, Debug, Default)]
pub(super) struct Mask(pub(super) BTreeSet<String>);

// === impl State ===

impl State {
    /// Adds the objects of a list that were written after the version `since`.
    pub(super) fn add(&mut self, collection: &str, mut list: Value, since: u64) {
        let resource = collection.rsplit('/').next().unwrap_or_default();
        let items = list["items"].as_array_mut().map(std::mem::take);
        let version = |item: &Value| {
            let text = item["metadata"]["resourceVersion"].as_str();
            text.and_then(|text| text.parse::<u64>().ok())
        };
        let mut items = items.unwrap_or_default();
        items.retain(|item| version(item).is_none_or(|version| version > since));
        self.objects.insert(resource.to_owned(), items);
    }

    /// The objects of a resource, such as `secrets`, as the server has them.
    #[must_use]
    pub fn of(&self, resource: &str) -> &[Value] {
        self.objects.get(resource).map_or(&[], Vec::as_slice)
    }

    /// Whether it has the object of a deletion such as `delete secrets default/a`, with the contents of `found`.
    pub(super) fn has(&self, deletion: &str, found: &Value, mask: &Mask) -> bool {
        let mut parts = deletion.split(' ').skip(1);
        let (resource, key) = (parts.next(), parts.next());
        let (Some(resource), Some(key)) = (resource, key) else {
            return false;
        };
        let key_of = |object: &Value| {
            let metadata = &object["metadata"];
            let name = metadata["name"].as_str().unwrap_or_default();
            let namespace = metadata["namespace"].as_str();
            namespace.map_or_else(
                || name.to_owned(),
                |namespace| format!("{namespace}/{name}"),
            )
        };
        let Some(own) = self.of(resource).iter().find(|one| key_of(one) == key) else {
            return false;
        };
        let leaves = |object: &Value| {
            let mut object = object.clone();
            // Items of lists have neither.
            for name in ["apiVersion", "kind"] {
                object.as_object_mut().map(|fields| fields.remove(name));
            }
            let objects = BTreeMap::from([(resource.to_owned(), vec![object])]);
            let outside = Value::Null;
            Self { objects, outside }.leaves(mask)
        };
        found.is_null() || leaves(own) == leaves(found)
    }

    /// The leaves that are compared, by path.
    pub(super) fn leaves(&self, mask: &Mask) -> BTreeMap<String, String> {
        let mut leaves = BTreeMap::new();
        for (resource, objects) in &self.objects {
            let mut generated: BTreeMap<String, Vec<BTreeMap<String, String>>> = BTreeMap::new();
            for object in objects {
                let metadata = &object["metadata"];
                let namespace = metadata["namespace"].as_str().unwrap_or_default();
                let mut own = BTreeMap::new();
                flatten(object, "", &mut own);
                if let Some(prefix) = metadata["generateName"].as_str() {
                    own.remove("/metadata/name");
                    let name = format!("{resource} {namespace}/{prefix}*");
                    generated.entry(name).or_default().push(own);
                } else {
                    let name = metadata["name"].as_str().unwrap_or_default();
                    let root = format!("{resource} {namespace}/{name}");
                    leaves.extend(
                        own.into_iter()
                            .map(|(path, leaf)| (format!("{root}{path}"), leaf)),
                    );
                }
            }
            for (name, mut all) in generated {
                all.sort();
                for (n, own) in all.into_iter().enumerate() {
                    let root = format!("{name}{n}");
                    leaves.extend(
                        own.into_iter()
                            .map(|(path, leaf)| (format!("{root}{path}"), leaf)),
                    );
                }
            }
        }
        flatten(&self.outside, "outside", &mut leaves);
        leaves.retain(|path, _| !mask.covers(path));
        leaves
    }

    /// The first difference to `other`, in words.
    pub(super) fn differs(&self, other: &Self, mask: &Mask) -> Option<String> {
        let (own, others) = (self.leaves(mask), other.leaves(mask));
        let whole = |path: &str| path.split('/').take(2).collect::<Vec<_>>().join("/");
        let missing = others.iter().find(|(path, _)| !own.contains_key(*path));
        if let Some((path, leaf)) = missing {
            let object = whole(path);
            if !own.keys().any(|path| whole(path) == object) {
                return Some(format!("{object} is missing"));
            }
            return Some(format!("{path} is missing; it is {leaf} without faults"));
        }
        let (path, leaf) = own
            .iter()
            .find(|(path, leaf)| others.get(*path) != Some(leaf))?;
        let object = whole(path);
        Some(match others.get(path) {
            Some(expected) => format!("{path} is {leaf}, and {expected} without faults"),
            None if others.keys().any(|path| whole(path) == object) => {
                format!("{path} is {leaf}, and absent without faults")
            }
            None => format!("{object} is left over"),
        })
    }
}

// === impl Mask ===

impl Mask {
    fn covers(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(end, _)| end);
        self.0.contains(path) || ends.into_iter().any(|end| self.0.contains(&path[..end]))
    }

    /// The leaves that differ between two runs without faults.
    pub(super) fn learn(&mut self, one: &State, other: &State) {
        let (a, b) = (one.leaves(&Self::default()), other.leaves(&Self::default()));
        let differs = |path: &&String| a.get(*path) != b.get(*path);
        let paths: Vec<String> = a.keys().chain(b.keys()).filter(differs).cloned().collect();
        self.0.extend(paths);
    }
}

fn flatten(value: &Value, path: &str, leaves: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if !VARIABLE.contains(&&**name) {
                    flatten(value, &format!("{path}/{name}"), leaves);
                }
            }
        }
        Value::Array(items) => {
            for (n, value) in items.iter().enumerate() {
                flatten(value, &format!("{path}/{n}"), leaves);
            }
        }
        Value::String(text) => {
            leaves.insert(path.to_owned(), format!("{:?}", timeless(text)));
        }
        Value::Null => {}
        other => {
            leaves.insert(path.to_owned(), other.to_string());
        }
    }
}

/// The text with `TIME` in place of each time.
fn timeless(text: &str) -> Cow<'_, str> {
    if !text.contains('T') || !text.contains(':') {
        return Cow::Borrowed(text);
    }
    let of_time = |letter: char| letter.is_ascii_digit() || "-:.TZ+".contains(letter);
    let words = text.split_inclusive(|letter| !of_time(letter));
    let words = words.map(|word| {
        let time = word.trim_end_matches(|letter| !of_time(letter));
        let time = time.trim_end_matches('.');
        if time.parse::<Timestamp>().is_ok() {
            Cow::Owned(word.replacen(time, "TIME", 1))
        } else {
            Cow::Borrowed(word)
        }
    });
    Cow::Owned(words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn state(items: Value) -> State {
        let mut state = State::default();
        state.add("/api/v1/secrets", json!({ "items": items }), 0);
        state
    }

    #[test]
    fn differences_are_named_and_variable_fields_are_none() {
        let a = |uid: &str, value: &str| json!({"metadata": {"name": "a", "namespace": "n", "uid": uid}, "data": {"key": value}});
        let mask = Mask::default();
        let base = state(json!([a("1", "x")]));
        let differs = |items: Value| state(items).differs(&base, &mask);
        assert_eq!(differs(json!([a("2", "x")])), None);
        let changed = differs(json!([a("1", "y")])).unwrap();
        assert_eq!(
            changed,
            "secrets n/a/data/key is \"y\", and \"x\" without faults"
        );
        assert_eq!(differs(json!([])).unwrap(), "secrets n/a is missing");
        let b = json!({"metadata": {"name": "b", "namespace": "n"}});
        assert_eq!(
            differs(json!([a("1", "x"), b])).unwrap(),
            "secrets n/b is left over"
        );
        let mut learnt = Mask::default();
        learnt.learn(&base, &state(json!([a("1", "z")])));
        assert_eq!(state(json!([a("1", "y")])).differs(&base, &learnt), None);
    }

    #[test]
    fn times_are_not_compared() {
        for (text, expected) in [
            ("2026-01-01T00:00:00Z", "TIME"),
            (
                "a is banned until 2026-01-01T00:00:00.250Z.",
                "a is banned until TIME.",
            ),
            (
                "from 2026-01-01T00:00:00Z, to 2026-01-01T01:00:00Z",
                "from TIME, to TIME",
            ),
            ("The Table: 10", "The Table: 10"),
        ] {
            assert_eq!(timeless(text), expected);
        }
    }

    #[test]
    fn objects_with_generated_names_are_compared_by_their_content() {
        let one = |name: &str, key: &str| json!({"metadata": {"name": name, "generateName": "a-", "namespace": "n"}, "data": {"key": key}});
        let base = state(json!([one("a-1", "x"), one("a-2", "y")]));
        let mask = Mask::default();
        let other = state(json!([one("a-3", "y"), one("a-4", "x")]));
        assert_eq!(other.differs(&base, &mask), None);
        assert!(
            state(json!([one("a-3", "y")]))
                .differs(&base, &mask)
                .is_some()
        );
    }
}

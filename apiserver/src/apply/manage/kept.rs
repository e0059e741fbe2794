//! Writes that take nothing from other managers: their entries stay as they are encoded.
//!
//! The result is that of [`Updater::update`](super::updater::Updater::update) and what follows it. Where it may differ,
//! nothing is returned, and the entries are read.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::super::set::Set;
use super::super::walk::Comparison;
use super::cap::MOST_UPDATERS;
use super::encoded::Encoded;
use super::entry::{Entry, Kind as Way};
use super::kind::Version;

/// One entry as it is stored.
struct Stored<'a> {
    entry: &'a Map<String, Value>,
    fields: Encoded<'a>,
}

/// The entries of an object as they are stored, if they can be kept.
pub(super) struct Kept<'a> {
    entries: Vec<Stored<'a>>,
    list: &'a Value,
}

// === impl Stored ===

impl Stored<'_> {
    fn text(&self, name: &str) -> &str {
        text(self.entry, name)
    }

    /// Whether another entry has the same identity.
    fn is_of(&self, manager: &str, operation: &str, api_version: &str, subresource: &str) -> bool {
        self.text("manager") == manager
            && self.text("operation") == operation
            && (operation == Way::Apply.name() || self.text("apiVersion") == api_version)
            && self.text("subresource") == subresource
    }
}

fn text<'a>(entry: &'a Map<String, Value>, name: &str) -> &'a str {
    let found = entry.get(name).and_then(Value::as_str);
    found.unwrap_or_default()
}

/// The order of encoded entries: as [`Managers::encode`](super::managers::Managers::encode) has it.
fn order(one: &Value, other: &Value) -> Ordering {
    fn key(entry: &Value) -> Option<[&str; 5]> {
        let entry = entry.as_object()?;
        let names = ["operation", "time", "manager", "apiVersion", "subresource"];
        Some(names.map(|name| text(entry, name)))
    }
    key(one).cmp(&key(other))
}

// === impl Kept ===

impl<'a> Kept<'a> {
    /// Entries of this version alone, which have the fields of its schema.
    pub(super) fn of(list: &'a Value, api_version: &str, version: &Version) -> Option<Self> {
        let schema = &*version.schema;
        let mut entries: Vec<Stored<'a>> = Vec::new();
        for entry in list.as_array()? {
            let entry = entry.as_object()?;
            let is_known = text(entry, "apiVersion") == api_version
                && text(entry, "fieldsType") == "FieldsV1"
                && matches!(text(entry, "operation"), "Apply" | "Update");
            let fields = Encoded::of(entry.get("fieldsV1")?)?;
            if !is_known || !fields.fits(schema, schema.root()) {
                return None;
            }
            let stored = Stored { entry, fields };
            let is_second = |one: &Stored<'_>| {
                let operation = stored.text("operation");
                one.is_of(
                    stored.text("manager"),
                    operation,
                    api_version,
                    stored.text("subresource"),
                )
            };
            if entries.iter().any(is_second) {
                return None;
            }
            entries.push(stored);
        }
        (!entries.is_empty()).then_some(Self { entries, list })
    }

    /// The entries after a write of `entry`, which made `changes`. `None` if it takes fields from another manager, or the
    /// entries have to be read for another reason.
    pub(super) fn after(&self, entry: Entry, changes: Comparison, stripped: &Set) -> Option<Value> {
        let mut changed = changes.modified.joined(changes.added);
        let is_own = |stored: &Stored<'_>| {
            let operation = entry.kind.name();
            stored.is_of(
                &entry.manager,
                operation,
                &entry.api_version,
                &entry.subresource,
            )
        };
        for stored in &self.entries {
            let loses = stored.fields.meets(&changes.removed);
            if loses || (!is_own(stored) && stored.fields.meets(&changed)) {
                return None;
            }
        }
        let nobodys = changed.intersection(stripped);
        changed.remove(stripped);
        if changed.is_empty() && nobodys.is_empty() {
            return Some(self.list.clone());
        }
        let own = self.entries.iter().position(is_own);
        if !nobodys.is_empty() && own.is_some_and(|at| self.entries[at].fields.meets(&nobodys)) {
            return None;
        }
        if changed.is_empty() {
            return Some(self.list.clone());
        }
        let mut list: Vec<Value> = self.list.as_array()?.clone();
        match own {
            Some(at) if self.entries[at].fields.has_all(&changed) => {
                let time = entry.time.unwrap_or_default();
                list[at]
                    .as_object_mut()?
                    .insert("time".to_owned(), time.into());
            }
            Some(at) => {
                let own = Entry::decode(&list[at], at).ok()?;
                let fields = changed.joined(own.fields);
                list[at] = Entry { fields, ..entry }.encode();
            }
            None => {
                let updaters = self.entries.iter();
                let updaters = updaters.filter(|stored| stored.text("operation") == "Update");
                if updaters.count() >= MOST_UPDATERS {
                    return None;
                }
                list.push(
                    Entry {
                        fields: changed,
                        ..entry
                    }
                    .encode(),
                );
            }
        }
        list.sort_by(order);
        Some(Value::Array(list))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::open_api::of_custom_resource;
    use super::super::super::walk;
    use super::*;

    const NOW: &str = "2026-01-01T00:00:09Z";

    /// The entries after a write by `manager` that changes `live` to `new`; `a` owns `x` and the item `i`, `b` owns `y`.
    fn after(manager: &str, live: &Value, new: &Value) -> Option<Value> {
        let schema = json!({"type": "object", "properties": {
            "x": {"type": "integer"}, "y": {"type": "integer"}, "z": {"type": "integer"},
            "items": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        }});
        let version = Version::new(of_custom_resource(Some(&schema), &|_| None).into());
        let list = json!([
            {"manager": "b", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:01Z",
             "fieldsType": "FieldsV1", "fieldsV1": {"f:y": {}}},
            {"manager": "a", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:02Z",
             "fieldsType": "FieldsV1", "fieldsV1": {"f:items": {"v:\"i\"": {}}, "f:x": {}}},
        ]);
        let schema = &*version.schema;
        let changes = walk::compare(schema, schema.root(), live, new).unwrap();
        let entry = Entry {
            manager: manager.to_owned(),
            kind: Way::Update,
            api_version: "v1".to_owned(),
            subresource: String::new(),
            time: Some(NOW.to_owned()),
            fields: Set::default(),
        };
        Kept::of(&list, "v1", &version)?.after(entry, changes, &Set::of(&[&["kind"]]))
    }

    #[test]
    fn entries_are_kept_unless_another_manager_loses_a_field() {
        let live = json!({"x": 1, "y": 1, "items": ["i"]});
        let own = after("a", &live, &json!({"x": 2, "y": 1, "items": ["i"]})).unwrap();
        assert_eq!(own[1]["time"], NOW);
        assert_eq!(
            own[1]["fieldsV1"],
            json!({"f:items": {"v:\"i\"": {}}, "f:x": {}})
        );
        assert_eq!(own[0]["time"], "2026-01-01T00:00:01Z");
        let more = after(
            "a",
            &live,
            &json!({"x": 1, "y": 1, "z": 1, "items": ["i", "j"]}),
        )
        .unwrap();
        let fields = json!({"f:items": {"v:\"i\"": {}, "v:\"j\"": {}}, "f:x": {}, "f:z": {}});
        assert_eq!(more[1]["fieldsV1"], fields);
        let third = after("c", &live, &json!({"x": 1, "y": 1, "z": 1, "items": ["i"]})).unwrap();
        assert_eq!(third.as_array().unwrap().len(), 3);
        assert_eq!(
            (&third[2]["manager"], &third[2]["fieldsV1"]),
            (&json!("c"), &json!({"f:z": {}}))
        );
        let same = after("c", &live, &live).unwrap();
        assert_eq!(same.as_array().unwrap().len(), 2);
        for taken in [
            json!({"x": 1, "y": 2, "items": ["i"]}),
            json!({"x": 1, "items": ["i"]}),
            json!({"x": 1, "y": 1, "items": []}),
        ] {
            assert_eq!(after("a", &live, &taken), None, "{taken}");
        }
    }

    #[test]
    fn entries_of_another_form_are_read() {
        let version = Version::new(of_custom_resource(None, &|_| None).into());
        let entry = |api_version: &str, operation: &str, fields: Value| json!({"manager": "a", "operation": operation, "apiVersion": api_version, "fieldsType": "FieldsV1", "fieldsV1": fields});
        let good = entry("v1", "Update", json!({"f:x": {}}));
        assert!(Kept::of(&json!([good]), "v1", &version).is_some());
        for list in [
            json!(null),
            json!([]),
            json!([{}]),
            json!([good, good]),
            json!([entry("v2", "Update", json!({"f:x": {}}))]),
            json!([entry("v1", "Other", json!({"f:x": {}}))]),
            json!([entry("v1", "Apply", json!(null))]),
        ] {
            assert!(Kept::of(&list, "v1", &version).is_none(), "{list}");
        }
    }
}

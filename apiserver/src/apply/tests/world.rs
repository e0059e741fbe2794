//! An object under writes of several managers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::manage::{ApplyError, Kind, Operation, Version};
use super::super::open_api::{OBJECT_META, of_custom_resource};
use super::super::path::PathText;
use super::super::set::Set;

/// An object and its managers.
#[derive(Clone)]
pub(super) struct World {
    kind: Kind,
    pub(super) live: Value,
    empty: Value,
    convert: Option<Convert>,
    clock: u32,
    pub(super) subresource: &'static str,
}

/// Converts the fields of an object from one version to another. The error is the reason why it cannot.
type Convert = fn(object: &Value, from: &str, to: &str) -> Result<Value, String>;

pub(super) fn version(schema: &Value) -> Version {
    let parts = json!({"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "integer"}}});
    let components = |name: &str| match name {
        OBJECT_META => Some(json!({"type": "object", "properties": {
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "name": {"type": "string"},
            "uid": {"type": "string"},
        }})),
        "Maps" => Some(json!({"type": "object", "additionalProperties": {"$ref": "Maps"}})),
        "Parts" => Some(parts.clone()),
        "Whole" => {
            let mut whole = parts.clone();
            whole["x-kubernetes-map-type"] = "atomic".into();
            Some(whole)
        }
        _ => None,
    };
    Version::new(Arc::new(of_custom_resource(Some(schema), &components)))
}

/// A world with these fields of objects, in the versions `g/v1` to `g/v4`.
pub(super) fn world(fields: Value) -> World {
    let schema = json!({"type": "object", "properties": fields});
    World::new(&schema)
}

/// A world whose objects have no declared fields.
pub(super) fn undeclared_world() -> World {
    World::new(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))
}

/// A world whose versions have these fields each, and whose objects are converted between them.
pub(super) fn converted_world(versions: &[(&str, Value)], convert: Convert) -> World {
    let mut world = undeclared_world();
    let kind = versions
        .iter()
        .fold(Kind::default(), |kind, (name, fields)| {
            let schema = json!({"type": "object", "properties": fields});
            kind.with(*name, version(&schema))
        });
    world.kind = kind.converted_by(Arc::new(move |object, to| converted(object, to, convert)));
    world.convert = Some(convert);
    world
}

fn converted(object: &Value, to: &str, convert: Convert) -> Result<Value, String> {
    match object["apiVersion"].as_str().unwrap() {
        from if from == to => Ok(object.clone()),
        from => convert(object, from, to),
    }
}

// === impl World ===

impl World {
    /// A world with objects of this schema, in the versions `g/v1` to `g/v4`.
    pub(super) fn new(schema: &Value) -> Self {
        let empty = json!({"apiVersion": "g/v1", "kind": "Thing"});
        let mut world = Self {
            kind: Kind::default(),
            live: empty.clone(),
            empty,
            convert: None,
            clock: 0,
            subresource: "",
        };
        world.change_schema(schema);
        world
    }

    fn change_schema(&mut self, schema: &Value) {
        let version = version(schema);
        self.kind = ["g/v1", "g/v2", "g/v3", "g/v4"]
            .into_iter()
            .fold(Kind::default(), |kind, name| {
                kind.with(name, version.clone())
            });
    }

    /// From now on objects have these fields.
    pub(super) fn with_fields(mut self, fields: Value) -> Self {
        self.change_schema(&json!({"type": "object", "properties": fields}));
        self
    }

    /// From now on writes in this version cannot change these fields.
    pub(super) fn ignoring(mut self, name: &str, ignored: Set) -> Self {
        let version = self.kind.version(name).unwrap().clone();
        self.kind = self.kind.with(name, version.ignoring(ignored));
        self
    }

    /// From now on the kind has only these versions.
    pub(super) fn with_versions(mut self, names: &[&str]) -> Self {
        let version = self.kind.version("g/v1").unwrap().clone();
        self.kind = names.iter().fold(Kind::default(), |kind, name| {
            kind.with(*name, version.clone())
        });
        self
    }

    pub(super) fn time(&self) -> String {
        format!(
            "2026-01-01T00:{:02}:{:02}Z",
            self.clock / 60,
            self.clock % 60
        )
    }

    fn object(&self, version: &str, fields: &Value) -> Value {
        let mut object = fields.clone();
        if object.is_null() {
            object = json!({});
        }
        object["apiVersion"] = version.into();
        object["kind"] = "Thing".into();
        object
    }

    fn operation<'a>(&'a self, version: &'a str, manager: &'a str, now: &'a str) -> Operation<'a> {
        Operation {
            of: &self.kind,
            api_version: version,
            kind: "Thing",
            subresource: self.subresource,
            manager,
            now,
            empty: &self.empty,
        }
    }

    /// The live object in `version`.
    fn live_in(&self, version: &str) -> Value {
        let mut live = match self.convert {
            Some(convert) => converted(&self.live, version, convert).unwrap(),
            None => self.live.clone(),
        };
        live["apiVersion"] = version.into();
        live
    }

    pub(super) fn update(self, manager: &str, fields: Value) -> Self {
        self.update_in("g/v1", manager, fields)
    }

    pub(super) fn update_in(mut self, version: &str, manager: &str, fields: Value) -> Self {
        self.clock += 1;
        let now = self.time();
        let mut new = self.object(version, &fields);
        let live = self.live_in(version);
        let managers = self.operation(version, manager, &now).update(&live, &new);
        new["metadata"]["uid"] = "u".into();
        match managers {
            Some(managers) => new["metadata"]["managedFields"] = managers,
            None => {
                new["metadata"]
                    .as_object_mut()
                    .unwrap()
                    .remove("managedFields");
            }
        }
        self.live = new;
        self
    }

    pub(super) fn try_apply(
        &mut self,
        version: &str,
        manager: &str,
        fields: &Value,
        force: bool,
    ) -> Result<(), ApplyError> {
        self.clock += 1;
        let now = self.time();
        let applied = self.object(version, fields);
        let live = self.live_in(version);
        let mut new = self
            .operation(version, manager, &now)
            .apply(&live, &applied, force)?
            .object;
        new["metadata"]["uid"] = "u".into();
        self.live = new;
        Ok(())
    }

    pub(super) fn apply(self, manager: &str, fields: Value) -> Self {
        self.apply_in("g/v1", manager, fields)
    }

    pub(super) fn apply_in(mut self, version: &str, manager: &str, fields: Value) -> Self {
        self.try_apply(version, manager, &fields, false).unwrap();
        self
    }

    pub(super) fn force(mut self, manager: &str, fields: Value) -> Self {
        self.try_apply("g/v1", manager, &fields, true).unwrap();
        self
    }

    /// An apply that is refused over these fields: `manager.path`.
    pub(super) fn conflict(mut self, manager: &str, fields: Value, expected: &[&str]) -> Self {
        assert_eq!(self.conflicts_in("g/v1", manager, &fields), expected);
        self
    }

    /// The conflicts over which an apply is refused: `manager.path`.
    pub(super) fn conflicts_in(
        &mut self,
        version: &str,
        manager: &str,
        fields: &Value,
    ) -> Vec<String> {
        let before = self.live.clone();
        let error = self
            .try_apply(version, manager, fields, false)
            .expect_err("conflicts");
        let ApplyError::Conflicts(conflicts) = error else {
            panic!("{error}");
        };
        assert_eq!(self.live, before);
        let of_each = conflicts.iter().map(|conflict| {
            let manager = conflict.manager.split('"').nth(1).unwrap_or_default();
            format!("{manager}{}", conflict.field())
        });
        of_each.collect()
    }

    /// An apply that is refused with this text in it.
    pub(super) fn refused(mut self, manager: &str, fields: Value, expected: &str) -> Self {
        let error = self
            .try_apply("g/v1", manager, &fields, false)
            .expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
        self
    }

    /// The fields of the object besides its type and metadata.
    pub(super) fn fields(&self) -> Value {
        self.fields_in(self.live["apiVersion"].as_str().unwrap())
    }

    fn fields_in(&self, version: &str) -> Value {
        let mut fields = self.live_in(version);
        let map = fields.as_object_mut().unwrap();
        for name in ["apiVersion", "kind", "metadata"] {
            map.remove(name);
        }
        fields
    }

    pub(super) fn is(self, expected: Value) -> Self {
        assert_eq!(self.fields(), expected);
        self
    }

    /// The object has these fields in another version.
    pub(super) fn reads_as(self, version: &str, expected: Value) -> Self {
        assert_eq!(self.fields_in(version), expected);
        self
    }

    /// The paths of each entry, by `manager` with a `+` for those by apply.
    pub(super) fn owned(&self) -> BTreeMap<String, Vec<String>> {
        let entries = self.live["metadata"]["managedFields"].as_array();
        entries
            .into_iter()
            .flatten()
            .map(|entry| {
                let plus = if entry["operation"] == "Apply" {
                    "+"
                } else {
                    ""
                };
                let manager = format!("{}{plus}", entry["manager"].as_str().unwrap());
                let set = Set::decode(&entry["fieldsV1"]).unwrap();
                let mut paths: Vec<String> = set
                    .paths()
                    .iter()
                    .map(|path| PathText(path).to_string())
                    .collect();
                paths.sort();
                (manager, paths)
            })
            .collect()
    }

    pub(super) fn owners(self, expected: &[(&str, &[&str])]) -> Self {
        let expected: BTreeMap<String, Vec<String>> = expected
            .iter()
            .map(|(manager, paths)| {
                let mut paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
                paths.sort();
                ((*manager).to_owned(), paths)
            })
            .collect();
        assert_eq!(self.owned(), expected);
        self
    }
}

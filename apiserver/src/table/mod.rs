//! Objects as rows, for `kubectl get`.
//!
//! A server computes the cells; the client only aligns them. (apiserver: `tableconvertor`,
//! kubernetes: `pkg/printers/internalversion`, apiextensions-apiserver: `tableconvertor`.)

pub(crate) mod cells;
pub(crate) mod duration;
pub(crate) mod json_path;
pub(crate) mod networking;
pub(crate) mod pods;
mod values;

use std::ops::Range;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::field::quote;
use crate::openapi::descriptions;
use crate::resource::{Column, ColumnSource};
use json_path::JsonPath;
pub(crate) use values::{Now, count, number};

/// The content of a row besides its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    /// Nothing.
    None,
    /// The object's metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// Converts objects of one resource to rows. Make one per answer; paths are parsed once.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    columns: Vec<(&'a Column, Option<JsonPath>)>,
    named: bool,
    reads_managers: bool,
    now: Timestamp,
}

// === impl IncludeObject ===

impl IncludeObject {
    /// Parses the query parameter `includeObject`; empty is the default.
    ///
    /// # Errors
    /// The text of the 400.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => Err(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                quote(other)
            )),
        }
    }
}

// === impl Rows ===

impl<'a> Rows<'a> {
    /// Rows of `columns`; a column `Name` is added at the front if there is none.
    pub(crate) fn new(columns: &'a [Column], now: Timestamp) -> Self {
        Self {
            named: columns.iter().any(|column| column.name == "Name"),
            reads_managers: columns.iter().any(|column| match &column.source {
                ColumnSource::JsonPath(path) => ["managedFields", "*", ".."]
                    .iter()
                    .any(|part| path.contains(part)),
                ColumnSource::Computed(_) | ColumnSource::Together(..) => false,
            }),
            columns: columns
                .iter()
                .map(|column| {
                    let path = match &column.source {
                        ColumnSource::JsonPath(path) => JsonPath::parse(path).ok(),
                        ColumnSource::Computed(_) | ColumnSource::Together(..) => None,
                    };
                    (column, path)
                })
                .collect(),
            now,
        }
    }

    /// `columnDefinitions`.
    pub(crate) fn definitions(&self) -> Vec<Value> {
        let mut definitions = Vec::with_capacity(self.columns.len() + 1);
        if !self.named {
            definitions.push(json!({
                "name": "Name",
                "type": "string",
                "format": "name",
                "description": of_metadata("name"),
                "priority": 0,
            }));
        }
        // A cell without a name is not in the heading, as on a real server.
        let named = self
            .columns
            .iter()
            .filter(|(column, _)| !column.name.is_empty());
        definitions.extend(named.map(|(column, _)| {
            json!({
                "name": column.name,
                "type": column.kind,
                "format": column.format,
                "description": description(column),
                "priority": column.priority,
            })
        }));
        definitions
    }

    /// The cells of one object.
    #[cfg(test)]
    pub(crate) fn cells(&self, object: &Value) -> Vec<Value> {
        self.cells_valid(object).0
    }

    /// The cells of one object, and the times at which they are these.
    pub(crate) fn cells_valid(&self, object: &Value) -> (Vec<Value>, Range<Timestamp>) {
        let now = Now::new(self.now);
        let mut cells = Vec::with_capacity(self.columns.len() + 1);
        if !self.named {
            cells.push(object["metadata"]["name"].clone());
        }
        let mut together: Option<Vec<Value>> = None;
        cells.extend(
            self.columns
                .iter()
                .map(|(column, path)| match (&column.source, path) {
                    (ColumnSource::Computed(compute), _) => compute(object, &now),
                    (ColumnSource::Together(compute, at), _) => {
                        let all = together.get_or_insert_with(|| compute(object, &now));
                        all.get_mut(*at).map(Value::take).unwrap_or_default()
                    }
                    (ColumnSource::JsonPath(_), Some(path)) => {
                        cell(&column.kind, path.first(object), &now)
                    }
                    (ColumnSource::JsonPath(_), None) => Value::Null,
                }),
        );
        (cells, now.valid())
    }

    /// Whether a cell may show something of `metadata.managedFields`.
    pub(crate) fn reads_managers(&self) -> bool {
        self.reads_managers
    }
}

/// The columns of a CRD version: its `additionalPrinterColumns`, or the age alone.
pub(crate) fn custom_columns(version: &Value) -> Vec<Column> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let listed = version["additionalPrinterColumns"].as_array();
    let Some(listed) = listed.filter(|columns| !columns.is_empty()) else {
        return vec![Column {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            description: String::new(),
            described_by: None,
            priority: 0,
            source: ColumnSource::JsonPath(".metadata.creationTimestamp".to_owned()),
        }];
    };
    listed
        .iter()
        .map(|column| {
            let path = text(&column["jsonPath"]);
            let description = match text(&column["description"]) {
                empty if empty.is_empty() => {
                    format!("Custom resource definition column (in JSONPath format): {path}")
                }
                description => description,
            };
            Column {
                name: text(&column["name"]),
                kind: text(&column["type"]),
                format: text(&column["format"]),
                description,
                described_by: None,
                priority: column["priority"].as_i64().unwrap_or_default(),
                source: ColumnSource::JsonPath(path),
            }
        })
        .collect()
}

/// The description of a column; for the age of a custom resource, that of every object's metadata.
fn description(column: &Column) -> &str {
    match (column.described_by, column.name.as_str()) {
        (Some((of, field)), _) => descriptions::of_field(of, field),
        (None, "Age") if column.description.is_empty() && column.kind == "date" => {
            of_metadata("creationTimestamp")
        }
        _ => &column.description,
    }
}

/// The description of a field of ObjectMeta.
fn of_metadata(field: &str) -> &'static str {
    descriptions::of_field("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", field)
}

/// A value as a cell of a column's type; a missing one is null.
fn cell(kind: &str, found: Option<&Value>, now: &Now) -> Value {
    let Some(found) = found else {
        return Value::Null;
    };
    match (kind, found) {
        ("string", value) => Value::String(json_path::text(value)),
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(_), _) => found.clone(),
            #[allow(
                clippy::cast_possible_truncation,
                reason = "a real server truncates too"
            )]
            (None, Some(float)) => json!(float as i64),
            (None, None) => Value::Null,
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => found.clone(),
        ("date", Value::String(text)) => Value::String(match text.parse::<Timestamp>() {
            Ok(time) => now.since(time),
            Err(_) if text.is_empty() => "<unknown>".to_owned(),
            Err(_) => "<invalid>".to_owned(),
        }),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-21T11:46:08Z".parse().unwrap()
    }

    fn object() -> Value {
        json!({
            "metadata": {"name": "x", "annotations": {"a.b/c": "ann"}, "creationTimestamp": "2026-11-21T11:46:08Z"},
            "spec": {
                "s": "text", "i": 5, "n": 1.5, "b": true, "d": "2020-01-01T00:00:00Z",
                "o": {"b": 1, "a": ["x", {"q": null}]}, "l": ["p", "q", "r"], "nul": null,
                "li": [{"k": 1, "v": "one"}, {"k": 2, "v": "two"}, {"k": 3, "v": "three"}],
            },
            "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}]},
        })
    }

    /// Cells of kube-apiserver 1.36.
    #[test]
    fn cells_of_custom_columns_are_those_of_a_real_server() {
        let cases = [
            ("string", ".spec.s", json!("text")),
            ("integer", ".spec.i", json!(5)),
            ("number", ".spec.n", json!(1.5)),
            ("boolean", ".spec.b", json!(true)),
            ("date", ".spec.d", json!("6y326d")),
            ("string", ".spec.i", json!("5")),
            ("string", ".spec.n", json!("1.5")),
            ("string", ".spec.b", json!("true")),
            (
                "string",
                ".spec.o",
                json!(r#"{"a":["x",{"q":null}],"b":1}"#),
            ),
            ("string", ".spec.l", json!(r#"["p","q","r"]"#)),
            ("string", ".spec.l[0]", json!("p")),
            ("string", ".spec.l[-1]", json!("r")),
            ("string", ".spec.l[*]", json!("p")),
            (
                "string",
                ".status.conditions[?(@.type==\"Ready\")].status",
                json!("True"),
            ),
            (
                "string",
                ".status.conditions[?(@.type=='Ready')].status",
                json!("True"),
            ),
            ("string", r".metadata.annotations.a\.b/c", json!("ann")),
            ("string", r".metadata.annotations['a\.b/c']", json!("ann")),
            ("integer", ".spec.s", Value::Null),
            ("date", ".spec.s", json!("<invalid>")),
            ("boolean", ".spec.i", Value::Null),
            ("number", ".spec.i", json!(5)),
            ("integer", ".spec.n", json!(1)),
            ("string", ".spec.nul", json!("<no value>")),
            ("string", ".spec.x.y.z", Value::Null),
            ("string", ".spec.l[0:2]", json!("p")),
            ("string", "..s", json!("text")),
            ("string", ".spec.li[*].v", json!("one")),
            ("string", ".spec.li[?(@.k>1)].v", json!("two")),
            ("integer", ".spec.l.length", Value::Null),
            ("date", ".metadata.creationTimestamp", json!("0s")),
        ];
        for (kind, path, expected) in cases {
            let version = json!({"additionalPrinterColumns": [{"name": "C", "type": kind, "jsonPath": path}]});
            let columns = custom_columns(&version);
            let rows = Rows::new(&columns, now());
            assert_eq!(
                rows.cells(&object()),
                [json!("x"), expected],
                "{kind} {path}"
            );
        }
    }

    #[test]
    fn without_columns_the_age_is_shown() {
        let columns = custom_columns(&json!({}));
        let rows = Rows::new(&columns, now());
        let names: Vec<Value> = rows
            .definitions()
            .iter()
            .map(|definition| definition["name"].clone())
            .collect();
        assert_eq!(names, ["Name", "Age"]);
        assert_eq!(rows.cells(&object()), [json!("x"), json!("0s")]);
    }

    #[test]
    fn a_definition_says_priority_format_and_where_the_value_comes_from() {
        let version = json!({"additionalPrinterColumns": [
            {"name": "I", "type": "integer", "jsonPath": ".spec.i", "priority": 1, "format": "int32", "description": "an int"},
            {"name": "S", "type": "string", "jsonPath": ".spec.s"},
        ]});
        let columns = custom_columns(&version);
        assert_eq!(
            Rows::new(&columns, now()).definitions()[1..],
            [
                json!({"name": "I", "type": "integer", "format": "int32", "description": "an int", "priority": 1}),
                json!({"name": "S", "type": "string", "format": "", "description": "Custom resource definition column (in JSONPath format): .spec.s", "priority": 0}),
            ]
        );
    }

    #[test]
    fn another_content_of_a_row_is_refused() {
        assert_eq!(
            IncludeObject::parse("Foo"),
            Err("Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": must be 'Metadata', 'Object', 'None', or empty".to_owned())
        );
    }
}

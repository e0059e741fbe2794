//! The document that a webhook answers, as Go's decoder reads it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::field::quote;
use crate::json_text::{self, Node};
use crate::meta::string;
use crate::schema::{ObjectSchema, Schema};
use crate::status::SCHEME;

/// The kinds of `v1` that every client of a webhook knows.
const OF_META: &[&str] = &[
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "Status",
];

/// The struct that the decoder reads a type into first.
const TYPE: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// A kind of reviews.
#[derive(Debug)]
pub(crate) struct ReviewKind {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    /// The fields of a review.
    pub(crate) schema: ObjectSchema,
}

// === impl ReviewKind ===

impl ReviewKind {
    /// Reads an answer to a review of `version`.
    ///
    /// # Errors
    /// The text of Go's decoder for what is no JSON, has another type, or a field of another type.
    pub(crate) fn read(&self, version: &str, body: &[u8]) -> Result<Value, String> {
        let node = json_text::parse(body);
        let node = node.map_err(|error| untyped(&error.to_string()))?;
        let members = match &node {
            Node::Object(members) => members,
            Node::Null => return Ok(Value::Null),
            other => {
                let found = other.go_type();
                let why = format!("json: cannot unmarshal {found} into Go value of type {TYPE}");
                return Err(untyped(&why));
            }
        };
        for (name, member) in members {
            let is_text = matches!(member, Node::String(_) | Node::Null);
            if matches!(name.as_ref(), "apiVersion" | "kind") && !is_text {
                let found = member.go_type();
                let why = format!(
                    "json: cannot unmarshal {found} into Go struct field .{name} of type string"
                );
                return Err(untyped(&why));
            }
        }
        let value = node.to_value();
        self.check_type(version, &value)?;
        match self.schema.decode_error(&node) {
            Some(why) => Err(why),
            None => Ok(value),
        }
    }

    fn check_type(&self, version: &str, document: &Value) -> Result<(), String> {
        let of = |version: &str| format!("{}/{version}", self.group);
        let expected = of(version);
        // What is absent is as expected.
        let found = match string(&document["apiVersion"]) {
            "" => &expected,
            found => found,
        };
        let kind = match string(&document["kind"]) {
            "" => self.kind,
            kind => kind,
        };
        if kind == self.kind && found == expected {
            return Ok(());
        }
        let is_review =
            kind == self.kind && [of("v1"), of("v1beta1")].iter().any(|one| one == found);
        if is_review || (found == "v1" && OF_META.contains(&kind)) {
            let found = found.rsplit('/').next().unwrap_or_default();
            return Err(format!(
                "converting ({found}.{kind}) to ({version}.{}): unknown conversion",
                self.kind
            ));
        }
        let (kind, found) = (quote(kind), quote(found));
        Err(format!(
            "no kind {kind} is registered for version {found} in {SCHEME}"
        ))
    }
}

/// Group, version and kind of a document, as Go writes them.
pub(crate) fn shown_type(document: &Value) -> String {
    let api_version = string(&document["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={}", string(&document["kind"]))
}

fn untyped(why: &str) -> String {
    format!("couldn't get version/kind; json parse error: {why}")
}

/// A struct of Go with these fields.
pub(crate) fn structure<const N: usize>(go_type: &str, fields: [(&str, Schema); N]) -> Schema {
    let mut schema = Schema::parse(&json!({"type": "object"}));
    let fields = fields.map(|(name, schema)| (name.to_owned(), schema));
    schema.properties = BTreeMap::from(fields);
    schema.go_type = Some(go_type.to_owned());
    schema
}

/// A field of a plain type.
pub(crate) fn plain(kind: &str, format: &str) -> Schema {
    Schema::parse(&json!({"type": kind, "format": format}))
}

/// A text; `go_type` is empty for a string.
pub(crate) fn text(go_type: &str) -> Schema {
    let mut schema = plain("string", "");
    schema.go_type = Some(go_type.to_owned()).filter(|name| !name.is_empty());
    schema
}

/// A list.
pub(crate) fn list(items: Schema) -> Schema {
    let mut schema = plain("array", "");
    schema.items = Some(Box::new(items));
    schema
}

/// Status, which is a part of reviews.
pub(crate) fn status() -> Schema {
    let cause = structure(
        "v1.StatusCause",
        [
            ("reason", text("v1.CauseType")),
            ("message", text("")),
            ("field", text("")),
        ],
    );
    let details = structure(
        "v1.StatusDetails",
        [
            ("name", text("")),
            ("group", text("")),
            ("kind", text("")),
            ("uid", text("types.UID")),
            ("causes", list(cause)),
            ("retryAfterSeconds", plain("integer", "int32")),
        ],
    );
    let metadata = structure(
        "v1.ListMeta",
        [
            ("selfLink", text("")),
            ("resourceVersion", text("")),
            ("continue", text("")),
            ("remainingItemCount", plain("integer", "int64")),
        ],
    );
    structure(
        "v1.Status",
        [
            ("apiVersion", text("")),
            ("kind", text("")),
            ("metadata", metadata),
            ("status", text("")),
            ("message", text("")),
            ("reason", text("v1.StatusReason")),
            ("details", details),
            ("code", plain("integer", "int32")),
        ],
    )
}

//! One node of a structural schema.

use std::collections::BTreeMap;

use serde_json::Value;

use super::limits::{Limits, strings};
use crate::cel;

/// The Go type of bytes.
pub(crate) const BYTES: &str = "[]uint8";

/// One node of a structural schema.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    /// `type`; absent with int-or-string or preserve-unknown-fields.
    pub(crate) kind: Option<Kind>,
    /// `nullable`.
    pub(crate) nullable: bool,
    /// `x-kubernetes-int-or-string`.
    pub(crate) int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub(crate) preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`.
    pub(crate) embedded: bool,
    /// `properties`, by name.
    pub(crate) properties: BTreeMap<String, Schema>,
    /// `additionalProperties`.
    pub(crate) additional: Additional,
    /// `items`.
    pub(crate) items: Option<Box<Schema>>,
    /// `default`.
    pub(crate) default: Option<Value>,
    /// `x-kubernetes-list-type`.
    pub(crate) list_type: ListType,
    /// `x-kubernetes-list-map-keys`.
    pub(crate) list_map_keys: Vec<String>,
    /// Limits on values.
    pub(crate) limits: Limits,
    /// `allOf`.
    pub(crate) all_of: Vec<Schema>,
    /// `anyOf`.
    pub(crate) any_of: Vec<Schema>,
    /// `oneOf`.
    pub(crate) one_of: Vec<Schema>,
    /// `not`.
    pub(crate) not: Option<Box<Schema>>,
    /// `x-kubernetes-validations`, compiled.
    pub(crate) rules: Vec<cel::Rule>,
    /// The Go type of a built-in, such as `v1.ObjectMeta`, for decode errors.
    pub(crate) go_type: Option<String>,
    /// The embedded Go structs that have the field, for decode errors.
    pub(crate) embedded_in: Option<&'static str>,
    /// The schema of a built-in type that contains itself.
    pub(crate) recursion: Option<fn() -> &'static Schema>,
}

/// A JSON type as OpenAPI names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `object`
    Object,
    /// `array`
    Array,
    /// `string`
    String,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `boolean`
    Boolean,
}

/// The fields of an object besides its properties.
#[derive(Debug, Default)]
pub(crate) enum Additional {
    /// Unspecified: other fields are unknown.
    #[default]
    Unspecified,
    /// `true`: other fields are kept, and their contents are unknown.
    Any,
    /// Other fields are of this schema.
    Of(Box<Schema>),
}

/// How the items of a list are identified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// By position; the list is one value.
    #[default]
    Atomic,
    /// By value.
    Set,
    /// By keys.
    Map,
}

// === impl Schema ===

impl Schema {
    /// Whether a value is bytes in Go, which a list of numbers is, too.
    pub(crate) fn is_bytes(&self) -> bool {
        self.go_type.as_deref() == Some(BYTES)
    }

    /// Parses a schema of the OpenAPI form of CRDs.
    pub(crate) fn parse(source: &Value) -> Self {
        let Value::Object(source) = source else {
            return Self::default();
        };
        let flag = |name: &str| source.get(name) == Some(&Value::Bool(true));
        let list = |name: &str| -> Vec<Schema> {
            source
                .get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(Schema::parse)
                .collect()
        };
        let nested = |name: &str| {
            source
                .get(name)
                .filter(|schema| schema.is_object())
                .map(|schema| Box::new(Schema::parse(schema)))
        };
        Self {
            kind: source
                .get("type")
                .and_then(Value::as_str)
                .and_then(Kind::from_name),
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            properties: source
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), Schema::parse(schema)))
                .collect(),
            additional: match source.get("additionalProperties") {
                Some(Value::Bool(true)) => Additional::Any,
                Some(schema @ Value::Object(_)) => Additional::Of(Box::new(Schema::parse(schema))),
                _ => Additional::Unspecified,
            },
            items: nested("items"),
            default: source.get("default").cloned(),
            list_type: match source.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map,
                _ => ListType::Atomic,
            },
            list_map_keys: strings(source, "x-kubernetes-list-map-keys"),
            limits: Limits::parse(source),
            all_of: list("allOf"),
            any_of: list("anyOf"),
            one_of: list("oneOf"),
            not: nested("not"),
            rules: source
                .get("x-kubernetes-validations")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(cel::Rule::compile)
                .collect(),
            go_type: None,
            embedded_in: None,
            recursion: None,
        }
    }

    /// The schema of the value: this one, or the whole type where a type contains itself.
    pub(crate) fn target(&self) -> &Schema {
        self.recursion.map_or(self, |schema| schema())
    }

    /// The schema of the field `name`, if the node has one.
    pub(crate) fn field(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(match &self.additional {
            Additional::Of(schema) => Some(schema),
            Additional::Unspecified | Additional::Any => None,
        })
    }

    /// Whether `holds` for this node or one that it contains by structure.
    pub(crate) fn any(&self, holds: &dyn Fn(&Schema) -> bool) -> bool {
        holds(self)
            || self.properties.values().any(|schema| schema.any(holds))
            || self.items.as_ref().is_some_and(|schema| schema.any(holds))
            || matches!(&self.additional, Additional::Of(schema) if schema.any(holds))
    }
}

// === impl Kind ===

impl Kind {
    /// The type with this name in OpenAPI.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    /// Its name in OpenAPI.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// Whether the schema of an embedded or root object does not apply to its field `name`.
pub(super) fn is_type_or_metadata(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

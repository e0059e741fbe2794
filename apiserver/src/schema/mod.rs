//! Structural schemas: what fields an object may have, their defaults and their rules.
//!
//! One [`ObjectSchema`] serves one version of one kind, custom or built in. A request body goes
//! through it in the order of a real server:
//!
//! 1. [`ObjectSchema::decode_error`]: is there a type that cannot be decoded (400)?
//! 2. [`ObjectSchema::strict_errors`]: unknown and repeated fields, for `fieldValidation`;
//! 3. [`ObjectSchema::prune`]: unknown fields go;
//! 4. [`ObjectSchema::default`]: absent fields come, nulls that may not be go;
//! 5. [`ObjectSchema::validate`]: everything else, as field errors (422); with the old object,
//!    what was wrong before and has not been touched is tolerated.
//!
//! (apiextensions-apiserver: `pkg/apiserver/schema`; kube-openapi: `pkg/validation`.)

mod fields;
mod format;
mod lists;
mod meta;
mod pattern;
mod prune;
mod quantity;
mod validate;

pub(crate) use lists::map_key;
pub(crate) use quantity::compare as compare_quantities;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::cel;
use crate::field::{Errors, Path};
use crate::json_text::Node;
pub(crate) use pattern::Pattern;

/// The schema of whole objects of one version of one kind.
#[derive(Debug)]
pub(crate) struct ObjectSchema {
    root: Schema,
    origin: Origin,
    has_rules: bool,
}

/// Where a schema comes from: decides which of two decoders is imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A CustomResourceDefinition: types are judged by validation (422).
    Custom,
    /// A Go type: types are judged when decoding (400); nothing else is.
    BuiltIn,
}

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
    /// Where a built-in type that holds itself goes on.
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

/// What an object may hold beside its properties.
#[derive(Debug, Default)]
pub(crate) enum Additional {
    /// Nothing is said: other fields are unknown.
    #[default]
    Unspecified,
    /// `true`: other fields are kept, what is below them is unknown.
    Any,
    /// Other fields are of this schema.
    Of(Box<Schema>),
}

/// How the items of a list are told apart.
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

/// Limits on a value.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) format: Option<String>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) minimum: Option<Bound>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) required: Vec<String>,
    pub(crate) enumeration: Vec<Value>,
}

/// A maximum or minimum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) value: f64,
    pub(crate) exclusive: bool,
}

// === impl ObjectSchema ===

impl ObjectSchema {
    /// The schema of a CRD version, from its `openAPIV3Schema`. What a CRD may not say is ignored;
    /// `crd::validate` refuses it before.
    pub(crate) fn custom(open_api: &Value) -> Self {
        Self::new(Schema::parse(open_api), Origin::Custom)
    }

    /// The schema of a built-in kind.
    pub(crate) fn built_in(root: Schema) -> Self {
        Self::new(root, Origin::BuiltIn)
    }

    fn new(mut root: Schema, origin: Origin) -> Self {
        root.embedded = false;
        let has_rules = root.any(&|schema| !schema.rules.is_empty());
        Self {
            root,
            origin,
            has_rules,
        }
    }

    /// The schema of the object itself.
    pub(crate) fn root(&self) -> &Schema {
        &self.root
    }

    /// Why a body cannot be decoded, in the words of Go's decoder; it goes after
    /// `Foo in version "v1" cannot be handled as a Foo: ` with 400.
    pub(crate) fn decode_error(&self, body: &Node) -> Option<String> {
        match self.origin {
            Origin::BuiltIn => fields::decode_error(&self.root, body),
            Origin::Custom => fields::metadata_error(&self.root, body),
        }
    }

    /// `unknown field "spec.x"` and `duplicate field "spec.y"`, in a real server's order.
    ///
    /// With `Warn` each is a warning; with `Strict` they are joined by `, ` after
    /// `strict decoding error: ` with 400.
    pub(crate) fn strict_errors(&self, body: &Node) -> Vec<String> {
        match self.origin {
            Origin::BuiltIn => fields::strict_errors_in_order(&self.root, body),
            Origin::Custom => {
                let mut found: Vec<String> = crate::json_text::duplicate_fields(body)
                    .into_iter()
                    .map(|path| format!("duplicate field \"{path}\""))
                    .collect();
                found.extend(self.unknown_fields(body));
                found
            }
        }
    }

    /// The same for a value that was never text, such as the result of a patch: only unknown fields.
    pub(crate) fn strict_errors_of(&self, object: &Value) -> Vec<String> {
        self.strict_errors(&Node::from_value(object))
    }

    fn unknown_fields(&self, body: &Node) -> Vec<String> {
        fields::unknown_fields(&self.root, body)
            .into_iter()
            .map(|path| format!("unknown field \"{path}\""))
            .collect()
    }

    /// Removes what the schema does not know.
    pub(crate) fn prune(&self, object: &mut Value) {
        prune::prune_object(&self.root, object);
        if self.origin == Origin::BuiltIn {
            prune::remove_nulls(&self.root, object);
            prune::canonical_times(&self.root, object);
            prune::canonical_quantities(&self.root, object, false);
        } else {
            prune::integral_numbers(object);
        }
    }

    /// Sets defaults, and removes nulls that may not stand where they do.
    pub(crate) fn default(&self, object: &mut Value) {
        if self.origin == Origin::Custom {
            prune::set_defaults(&self.root, object);
            prune::remove_forbidden_nulls(&self.root, object);
        }
    }

    /// What is wrong with a pruned and defaulted object beside its metadata, in a real server's order.
    ///
    /// With `old`, wrong values that did not change are tolerated (ratcheting) and transition rules
    /// are evaluated.
    ///
    /// `before` and `between` are errors that were found elsewhere: of metadata, and of scale. They take
    /// their place in the order, and types that are wrong there too keep rules from being evaluated.
    /// Rules that are broken and tolerated go to `warnings`.
    pub(crate) fn validate(
        &self,
        object: &Value,
        old: Option<&Value>,
        before: Errors,
        between: Errors,
        warnings: &mut Vec<String>,
    ) -> Errors {
        let mut errors = before;
        if self.origin == Origin::BuiltIn {
            return errors;
        }
        errors.extend(validate::validate(&self.root, object, old));
        errors.extend(lists::embedded_errors(&self.root, object));
        let had_duplicates =
            old.is_some_and(|old| !lists::duplicate_errors(&self.root, old).is_empty());
        if !had_duplicates {
            errors.extend(lists::duplicate_errors(&self.root, object));
        }
        errors.extend(between);
        if self.has_rules {
            if errors.iter().any(cel::blocks) {
                errors.push(cel::not_checked());
            } else {
                let findings = cel::evaluate(&self.root, object, old, &Path::root());
                errors.extend(findings.errors);
                warnings.extend(findings.warnings);
            }
        }
        errors
    }
}

// === impl Schema ===

impl Schema {
    /// Reads a schema of the OpenAPI form CRDs use.
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
            recursion: None,
        }
    }

    /// The schema that says what is below: this one, but of a type that holds itself the whole type.
    pub(crate) fn target(&self) -> &Schema {
        self.recursion.map_or(self, |schema| schema())
    }

    /// The schema of the field `name`, if the node says anything of it.
    pub(crate) fn field(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(match &self.additional {
            Additional::Of(schema) => Some(schema),
            Additional::Unspecified | Additional::Any => None,
        })
    }

    /// Whether pruning would take something from a value of this schema.
    pub(crate) fn would_prune(&self, value: &Value) -> bool {
        let mut pruned = value.clone();
        prune::prune(self, &mut pruned);
        pruned != *value
    }

    /// What validation says of a value of this schema.
    pub(crate) fn errors_of(&self, value: &Value) -> Errors {
        validate::validate(self, value, None)
    }

    /// Whether `holds` for this node or one that it contains by structure.
    pub(crate) fn any(&self, holds: &dyn Fn(&Schema) -> bool) -> bool {
        holds(self)
            || self.properties.values().any(|schema| schema.any(holds))
            || self.items.as_ref().is_some_and(|schema| schema.any(holds))
            || matches!(&self.additional, Additional::Of(schema) if schema.any(holds))
    }
}

// === impl Limits ===

impl Limits {
    fn parse(source: &Map<String, Value>) -> Self {
        let number = |name: &str| source.get(name).and_then(Value::as_f64);
        let count = |name: &str| source.get(name).and_then(Value::as_u64);
        let flag = |name: &str| source.get(name) == Some(&Value::Bool(true));
        let bound = |name: &str, exclusive: &str| {
            number(name).map(|value| Bound {
                value,
                exclusive: flag(exclusive),
            })
        };
        Self {
            format: source
                .get("format")
                .and_then(Value::as_str)
                .map(str::to_owned),
            maximum: bound("maximum", "exclusiveMaximum"),
            minimum: bound("minimum", "exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: source
                .get("pattern")
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(Pattern::new),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            unique_items: flag("uniqueItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            required: strings(source, "required"),
            enumeration: source
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
        }
    }
}

// === impl Kind ===

impl Kind {
    /// The type OpenAPI calls `name`.
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

    /// OpenAPI's name for it.
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

fn strings(source: &Map<String, Value>, name: &str) -> Vec<String> {
    source
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}

/// Whether a field of an embedded or root object is not the schema's business.
pub(crate) fn is_type_or_metadata(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

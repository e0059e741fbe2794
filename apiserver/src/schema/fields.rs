//! Errors of decoding a body: types that do not fit, unknown fields, repeated fields.
//!
//! Custom resources and built-in kinds are decoded by different code in a real server, with
//! different texts and order; both are imitated here.

use std::borrow::Cow;
use std::collections::HashSet;

use super::node::{Additional, Kind, Schema, is_type_or_metadata};
use super::{format, meta};
use crate::json_text::{Node, Repeats, Trail};

// === custom resources ===

/// Paths of fields that pruning would remove: metadata's, then the schema's in order of their
/// paths, then those of embedded objects' metadata.
pub(super) fn unknown_fields(root: &Schema, body: &Node<'_>) -> Vec<String> {
    let Node::Object(members) = body else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if let Some((_, metadata)) = members.iter().rfind(|(name, _)| name == "metadata") {
        unknown(
            meta::schema(),
            metadata,
            &Trail::Root.field("metadata"),
            &mut found,
        );
        found.dedup();
    }
    let mut of_schema = Vec::new();
    unknown_members(root, true, members, &Trail::Root, &mut of_schema);
    of_schema.sort();
    of_schema.dedup();
    found.extend(of_schema);
    let mut of_embedded = Vec::new();
    embedded_metadata(root, body, &Trail::Root, &mut |path, metadata| {
        unknown(meta::schema(), metadata, path, &mut of_embedded);
    });
    of_embedded.sort();
    found.extend(of_embedded);
    found
}

fn unknown(schema: &Schema, node: &Node<'_>, at: &Trail<'_>, found: &mut Vec<String>) {
    match node {
        Node::Object(members) => unknown_members(schema, schema.embedded, members, at, found),
        Node::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let at = at.item(index);
                match &schema.items {
                    Some(of) if schema.preserve_unknown => {
                        unknown_preserved(of, item, &at, found);
                    }
                    Some(of) => unknown(of, item, &at, found),
                    None if schema.preserve_unknown => {}
                    None => unknown_all(item, &at, found),
                }
            }
        }
        _ => {}
    }
}

fn unknown_members(
    schema: &Schema,
    embedded: bool,
    members: &[(Cow<'_, str>, Node<'_>)],
    at: &Trail<'_>,
    found: &mut Vec<String>,
) {
    for (name, member) in members {
        if embedded && is_type_or_metadata(name) {
            continue;
        }
        let child = at.field(name);
        if let Some(of) = schema.properties.get(name.as_ref()) {
            unknown(of, member, &child, found);
            continue;
        }
        match &schema.additional {
            Additional::Of(of) => unknown(of, member, &child, found),
            Additional::Any if !schema.preserve_unknown => unknown_all(member, &child, found),
            Additional::Any => {}
            Additional::Unspecified => {
                if !schema.preserve_unknown {
                    found.push(child.to_string());
                }
            }
        }
    }
}

fn unknown_preserved(schema: &Schema, node: &Node<'_>, at: &Trail<'_>, found: &mut Vec<String>) {
    match node {
        Node::Object(members) => {
            for (name, member) in members {
                if schema.embedded && is_type_or_metadata(name) {
                    continue;
                }
                if let Some(of) = schema.field(name) {
                    unknown(of, member, &at.field(name), found);
                }
            }
        }
        Node::Array(items) => {
            if let Some(of) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    unknown_preserved(of, item, &at.item(index), found);
                }
            }
        }
        _ => {}
    }
}

fn unknown_all(node: &Node<'_>, at: &Trail<'_>, found: &mut Vec<String>) {
    match node {
        Node::Object(members) => {
            found.extend(members.iter().map(|(name, _)| at.field(name).to_string()));
        }
        Node::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                unknown_all(item, &at.item(index), found);
            }
        }
        _ => {}
    }
}

fn embedded_metadata(
    schema: &Schema,
    node: &Node<'_>,
    at: &Trail<'_>,
    visit: &mut dyn FnMut(&Trail<'_>, &Node<'_>),
) {
    match node {
        Node::Object(members) => {
            for (name, member) in members {
                if schema.embedded && name == "metadata" {
                    visit(&at.field(name), member);
                }
                if let Some(of) = schema.field(name) {
                    embedded_metadata(of, member, &at.field(name), visit);
                }
            }
        }
        Node::Array(items) => {
            if let Some(of) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    embedded_metadata(of, item, &at.item(index), visit);
                }
            }
        }
        _ => {}
    }
}

/// Custom resources are decoded untyped, except for their metadata and that of embedded objects.
pub(super) fn metadata_error(root: &Schema, body: &Node<'_>) -> Option<String> {
    let Node::Object(members) = body else {
        return None;
    };
    for (_, metadata) in members.iter().filter(|(name, _)| name == "metadata") {
        if let Some(error) = decode(meta::schema(), metadata, &Place::top("ObjectMeta")) {
            return Some(error);
        }
    }
    let mut error = None;
    embedded_metadata(root, body, &Trail::Root, &mut |path, metadata| {
        if error.is_none()
            && let Some(why) = decode(meta::schema(), metadata, &Place::top("ObjectMeta"))
        {
            let shown = metadata.to_value();
            error = Some(format!("{path}: Invalid value: {shown}: {why}"));
        }
    });
    error
}

// === built-in kinds ===

/// Unknown and duplicate fields in the order of the typed decoder, which is that of the text.
pub(super) fn strict_errors_in_order(root: &Schema, body: &Node<'_>) -> Vec<String> {
    let mut found = Vec::new();
    strict(root, body, &Trail::Root, &mut found);
    found
}

fn strict(schema: &Schema, node: &Node<'_>, at: &Trail<'_>, found: &mut Vec<String>) {
    let schema = schema.target();
    match node {
        Node::Object(members) => {
            let mut reported: HashSet<&str> = HashSet::new();
            let mut repeats = Repeats::default();
            for (index, (name, member)) in members.iter().enumerate() {
                let child = at.field(name);
                let of = schema.field(name);
                let known = of.is_some() || takes_others(schema);
                let repeated = repeats.at(members, index);
                if !known {
                    if !repeated {
                        found.push(format!("unknown field \"{child}\""));
                    }
                    continue;
                }
                if repeated && reported.insert(name) {
                    found.push(format!("duplicate field \"{child}\""));
                }
                if let Some(of) = of {
                    strict(of, member, &child, found);
                }
            }
        }
        Node::Array(items) => {
            if let Some(of) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    strict(of, item, &at.item(index), found);
                }
            }
        }
        _ => {}
    }
}

/// Whether a schema keeps fields that it does not name.
fn takes_others(schema: &Schema) -> bool {
    schema.preserve_unknown || !matches!(schema.additional, Additional::Unspecified)
}

/// Whether a body has no wrong type, and no unknown or repeated field: neither [`decode_error`] nor
/// [`strict_errors_in_order`] finds one then. It is one walk in place of two. A body that Go reads in an unusual way, such
/// as bytes from a list, does not count.
pub(super) fn is_sound(schema: &Schema, node: &Node<'_>) -> bool {
    let is_typed = schema.kind.is_some() || schema.int_or_string;
    let whole = schema.target();
    match node {
        Node::Object(members) => {
            let mut repeats = Repeats::default();
            (!is_typed || whole.kind == Some(Kind::Object))
                && members.iter().enumerate().all(|(index, (name, member))| {
                    !repeats.at(members, index)
                        && match whole.field(name) {
                            Some(of) => is_sound(of, member),
                            None => takes_others(whole),
                        }
                })
        }
        Node::Array(items) => {
            let of = whole.items.as_deref();
            (!is_typed || whole.kind == Some(Kind::Array))
                && of.is_none_or(|of| items.iter().all(|item| is_sound(of, item)))
        }
        scalar => decode(schema, scalar, &Place::top("")).is_none(),
    }
}

/// The first value that does not fit a Go type.
pub(super) fn decode_error(root: &Schema, body: &Node<'_>) -> Option<String> {
    let name = root.go_type.as_deref().map_or("", short);
    decode(root, body, &Place::top(name))
}

/// The position of the typed decoder: the struct whose field is read, and the fields' names so far.
struct Place<'a> {
    of: &'a str,
    path: Trail<'a>,
}

impl<'a> Place<'a> {
    fn top(of: &'a str) -> Self {
        let path = Trail::Root;
        Self { of, path }
    }
}

/// [`decode`] of a field.
fn decode_field(
    schema: &Schema,
    name: &str,
    field: &Schema,
    member: &Node<'_>,
    place: &Place<'_>,
) -> Option<String> {
    let of = schema.go_type.as_deref().map_or(place.of, short);
    let inner = field.embedded_in.map(|inner| place.path.field(inner));
    let path = inner.as_ref().unwrap_or(&place.path).field(name);
    decode(field, member, &Place { of, path })
}

fn decode(schema: &Schema, node: &Node<'_>, place: &Place<'_>) -> Option<String> {
    if *node == Node::Null || (schema.kind.is_none() && !schema.int_or_string) {
        return None;
    }
    let schema = schema.target();
    let mismatch = |found: &str| {
        let wanted = go_type(schema);
        Some(if matches!(place.path, Trail::Root) {
            format!("json: cannot unmarshal {found} into Go value of type {wanted}")
        } else {
            format!(
                "json: cannot unmarshal {found} into Go struct field {}.{} of type {wanted}",
                place.of, place.path
            )
        })
    };
    if schema.int_or_string {
        let is_quantity = schema.limits.format.as_deref() == Some("quantity");
        return match node {
            node if is_quantity => quantity_error(node),
            Node::String(_) => None,
            Node::Number(text) if text.parse::<i32>().is_ok() => None,
            Node::Number(text) => mismatch(&format!("number {text}")),
            other => mismatch(other.go_type()),
        };
    }
    match (schema.kind?, node) {
        (Kind::Object, Node::Object(members)) => {
            for (name, member) in members {
                let error = match schema.properties.get(name.as_ref()) {
                    Some(of) => decode_field(schema, name, of, member, place),
                    // An entry of a map is not a field: Go names the map.
                    None => match &schema.additional {
                        Additional::Of(of) => decode(of, member, place),
                        Additional::Any | Additional::Unspecified => None,
                    },
                };
                if error.is_some() {
                    return error;
                }
            }
            None
        }
        (Kind::Array, Node::Array(items)) => {
            let of = schema.items.as_deref()?;
            items.iter().find_map(|item| decode(of, item, place))
        }
        (Kind::String, Node::String(text)) => format_error(schema, text),
        // Go reads bytes from a list of numbers, too.
        (Kind::String, Node::Array(items)) if schema.is_bytes() => {
            let wrong = items.iter().find_map(|item| match item {
                Node::Number(text) if text.parse::<u8>().is_ok() => None,
                Node::Number(text) => Some(format!("number {text}")),
                Node::Null => None,
                other => Some(other.go_type().to_owned()),
            })?;
            Some(format!(
                "json: cannot unmarshal {wrong} into Go struct field {}.{} of type uint8",
                place.of, place.path
            ))
        }
        (Kind::Boolean, Node::Bool(_)) | (Kind::Number, Node::Number(_)) => None,
        (Kind::Integer, Node::Number(text)) => {
            if fits(schema, text) {
                None
            } else {
                mismatch(&format!("number {text}"))
            }
        }
        (_, other) => mismatch(other.go_type()),
    }
}

fn fits(schema: &Schema, number: &str) -> bool {
    match schema.limits.format.as_deref() {
        Some("int32") => number.parse::<i32>().is_ok(),
        _ => number.parse::<i64>().is_ok(),
    }
}

fn format_error(schema: &Schema, text: &str) -> Option<String> {
    match schema.limits.format.as_deref() {
        Some("date-time") => format::time_error(text, false),
        Some("micro-time") => format::time_error(text, true),
        Some("byte") => format::base64_error(text)
            .map(|position| format!("illegal base64 data at input byte {position}")),
        _ => None,
    }
}

/// A quantity is a number or a string of a certain form.
fn quantity_error(node: &Node<'_>) -> Option<String> {
    let fits = match node {
        Node::Number(_) => true,
        Node::String(text) => format::is_quantity(text),
        _ => false,
    };
    (!fits).then(|| {
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".to_owned()
    })
}

fn go_type(schema: &Schema) -> String {
    if let Some(name) = &schema.go_type {
        return name.clone();
    }
    let format = schema.limits.format.as_deref();
    match schema.kind {
        None => "int32".to_owned(),
        Some(Kind::String) if format == Some("byte") => "[]uint8".to_owned(),
        Some(Kind::String) => "string".to_owned(),
        Some(Kind::Boolean) => "bool".to_owned(),
        Some(Kind::Integer) => format.unwrap_or("int64").to_owned(),
        Some(Kind::Number) => "float64".to_owned(),
        Some(Kind::Array) => format!(
            "[]{}",
            schema
                .items
                .as_deref()
                .map_or_else(|| "interface {}".to_owned(), go_type)
        ),
        Some(Kind::Object) => match &schema.additional {
            Additional::Of(of) => format!("map[string]{}", go_type(of)),
            Additional::Any | Additional::Unspecified => "map[string]interface {}".to_owned(),
        },
    }
}

/// `ObjectMeta` of `v1.ObjectMeta`.
fn short(go_type: &str) -> &str {
    go_type.rsplit('.').next().unwrap_or(go_type)
}

#[cfg(test)]
mod tests {
    use super::super::ObjectSchema;
    use super::*;
    use crate::json_text::parse;
    use serde_json::json;

    fn custom() -> ObjectSchema {
        ObjectSchema::custom(&json!({
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {
                "a": {"type": "string"},
                "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
                "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"y": {"type": "string"}}}},
                "p": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                    "q": {"type": "object", "properties": {"r": {"type": "string"}}},
                }},
                "emb": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                    "spec": {"type": "object", "properties": {"z": {"type": "string"}}},
                }},
            }}},
        }))
    }

    fn built_in() -> ObjectSchema {
        let mut root = Schema::parse(&json!({
            "type": "object",
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "data": {"type": "object", "additionalProperties": {"type": "string"}},
                "count": {"type": "integer", "format": "int32"},
                "size": {"x-kubernetes-int-or-string": true, "format": "quantity"},
                "binaryData": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}},
            },
        }));
        root.go_type = Some("v1.ConfigMap".to_owned());
        let metadata = json!({"type": "object", "properties": {
            "name": {"type": "string"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "creationTimestamp": {"type": "string", "format": "date-time"},
            "ownerReferences": {"type": "array", "items": {"type": "object", "properties": {"uid": {"type": "string"}}}},
        }});
        let mut metadata = Schema::parse(&metadata);
        metadata.go_type = Some("v1.ObjectMeta".to_owned());
        root.properties.insert("metadata".to_owned(), metadata);
        ObjectSchema::built_in(root)
    }

    /// Texts of kube-apiserver 1.36.
    #[test]
    fn a_custom_resource_names_repeated_fields_in_order_then_unknown_ones_sorted() {
        let cases = [
            (
                r#"{"metadata":{"name":"x","foo":1,"foo":2},"spec":{"u":1,"a":"1","a":"2","l":[{"x":1,"w":2}],"m":{"k":{"y":"1","v":{"deep":1}}}},"top":{}}"#,
                r#"duplicate field "metadata.foo", duplicate field "spec.a", unknown field "metadata.foo", unknown field "spec.l[0].w", unknown field "spec.m.k.v", unknown field "spec.u", unknown field "top""#,
            ),
            (
                r#"{"metadata":{"name":"x"},"spec":{"p":{"any":{"b":1},"q":{"r":"1","s":2}},"emb":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"y","bad":1},"spec":{"z":"1","zz":1},"extra":1}}}"#,
                r#"unknown field "spec.emb.extra", unknown field "spec.emb.spec.zz", unknown field "spec.p.q.s", unknown field "spec.emb.metadata.bad""#,
            ),
            (
                r#"{"metadata":{"name":"x","ownerReferences":[{"foo":1,"uid":"1"}]}}"#,
                r#"unknown field "metadata.ownerReferences[0].foo""#,
            ),
        ];
        for (body, expected) in cases {
            let errors = custom().strict_errors(&parse(body.as_bytes()).unwrap());
            assert_eq!(errors.join(", "), expected, "{body}");
        }
    }

    #[test]
    fn a_custom_resource_is_refused_for_metadata_of_a_wrong_type() {
        let cases = [
            (
                r#"{"metadata":{"name":5}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string",
            ),
            (
                r#"{"metadata":{"labels":{"a":5}}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
            ),
            (
                r#"{"metadata":{"labels":["a"]}}"#,
                "json: cannot unmarshal array into Go struct field ObjectMeta.labels of type map[string]string",
            ),
            (
                r#"{"metadata":{"finalizers":"a"}}"#,
                "json: cannot unmarshal string into Go struct field ObjectMeta.finalizers of type []string",
            ),
            (
                r#"{"metadata":[]}"#,
                "json: cannot unmarshal array into Go value of type v1.ObjectMeta",
            ),
            (
                r#"{"metadata":{"creationTimestamp":"zz"}}"#,
                r#"parsing time "zz" as "2006-01-02T15:04:05Z07:00": cannot parse "zz" as "2006""#,
            ),
            (
                r#"{"spec":{"emb":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"Y_","labels":{"a":5}}}}}"#,
                r#"spec.emb.metadata: Invalid value: {"labels":{"a":5},"name":"Y_"}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"#,
            ),
        ];
        for (body, expected) in cases {
            let error = custom().decode_error(&parse(body.as_bytes()).unwrap());
            assert_eq!(error.as_deref(), Some(expected), "{body}");
        }
        let fine = parse(br#"{"metadata":{"name":"x","labels":null},"spec":5}"#).unwrap();
        assert_eq!(custom().decode_error(&fine), None);
    }

    #[test]
    fn a_built_in_kind_names_unknown_and_repeated_fields_in_the_order_of_the_text() {
        let cases = [
            (
                r#"{"metadata":{"name":"d"},"data":{"a":"1","a":"2"},"foo":1,"foo":2,"metadata":{"name":"d","bar":{"x":1},"labels":{"a":"b","a":"c"}}}"#,
                r#"duplicate field "data.a", unknown field "foo", duplicate field "metadata", unknown field "metadata.bar", duplicate field "metadata.labels.a""#,
            ),
            (
                r#"{"metadata":{"name":"d","ownerReferences":[{"foo":1,"uid":"1","uid":"2"}]},"datA":{"a":"1"}}"#,
                r#"unknown field "metadata.ownerReferences[0].foo", duplicate field "metadata.ownerReferences[0].uid", unknown field "datA""#,
            ),
        ];
        for (body, expected) in cases {
            let errors = built_in().strict_errors(&parse(body.as_bytes()).unwrap());
            assert_eq!(errors.join(", "), expected, "{body}");
        }
    }

    #[test]
    fn a_built_in_kind_is_refused_for_any_wrong_type() {
        let cases = [
            (
                r#"{"data":{"a":1}}"#,
                "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
            ),
            (
                r#"{"data":5}"#,
                "json: cannot unmarshal number into Go struct field ConfigMap.data of type map[string]string",
            ),
            (
                r#"{"metadata":[]}"#,
                "json: cannot unmarshal array into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
            ),
            (
                r#"{"metadata":{"name":5}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
            ),
            (
                r#"{"metadata":{"labels":{"a":5}}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                r#"{"count":"5"}"#,
                "json: cannot unmarshal string into Go struct field ConfigMap.count of type int32",
            ),
            (
                r#"{"count":1.5}"#,
                "json: cannot unmarshal number 1.5 into Go struct field ConfigMap.count of type int32",
            ),
            (
                r#"{"count":3000000000}"#,
                "json: cannot unmarshal number 3000000000 into Go struct field ConfigMap.count of type int32",
            ),
            (
                r#"{"size":"foo"}"#,
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            (
                r#"{"binaryData":{"a":"%%"}}"#,
                "illegal base64 data at input byte 0",
            ),
            (
                r#"{"metadata":{"creationTimestamp":"foo"}}"#,
                r#"parsing time "foo" as "2006-01-02T15:04:05Z07:00": cannot parse "foo" as "2006""#,
            ),
        ];
        for (body, expected) in cases {
            let error = built_in().decode_error(&parse(body.as_bytes()).unwrap());
            assert_eq!(error.as_deref(), Some(expected), "{body}");
        }
        let fine =
            parse(br#"{"count":5,"size":"1Gi","data":null,"binaryData":{"a":"YQ=="},"extra":1}"#);
        assert_eq!(built_in().decode_error(&fine.unwrap()), None);
    }
}

//! Validation against a schema, in the order and with the texts of a real server.
//!
//! At each node: type, composition, string, format, number, list, enumeration, object. Properties are
//! visited by name (a real server visits them in random order).

use serde_json::{Number, Value};

use super::format;
use super::limits::Bound;
use super::lists::{items_by_key, map_key};
use super::node::{Additional, Kind, Schema, is_type_or_metadata};
use crate::field::{Errors, FieldError, Path, quote};

/// Errors of one node and below, and the number of visited nodes: composition shows the errors of the
/// alternative that got furthest.
#[derive(Default)]
struct Outcome {
    errors: Errors,
    visited: usize,
}

/// A value, its old value, and its path.
struct Node<'a> {
    value: &'a Value,
    /// The value before the update, if the two correspond.
    old: Option<&'a Value>,
    path: String,
}

/// What is wrong with `object`; with `old`, unchanged values are not checked.
pub(super) fn validate(schema: &Schema, object: &Value, old: Option<&Value>) -> Errors {
    let node = Node {
        value: object,
        old,
        path: String::new(),
    };
    check(schema, &node, true).errors
}

/// What is wrong with a value of `schema`.
pub(crate) fn errors_of(schema: &Schema, value: &Value) -> Errors {
    validate(schema, value, None)
}

fn check(schema: &Schema, node: &Node<'_>, root: bool) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.types(schema, node);
    if node.value.is_null() {
        outcome.enumeration(schema, node);
    } else {
        outcome.composition(schema, node, root);
        match node.value {
            Value::String(text) => outcome.string(schema, node, text),
            Value::Number(number) => outcome.number(schema, node, number),
            Value::Array(items) => outcome.list(schema, node, items),
            _ => {}
        }
        outcome.enumeration(schema, node);
        outcome.object(schema, node, root);
    }
    // Ratcheting: an invalid value that did not change does not prevent other changes.
    if node.old == Some(node.value) {
        outcome.errors.clear();
    }
    outcome
}

// === impl Node ===

impl<'a> Node<'a> {
    fn path(&self) -> Path {
        Path::new(&self.path)
    }

    fn child(&self, name: &str, value: &'a Value) -> Self {
        Node {
            value,
            old: self.old.and_then(|old| old.get(name)),
            path: crate::json_text::join(&self.path, name),
        }
    }

    fn item(&self, index: usize, value: &'a Value, old: Option<&'a Value>) -> Self {
        Node {
            value,
            old,
            path: format!("{}[{index}]", self.path),
        }
    }
}

// === impl Outcome ===

impl Outcome {
    fn merge(&mut self, other: Outcome) {
        self.errors.extend(other.errors);
        self.visited += other.visited;
    }

    fn invalid(&mut self, node: &Node<'_>, value: impl Into<Value>, rule: impl AsRef<str>) {
        let detail = format!("{} in body {}", node.path, rule.as_ref());
        self.errors
            .push(FieldError::invalid(&node.path(), value, detail));
    }

    /// An error without a path; Kubernetes prints it at `<nil>`.
    fn unplaced(&mut self, detail: String) {
        self.errors
            .push(FieldError::invalid(&Path::root(), "", detail));
    }

    fn types(&mut self, schema: &Schema, node: &Node<'_>) {
        let wanted = match (schema.kind, schema.int_or_string) {
            (_, true) => "integer,string",
            (Some(kind), false) => kind.name(),
            (None, false) => return,
        };
        self.visited += 1;
        let found = match node.value {
            Value::Null => {
                if schema.nullable {
                    return;
                }
                "null"
            }
            Value::Bool(_) => "boolean",
            Value::Number(number) if is_integral(number) => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let fits = match (schema.kind, schema.int_or_string) {
            (_, true) => matches!(found, "integer" | "string"),
            (Some(Kind::Number), false) => matches!(found, "integer" | "number"),
            (Some(kind), false) => kind.name() == found,
            (None, false) => true,
        };
        if !fits {
            let detail = format!(
                "{} in body must be of type {wanted}: \"{found}\"",
                node.path
            );
            self.errors
                .push(FieldError::type_invalid(&node.path(), found, detail));
        }
    }

    fn composition(&mut self, schema: &Schema, node: &Node<'_>, root: bool) {
        self.visited += 1;
        let place = quote(&node.path);
        let attempt = |alternative: &Schema| check(alternative, node, root);
        if !schema.any_of.is_empty() {
            let mut best: Option<Outcome> = None;
            let mut valid = false;
            for alternative in &schema.any_of {
                let outcome = attempt(alternative);
                if outcome.errors.is_empty() {
                    valid = true;
                    break;
                }
                keep_best(&mut best, outcome);
            }
            if !valid {
                self.unplaced(format!("{place} must validate at least one schema (anyOf)"));
                if let Some(best) = best {
                    self.merge(best);
                }
            }
        }
        if !schema.one_of.is_empty() {
            let mut best: Option<Outcome> = None;
            let mut valid = 0;
            for alternative in &schema.one_of {
                let outcome = attempt(alternative);
                if outcome.errors.is_empty() {
                    valid += 1;
                } else {
                    keep_best(&mut best, outcome);
                }
            }
            if valid != 1 {
                let found = match valid {
                    0 => "Found none valid".to_owned(),
                    several => format!("Found {several} valid alternatives"),
                };
                self.unplaced(format!(
                    "{place} must validate one and only one schema (oneOf). {found}"
                ));
                if let (0, Some(best)) = (valid, best) {
                    self.merge(best);
                }
            }
        }
        if !schema.all_of.is_empty() {
            let mut valid = 0;
            for part in &schema.all_of {
                let outcome = attempt(part);
                valid += usize::from(outcome.errors.is_empty());
                self.merge(outcome);
            }
            if valid < schema.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                self.unplaced(format!(
                    "{place} must validate all the schemas (allOf){none}"
                ));
            }
        }
        if let Some(not) = &schema.not
            && attempt(not).errors.is_empty()
        {
            self.unplaced(format!("{place} must not validate the schema (not)"));
        }
    }

    fn string(&mut self, schema: &Schema, node: &Node<'_>, text: &str) {
        self.visited += 1;
        let limits = &schema.limits;
        let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
        if let Some(maximum) = limits.max_length
            && length > maximum
        {
            let maximum = i64::try_from(maximum).unwrap_or(-1);
            self.errors
                .push(FieldError::too_long(&node.path(), maximum));
        } else if let Some(minimum) = limits.min_length
            && length < minimum
        {
            let rule = format!("should be at least {minimum} chars long");
            self.invalid(node, text, rule);
        } else if let Some(pattern) = &limits.pattern
            && !pattern.matches(text)
        {
            self.invalid(node, text, format!("should match '{}'", pattern.text));
        }
        if let Some(form) = &limits.format
            && matches!(schema.kind, None | Some(Kind::String))
        {
            self.visited += 1;
            if !format::is_valid(form, text) {
                let detail = format!(
                    "{} in body must be of type {form}: {}",
                    node.path,
                    quote(text)
                );
                self.errors
                    .push(FieldError::type_invalid(&node.path(), text, detail));
            }
        }
    }

    fn number(&mut self, schema: &Schema, node: &Node<'_>, number: &Number) {
        self.visited += 1;
        let limits = &schema.limits;
        if schema.kind == Some(Kind::Integer) && !within_format(limits.format.as_deref(), number) {
            let form = limits.format.as_deref().map_or_else(
                || "(default format)".to_owned(),
                |form| format!("with format {form}"),
            );
            let path = &node.path;
            self.unplaced(format!(
                "Checked value must be of type integer {form} in {path}"
            ));
        }
        if let Some(factor) = limits.multiple_of
            && !is_multiple(number, factor)
        {
            let rule = format!("should be a multiple of {factor}");
            self.invalid(node, number.clone(), rule);
        }
        if let Some(bound) = limits.maximum {
            let (outside, shown) = compare(number, bound, |value, limit| value > limit);
            if outside {
                let words = if bound.exclusive {
                    "less than"
                } else {
                    "less than or equal to"
                };
                self.invalid(node, number.clone(), format!("should be {words} {shown}"));
            }
        }
        if let Some(bound) = limits.minimum {
            let (outside, shown) = compare(number, bound, |value, limit| value < limit);
            if outside {
                let words = if bound.exclusive {
                    "greater than"
                } else {
                    "greater than or equal to"
                };
                self.invalid(node, number.clone(), format!("should be {words} {shown}"));
            }
        }
    }

    fn list(&mut self, schema: &Schema, node: &Node<'_>, items: &[Value]) {
        self.visited += 1;
        if let Some(of) = &schema.items {
            let before = items_by_key(schema, node.old);
            for (index, item) in items.iter().enumerate() {
                let old = (!before.is_empty()).then(|| before.get(&map_key(schema, item)));
                let old = old.flatten().copied();
                self.merge(check(of, &node.item(index, item, old), false));
            }
        }
        let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
        if let Some(minimum) = schema.limits.min_items
            && count < minimum
        {
            self.invalid(node, count, format!("should have at least {minimum} items"));
        }
        if let Some(maximum) = schema.limits.max_items
            && count > maximum
        {
            self.errors
                .push(FieldError::too_many(&node.path(), items.len(), maximum));
        }
        let repeated = |(index, item): (usize, &Value)| items[..index].contains(item);
        if schema.limits.unique_items && items.iter().enumerate().any(repeated) {
            self.invalid(node, "", "shouldn't contain duplicates");
        }
    }

    fn enumeration(&mut self, schema: &Schema, node: &Node<'_>) {
        let allowed = &schema.limits.enumeration;
        self.visited += 1;
        if allowed.is_empty() || allowed.contains(node.value) {
            return;
        }
        let texts: Vec<String> = allowed
            .iter()
            .map(|value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            })
            .collect();
        self.errors.push(FieldError::not_supported(
            &node.path(),
            node.value.clone(),
            &texts,
        ));
    }

    fn object(&mut self, schema: &Schema, node: &Node<'_>, root: bool) {
        let Value::Object(map) = node.value else {
            return;
        };
        self.visited += 1;
        let limits = &schema.limits;
        let count = u64::try_from(map.len()).unwrap_or(u64::MAX);
        if let Some(minimum) = limits.min_properties
            && count < minimum
        {
            self.invalid(
                node,
                count,
                format!("should have at least {minimum} properties"),
            );
            return;
        }
        if let Some(maximum) = limits.max_properties
            && count > maximum
        {
            self.errors
                .push(FieldError::too_many(&node.path(), map.len(), maximum));
            return;
        }
        if let Additional::Of(of) = &schema.additional {
            for (name, value) in map {
                let reserved = (root || schema.embedded) && is_type_or_metadata(name);
                if !schema.properties.contains_key(name) && !reserved {
                    self.merge(check(of, &node.child(name, value), false));
                }
            }
        }
        for (name, of) in &schema.properties {
            if let Some(value) = map.get(name) {
                self.merge(check(of, &node.child(name, value), false));
            }
        }
        for name in &limits.required {
            if !map.contains_key(name) {
                let path = crate::json_text::join(&node.path, name);
                self.errors
                    .push(FieldError::required(&Path::new(&path), ""));
            }
        }
    }
}

fn keep_best(best: &mut Option<Outcome>, outcome: Outcome) {
    if best
        .as_ref()
        .is_none_or(|best| outcome.visited > best.visited)
    {
        *best = Some(outcome);
    }
}

fn is_integral(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

fn within_format(format: Option<&str>, number: &Number) -> bool {
    if !is_integral(number) {
        return false;
    }
    match (format, number.as_i64()) {
        (Some("int32"), Some(integer)) => i32::try_from(integer).is_ok(),
        (_, None) => !number.is_u64(),
        _ => true,
    }
}

fn is_multiple(number: &Number, factor: f64) -> bool {
    if factor == 0.0 {
        return true;
    }
    let ratio = number.as_f64().unwrap_or_default() / factor;
    (ratio - ratio.round()).abs() < 1e-9
}

/// Whether a number is beyond a bound, and the bound as in the message. For an integer
/// the fraction of a bound is ignored, as in a real server.
fn compare(number: &Number, bound: Bound, beyond: fn(f64, f64) -> bool) -> (bool, String) {
    let value = number.as_f64().unwrap_or_default();
    let limit = if number.is_f64() {
        bound.value
    } else {
        bound.value.trunc()
    };
    let outside = beyond(value, limit) || (bound.exclusive && value == limit);
    (outside, limit.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::ObjectSchema;
    use super::*;
    use crate::field::aggregate;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "i": {"type": "integer", "minimum": 1, "maximum": 10, "multipleOf": 2},
            "ix": {"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 10, "exclusiveMaximum": true},
            "i32": {"type": "integer", "format": "int32"},
            "n": {"type": "number", "maximum": 1.5},
            "s": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-zé]+$"},
            "e": {"type": "string", "enum": ["a", "b"]},
            "ei": {"type": "integer", "enum": [1, 2]},
            "l": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
            "m": {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "integer"}},
            "b": {"type": "boolean"},
            "ios": {"x-kubernetes-int-or-string": true},
            "iosp": {"x-kubernetes-int-or-string": true, "pattern": "^a", "maximum": 5},
            "o": {"type": "object", "required": ["x", "y"], "properties": {
                "x": {"type": "string"},
                "y": {"type": "string"},
                "z": {"type": "object", "required": ["q"], "properties": {"q": {"type": "string"}}},
            }},
            "nul": {"type": "string", "nullable": true},
            "any": {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "one": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "all": {"type": "object", "allOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "no": {"type": "object", "not": {"required": ["a"]}},
            "fmt": {"type": "string", "format": "ipv4"},
            "ip": {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
                "type": "object",
                "required": ["k"],
                "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 5}},
            }},
        }}}})
    }

    fn errors(spec: &Value, old: Option<Value>) -> String {
        let schema = ObjectSchema::custom(&schema());
        let old = old.map(|spec| json!({"spec": spec}));
        aggregate(&schema.validate(
            &json!({"spec": spec}),
            old.as_ref(),
            Errors::new(),
            Errors::new(),
            &mut Vec::new(),
        ))
    }

    /// Texts of kube-apiserver 1.36.
    #[test]
    fn each_rule_is_worded_as_a_real_server_words_it() {
        let cases = [
            (
                json!({"i": "foo"}),
                r#"spec.i: Invalid value: "string": spec.i in body must be of type integer: "string""#,
            ),
            (
                json!({"i": 0}),
                "spec.i: Invalid value: 0: spec.i in body should be greater than or equal to 1",
            ),
            (
                json!({"i": 12}),
                "spec.i: Invalid value: 12: spec.i in body should be less than or equal to 10",
            ),
            (
                json!({"i": 3}),
                "spec.i: Invalid value: 3: spec.i in body should be a multiple of 2",
            ),
            (
                json!({"i": 1.5}),
                r#"[spec.i: Invalid value: "number": spec.i in body must be of type integer: "number", <nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.i, spec.i: Invalid value: 1.5: spec.i in body should be a multiple of 2]"#,
            ),
            (json!({"i": 2.0}), ""),
            (
                json!({"i": true}),
                r#"spec.i: Invalid value: "boolean": spec.i in body must be of type integer: "boolean""#,
            ),
            (
                json!({"i": []}),
                r#"spec.i: Invalid value: "array": spec.i in body must be of type integer: "array""#,
            ),
            (
                json!({"i": {}}),
                r#"spec.i: Invalid value: "object": spec.i in body must be of type integer: "object""#,
            ),
            (
                json!({"ix": 1}),
                "spec.ix: Invalid value: 1: spec.ix in body should be greater than 1",
            ),
            (
                json!({"ix": 10}),
                "spec.ix: Invalid value: 10: spec.ix in body should be less than 10",
            ),
            (
                json!({"i32": 3_000_000_000_i64}),
                r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.i32"#,
            ),
            (
                json!({"n": 2}),
                "spec.n: Invalid value: 2: spec.n in body should be less than or equal to 1",
            ),
            (
                json!({"n": 1.6}),
                "spec.n: Invalid value: 1.6: spec.n in body should be less than or equal to 1.5",
            ),
            (
                json!({"n": "x"}),
                r#"spec.n: Invalid value: "string": spec.n in body must be of type number: "string""#,
            ),
            (
                json!({"s": "a"}),
                r#"spec.s: Invalid value: "a": spec.s in body should be at least 2 chars long"#,
            ),
            (
                json!({"s": "abcde"}),
                "spec.s: Too long: may not be more than 4 bytes",
            ),
            (json!({"s": "éééé"}), ""),
            (
                json!({"s": "A1"}),
                r#"spec.s: Invalid value: "A1": spec.s in body should match '^[a-zé]+$'"#,
            ),
            (
                json!({"s": 5}),
                r#"spec.s: Invalid value: "integer": spec.s in body must be of type string: "integer""#,
            ),
            (
                json!({"e": "c"}),
                r#"spec.e: Unsupported value: "c": supported values: "a", "b""#,
            ),
            (
                json!({"e": 5}),
                r#"[spec.e: Invalid value: "integer": spec.e in body must be of type string: "integer", spec.e: Unsupported value: 5: supported values: "a", "b"]"#,
            ),
            (
                json!({"ei": 3}),
                r#"spec.ei: Unsupported value: 3: supported values: "1", "2""#,
            ),
            (
                json!({"l": []}),
                "spec.l: Invalid value: 0: spec.l in body should have at least 1 items",
            ),
            (
                json!({"l": ["a", "b", "c"]}),
                "spec.l: Too many: 3: must have at most 2 items",
            ),
            (
                json!({"l": [1]}),
                r#"spec.l[0]: Invalid value: "integer": spec.l[0] in body must be of type string: "integer""#,
            ),
            (
                json!({"l": [null]}),
                r#"spec.l[0]: Invalid value: "null": spec.l[0] in body must be of type string: "null""#,
            ),
            (
                json!({"m": {}}),
                "spec.m: Invalid value: 0: spec.m in body should have at least 1 properties",
            ),
            (
                json!({"m": {"a": 1, "b": 2, "c": 3}}),
                "spec.m: Too many: 3: must have at most 2 items",
            ),
            (
                json!({"m": {"a": "x"}}),
                r#"spec.m.a: Invalid value: "string": spec.m.a in body must be of type integer: "string""#,
            ),
            (
                json!({"ios": true}),
                r#"spec.ios: Invalid value: "boolean": spec.ios in body must be of type integer,string: "boolean""#,
            ),
            (
                json!({"ios": 1.5}),
                r#"spec.ios: Invalid value: "number": spec.ios in body must be of type integer,string: "number""#,
            ),
            (json!({"ios": "a"}), ""),
            (
                json!({"iosp": "b"}),
                r#"spec.iosp: Invalid value: "b": spec.iosp in body should match '^a'"#,
            ),
            (
                json!({"iosp": 7}),
                "spec.iosp: Invalid value: 7: spec.iosp in body should be less than or equal to 5",
            ),
            (
                json!({"o": {}}),
                "[spec.o.x: Required value, spec.o.y: Required value]",
            ),
            (
                json!({"o": {"x": 1, "z": {}}}),
                r#"[spec.o.x: Invalid value: "integer": spec.o.x in body must be of type string: "integer", spec.o.z.q: Required value, spec.o.y: Required value]"#,
            ),
            (json!({"nul": null}), ""),
            (
                json!({"any": {}}),
                r#"[<nil>: Invalid value: "": "spec.any" must validate at least one schema (anyOf), spec.any.a: Required value]"#,
            ),
            (
                json!({"one": {}}),
                r#"[<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none valid, spec.one.a: Required value]"#,
            ),
            (
                json!({"one": {"a": 1, "b": 1}}),
                r#"<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
            ),
            (
                json!({"all": {}}),
                r#"[spec.all.a: Required value, spec.all.b: Required value, <nil>: Invalid value: "": "spec.all" must validate all the schemas (allOf). None validated]"#,
            ),
            (
                json!({"no": {"a": 1}}),
                r#"<nil>: Invalid value: "": "spec.no" must not validate the schema (not)"#,
            ),
            (
                json!({"fmt": "x"}),
                r#"spec.fmt: Invalid value: "x": spec.fmt in body must be of type ipv4: "x""#,
            ),
            (json!({"ip": "::1"}), ""),
            (
                json!(5),
                r#"spec: Invalid value: "integer": spec in body must be of type object: "integer""#,
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(errors(&spec, None), expected, "{spec}");
        }
    }

    #[test]
    fn what_was_wrong_and_did_not_change_is_tolerated() {
        let high = "spec.i: Invalid value: 12: spec.i in body should be less than or equal to 10";
        let cases = [
            (
                "untouched",
                json!({"i": 12, "b": true}),
                json!({"i": 12}),
                "",
            ),
            ("touched", json!({"i": 12}), json!({"i": 14}), high),
            ("new", json!({"i": 12}), json!({}), high),
            (
                "an item of a map, moved",
                json!({"map": [{"k": "b"}, {"k": "a", "v": 9}]}),
                json!({"map": [{"k": "a", "v": 9}]}),
                "",
            ),
            (
                "an item of another key",
                json!({"map": [{"k": "b", "v": 9}]}),
                json!({"map": [{"k": "a", "v": 9}]}),
                "spec.map[0].v: Invalid value: 9: spec.map[0].v in body should be less than or equal to 5",
            ),
            (
                "an item of a plain list",
                json!({"l": [1, "a"]}),
                json!({"l": [1]}),
                r#"spec.l[0]: Invalid value: "integer": spec.l[0] in body must be of type string: "integer""#,
            ),
            (
                "a whole list",
                json!({"l": [1], "b": true}),
                json!({"l": [1]}),
                "",
            ),
        ];
        for (name, new, old, expected) in cases {
            assert_eq!(errors(&new, Some(old)), expected, "{name}");
        }
    }
}

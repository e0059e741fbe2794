//! Rules and expressions, evaluated.

mod language;

use std::sync::Arc;

use serde_json::{Value, json};

use super::evaluate::NOT_CHECKED;
use super::{
    Authorizer, Composition, Expression, Failure, Variables, check_type_names, compile_error,
    evaluate, split_field_path, to_json, within,
};
use crate::field::{Errors, Path, aggregate};
use crate::rbac::{Attributes, User};
use crate::schema::{ObjectSchema, Schema};

fn rule(rule: &str, message: &str) -> Value {
    json!([{"rule": rule, "message": message}])
}

fn schema() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-validations": [
            {"rule": "!has(self.metadata) || self.metadata.name.startsWith('x')", "message": "name must start with x"},
            {"rule": "!has(self.spec.ra) || self.spec.ra < 100", "message": "ra small", "fieldPath": ".spec.ra"},
        ],
        "properties": {"spec": {
            "type": "object",
            "x-kubernetes-validations": rule("!has(self.ra) || self.ra < 50", "ra very small"),
            "properties": {
                "cidr": {"type": "string", "x-kubernetes-validations": rule("isCIDR(self) || isIP(self)", "must be an address")},
                "inside": {"type": "string", "x-kubernetes-validations": rule("cidr('10.0.0.0/8').containsIP(ip(self)) && ip(self).family() == 4", "must be inside")},
                "nomsg": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5"}]},
                "mexp": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5", "messageExpression": "'got ' + string(self)"}]},
                "mexpbad": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5", "messageExpression": "''", "message": "fallback"}]},
                "obj": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                    "x-kubernetes-validations": [
                        {"rule": "self.a > 5", "message": "a big"},
                        {"rule": "!has(self.b) || self.b == 'x'", "message": "b is x", "fieldPath": ".b", "reason": "FieldValueForbidden"},
                    ],
                },
                "rq": {
                    "type": "object",
                    "x-kubernetes-validations": [{"rule": "has(self.a)", "message": "need a", "fieldPath": ".a", "reason": "FieldValueRequired"}],
                },
                "dup": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'd'", "reason": "FieldValueDuplicate"}]},
                "imm": {"type": "string", "x-kubernetes-validations": rule("self == oldSelf", "immutable")},
                "opt": {"type": "string", "x-kubernetes-validations": [{
                    "rule": "!oldSelf.hasValue() || self == oldSelf.value()", "optionalOldSelf": true, "message": "immutable2",
                }]},
                "optc": {"type": "string", "x-kubernetes-validations": [{
                    "rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": true, "message": "must start first",
                }]},
                "arr": {
                    "type": "array",
                    "items": {"type": "string", "x-kubernetes-validations": rule("self != 'bad'", "no bad")},
                    "x-kubernetes-validations": rule("self.size() < 3", "few"),
                },
                "mp": {"type": "object", "additionalProperties": {"type": "string", "x-kubernetes-validations": rule("self != 'bad'", "no bad")}},
                "err": {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": rule("self[3] == 'x'", "boom")},
                "dur": {"type": "string", "format": "duration", "x-kubernetes-validations": rule("self <= duration('24h')", "short")},
                "durs": {"type": "string", "x-kubernetes-validations": rule("duration(self) <= duration('24h')", "short")},
                "at": {"type": "string", "format": "date-time", "x-kubernetes-validations": rule("self > timestamp('2026-01-01T00:00:00Z')", "late")},
                "lm": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "required": ["k"], "properties": {
                        "k": {"type": "string"},
                        "v": {"type": "string", "x-kubernetes-validations": rule("self == oldSelf", "v fixed")},
                    }},
                },
                "esc": {
                    "type": "object",
                    "properties": {"a-b": {"type": "integer"}, "my_field": {"type": "integer"}, "namespace": {"type": "integer"}},
                    "x-kubernetes-validations": rule("self.a__dash__b + self.my_field + self.__namespace__ == 6", "sum"),
                },
                "ra": {"type": "integer"},
                "e": {"type": "string", "enum": ["a"]},
                "max": {"type": "integer", "maximum": 5},
            },
        }},
    })
}

fn errors(object: Value, old: Option<Value>) -> String {
    aggregate(&ObjectSchema::custom(&schema()).validate(
        &object,
        old.as_ref(),
        Errors::new(),
        Errors::new(),
        &mut Vec::new(),
    ))
}

/// Texts of kube-apiserver 1.36.
#[test]
fn a_broken_rule_is_reported_as_by_a_real_server() {
    let note = format!("<nil>: Invalid value: null: {NOT_CHECKED}");
    let cases = [
        (
            json!({"cidr": "foo"}),
            r#"spec.cidr: Invalid value: "foo": must be an address"#,
        ),
        (json!({"cidr": "1.2.3.4"}), ""),
        (json!({"inside": "10.1.1.1"}), ""),
        (
            json!({"inside": "11.1.1.1"}),
            r#"spec.inside: Invalid value: "11.1.1.1": must be inside"#,
        ),
        (
            json!({"nomsg": 1}),
            "spec.nomsg: Invalid value: 1: failed rule: self > 5",
        ),
        (json!({"mexp": 1}), "spec.mexp: Invalid value: 1: got 1"),
        (
            json!({"mexpbad": 1}),
            "spec.mexpbad: Invalid value: 1: fallback",
        ),
        (json!({"obj": {"a": 1}}), "spec.obj: Invalid value: a big"),
        (
            json!({"obj": {}}),
            r#"spec.obj: Invalid value: "object": no such key: a evaluating rule: a big"#,
        ),
        (
            json!({"obj": {"a": 6, "b": "y"}}),
            "spec.obj.b: Forbidden: b is x",
        ),
        (
            json!({"obj": {"a": 1, "b": "y"}}),
            "[spec.obj: Invalid value: a big, spec.obj.b: Forbidden: b is x]",
        ),
        (json!({"rq": {}}), "spec.rq.a: Required value: need a"),
        (json!({"dup": "d"}), r#"spec.dup: Duplicate value: "d""#),
        (json!({"imm": "a"}), ""),
        (json!({"opt": "a"}), ""),
        (
            json!({"optc": "a"}),
            r#"spec.optc: Invalid value: "a": must start first"#,
        ),
        (
            json!({"arr": ["bad", "a", "b"]}),
            r#"[spec.arr: Invalid value: few, spec.arr[0]: Invalid value: "bad": no bad]"#,
        ),
        (
            json!({"mp": {"q": "bad"}}),
            r#"spec.mp[q]: Invalid value: "bad": no bad"#,
        ),
        (
            json!({"err": ["a"]}),
            r#"spec.err: Invalid value: "array": index out of bounds: 3 evaluating rule: boom"#,
        ),
        (
            json!({"dur": "25h"}),
            r#"spec.dur: Invalid value: "25h": short"#,
        ),
        (json!({"dur": "23h"}), ""),
        (
            json!({"durs": "x"}),
            r#"spec.durs: Invalid value: "string": type conversion error from 'string' to 'google.protobuf.Duration' evaluating rule: short"#,
        ),
        (
            json!({"durs": "25h"}),
            r#"spec.durs: Invalid value: "25h": short"#,
        ),
        (
            json!({"at": "2025-01-01T00:00:00Z"}),
            r#"spec.at: Invalid value: "2025-01-01T00:00:00Z": late"#,
        ),
        (
            json!({"ra": 200}),
            "[spec.ra: Invalid value: ra small, spec: Invalid value: ra very small]",
        ),
        (
            json!({"esc": {"a-b": 1, "my_field": 2, "namespace": 3}}),
            "",
        ),
        (
            json!({"nomsg": 1, "max": 9}),
            "[spec.max: Invalid value: 9: spec.max in body should be less than or equal to 5, spec.nomsg: Invalid value: 1: failed rule: self > 5]",
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(errors(json!({"spec": spec}), None), expected, "{spec}");
    }
    assert_eq!(
        errors(json!({"spec": {"nomsg": 1, "e": "x"}}), None),
        format!(r#"[spec.e: Unsupported value: "x": supported values: "a", {note}]"#)
    );
    assert_eq!(
        errors(json!({"metadata": {"name": "y"}, "spec": {}}), None),
        "<nil>: Invalid value: name must start with x"
    );
}

#[test]
fn transition_rules_see_what_the_value_was() {
    let cases = [
        (
            "changed",
            json!({"imm": "b"}),
            json!({"imm": "a"}),
            r#"spec.imm: Invalid value: "b": immutable"#,
        ),
        ("removed", json!({}), json!({"imm": "a"}), ""),
        ("added", json!({"imm": "b"}), json!({}), ""),
        (
            "optional, changed",
            json!({"opt": "b"}),
            json!({"opt": "a"}),
            r#"spec.opt: Invalid value: "b": immutable2"#,
        ),
        (
            "optional, same",
            json!({"opt": "a"}),
            json!({"opt": "a"}),
            "",
        ),
        (
            "optional, second value",
            json!({"optc": "b"}),
            json!({"optc": "first"}),
            "",
        ),
        (
            "an item that moved and changed",
            json!({"lm": [{"k": "b", "v": "2"}, {"k": "a", "v": "3"}]}),
            json!({"lm": [{"k": "a", "v": "1"}, {"k": "b", "v": "2"}]}),
            r#"spec.lm[1].v: Invalid value: "3": v fixed"#,
        ),
    ];
    for (name, new, old, expected) in cases {
        assert_eq!(
            errors(json!({"spec": new}), Some(json!({"spec": old}))),
            expected,
            "{name}"
        );
    }
}

#[test]
fn a_broken_rule_is_tolerated_where_nothing_changed() {
    let old = json!({"spec": {"nomsg": 1}});
    assert_eq!(
        errors(
            json!({"spec": {"nomsg": 1, "cidr": "::1"}}),
            Some(old.clone())
        ),
        ""
    );
    assert_eq!(
        errors(json!({"spec": {"nomsg": 2}}), Some(old)),
        "spec.nomsg: Invalid value: 2: failed rule: self > 5"
    );
}

#[test]
fn deep_nesting_is_compiled_or_refused_and_never_ends_the_process() {
    let nested = |depth: usize| format!("{}true{}", "!(".repeat(depth), ")".repeat(depth));
    let rules = |depth| json!({"type": "boolean", "x-kubernetes-validations": [{"rule": nested(depth), "message": "m"}]});
    let of = |depth| {
        let schema = Schema::parse(&rules(depth));
        aggregate(&evaluate(&schema, &json!(true), None, &Path::new("a")).errors)
    };
    assert_eq!(of(90), "");
    assert_eq!(of(91), "a: Invalid value: true: m");
    assert!(compile_error(&nested(5_000)).is_some());
    let sum = |terms: usize| vec!["1"; terms].join("+") + ">0";
    assert_eq!(
        compile_error(&sum(9_000)).as_deref(),
        Some("expression recursion limit exceeded: 500")
    );
    assert!(compile_error(&sum(90_000)).is_some_and(|why| why.contains("size exceeds limit")));
    let rule = json!({"type": "boolean", "x-kubernetes-validations": [{"rule": sum(400)}]});
    let schema = Schema::parse(&rule);
    assert!(
        evaluate(&schema, &json!(true), None, &Path::root())
            .errors
            .is_empty()
    );
}

#[test]
fn field_paths_are_split_at_dots_and_brackets() {
    let cases = [
        (".a.b", vec!["a", "b"]),
        ("['a.b']", vec!["a.b"]),
        (".a['b-c'].d", vec!["a", "b-c", "d"]),
    ];
    for (path, expected) in cases {
        assert_eq!(split_field_path(path), expected, "{path}");
    }
}

/// The result of an expression about this object, in JSON.
fn result(text: &str, object: &Value) -> Result<Value, String> {
    let authorizer = Authorizer::new(None, &User::default(), Attributes::default());
    let variables = Variables::new(Some(object), None, &json!({}), &authorizer);
    let mut composition = Composition::default();
    composition.add("one", "object.a + 0");
    composition.add("two", "variables.one + variables.one");
    composition.add("broken", "object.missing");
    let expression = Expression::compile(text, &composition);
    let composition = Arc::new(composition);
    within(&variables, &composition, expression.is_deep(), |scope| {
        let mut budget = 1_000_000;
        let value = expression.evaluate(scope, &mut budget);
        let value = value.map_err(Failure::into_text)?;
        check_type_names(&value)?;
        to_json(&value)
    })?
}

#[test]
fn optional_fields_have_values_or_not() {
    let object = json!({"a": 1, "labels": {"b": "2"}, "list": [1]});
    for (text, wanted) in [
        ("object.?labels.?b.orValue('0')", json!("2")),
        ("object.?labels.?c.orValue('0')", json!("0")),
        ("object.?none.?c.orValue('0')", json!("0")),
        ("object.?none.c.orValue('0')", json!("0")),
        ("object.?labels.orValue({}).size()", json!(1)),
        ("object.?none.orValue({}).size()", json!(0)),
        ("object.?labels.hasValue()", json!(true)),
        ("object.?none.hasValue()", json!(false)),
        ("object.labels[?'b'].orValue('0')", json!("2")),
        ("object.list[?3].orValue(0)", json!(0)),
        ("{?'a': object.?a, ?'n': object.?n}", json!({"a": 1})),
        ("string(object.?none.hasValue())", json!("false")),
        ("Object{?x: object.?a, ?y: object.?n}", json!({"x": 1})),
    ] {
        assert_eq!(result(text, &object), Ok(wanted), "{text}");
    }
}

#[test]
fn variables_are_evaluated_when_they_are_used() {
    let object = json!({"a": 1});
    assert_eq!(
        result("variables.two + variables.one", &object),
        Ok(json!(3))
    );
    assert_eq!(
        result("[1, 2].map(x, x + variables.two)", &object),
        Ok(json!([3, 4]))
    );
    assert_eq!(result("true || variables.broken", &object), Ok(json!(true)));
    let failed = result("variables.broken == 1", &object).unwrap_err();
    assert!(
        failed.ends_with("composited variable \"broken\" fails to evaluate: no such key: missing"),
        "{failed}"
    );
    let unknown = result("variables.none", &object).unwrap_err();
    assert!(unknown.contains("undefined field 'none'"), "{unknown}");
}

#[test]
fn objects_have_the_types_of_their_fields() {
    let object = json!({"a": 1});
    assert_eq!(
        result(
            "Object{spec: Object.spec{list: [Object.spec.list{a: object.a}], map: {'k': 'v'}}}",
            &object
        ),
        Ok(json!({"spec": {"list": [{"a": 1}], "map": {"k": "v"}}}))
    );
    assert_eq!(
        result("Object{spec: Object.status{}}", &object),
        Err("unexpected type name \"Object.status\", expected \"Object.spec\", which matches field name path from root Object type".to_owned())
    );
}

#[test]
fn variables_that_use_each_other_are_evaluated_or_refused_and_never_end_the_process() {
    let authorizer = Authorizer::new(None, &User::default(), Attributes::default());
    let variables = Variables::new(None, None, &json!({}), &authorizer);
    let mut composition = Composition::default();
    composition.add("v0", "1");
    for number in 1..1_000 {
        let before = format!("variables.v{}", number - 1);
        composition.add(&format!("v{number}"), &format!("{before} + 1"));
    }
    let composition = Arc::new(composition);
    let value = |text: &str| {
        let expression = Expression::compile(text, &composition);
        within(&variables, &composition, expression.is_deep(), |scope| {
            let mut budget = 1_000_000;
            let value = expression.evaluate(scope, &mut budget);
            to_json(&value.map_err(Failure::into_text)?)
        })
        .unwrap()
    };
    assert_eq!(value("variables.v100"), Ok(json!(101)));
    let refused = value("variables.v999").unwrap_err();
    assert!(refused.contains("fails to compile"), "{refused}");
}

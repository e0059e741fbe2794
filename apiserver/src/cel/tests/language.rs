//! The language where the interpreter differs from cel-go. The results are those of cel-go.

use serde_json::{Value, json};

use super::result;

fn object() -> Value {
    json!({
        "a": 1,
        "class": "fast",
        "containers": [
            {"name": "a"},
            {"name": "b", "securityContext": {"privileged": true, "runAsNonRoot": false}},
            {"name": "c", "securityContext": {"privileged": false, "runAsNonRoot": true}},
        ],
    })
}

/// Checks that each expression has this value.
fn all_are(wanted: &Value, expressions: &[&str]) {
    for text in expressions {
        assert_eq!(result(text, &object()), Ok(wanted.clone()), "{text}");
    }
}

/// Checks that each expression fails with this text at the end.
fn all_fail(cases: &[(&str, &str)]) {
    for (text, wanted) in cases {
        let why = result(text, &object()).expect_err(text);
        assert!(why.ends_with(wanted), "{text}: {why}");
    }
}

#[test]
fn an_item_that_decides_wins_over_items_that_fail() {
    all_are(
        &json!(true),
        &[
            "object.containers.exists(c, c.securityContext.privileged)",
            "!object.containers.all(c, c.securityContext.runAsNonRoot)",
            "object.containers.exists(c, c.name == 'c' || c.none.none)",
            "object.none.x || object.containers.exists(c, c.securityContext.privileged)",
            "{'x': 1, 'y': 2}.exists(k, k == 'y' || object.none[k])",
            "[0, 1].exists(x, 1 / x == 1)",
        ],
    );
    all_fail(&[
        ("[0, 1].all(x, 1 / x == 1)", "error: division by zero"),
        (
            "object.containers.exists(c, c.securityContext.none)",
            "error: no such key: securityContext",
        ),
        ("[1].exists(x, x)", "error: no such overload"),
        ("object.a.exists(x, true)", "error: no such overload"),
    ]);
}

#[test]
fn of_two_failures_the_left_one_is_reported() {
    all_fail(&[
        ("object.left || object.right", "error: no such key: left"),
        ("object.left && object.right", "error: no such key: left"),
        ("object.left || false", "error: no such key: left"),
        ("true && object.right", "error: no such key: right"),
        ("object.a || object.right", "error: no such overload"),
    ]);
    all_are(
        &json!(true),
        &[
            "object.left || true",
            "!(object.left && false)",
            "true || 1 / 0 == 1",
        ],
    );
}

#[test]
fn arithmetic_out_of_range_fails_and_does_not_panic() {
    all_fail(&[
        (
            "-(-9223372036854775807 - object.a)",
            "error: integer overflow",
        ),
        ("[9223372036854775807, 1].sum()", "error: integer overflow"),
        (
            "[18446744073709551615u, 1u].sum()",
            "error: unsigned integer overflow",
        ),
        ("int(1.0 / 0.0)", "error: integer overflow"),
        ("-'a'", "error: no such overload"),
        ("[1, 'a'].sum()", "error: no such overload"),
    ]);
    all_are(
        &json!(true),
        &[
            "-object.a == -1 && -1.5 < 0.0 && -duration('1s') == duration('-1s')",
            "[1, 2].sum() == 3 && [0.5, 0.5].sum() == 1.0 && [].sum() == 0",
            "[duration('1s'), duration('1m')].sum() == duration('61s')",
        ],
    );
}

#[test]
fn quantities_are_compared_and_added_whatever_their_size() {
    all_are(
        &json!(true),
        &[
            "quantity('1e100').isGreaterThan(quantity('1'))",
            "quantity('1').isLessThan(quantity('1e100'))",
            "quantity('-1e100').compareTo(quantity('1e-9')) == -1",
            "quantity('1e100').compareTo(quantity('10e99')) == 0",
            "quantity('1e100') == quantity('10e99') && quantity('1') != quantity('2')",
            "isQuantity('1e100') && isQuantity('1Gi') && !isQuantity('1g')",
            "!quantity('1e100').isInteger() && quantity('2k').asInteger() == 2000",
            "quantity('1e100').asApproximateFloat() == 1e100",
            "quantity('1Gi').add(quantity('-1Mi')).sub(1).compareTo(quantity('1072693247')) == 0",
            "quantity('0').sign() == 0 && quantity('-1m').sign() == -1",
            "quantity('16Ei').compareTo(quantity('9223372036854775807')) == 0",
            "quantity('0.1e-2147483648').sign() == 1 || true",
            "semver('1.2.3').isLessThan(semver('1.3.0'))",
        ],
    );
    all_fail(&[
        (
            "quantity('1e100').asInteger()",
            "error: cannot convert value to integer",
        ),
        (
            "quantity('1e100').add(quantity('1'))",
            "error: the quantity has more digits than this server supports",
        ),
    ]);
}

#[test]
fn optional_values_are_equal_by_value_and_stay_optional_in_loops() {
    all_are(
        &json!(true),
        &[
            "object.?class == optional.of('fast') && object.?none == object.?other.?none",
            "object.?class != object.?none && object.?class != optional.of('slow')",
            "optional.of(1) == optional.of(1.0)",
            "[object.?a].exists(o, o.hasValue()) && [object.?none].all(o, !o.hasValue())",
            "[object.?a, object.?none].map(o, o.orValue(0)) == [1, 0]",
            "object.?none.or(object.?a).value() == 1",
            "object.containers[?1].securityContext.privileged.value()",
            "!has(object.?none.x) && has(object.containers[?1].name)",
            "[?object.?a, ?object.?none] == [1]",
            "optional.ofNonZeroValue(0) == optional.none()",
            // Null and scalars have no members.
            "!null.?a.hasValue() && !object.class.?a.hasValue() && !object.a[?0].hasValue()",
            "oldObject.?metadata.?labels.?team.orValue('none') == 'none'",
            "object.containers.all(c, c.?securityContext.?privileged.orValue(false) || c.name != 'b')",
        ],
    );
    all_fail(&[("object.?none.value()", "error: optional.none() dereference")]);
}

#[test]
fn numbers_of_different_types_are_equal_by_value() {
    all_are(
        &json!(true),
        &[
            "1 == 1.0 && 1u == 1 && 1.0 == 1u && 1 != 1.5",
            "object.a == 1.0 && dyn(1) in [1.0, 2.0] && 1.0 in {1: 'x'} && !(1.5 in {1: 'x'})",
            "[1, [2u]] == [1.0, [2]] && {'a': 1} == {'a': 1.0} && {1: 2} == {1u: 2.0}",
            "-1 != 18446744073709551615u && 0.0 == -0.0",
            "1 != dyn('1') && null == dyn(null) && ![1].exists(x, dyn(x) == 'a')",
            "[1, 2] != [1] && {'a': 1} != {'b': 1} && {'a': 1} != {}",
            "timestamp('2026-01-01T00:00:00Z') == timestamp('2026-01-01T01:00:00+01:00')",
        ],
    );
    all_fail(&[("1 in object.a", "error: no such overload")]);
}

#[test]
fn the_size_of_a_text_is_the_number_of_its_characters() {
    all_are(
        &json!(true),
        &[
            "size('zoë') == 3 && '日本'.size() == 2 && size(b'zoë') == 4",
            "size([1, 2]) == 2 && {'a': 1}.size() == 1",
        ],
    );
    all_fail(&[("size(object.a)", "error: no such overload")]);
}

#[test]
fn values_have_the_texts_of_go() {
    for (text, wanted) in [
        ("string(ip('10.0.0.1'))", "10.0.0.1"),
        ("ip('::1').string()", "::1"),
        ("string(cidr('10.0.0.0/8'))", "10.0.0.0/8"),
        ("string(true)", "true"),
        ("string(12) + string('a')", "12a"),
        (
            "string(timestamp('2026-01-01T00:00:00Z'))",
            "2026-01-01T00:00:00Z",
        ),
        (
            "string(timestamp('2026-01-01T00:00:00.1200+02:00'))",
            "2026-01-01T00:00:00.12+02:00",
        ),
        (
            "string(timestamp('2026-01-01T00:00:10Z'))",
            "2026-01-01T00:00:10Z",
        ),
        ("string(duration('1h'))", "3600s"),
        ("string(duration('1500ms'))", "1.5s"),
        ("string(b'ab')", "ab"),
    ] {
        assert_eq!(result(text, &object()), Ok(json!(wanted)), "{text}");
    }
}

#[test]
fn types_are_values_and_conversions_read_as_go_does() {
    all_are(
        &json!(true),
        &[
            "type(object.a) == int && type(1u) == uint && type('') == string && type(1.0) == double",
            "type([]) == list && type({}) == map && type(null) == null_type && type(true) == bool",
            "type(int) == type && type(b'') == bytes && type(object.a) != string",
            "type(duration('1s')) == google.protobuf.Duration",
            "type(timestamp('2026-01-01T00:00:00Z')) == google.protobuf.Timestamp",
            "dyn(object.a) + 1 == 2",
            "bool('true') && !bool('F') && bool(true)",
            "int(timestamp('1970-01-01T00:01:00Z')) == 60 && int('-5') == -5 && int(2.9) == 2",
        ],
    );
    all_fail(&[(
        "bool('yes')",
        "error: type conversion error from 'string' to 'bool'",
    )]);
}

#[test]
fn durations_are_those_of_go() {
    all_are(
        &json!(true),
        &[
            "duration('1h30m') == duration('90m') && duration('1.5h') == duration('90m')",
            "duration('+.5s') == duration('500ms') && duration('0') == duration('0s')",
            "duration(duration('1µs')) == duration('1000ns') && duration('-1us') < duration('0')",
            "duration('600h').getMilliseconds() == 2160000000",
            "duration('876000h').getSeconds() == 3153600000",
            "duration('2562047h47m16.854775807s').getHours() == 2562047",
            "timestamp('2026-01-01T00:00:07.012Z').getMilliseconds() == 12",
        ],
    );
    let broken = "type conversion error from 'string' to 'google.protobuf.Duration'";
    all_fail(&[
        ("duration('1h foo')", broken),
        ("duration('1')", broken),
        ("duration('')", broken),
        ("duration('3000000h')", broken),
    ]);
}

#[test]
fn a_variable_does_not_see_the_variables_of_the_loop_that_uses_it() {
    all_are(
        &json!(true),
        &[
            "['x'].all(object, variables.one == 1)",
            "[5].all(object, variables.two == 2) && variables.one == 1",
        ],
    );
}

#[test]
fn a_member_with_the_name_of_the_marker_makes_no_object_of_a_map() {
    let object = json!({"@type": "Object", "a": 1});
    assert_eq!(result("object", &object), Ok(object.clone()));
    assert_eq!(
        result("Object{a: {'@type': 'Object.b', 'c': 1}}", &object),
        Ok(json!({"a": {"@type": "Object.b", "c": 1}}))
    );
}

use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::text::LOOKAHEAD;
use super::*;

/// Numbers at the edges of what types hold, and some that are none.
const NUMBERS: [&str; 34] = [
    "0",
    "-0",
    "00",
    "01",
    "-01",
    "-",
    "+1",
    "1.",
    ".5",
    "1.5",
    "-0.0",
    "1e5",
    "1E+5",
    "1e",
    "1e-",
    "1e400",
    "-1e-400",
    "127",
    "128",
    "-128",
    "-129",
    "255",
    "256",
    "65536",
    "999999999999999999",
    "1000000000000000000",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "170141183460469231731687303715884105727",
    "340282366920938463463374607431768211456",
];

/// Texts of all kinds, and some that are none.
const TEXTS: [&str; 27] = [
    r#""""#,
    r#""a""#,
    r#""\"""#,
    r#""\\""#,
    r#""\/\b\f\n\r\t""#,
    r#""\u0041""#,
    r#""\ud83d\ude00""#,
    r#""\ud83d""#,
    r#""\ude00""#,
    r#""\ud83d\u0041""#,
    r#""\u00e""#,
    r#""\u""#,
    r#""\x""#,
    r#""\"#,
    r#"""#,
    "\"\u{1}\"",
    "\"\n\"",
    "\"\u{7f}\"",
    "\"é\"",
    "\"\u{1f600} and more than eight bytes\"",
    "\"\\\u{e9}\"",
    "\"eight by\"",
    "\"eight b\"",
    "\"eight byt\"",
    "\"eight bytes and a control \u{1f}\"",
    "\"eight bytes and an escape \\n\"",
    "'a'",
];

#[test]
fn what_it_reads_is_what_serde_json_reads_at_every_edge() {
    let mut taken = 0;
    let others = [
        "",
        " ",
        "null",
        "nul",
        "nullnull",
        "true",
        "false",
        "tru",
        "[",
        "]",
        "{",
        "}",
        "[]",
        "{}",
        "[ ]",
        "{ }",
        "[,]",
        "[1,]",
        "[1 1]",
        "{,}",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{"a":1 "b":2}"#,
        r#"{"a" :1}"#,
        r#"{a:1}"#,
        r#"{1:1}"#,
        r#"{"a":1,"a":2}"#,
        "[]]",
        "{}}",
        "[}",
        "{]",
        "[1] 2",
        "\u{feff}[]",
        " [ 1 , 2 ] ",
        "\t[\r\n1]\n",
        "\u{b}[]",
        "[\u{a0}]",
        r#"{"a":"a"}"#,
        r#"{"a":{"b":1}}"#,
        r#"{"a":{"b":1,"c":2}}"#,
        r#"{"a":{"c":[1,"x"]}}"#,
        r#"{"a":{"d":[1.5,"x"]}}"#,
        r#"{"a":{"e":{"1":true}}}"#,
        r#"{"a":{}}"#,
        r#"{"true":1}"#,
        r#"{"1":null}"#,
        r#"{" 1":null}"#,
        r#"{"1 ":null}"#,
        r#"{"-1":null}"#,
        r#"{"-":null}"#,
        r#"{"1.5":null}"#,
        r#"{"\u0031":null}"#,
        r#"{"x":1}"#,
        r#"{"f":"a\ud800b"}"#,
        r#"{"f":[1,2]}"#,
        r#"{"f":"a\u00e9"}"#,
        r#"{"g":[ 1, {"a" : "\""} ]}"#,
        r#"{"x":{"a":[1,2,{}],"f":"a"},"y":7}"#,
        r#"{"e":[1,"a",true,{"a":1,"b":[1]},340282366920938463463374607431768211456]}"#,
        r#"[["a"],[1]]"#,
    ];
    for value in NUMBERS.iter().chain(&TEXTS).chain(&others) {
        for document in [
            (*value).to_owned(),
            format!("[{value}]"),
            format!("[1,{value} , 2]"),
            format!("{{\"a\":{value}}}"),
            format!("{{\"a\":null,{value}:{value}}}"),
            format!("{{\"b\":[{value},{value},{value}]}}"),
            format!("{{\"zzz\":[{{\"x\":{value}}}]}}"),
        ] {
            let read = agree::all(&document);
            let readable = serde_json::from_str::<Value>(&document).is_ok();
            assert_eq!(read, readable, "{document}");
            taken += usize::from(read);
        }
    }
    assert!(taken > 100, "{taken}");
}

#[test]
fn nesting_ends_where_it_ends_for_serde_json() {
    for depth in [1, 126, 127, 128, 129] {
        for (open, close) in [("[", "]"), (r#"{"d":"#, "}"), (r#"[{"d":"#, "}]")] {
            let each = open.len().min(2);
            let count = depth / each.max(1);
            let inner = if open == "[" { "" } else { "{}" };
            let document = format!("{}{inner}{}", open.repeat(count), close.repeat(count));
            let read = agree::all(&document);
            assert_eq!(
                read,
                serde_json::from_str::<Value>(&document).is_ok(),
                "{document}"
            );
        }
    }
    // A skipped value may be nested deeper.
    for depth in [127, 128, 129, 255, 256, 257, 1000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":[1,", "]},2]")] {
            let deep = format!("{}null{}", open.repeat(depth), close.repeat(depth));
            assert!(from_str::<IgnoredAny>(&deep).is_ok(), "{deep}");
            let cut = &deep[..deep.len() - 1];
            assert!(from_str::<IgnoredAny>(cut).is_err(), "{cut}");
            assert!(
                from_str::<IgnoredAny>(&format!("{cut}]]")).is_err(),
                "{cut}"
            );
        }
    }
}

#[test]
fn arrays_are_as_large_as_they_have_to_be() {
    for count in [0, 1, 2, 3, 5, 9, 100] {
        for element in [r#""a""#, r#""a,b]\"]\\""#, " \"a\" "] {
            let document = format!("[{}]", vec![element; count].join(","));
            let read: Vec<String> = read(&document, |reader| Vec::deserialize(reader)).unwrap();
            assert_eq!((read.len(), read.capacity()), (count, count), "{document}");
        }
    }
    let nested = r#"[[[1,2],[{"a":[]}]],[ ],[3]]"#;
    let read: Vec<Vec<Value>> = read(nested, |reader| Vec::deserialize(reader)).unwrap();
    let capacities: Vec<_> = read.iter().map(Vec::capacity).collect();
    assert_eq!((read.capacity(), capacities), (3, vec![2, 0, 1]));
}

#[test]
fn the_end_of_an_array_is_looked_for_in_its_neighbourhood_only() {
    let array = |bytes: usize| format!("\"{}\",1]", "a".repeat(bytes - 5));
    assert_eq!(text::count(array(LOOKAHEAD).as_bytes(), 0), Some(2));
    assert_eq!(text::count(array(LOOKAHEAD + 1).as_bytes(), 0), None);
    let long = vec![1; LOOKAHEAD];
    let document = serde_json::to_string(&long).unwrap();
    assert_eq!(
        read(&document, |reader| Vec::<i32>::deserialize(reader)).unwrap(),
        long
    );
    for cut in ["", "\"", "\"\\", "[", "1,2"] {
        assert_eq!(text::count(cut.as_bytes(), 0), None);
    }
}

#[test]
fn raw_values_are_cut_out_of_the_document() {
    let document = r#"[ {"a" : "\u0041" } , 1.50e1]"#;
    let values = read(document, |reader| Vec::<&RawValue>::deserialize(reader)).unwrap();
    let values: Vec<_> = values.into_iter().map(RawValue::get).collect();
    assert_eq!(values, [r#"{"a" : "\u0041" }"#, "1.50e1"]);
}

/// `default` cases, or `PROPTEST_CASES`.
fn cases(default: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = default;
    }
    config
}

#[test]
fn an_error_names_the_place_and_not_the_value() {
    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "its errors are read")]
    struct Two {
        a: u8,
        b: Vec<String>,
    }
    for (document, expected) in [
        (
            "{\"a\": 1,\n \"b\": \"hunter2\"}",
            "invalid type: string, expected a sequence at line 2 column 16",
        ),
        (
            "{\"a\": [300], \"b\": []}",
            "invalid type: sequence, expected u8 at line 1 column 6",
        ),
        ("{\"b\": []}", "missing field `a` at line 1 column 9"),
        (
            "{\"a\": 1, \"b\": [\"\\ud800\"]}",
            "unexpected end of hex escape at line 1 column 25",
        ),
        (
            "{\"a\": 1",
            "EOF while parsing an object at line 1 column 7",
        ),
        (
            "{\"a\": \"hunter2\" 1}",
            "expected `,` or `}` at line 1 column 17",
        ),
    ] {
        let error = from_str::<Two>(document).unwrap_err();
        assert_eq!(error.to_string(), expected, "{document}");
        assert!(error.line() > 0, "{document}");
    }
    let error = from_slice::<Two>(b"{\"a\": 1, \"b\": [\"\xff\"]}").unwrap_err();
    assert_eq!(error.to_string(), "not valid UTF-8 at line 1 column 16");
}

/// A JSON document with whatever is hard to read, in many spellings.
fn any_document() -> impl Strategy<Value = String> {
    let text = r#""([a-d ,:\[\]{}é😀]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4}|\\ud83d\\ude00){0,9}""#;
    let leaf = prop_oneof![
        2 => "-?(0|[1-9][0-9]{0,3})",
        1 => r"-?(0|[1-9][0-9]{0,39})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,3})?",
        2 => text,
        2 => "\"[a-e]\"",
        1 => proptest::sample::select(&NUMBERS[..]).prop_map(str::to_owned),
        1 => proptest::sample::select(&TEXTS[..]).prop_map(str::to_owned),
        2 => proptest::sample::select(&["null", "true", "false"][..]).prop_map(str::to_owned),
    ];
    let name = prop_oneof![8 => "\"[a-g]\"", 2 => "\"-?[0-9]{1,3}\"", 1 => text];
    let space = || "[ \t\r\n]{0,1}";
    leaf.prop_recursive(5, 60, 5, move |inner| {
        let element = (space(), inner.clone(), space())
            .prop_map(|(before, value, after)| before + &value + &after);
        let field = (name.clone(), space(), element.clone())
            .prop_map(|(name, space, value)| name + &space + ":" + &value);
        prop_oneof![
            proptest::collection::vec(element, 0..5).prop_map(|all| format!("[{}]", all.join(","))),
            proptest::collection::vec(field, 0..5).prop_map(|all| format!("{{{}}}", all.join(","))),
        ]
    })
}

proptest! {
    #![proptest_config(cases(4000))]

    /// What serde_json reads this reads, and reads the same; what it refuses this refuses.
    #[test]
    fn documents_are_read_as_by_serde_json(document in any_document()) {
        let readable = serde_json::from_str::<Value>(&document).is_ok();
        prop_assert_eq!(agree::all(&document), readable, "{}", document);
    }

    /// Damage is found wherever serde_json finds it.
    #[test]
    fn damaged_documents_are_refused_as_by_serde_json(
        document in any_document(),
        damage in proptest::collection::vec(
            (any::<prop::sample::Index>(), r#"[\[\]{}:,"\\ 0-9ntfeu.+a\-\x01\x1f\n]"#, 0..4_u8), 1..4),
    ) {
        let mut characters: Vec<char> = document.chars().collect();
        for (place, text, how) in damage {
            let place = place.index(characters.len() + 1);
            let with = text.chars().next();
            match how {
                0 if place < characters.len() => {
                    characters.remove(place);
                }
                1 => characters.truncate(place),
                2 if place < characters.len() => characters[place] = with.unwrap(),
                _ => characters.splice(place..place, with).for_each(drop),
            }
        }
        let document: String = characters.into_iter().collect();
        let readable = serde_json::from_str::<Value>(&document).is_ok();
        prop_assert_eq!(agree::all(&document), readable, "{}", document);
    }
}

#[test]
fn an_error_of_the_type_is_not_called_one_of_the_syntax() {
    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Either {
        #[expect(dead_code, reason = "it is read only")]
        One(u8),
    }
    let too_long = from_str::<(u8, u8)>("[1,2,\n3]").unwrap_err();
    assert_eq!(
        too_long.to_string(),
        "an array has more elements than its type at line 1 column 4"
    );
    let two = from_str::<Either>(r#"{"one":1,"two":2}"#).unwrap_err();
    assert!(two.to_string().contains("more fields"), "{two}");
    let none = from_str::<Either>("{}").unwrap_err();
    assert!(none.to_string().contains("names no variant"), "{none}");
    // What is not JSON comes first.
    for document in ["[1,2 3]", "[1,2,]", "{one}"] {
        let pair = from_str::<(u8, u8)>(document).unwrap_err();
        let either = from_str::<Either>(document).unwrap_err();
        let syntax = serde_json::from_str::<IgnoredAny>(document).unwrap_err();
        assert_eq!(pair.to_string(), syntax.to_string());
        assert_eq!(either.to_string(), syntax.to_string());
    }
}

#[test]
fn a_pod_is_read_as_by_serde_json() {
    let pod = include_str!("../../testdata/pod.json");
    let ours = read(pod, |reader| Pod::deserialize(reader)).unwrap();
    assert_eq!(ours, serde_json::from_str::<Pod>(pod).unwrap());
    assert_eq!(ours.spec.unwrap().containers.capacity(), 1);
}

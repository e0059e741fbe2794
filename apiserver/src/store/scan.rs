//! Places of values in the JSON of an object, found without parsing it.
//!
//! Only for JSON that this server encoded: it has no whitespace between its tokens, and it is valid. Other input gives no
//! place, or a wrong one inside of the input.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;
use serde_json::Value;

/// Places of the names and values of a JSON object, in their order. That of a name is between its quotes.
pub(super) struct Fields<'a> {
    json: &'a [u8],
    at: usize,
}

/// Places of the items of a JSON array.
pub(super) struct Items<'a> {
    json: &'a [u8],
    at: usize,
}

/// The fields of the object at `place`.
pub(super) fn fields(json: &[u8], place: Range<usize>) -> Fields<'_> {
    let json = &json[..place.end.min(json.len())];
    let at = if json.get(place.start) == Some(&b'{') {
        place.start + 1
    } else {
        json.len()
    };
    Fields { json, at }
}

/// The items of the array at `place`.
pub(super) fn items(json: &[u8], place: Range<usize>) -> Items<'_> {
    let json = &json[..place.end.min(json.len())];
    let at = if json.get(place.start) == Some(&b'[') {
        place.start + 1
    } else {
        json.len()
    };
    Items { json, at }
}

/// The place of the field `name` of the object at `place`.
pub(super) fn field(json: &[u8], place: Range<usize>, name: &str) -> Option<Range<usize>> {
    fields(json, place)
        .find(|(found, _)| json[found.clone()] == *name.as_bytes())
        .map(|(_, place)| place)
}

/// The value at `path`, a list of names with dots between them; null if it is absent.
pub(super) fn value_at(json: &[u8], path: &str) -> Value {
    let whole = 0..json.len();
    let mut names = path.split('.');
    let place = names.try_fold(whole, |place, name| field(json, place, name));
    let value = place.and_then(|place| serde_json::from_slice(&json[place]).ok());
    value.unwrap_or_default()
}

/// The text at `place`; `None` if no text is there.
pub(super) fn text(json: &[u8], place: Range<usize>) -> Option<Cow<'_, str>> {
    let encoded = json.get(place)?;
    let inner = encoded.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if inner.contains(&b'\\') {
        return serde_json::from_slice(encoded).ok().map(Cow::Owned);
    }
    std::str::from_utf8(inner).ok().map(Cow::Borrowed)
}

/// The end of the value that begins at `at`.
pub(super) fn end_of_value(json: &[u8], at: usize) -> Option<usize> {
    match json.get(at)? {
        b'"' => end_of_text(json, at),
        b'{' | b'[' => {
            let mut depth = 0_usize;
            let mut at = at;
            loop {
                match json.get(at)? {
                    b'"' => {
                        at = end_of_text(json, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth = depth.checked_sub(1)?,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => {
            let rest = &json[at..];
            let length = rest
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']'));
            Some(at + length.unwrap_or(rest.len()))
        }
    }
}

/// The end of the text whose first quote is at `at`.
pub(super) fn end_of_text(json: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr2(b'"', b'\\', json.get(at..)?)?;
        if json[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The place behind the comma at `at`, or behind everything.
fn next(json: &[u8], at: usize) -> usize {
    match json.get(at) {
        Some(b',') => at + 1,
        _ => json.len(),
    }
}

// === impl Fields ===

impl Iterator for Fields<'_> {
    type Item = (Range<usize>, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.json.get(self.at) != Some(&b'"') {
            return None;
        }
        let name_end = end_of_text(self.json, self.at)?;
        let name = self.at + 1..name_end - 1;
        if self.json.get(name_end) != Some(&b':') {
            return None;
        }
        let start = name_end + 1;
        let end = end_of_value(self.json, start)?;
        self.at = next(self.json, end);
        Some((name, start..end))
    }
}

// === impl Items ===

impl Iterator for Items<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if matches!(self.json.get(self.at), None | Some(b']')) {
            return None;
        }
        let start = self.at;
        let end = end_of_value(self.json, start)?;
        self.at = next(self.json, end);
        Some(start..end)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// Any JSON, with the characters that a scanner has to tell apart.
    pub(in super::super) fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<i16>().prop_map(|number| Value::from(f64::from(number) / 4.0)),
            "[a\"\\\\{}\\[\\],:\n\u{e9}]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map("[a-c\"\\\\]{0,3}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn each_field_and_item_is_where_the_parser_finds_it(value in value()) {
            let json = serde_json::to_vec(&value).unwrap();
            let whole = 0..json.len();
            let parsed = |place: Range<usize>| -> Value { serde_json::from_slice(&json[place]).unwrap() };
            let found: Vec<_> = fields(&json, whole.clone())
                .map(|(name, place)| {
                    let name = text(&json, name.start - 1..name.end + 1).unwrap();
                    (name.into_owned(), parsed(place))
                })
                .collect();
            let expected: Vec<_> = value.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect();
            prop_assert_eq!(found, expected);
            let found: Vec<_> = items(&json, whole.clone()).map(parsed).collect();
            prop_assert_eq!(found, value.as_array().cloned().unwrap_or_default());
            let found = text(&json, whole);
            prop_assert_eq!(found.as_deref(), value.as_str());
        }

        #[test]
        fn no_input_leads_out_of_it(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'"'), Just(b'{'), Just(b'['), Just(b'\\')], 0..40), start in 0_usize..50, end in 0_usize..50) {
            for (_, place) in fields(&bytes, start..end) {
                prop_assert!(place.end <= bytes.len());
            }
            for place in items(&bytes, start..end) {
                prop_assert!(place.end <= bytes.len());
            }
            let _ = (text(&bytes, start..end), value_at(&bytes, "a.b"));
        }
    }

    #[test]
    fn a_path_leads_through_objects_and_what_is_absent_is_null() {
        let json = json!({"a": {"b": {"c": [1, "x"]}, "s": "}\""}, "z": 1}).to_string();
        let at = |path: &str| value_at(json.as_bytes(), path);
        assert_eq!(at("a.b"), json!({"c": [1, "x"]}));
        assert_eq!(at("a.s"), "}\"");
        assert_eq!(at("z"), 1);
        assert_eq!(at("z.b"), Value::Null);
        assert_eq!(at("a.x.y"), Value::Null);
    }
}

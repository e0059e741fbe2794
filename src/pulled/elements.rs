//! The elements of an array somewhere in a JSON document, one after another: a large list is never a tree in memory.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Calls `visit` for each element of the array that the JSON pointer `items` leads to; an empty one leads to the document.
/// Returns whether there is an array.
///
/// # Errors
/// When `text` is not one JSON document. Elements before the wrong place were visited then.
pub(super) fn each_element(
    text: &str,
    items: &str,
    mut visit: impl FnMut(&Value),
) -> Result<bool, serde_json::Error> {
    let path = items.split('/').skip(1);
    // RFC 6901: ~1 is a slash and ~0 a tilde, and ~01 is ~1.
    let path: Vec<String> = path
        .map(|part| part.replace("~1", "/").replace("~0", "~"))
        .collect();
    let mut document = serde_json::Deserializer::from_str(text);
    let at = At {
        path: &path,
        visit: &mut visit,
    };
    let found = at.deserialize(&mut document)?;
    document.end()?;
    Ok(found)
}

/// The array that the rest of a pointer leads to.
struct At<'a, F> {
    path: &'a [String],
    visit: &'a mut F,
}

impl<'de, F: FnMut(&Value)> DeserializeSeed<'de> for At<'_, F> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&Value)> Visitor<'de> for At<'_, F> {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<bool, M::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            match self.path.split_first() {
                Some((first, rest)) if *first == key => {
                    let visit = &mut *self.visit;
                    found |= map.next_value_seed(At { path: rest, visit })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut elements: S) -> Result<bool, S::Error> {
        let Some((first, rest)) = self.path.split_first() else {
            while let Some(element) = elements.next_element::<Value>()? {
                (self.visit)(&element);
            }
            return Ok(true);
        };
        let (mut found, mut position) = (false, 0_usize);
        loop {
            let visit = &mut *self.visit;
            if *first == position.to_string() {
                match elements.next_element_seed(At { path: rest, visit })? {
                    Some(here) => found |= here,
                    None => return Ok(found),
                }
            } else if elements.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            position += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_str<E>(self, _: &str) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(text: &str, items: &str) -> Result<Option<Vec<String>>, String> {
        let mut all = Vec::new();
        let found = each_element(text, items, |element| all.push(element.to_string()));
        let found = found.map_err(|error| error.to_string())?;
        Ok(found.then_some(all))
    }

    #[test]
    fn a_pointer_leads_to_the_same_array_as_in_a_tree() {
        let text = r#"{"other": [9], "a/b": {"~": [[1], [2, "x", null, {"y": 1.5}]]}, "no": {"deep": true}}"#;
        let tree: Value = serde_json::from_str(text).unwrap();
        for items in [
            "",
            "/other",
            "/other/0",
            "/a~1b",
            "/a~1b/~0",
            "/a~1b/~0/0",
            "/a~1b/~0/1",
            "/a~1b/~0/2",
            "/a~1b/~0/1/3",
            "/no/deep",
            "/absent",
        ] {
            let array = tree.pointer(items).and_then(Value::as_array);
            let expected = array.map(|array| array.iter().map(Value::to_string).collect());
            assert_eq!(elements(text, items).unwrap(), expected, "{items}");
        }
        let top = elements(r#" ["a", ["b"]] "#, "").unwrap().unwrap();
        assert_eq!(top, [r#""a""#, r#"["b"]"#]);
    }

    #[test]
    fn what_is_no_document_is_an_error_after_the_array_too() {
        for wrong in ["", "[1, 2", r#"{"a": [1], "#, "[1] [2]", "[1]x"] {
            assert!(elements(wrong, "").is_err(), "{wrong}");
        }
        assert!(elements(r#"{"a": [1], }"#, "/a").is_err());
    }
}

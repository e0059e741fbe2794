//! The part of an object that cells are made of.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A part of a value that is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// All of it.
    Whole,
    /// That it is there: it is read as null.
    Presence,
    /// These fields of an object.
    Fields(&'static [(&'static str, Wanted)]),
    /// All fields of an object except for one.
    Except(&'static str),
    /// All fields of an object, and of one of them this part.
    Of(&'static str, &'static Wanted),
    /// This part of each item of a list, or of each entry of a map.
    Each(&'static Wanted),
}

/// All but `metadata.managedFields`, which are often half of an object.
pub(crate) const WITHOUT_MANAGERS: Wanted =
    Wanted::Of("metadata", &Wanted::Except("managedFields"));

/// Reads a part of an object; null for what is not an object.
pub(crate) fn read(json: &[u8], wanted: Wanted) -> Value {
    let mut reader = serde_json::Deserializer::from_slice(json);
    match wanted.deserialize(&mut reader) {
        Ok(value @ Value::Object(_)) => value,
        _ => Value::Null,
    }
}

/// The name of a field, which is not copied if it is written without escapes.
struct Name<'de>(Cow<'de, str>);

// === impl Wanted ===

impl Wanted {
    /// What is wanted of a field; `None` for one that is left out.
    fn field(self, name: &str) -> Option<Self> {
        match self {
            Self::Whole => Some(Self::Whole),
            Self::Presence => None,
            Self::Fields(fields) => {
                let found = fields.iter().find(|(wanted, _)| *wanted == name);
                found.map(|(_, wanted)| *wanted)
            }
            Self::Except(left_out) => (name != left_out).then_some(Self::Whole),
            Self::Of(part, wanted) if name == part => Some(*wanted),
            Self::Of(..) => Some(Self::Whole),
            Self::Each(wanted) => Some(*wanted),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Wanted {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        match self {
            Self::Whole => serde::Deserialize::deserialize(reader),
            Self::Presence => reader
                .deserialize_ignored_any(IgnoredAny)
                .map(|IgnoredAny| Value::Null),
            _ => reader.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Wanted {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(Name(name)) = fields.next_key_seed(Name(Cow::Borrowed("")))? {
            match self.field(&name) {
                Some(wanted) => {
                    let value = fields.next_value_seed(wanted)?;
                    map.insert(name.into_owned(), value);
                }
                None => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        // A list in the place of an object has no fields.
        let wanted = match self {
            Self::Each(wanted) => *wanted,
            _ => Self::Whole,
        };
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(wanted)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

// === impl Name ===

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Name<'de>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Name<'de>, D::Error> {
        reader.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_but_the_owners_of_fields_is_read() {
        let object = json!({
            "metadata": {"name": "a", "labels": {"managedFields": "x"}, "managedFields": [{"manager": "m"}]},
            "spec": {"managedFields": [1], "metadata": {"managedFields": 2}},
        });
        let mut wanted = object.clone();
        wanted["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("managedFields");
        let json = object.to_string();
        assert_eq!(read(json.as_bytes(), WITHOUT_MANAGERS), wanted);
        assert_eq!(read(b"[]", WITHOUT_MANAGERS), Value::Null);
        assert_eq!(read(b"{", WITHOUT_MANAGERS), Value::Null);
    }

    #[test]
    fn a_part_has_what_is_wanted_and_the_place_of_the_rest() {
        const PART: Wanted = Wanted::Fields(&[
            ("kept", Wanted::Whole),
            ("counted", Wanted::Each(&Wanted::Presence)),
            (
                "named",
                Wanted::Each(&Wanted::Fields(&[("name", Wanted::Whole)])),
            ),
        ]);
        let object = json!({
            "kept": {"a": [1, -2, 0.5, "x\n", true, null]}, "dropped": [{"name": 1}], "esc\"aped": 1,
            "counted": [{"a": 1}, [2], 3], "named": [{"name": "n", "value": {}}, 7, "text", null],
        });
        let expected = json!({
            "kept": {"a": [1, -2, 0.5, "x\n", true, null]}, "counted": [null, null, null],
            "named": [{"name": "n"}, 7, "text", null],
        });
        assert_eq!(read(object.to_string().as_bytes(), PART), expected);
        let entries = json!({"counted": {"a": "long", "b\u{e9}": {}}});
        let expected = json!({"counted": {"a": null, "b\u{e9}": null}});
        assert_eq!(read(entries.to_string().as_bytes(), PART), expected);
        let other = json!({"counted": "text", "named": true});
        assert_eq!(read(other.to_string().as_bytes(), PART), other);
    }
}

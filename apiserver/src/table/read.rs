//! The part of an object that cells are made of.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

/// Reads an object without its `metadata.managedFields`, which are often half of it; null for what is not an object.
pub(crate) fn without_managers(json: &[u8]) -> Value {
    let mut reader = serde_json::Deserializer::from_slice(json);
    Part::Object.deserialize(&mut reader).unwrap_or_default()
}

/// The object that is read.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Metadata,
}

// === impl Part ===

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let value = match (self, name.as_str()) {
                (Self::Object, "metadata") => fields.next_value_seed(Self::Metadata)?,
                (Self::Metadata, "managedFields") => {
                    fields.next_value::<IgnoredAny>()?;
                    continue;
                }
                _ => fields.next_value()?,
            };
            map.insert(name, value);
        }
        Ok(Value::Object(map))
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
        assert_eq!(without_managers(object.to_string().as_bytes()), wanted);
        assert_eq!(without_managers(b"[]"), Value::Null);
    }
}

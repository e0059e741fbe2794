//! The part of an object that a reader wants.

use serde_json::{Map, Value};

use super::scan;

/// A part of a value that is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// All of it.
    Whole,
    /// Whether it is present; read as null.
    Presence,
    /// An object as the text of its JSON; another value as it is.
    Text,
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

/// Everything, with each `fieldsV1` as its JSON text: the fields of managers are often most of an object.
pub(crate) const WITH_MANAGERS_AS_TEXT: Wanted = Wanted::Of(
    "metadata",
    &Wanted::Of(
        "managedFields",
        &Wanted::Each(&Wanted::Of("fieldsV1", &Wanted::Text)),
    ),
);

/// Reads a part of an object that this server encoded; null for what is not an object.
pub(crate) fn read(json: &[u8], wanted: Wanted) -> Value {
    match (Reader { json, at: 0 }).value(wanted) {
        Some(value @ Value::Object(_)) => value,
        _ => Value::Null,
    }
}

/// Reads values and passes over others, which takes less time than to parse them.
struct Reader<'a> {
    json: &'a [u8],
    at: usize,
}

// === impl Wanted ===

impl Wanted {
    /// What is wanted of a field; `None` for one that is left out.
    fn field(self, name: &[u8]) -> Option<Self> {
        match self {
            Self::Whole => Some(Self::Whole),
            Self::Presence | Self::Text => None,
            Self::Fields(fields) => {
                let found = fields.iter().find(|(wanted, _)| wanted.as_bytes() == name);
                found.map(|(_, wanted)| *wanted)
            }
            Self::Except(left_out) => (name != left_out.as_bytes()).then_some(Self::Whole),
            Self::Of(part, wanted) if name == part.as_bytes() => Some(*wanted),
            Self::Of(..) => Some(Self::Whole),
            Self::Each(wanted) => Some(*wanted),
        }
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    /// The next value; `None` if it is not valid.
    fn value(&mut self, wanted: Wanted) -> Option<Value> {
        match (wanted, self.peek()?) {
            (Wanted::Presence, _) => self.skip().map(|_| Value::Null),
            (Wanted::Text, b'{') => {
                let text = std::str::from_utf8(self.skip()?).ok()?;
                Some(text.into())
            }
            (Wanted::Whole | Wanted::Text, _) => self.whole(),
            (wanted, b'{') => self.object(wanted),
            // A list in the place of an object has no fields.
            (Wanted::Each(wanted), b'[') => self.list(*wanted),
            _ => self.whole(),
        }
    }

    fn object(&mut self, wanted: Wanted) -> Option<Value> {
        let mut fields = Map::new();
        self.at += 1;
        while self.peek()? != b'}' {
            let start = self.at;
            self.at = scan::end_of_text(self.json, start)?;
            let name = start..self.at;
            self.pass(b':')?;
            // No name that a reader wants is escaped.
            match wanted.field(&self.json[name.start + 1..name.end - 1]) {
                Some(wanted) => {
                    let value = self.value(wanted)?;
                    let name = scan::text(self.json, name)?;
                    fields.insert(name.into_owned(), value);
                }
                None => {
                    self.skip()?;
                }
            }
            self.next(b'}')?;
        }
        self.at += 1;
        Some(Value::Object(fields))
    }

    fn list(&mut self, wanted: Wanted) -> Option<Value> {
        let mut items = Vec::new();
        self.at += 1;
        while self.peek()? != b']' {
            items.push(self.value(wanted)?);
            self.next(b']')?;
        }
        self.at += 1;
        Some(Value::Array(items))
    }

    fn whole(&mut self) -> Option<Value> {
        if self.peek() == Some(b'"') {
            let start = self.at;
            self.skip()?;
            return scan::text(self.json, start..self.at).map(Value::from);
        }
        let rest = &self.json[self.at..];
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter();
        let value = values.next()?.ok()?;
        self.at += values.byte_offset();
        Some(value)
    }

    /// Passes over a value.
    fn skip(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        self.at = scan::end_of_value(self.json, start)?;
        let skipped = self.json.get(start..self.at)?;
        (!skipped.is_empty()).then_some(skipped)
    }

    fn peek(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    fn pass(&mut self, byte: u8) -> Option<()> {
        let is_next = self.peek() == Some(byte);
        is_next.then(|| self.at += 1)
    }

    /// Goes to the next field or item, or to the `end` of all.
    fn next(&mut self, end: u8) -> Option<()> {
        match self.peek()? {
            b',' => self.pass(b','),
            found => (found == end).then_some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan::tests::value;
    use super::*;
    use proptest::prelude::*;
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
        let cut = object.to_string();
        for end in 0..cut.len() {
            assert_eq!(read(&cut.as_bytes()[..end], PART), Value::Null);
        }
    }

    /// What is wanted of a value, by its tree.
    fn part(value: &Value, wanted: Wanted) -> Value {
        match (wanted, value) {
            (Wanted::Presence, _) => Value::Null,
            (Wanted::Text, Value::Object(_)) => value.to_string().into(),
            (Wanted::Whole | Wanted::Text, _) => value.clone(),
            (Wanted::Each(of), Value::Array(items)) => {
                items.iter().map(|item| part(item, *of)).collect()
            }
            (_, Value::Object(fields)) => {
                let fields = fields.iter().filter_map(|(name, value)| {
                    let wanted = wanted.field(name.as_bytes())?;
                    Some((name.clone(), part(value, wanted)))
                });
                Value::Object(fields.collect())
            }
            _ => value.clone(),
        }
    }

    const ALL: [Wanted; 6] = [
        Wanted::Whole,
        Wanted::Fields(&[("a", Wanted::Whole), ("b", Wanted::Presence)]),
        Wanted::Except("a"),
        Wanted::Of("a", &Wanted::Each(&Wanted::Text)),
        Wanted::Each(&Wanted::Fields(&[("a", Wanted::Text)])),
        Wanted::Of("b", &Wanted::Each(&Wanted::Presence)),
    ];

    proptest! {
        #[test]
        fn a_part_is_that_of_the_tree(fields in proptest::collection::btree_map("[a-c]", value(), 0..4)) {
            let object = Value::Object(fields.into_iter().collect());
            let json = object.to_string();
            for wanted in ALL {
                prop_assert_eq!(read(json.as_bytes(), wanted), part(&object, wanted), "{:?}", wanted);
            }
        }

        #[test]
        fn any_input_has_an_end(text in r#"\{"[ab]":[\{\}\[\],:"ab1nul\\ ]{0,16}"#) {
            for wanted in ALL {
                let found = read(text.as_bytes(), wanted);
                prop_assert!(found.is_object() || found.is_null());
            }
        }
    }

    #[test]
    fn a_text_is_the_json_of_the_part() {
        let fields = json!({"f:data": {".": {}, "f:\u{e9}\"": {}}});
        let of = |fields: Value| {
            let managers = json!([{"manager": "m", "fieldsV1": fields}]);
            json!({"metadata": {"name": "x", "managedFields": managers}, "data": {"fieldsV1": {}}})
        };
        let json = of(fields.clone()).to_string();
        let expected = of(fields.to_string().into());
        assert_eq!(read(json.as_bytes(), WITH_MANAGERS_AS_TEXT), expected);
    }
}

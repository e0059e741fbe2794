//! Paths of fields: their elements, order and texts.
//!
//! (structured-merge-diff: `fieldpath.PathElement`.)

use std::fmt;

use serde_json::Value;

use super::literal::{self, Literal};

/// One step from a value to a part of it. Fields come first in the order, then keys, values and indexes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Element {
    /// A field of an object.
    Field(String),
    /// The item of a list with these fields, sorted by name.
    Key(Vec<(String, Literal)>),
    /// The item of a list with this value.
    Value(Literal),
    /// The item of a list at this index.
    Index(i64),
}

/// The text of a path: `.spec.ports[port=80,protocol="TCP"].nodePort`.
pub(crate) struct PathText<'a>(pub(crate) &'a [Element]);

/// An element cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ElementError {
    /// Its type is not known. Such elements are skipped.
    #[error("unknown path element type")]
    UnknownType,
    /// It is not an element.
    #[error("{0}")]
    Malformed(String),
}

/// A value as JSON. Its texts and numbers always have one.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

// === impl Element ===

impl Element {
    /// A field by its name.
    pub(crate) fn field(name: impl Into<String>) -> Self {
        Self::Field(name.into())
    }

    /// The list item with these fields.
    pub(crate) fn key<N: Into<String>>(fields: impl IntoIterator<Item = (N, Value)>) -> Self {
        let mut fields: Vec<(String, Literal)> = fields
            .into_iter()
            .map(|(name, value)| (name.into(), Literal(value)))
            .collect();
        fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        Self::Key(fields)
    }

    /// Its form in `fieldsV1`: `f:spec`, `k:{"name":"a"}`, `v:"x"`, `i:0`.
    pub(crate) fn encode(&self) -> String {
        match self {
            Self::Field(name) => ["f:", name].concat(),
            Self::Key(fields) => {
                let mut text = String::from("k:{");
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    text.push_str(&json(name));
                    text.push(':');
                    text.push_str(&json(&value.0));
                }
                text.push('}');
                text
            }
            Self::Value(value) => ["v:", &json(&value.0)].concat(),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Reads the form of [`Element::encode`].
    pub(crate) fn decode(text: &str) -> Result<Self, ElementError> {
        let malformed = |why: String| ElementError::Malformed(why);
        if text.len() < 2 {
            return Err(malformed("key must be 2 characters long:".to_owned()));
        }
        let Some((kind, rest)) = text.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
            return Err(malformed(format!("missing colon: {text}")));
        };
        let json = || {
            serde_json::from_str::<Value>(rest)
                .map_err(|error| malformed(format!("{error}: {text}")))
        };
        match kind {
            "f" => Ok(Self::Field(rest.to_owned())),
            "v" => Ok(Self::Value(Literal(json()?))),
            "k" => match json()? {
                Value::Object(fields) => Ok(Self::key(fields)),
                _ => Err(malformed(format!("the key is not an object: {text}"))),
            },
            "i" => rest
                .parse()
                .map(Self::Index)
                .map_err(|_| malformed(format!("the index is not a number: {text}"))),
            _ => Err(ElementError::UnknownType),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma}{name}={}", literal::text(&value.0))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", literal::text(&value.0)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

// === impl PathText ===

impl fmt::Display for PathText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn elements_are_written_and_read() {
        let cases = [
            (Element::field("a.b/c"), "f:a.b/c", ".a.b/c"),
            (Element::field("a:b"), "f:a:b", ".a:b"),
            (
                Element::key([("protocol", json!("TCP")), ("port", json!(80))]),
                r#"k:{"port":80,"protocol":"TCP"}"#,
                r#"[port=80,protocol="TCP"]"#,
            ),
            (
                Element::Value(Literal(json!("x\"y"))),
                r#"v:"x\"y""#,
                r#"[="x\"y"]"#,
            ),
            (Element::Value(Literal(json!(true))), "v:true", "[=true]"),
            (Element::Index(3), "i:3", "[3]"),
        ];
        for (element, encoded, text) in cases {
            assert_eq!(element.encode(), encoded);
            assert_eq!(Element::decode(encoded), Ok(element.clone()), "{encoded}");
            assert_eq!(PathText(&[element]).to_string(), text);
        }
    }

    #[test]
    fn elements_that_cannot_be_read_are_refused() {
        assert_eq!(Element::decode("x:y"), Err(ElementError::UnknownType));
        for text in ["", "f", "fx:", "v:{", "v:1 2", "k:[1]", "i:x"] {
            let result = Element::decode(text);
            assert!(
                matches!(result, Err(ElementError::Malformed(_))),
                "{text}: {result:?}"
            );
        }
    }

    #[test]
    fn fields_come_before_keys_values_and_indexes() {
        let ordered = [
            Element::field("a"),
            Element::field("b"),
            Element::key([("a", json!(8080))]),
            Element::key([("a", json!(9)), ("b", json!(1))]),
            Element::key([("b", json!(1))]),
            Element::Value(Literal(json!(1))),
            Element::Value(Literal(json!("a"))),
            Element::Index(2),
            Element::Index(10),
        ];
        let mut sorted = ordered.to_vec();
        sorted.sort();
        let expected: Vec<String> = [
            ".a",
            ".b",
            "[a=9,b=1]",
            "[a=8080]",
            "[b=1]",
            "[=1]",
            "[=\"a\"]",
            "[2]",
            "[10]",
        ]
        .map(str::to_owned)
        .to_vec();
        let texts: Vec<String> = sorted.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
    }
}

//! What has to hold beside serde_json, for any document: for tests and fuzz targets.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, EnumAccess, Error, IgnoredAny, SeqAccess, VariantAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::document::from_str;

/// Something of everything that can be asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Fields {
    a: Option<Shape>,
    b: (Option<i64>, Option<u64>, Option<f64>),
    c: Vec<Deep>,
    d: BTreeMap<String, Box<Self>>,
    e: Option<Box<Untagged>>,
    f: Option<Bytes>,
    g: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    A,
    B(i64),
    C(u8, String),
    D { a: Option<f64>, b: Option<char> },
    E(BTreeMap<u16, bool>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Int(i128),
    Bool(bool),
    Text(String),
    Many(Vec<Self>),
    Fields {
        a: Option<u8>,
        #[serde(flatten)]
        rest: BTreeMap<String, Value>,
    },
}

/// Reads what does not fit as nothing.
#[derive(Debug, Default)]
struct Lenient(Option<Box<Fields>>);

#[derive(Debug)]
struct Bytes(Vec<u8>);

/// An enum whose variants have numbers, which JSON cannot express.
#[derive(Debug)]
struct Numbered(u8);

/// An array within an array, and so on.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Deep(Vec<Self>);

impl<'de> Deserialize<'de> for Lenient {
    fn deserialize<D: Deserializer<'de>>(document: D) -> Result<Self, D::Error> {
        Ok(Self(Deserialize::deserialize(document).ok()))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(document: D) -> Result<Self, D::Error> {
        struct BytesVisitor;
        impl<'de> Visitor<'de> for BytesVisitor {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Bytes, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = seq.next_element()? {
                    bytes.push(byte);
                }
                Ok(Bytes(bytes))
            }
        }
        document.deserialize_byte_buf(BytesVisitor)
    }
}

impl<'de> Deserialize<'de> for Numbered {
    fn deserialize<D: Deserializer<'de>>(document: D) -> Result<Self, D::Error> {
        struct NumberedVisitor;
        impl<'de> Visitor<'de> for NumberedVisitor {
            type Value = Numbered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a variant by its number")
            }

            fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Numbered, A::Error> {
                let (number, variant) = data.variant::<u8>()?;
                variant.newtype_variant::<IgnoredAny>()?;
                Ok(Numbered(number))
            }
        }
        document.deserialize_enum("Numbered", &[], NumberedVisitor)
    }
}

/// Whether the document is read as a `T`: it is where serde_json reads it, and both read the same.
fn one<'de, T: Deserialize<'de> + fmt::Debug>(document: &'de str) -> bool {
    // Compared as text, for NaN is not equal to itself, and 0 is to -0.
    let shown = |read: Result<T, serde_json::Error>| read.ok().map(|value| format!("{value:?}"));
    let ours = shown(from_str::<T>(document));
    let theirs = shown(serde_json::from_slice::<T>(document.as_bytes()));
    assert_eq!(ours, theirs, "{} of {document}", std::any::type_name::<T>());
    ours.is_some()
}

/// As [`one`] for `f32`: the nearest one to what is read as `f64`. serde_json does that unless its feature `float_roundtrip` is
/// on, which another package may ask for.
fn single(document: &str) {
    let shown = |read: Option<f32>| read.map(|value| format!("{value:?}"));
    let ours = shown(from_str::<f32>(document).ok());
    let theirs = serde_json::from_slice::<f64>(document.as_bytes()).ok();
    let theirs = shown(theirs.map(|value| value as f32));
    assert_eq!(ours, theirs, "f32 of {document}");
}

/// As [`one`], for a type that goes on where a part of it cannot be read: serde_json may stop there, or not.
fn lenient<'de, T: Deserialize<'de> + fmt::Debug>(document: &'de str) {
    let (ours, theirs) = (
        from_str::<T>(document),
        serde_json::from_slice::<T>(document.as_bytes()),
    );
    if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "{document}");
    }
}

/// Reads the document as all kinds of types; whether this reader took it as any value.
pub fn all(document: &str) -> bool {
    one::<Fields>(document);
    lenient::<Lenient>(document);
    lenient::<BTreeMap<String, Lenient>>(document);
    one::<BTreeMap<String, Fields>>(document);
    one::<Vec<Fields>>(document);
    one::<Untagged>(document);
    one::<Shape>(document);
    one::<Vec<Shape>>(document);
    one::<Numbered>(document);
    one::<Vec<Numbered>>(document);
    one::<Vec<Bytes>>(document);
    one::<Deep>(document);
    one::<BTreeMap<bool, Value>>(document);
    one::<BTreeMap<i64, Value>>(document);
    one::<BTreeMap<u64, Option<()>>>(document);
    one::<BTreeMap<i128, IgnoredAny>>(document);
    one::<BTreeMap<Option<char>, IgnoredAny>>(document);
    one::<Vec<(i8, u128)>>(document);
    one::<f64>(document);
    single(document);
    one::<i64>(document);
    one::<u64>(document);
    one::<u8>(document);
    one::<&str>(document);
    one::<&RawValue>(document);
    one::<BTreeMap<&str, &RawValue>>(document);
    one::<IgnoredAny>(document);
    one::<Value>(document)
}

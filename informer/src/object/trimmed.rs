//! A deserializer that leaves out skipped fields, and adds a missing `apiVersion` and `kind`.
//!
//! `metadata.managedFields` is always skipped: it is often a third of an object, nothing here reads it, and it would
//! cost a tree of JSON values an object. This adapter stands between the reader and the type. It forwards every call,
//! but on the path to a skipped field it compares the keys, and skips the value as bytes.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::CowStrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, IntoDeserializer, MapAccess,
    SeqAccess, Visitor,
};

use super::decoding::Decoding;
use super::skip::Skip;

/// A [`Deserializer`] that reads through to `inner` and trims what it reads.
#[derive(Debug)]
pub struct Trimmed<'a, D> {
    inner: D,
    way: Way<'a>,
}

/// The position of the deserializer in the object.
#[derive(Clone, Copy, Debug)]
struct Way<'a> {
    /// The fields to skip from here on.
    skip: &'a Skip,
    /// At the object itself: the fields to add.
    object: Option<&'a Decoding>,
}

// === impl Trimmed ===

impl<'a, D> Trimmed<'a, D> {
    /// Reads a whole object from `inner`.
    pub fn object(inner: D, decoding: &'a Decoding) -> Self {
        Self {
            inner,
            way: Way {
                skip: &decoding.skip,
                object: Some(decoding),
            },
        }
    }
}

macro_rules! through {
    ($($method:ident ($($argument:ident: $type:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(self $(, $argument: $type)*, visitor: V) -> Result<V::Value, D::Error> {
            let trim = Trim { inner: visitor, way: self.way };
            self.inner.$method($($argument,)* trim)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Trimmed<'_, D> {
    type Error = D::Error;

    through! {
        deserialize_any()
        deserialize_bool()
        deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64()
        deserialize_char() deserialize_str() deserialize_string()
        deserialize_bytes() deserialize_byte_buf()
        deserialize_option() deserialize_unit()
        deserialize_unit_struct(name: &'static str)
        deserialize_newtype_struct(name: &'static str)
        deserialize_seq() deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_map()
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
        deserialize_identifier() deserialize_ignored_any()
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// The wrapper of a visitor, for its maps and arrays, and of a seed.
struct Trim<'a, T> {
    inner: T,
    way: Way<'a>,
}

macro_rules! visit_through {
    ($($method:ident: $type:ty),* $(,)?) => {
        $(fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Trim<'_, V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(formatter)
    }

    visit_through! {
        visit_bool: bool,
        visit_i8: i8, visit_i16: i16, visit_i32: i32, visit_i64: i64, visit_i128: i128,
        visit_u8: u8, visit_u16: u16, visit_u32: u32, visit_u64: u64, visit_u128: u128,
        visit_f32: f32, visit_f64: f64, visit_char: char,
        visit_str: &str, visit_borrowed_str: &'de str, visit_string: String,
        visit_bytes: &[u8], visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>,
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, document: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Trimmed {
            inner: document,
            way: self.way,
        })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, document: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Trimmed {
            inner: document,
            way: self.way,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        match self.way.skip.each() {
            None => self.inner.visit_seq(seq),
            Some(skip) => self.inner.visit_seq(TrimmedElements { inner: seq, skip }),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(TrimmedMap {
            inner: map,
            way: self.way,
            ahead: None,
            saw: (false, false),
            given: None,
            added: None,
            ended: false,
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(data)
    }
}

struct TrimmedMap<'a, A> {
    inner: A,
    way: Way<'a>,
    /// The fields to skip in the value of the last key.
    ahead: Option<&'a Skip>,
    /// Whether `apiVersion` and `kind` have come.
    saw: (bool, bool),
    /// The value of the last key, if the document has none; with a guard, the only value that is accepted.
    given: Option<&'a str>,
    /// The value of a key that was added.
    added: Option<&'a str>,
    ended: bool,
}

impl<'a, A> TrimmedMap<'a, A> {
    /// The next key to add after the document's own, with its value.
    fn missing(&mut self) -> Option<(&'static str, &'a str)> {
        let decoding = self.way.object?;
        if !std::mem::replace(&mut self.saw.0, true)
            && let Some(value) = &decoding.api_version
        {
            return Some(("apiVersion", value));
        }
        if !std::mem::replace(&mut self.saw.1, true)
            && let Some(value) = &decoding.kind
        {
            return Some(("kind", value));
        }
        None
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for TrimmedMap<'_, A> {
    type Error = A::Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        while !self.ended {
            let Some(Key(key)) = self.inner.next_key()? else {
                self.ended = true;
                break;
            };
            self.ahead = self.way.skip.field(&key);
            if self.ahead.is_some_and(|skip| skip.whole) {
                self.inner.next_value::<IgnoredAny>()?;
                continue;
            }
            if let Some(decoding) = self.way.object {
                self.given = decoding.given(&key);
                match key.as_ref() {
                    "apiVersion" => self.saw.0 = true,
                    "kind" => self.saw.1 = true,
                    _ => {}
                }
            }
            let key: CowStrDeserializer<'_, A::Error> = key.into_deserializer();
            return seed.deserialize(key).map(Some);
        }
        let Some((key, value)) = self.missing() else {
            return Ok(None);
        };
        self.added = Some(value);
        let key: CowStrDeserializer<'_, A::Error> = Cow::Borrowed(key).into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        if let Some(value) = self.added.take() {
            return seed.deserialize(Text::<A::Error>::of(Cow::Borrowed(value)));
        }
        if let Some(given) = self.given.take() {
            let said: Option<Key<'de>> = self.inner.next_value()?;
            let Some(Key(said)) = said.filter(|Key(said)| !said.is_empty()) else {
                return seed.deserialize(Text::<A::Error>::of(Cow::Borrowed(given)));
            };
            if said != given && self.way.object.is_some_and(|decoding| decoding.guarded) {
                return Err(another(given));
            }
            return seed.deserialize(Text::<A::Error>::of(said));
        }
        match self.ahead.take() {
            Some(skip) => self.inner.next_value_seed(Trim::within(seed, skip)),
            None => self.inner.next_value_seed(seed),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// A text as a value; also as an option, a newtype or an enum.
struct Text<'a, E>(CowStrDeserializer<'a, E>);

impl<'a, E: Error> Text<'a, E> {
    fn of(text: Cow<'a, str>) -> Self {
        Self(text.into_deserializer())
    }
}

impl<'de, E: Error> Deserializer<'de> for Text<'_, E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, E> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, E> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct TrimmedElements<'a, A> {
    inner: A,
    skip: &'a Skip,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for TrimmedElements<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        if self.skip.whole {
            while self.inner.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(None);
        }
        self.inner.next_element_seed(Trim::within(seed, self.skip))
    }

    fn size_hint(&self) -> Option<usize> {
        if self.skip.whole {
            return Some(0);
        }
        self.inner.size_hint()
    }
}

impl<'a, T> Trim<'a, T> {
    /// A seed for a part of the object.
    fn within(seed: T, skip: &'a Skip) -> Self {
        let way = Way { skip, object: None };
        Self { inner: seed, way }
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Trim<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<T::Value, D::Error> {
        self.inner.deserialize(Trimmed {
            inner: document,
            way: self.way,
        })
    }
}

/// The error of an object of another type than `required`.
pub(crate) fn another<E: Error>(required: &str) -> E {
    E::custom(format_args!(
        "invalid type: another type of object, expected {required}"
    ))
}

/// A text of a document, such as a key, borrowed from the document where it has no escapes.
pub(crate) struct Key<'de>(pub(crate) Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(document: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a key")
            }
            fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }
            fn visit_str<E: Error>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        document.deserialize_str(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube_core::DynamicObject;
    use kube_core::metadata::PartialObjectMeta;

    use proptest::prelude::*;
    use serde::Deserialize as _;
    use serde_json::Value;

    use super::*;
    use crate::json;
    use crate::object::Stored;
    use crate::object::skip::tests::{any_path, any_value, leave_out};
    use crate::sample::cases;

    const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"n","uid":"u",
        "resourceVersion":"5","labels":{"managedFields":"kept"},"managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}],
        "annotations":{"a":"b"}},"spec":{"containers":[{"name":"c","env":[{"name":"managedFields"}]}]}}"#;

    fn read<S: Stored>(document: &str, decoding: &Decoding) -> S {
        json::read(document, |reader| S::decode(reader, decoding)).unwrap()
    }

    #[test]
    fn managed_fields_are_left_out_and_nothing_else() {
        let pod: Pod = read(POD, &Decoding::default());
        let mut whole: Pod = serde_json::from_str(POD).unwrap();
        assert!(whole.metadata.managed_fields.is_some());
        assert_ne!(pod, whole);
        whole.metadata.managed_fields = None;
        assert_eq!(pod, whole);
    }

    #[test]
    fn untyped_and_metadata_only_objects_are_trimmed_too() {
        let object: DynamicObject = read(POD, &Decoding::default());
        assert!(object.metadata.managed_fields.is_none());
        assert_eq!(
            object.data["spec"]["containers"][0]["env"][0]["name"],
            "managedFields"
        );
        let partial: PartialObjectMeta<Pod> = read(POD, &Decoding::default());
        assert!(partial.metadata.managed_fields.is_none());
        assert_eq!(partial.metadata.name.as_deref(), Some("p"));
    }

    #[test]
    fn a_missing_type_is_put_in_and_a_given_one_kept() {
        let decoding = Decoding::of("v1", "ConfigMap");
        let object: DynamicObject = read(r#"{"metadata":{"name":"c"}}"#, &decoding);
        let types = object.types.unwrap();
        assert_eq!(
            (types.api_version.as_str(), types.kind.as_str()),
            ("v1", "ConfigMap")
        );
        let typed: ConfigMap = read(r#"{"metadata":{"name":"c"},"data":{"a":"b"}}"#, &decoding);
        assert_eq!(typed.data.unwrap()["a"], "b");
        let object: DynamicObject = read(POD, &decoding);
        assert_eq!(object.types.unwrap().kind, "Pod");
    }

    #[test]
    fn an_object_that_says_it_is_another_is_refused_where_that_is_asked_for() {
        for (version, kind, reads) in [
            ("v1", "Pod", true),
            ("v1", "ConfigMap", false),
            ("v2", "Pod", false),
        ] {
            let decoding = Decoding::of(version, kind).guarded();
            let dynamic = decoding.read::<DynamicObject>(POD).map(|_| ());
            let compact = decoding.read::<crate::Compact<Pod>>(POD).map(|_| ());
            for read in [dynamic, compact] {
                let error = read.map_err(|error| json::redacted(&error));
                assert_eq!(error.is_ok(), reads, "{version} {kind}: {error:?}");
                let expected = if version == "v1" { kind } else { version };
                assert!(error.err().is_none_or(|error| {
                    error.starts_with(&format!("invalid type, expected {expected} at line"))
                }));
            }
            let typeless = r#"{"metadata":{"name":"p"}}"#;
            assert!(decoding.read::<DynamicObject>(typeless).is_ok());
            assert!(decoding.read::<crate::Compact<Pod>>(typeless).is_ok());
        }
    }

    #[test]
    fn an_empty_type_and_null_are_as_a_missing_one() {
        let types = |object: &DynamicObject| {
            let types = object.types.clone().unwrap();
            format!("{} {}", types.api_version, types.kind)
        };
        let decoding = Decoding::of("v1", "ConfigMap");
        for decoding in [decoding.clone(), decoding.guarded()] {
            for (version, kind) in [("null", "null"), (r#""""#, r#""""#), (r#""v1""#, "null")] {
                let document = format!(
                    r#"{{"apiVersion":{version},"kind":{kind},"metadata":{{"name":"c"}},"data":{{"a":"b"}}}}"#
                );
                let typed: ConfigMap = read(&document, &decoding);
                assert_eq!(typed.data.unwrap()["a"], "b");
                let dynamic: DynamicObject = read(&document, &decoding);
                assert_eq!(types(&dynamic), "v1 ConfigMap", "{document}");
                let compact: crate::Compact<ConfigMap> = read(&document, &decoding);
                let text = compact.json();
                assert_eq!(types(&compact.dynamic().unwrap()), "v1 ConfigMap", "{text}");
                assert_eq!(text.matches("kind").count(), 1, "{text}");
            }
        }
    }

    #[test]
    fn a_type_may_be_read_as_any_type_that_a_text_is_read_as() {
        #[derive(serde::Deserialize, Debug, PartialEq)]
        enum Kind {
            Pod,
        }
        #[derive(serde::Deserialize, Debug, PartialEq)]
        struct Version(String);
        #[derive(serde::Deserialize, Debug, PartialEq)]
        #[serde(rename_all = "camelCase")]
        struct Types {
            api_version: Option<Version>,
            kind: Kind,
        }
        let types = Types {
            api_version: Some(Version("v1".to_owned())),
            kind: Kind::Pod,
        };
        let decoding = Decoding::of("v1", "Pod");
        for decoding in [decoding.clone(), decoding.guarded()] {
            for document in [POD, "{}"] {
                let read = json::read(document, |reader| {
                    Types::deserialize(Trimmed::object(reader, &decoding))
                });
                assert_eq!(read.unwrap(), types);
            }
        }
    }

    proptest! {
        #![proptest_config(cases(2000))]

        /// A document read without some paths is the document from which they are removed.
        #[test]
        fn what_is_skipped_and_nothing_else_is_missing(
            document in any_value(),
            paths in proptest::collection::vec(any_path(), 0..4),
        ) {
            let decoding = paths.iter().fold(Decoding::default(), Decoding::skip);
            let text = document.to_string();
            let mut reader = serde_json::Deserializer::from_str(&text);
            let read = Value::deserialize(Trimmed::object(&mut reader, &decoding)).unwrap();
            let ours = json::read(&text, |reader| Value::deserialize(Trimmed::object(reader, &decoding)));
            prop_assert_eq!(&ours.unwrap(), &read);
            let mut wanted = document;
            for path in &paths {
                leave_out(&mut wanted, path);
            }
            prop_assert_eq!(read, wanted);
        }
    }

    #[test]
    fn paths_are_skipped_in_every_typed_form() {
        let decoding = [".spec.containers[*].env", ".metadata.annotations"]
            .iter()
            .fold(Decoding::default(), |decoding, path| {
                decoding.skip(&path.parse().unwrap())
            });
        let pod: Pod = read(POD, &decoding);
        let container = &pod.spec.as_ref().unwrap().containers[0];
        assert_eq!((container.name.as_str(), &container.env), ("c", &None));
        assert!(pod.metadata.annotations.is_none() && pod.metadata.labels.is_some());
        let object: DynamicObject = read(POD, &decoding);
        assert_eq!(
            object.data["spec"]["containers"][0],
            serde_json::json!({"name": "c"})
        );
        let partial: PartialObjectMeta<Pod> = read(POD, &decoding);
        assert!(partial.metadata.annotations.is_none());
    }

    #[test]
    fn null_metadata_and_escaped_keys_are_read() {
        let map: ConfigMap = read(
            r#"{"metadata":null,"\u0064ata":{"k":"v"}}"#,
            &Decoding::default(),
        );
        assert_eq!(map.data.unwrap()["k"], "v");
    }
}

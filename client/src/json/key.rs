//! Names of fields.

use serde::de::{Deserializer, Visitor};
use serde_json::Error;

use super::raw::RAW;
use super::reader::{Reader, Text, hand_over};

/// The name of a field, whose quote was peeked at. A number or a `bool` is read from within the quotes.
pub(super) struct Key<'a, 'de> {
    pub(super) reader: &'a mut Reader<'de>,
}

// === impl Key ===

impl<'de> Key<'_, 'de> {
    /// The name, if it has no escapes.
    fn plain(&mut self) -> Result<&'de str, Error> {
        match self.reader.text()? {
            Text::Plain(name) => Ok(name),
            Text::Quoted(_) => Err(self.reader.refused()),
        }
    }

    /// The name, if it may be a number. serde_json decides.
    fn number(&mut self) -> Result<&'de str, Error> {
        let name = self.plain()?;
        let ends = |byte: u8| !byte.is_ascii_whitespace();
        match name.as_bytes() {
            [b'-' | b'0'..=b'9', .., last] if ends(*last) => Ok(name),
            [b'0'..=b'9'] => Ok(name),
            _ => Err(self.reader.refused()),
        }
    }
}

macro_rules! numbers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
            hand_over(self.number()?, |document| document.$method(visitor))
        })*
    };
}

impl<'de> Deserializer<'de> for Key<'_, 'de> {
    type Error = Error;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.reader.string(visitor)
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64
    }

    fn deserialize_bool<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        match self.plain()? {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(self.reader.refused()),
        }
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == RAW {
            return self.reader.deserialize_newtype_struct(name, visitor);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.reader.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.reader.deserialize_bytes(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.reader.deserialize_bytes(visitor)
    }

    serde::forward_to_deserialize_any! {
        char str string unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

//! The `Deserializer`: reads a value as the type that the visitor expects.

use serde::de::{Deserializer, Error as _, Expected, Visitor};
use serde_json::Error;

use super::access::{Elements, Fields, Name, Variant};
use super::raw::{RAW, Raw};
use super::reader::{Reader, hand_over};

#[inline]
fn array<'de, V: Visitor<'de>>(reader: &mut Reader<'de>, visitor: V) -> Result<V::Value, Error> {
    reader.open()?;
    let read = visitor.visit_seq(Elements::new(reader));
    reader.close(b']', read.is_ok())?;
    read
}

#[inline]
fn object<'de, V: Visitor<'de>>(reader: &mut Reader<'de>, visitor: V) -> Result<V::Value, Error> {
    reader.open()?;
    let read = visitor.visit_map(Fields::new(reader));
    reader.close(b'}', read.is_ok())?;
    read
}

macro_rules! numbers {
    ($($method:ident)*) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.number(visitor)
        })*
    };
}

macro_rules! texts {
    ($($method:ident)*) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.string(visitor)
        })*
    };
}

impl<'de> Reader<'de> {
    fn integer_text<V: Visitor<'de>>(&mut self, visitor: &V) -> Result<&'de str, Error> {
        if !matches!(self.peek(), Some(b'-' | b'0'..=b'9')) {
            return Err(self.unexpected(visitor));
        }
        self.number_text()
    }
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            Some(b'"') => self.string(visitor),
            Some(b'{') => object(self, visitor),
            Some(b'[') => array(self, visitor),
            Some(b'n') => self.deserialize_unit(visitor),
            Some(b't' | b'f') => self.deserialize_bool(visitor),
            _ => self.number(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.peek() == Some(b't') {
            self.literal("true")?;
            return visitor.visit_bool(true);
        }
        if self.peek() != Some(b'f') {
            return Err(self.unexpected(&visitor));
        }
        self.literal("false")?;
        visitor.visit_bool(false)
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_f32 deserialize_f64
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let text = self.integer_text(&visitor)?;
        hand_over(text, |document| document.deserialize_i128(visitor))
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let text = self.integer_text(&visitor)?;
        hand_over(text, |document| document.deserialize_u128(visitor))
    }

    texts! { deserialize_char deserialize_str deserialize_string deserialize_identifier }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            Some(b'"') => {
                let text = self.quoted_bytes()?;
                hand_over(text, |document| document.deserialize_bytes(visitor))
            }
            _ => self.deserialize_seq(visitor),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.peek() == Some(b'n') {
            self.literal("null")?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.peek() != Some(b'n') {
            return Err(self.unexpected(&visitor));
        }
        self.literal("null")?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == RAW {
            let raw = self.raw()?;
            return visitor.visit_map(Raw { raw, taken: false });
        }
        visitor.visit_newtype_struct(self)
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            Some(b'[') => array(self, visitor),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            Some(b'{') => object(self, visitor),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.peek() {
            Some(b'{') => object(self, visitor),
            Some(b'[') => array(self, visitor),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.peek() {
            Some(b'{') => {
                self.set_trim(None);
                self.open()?;
                let read = visitor.visit_enum(Variant { reader: self });
                self.close(b'}', read.is_ok())?;
                read
            }
            Some(b'"') => visitor.visit_enum(Name { reader: self }),
            _ => Err(Error::custom(format_args!(
                "invalid type, expected {}",
                &visitor as &dyn Expected
            ))),
        }
    }

    #[inline]
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }
}

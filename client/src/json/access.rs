//! Access to the elements of arrays, the names and values of the fields of objects, and the variants of enums.

use std::borrow::Cow;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde_json::Error;

use super::raw::RAW;
use super::reader::{Place, Reader, Text, hand_over};
use super::trim::{Given, Plain, Seen, Skip, Trim};

/// The elements of an array.
#[derive(Debug)]
pub struct Elements<'a, 'de> {
    reader: &'a mut Reader<'de>,
    first: bool,
    /// What is left out of each element.
    each: Option<&'de Skip>,
}

/// The fields of an object.
#[derive(Debug)]
pub struct Fields<'a, 'de> {
    reader: &'a mut Reader<'de>,
    first: bool,
    trim: Option<Trim<'de>>,
    /// Used where `trim` is set.
    trimming: Path<'de>,
}

/// How far the fields of a trimmed object were read.
#[derive(Debug, Default)]
struct Path<'de> {
    seen: Seen,
    /// What is left out of the value of the last field.
    ahead: Option<&'de Skip>,
    /// The value of the last field, if the document has none; with a guard, the only value that is accepted.
    given: Option<&'de Given>,
}

/// The name of a field, whose quote was peeked at. A number or a `bool` is read from within the quotes.
struct Key<'a, 'de> {
    reader: &'a mut Reader<'de>,
    /// The name and its place, if the reader is past it.
    read: Option<(&'de str, Place<'de>)>,
}

/// The next field of a trimmed object.
enum Named<'de> {
    /// There is none.
    Nothing,
    /// Its name is next.
    Ahead,
    /// Its name was read.
    Read(&'de str, Place<'de>),
}

/// A variant with a value: `{"name": value}`.
pub(super) struct Variant<'a, 'de> {
    pub(super) reader: &'a mut Reader<'de>,
}

/// A variant that is a name alone.
pub(super) struct Name<'a, 'de> {
    pub(super) reader: &'a mut Reader<'de>,
}

// === impl Elements ===

impl<'a, 'de> Elements<'a, 'de> {
    /// The elements of the array that was entered.
    #[inline]
    pub fn new(reader: &'a mut Reader<'de>) -> Self {
        let each = match reader.take_trim() {
            Some(Trim::Object(trimming)) => trimming.skip.each(),
            Some(Trim::Part(skip)) => skip.each(),
            None => None,
        };
        Self {
            reader,
            first: true,
            each,
        }
    }

    /// The number of bytes read so far.
    #[must_use]
    pub fn at(&self) -> usize {
        self.reader.at()
    }

    /// Reads the next element by `read`; `None` at the end.
    ///
    /// # Errors
    /// That of `read`, or of what comes instead of an element.
    #[inline]
    pub fn next_by<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'de>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        if self.each.is_some() {
            self.trim_next()?;
        }
        match self.reader.peek() {
            Some(b']') => return Ok(None),
            _ if std::mem::take(&mut self.first) => {}
            _ => {
                self.reader.expect(b',')?;
                if self.reader.peek() == Some(b']') {
                    return Err(self.reader.refused());
                }
            }
        }
        let element = read(self.reader);
        self.reader.set_trim(None);
        element.map(Some)
    }

    /// Skips the elements, or sets what is left out of the next.
    fn trim_next(&mut self) -> Result<(), Error> {
        let Some(skip) = self.each else { return Ok(()) };
        if !skip.whole {
            self.reader.set_trim(Some(Trim::Part(skip)));
            return Ok(());
        }
        self.each = None;
        while self.next_by(Reader::skip)?.is_some() {}
        Ok(())
    }
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.next_by(|reader| seed.deserialize(reader))
    }

    /// Known before the first element only, and if the end is within the lookahead.
    #[inline]
    fn size_hint(&self) -> Option<usize> {
        if self.each.is_some_and(|skip| skip.whole) {
            return Some(0);
        }
        self.first.then(|| self.reader.count()).flatten()
    }
}

// === impl Fields ===

impl<'a, 'de> Fields<'a, 'de> {
    /// The fields of the object that was entered.
    #[inline]
    pub fn new(reader: &'a mut Reader<'de>) -> Self {
        let trim = reader.take_trim();
        Self {
            reader,
            first: true,
            trim,
            trimming: Path::default(),
        }
    }

    /// The reader, past the name of a field: its next byte is the colon.
    pub fn reader(&mut self) -> &mut Reader<'de> {
        self.reader
    }

    /// Reads the value of the field by `read`.
    ///
    /// # Errors
    /// That of `read`, or of what comes instead of a value.
    #[inline]
    pub fn value_by<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'de>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self.trim {
            None => self.reader.expect(b':')?,
            Some(_) => self.enter_trimmed_value()?,
        }
        let value = read(self.reader);
        if self.trim.is_some() {
            self.leave_trimmed_value();
        }
        value
    }

    /// Moves to the name of the next field; false at the end.
    #[inline]
    fn next_name(&mut self) -> Result<bool, Error> {
        match self.reader.peek() {
            Some(b'}') => return Ok(false),
            _ if std::mem::take(&mut self.first) => {}
            _ => self.reader.expect(b',')?,
        }
        if self.reader.peek() != Some(b'"') {
            return Err(self.reader.refused());
        }
        Ok(true)
    }
}

// === impl Fields: a trimmed object ===

impl<'de> Fields<'_, 'de> {
    /// Moves to the name of the next field that is not left out. After the last, moves to those to add.
    fn next_trimmed_name(&mut self, trim: Trim<'de>) -> Result<Named<'de>, Error> {
        let (skip, object) = match trim {
            Trim::Object(trimming) => (&trimming.skip, Some(trimming)),
            Trim::Part(skip) => (skip, None),
        };
        while self.next_name()? {
            let place = self.reader.place();
            let Plain(name) = Plain::deserialize(&mut *self.reader)?;
            let ahead = skip.field(&name);
            if ahead.is_some_and(|skip| skip.whole) {
                self.reader.expect(b':')?;
                self.reader.skip()?;
                continue;
            }
            self.trimming.ahead = ahead;
            self.trimming.given = object.and_then(|trimming| trimming.given(&name));
            self.trimming.seen.add(&name);
            return Ok(match name {
                Cow::Borrowed(name) => Named::Read(name, place),
                Cow::Owned(_) => {
                    self.reader.resume(place);
                    Named::Ahead
                }
            });
        }
        let missing = object.and_then(|trimming| self.trimming.seen.missing(trimming));
        let Some((name, given)) = missing else {
            return Ok(Named::Nothing);
        };
        self.trimming.given = Some(given);
        self.reader.detour(name);
        Ok(Named::Ahead)
    }

    /// Moves to the value of the field, or to the one that is given in its place.
    fn enter_trimmed_value(&mut self) -> Result<(), Error> {
        if let Some(given) = self.trimming.given.take() {
            if self.reader.is_on_detour() {
                // The name was added, too.
                self.reader.detour(&given.quoted);
                return Ok(());
            }
            self.reader.expect(b':')?;
            let place = self.reader.place();
            let has = Option::<Plain<'de>>::deserialize(&mut *self.reader)?;
            let Some(Plain(has)) = has.filter(|Plain(has)| !has.is_empty()) else {
                self.reader.detour(&given.quoted);
                return Ok(());
            };
            if let Some(Trim::Object(trimming)) = self.trim {
                trimming.check_given::<Error>(given, &has)?;
            }
            self.reader.resume(place);
            return Ok(());
        }
        self.reader.expect(b':')?;
        let ahead = self.trimming.ahead.take();
        self.reader.set_trim(ahead.map(Trim::Part));
        Ok(())
    }

    fn leave_trimmed_value(&mut self) {
        self.reader.set_trim(None);
        self.reader.end_detour();
    }
}

impl<'de> MapAccess<'de> for Fields<'_, 'de> {
    type Error = Error;

    #[inline]
    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let read = match self.trim {
            None => {
                if !self.next_name()? {
                    return Ok(None);
                }
                None
            }
            Some(trim) => match self.next_trimmed_name(trim)? {
                Named::Nothing => return Ok(None),
                Named::Ahead => None,
                Named::Read(name, place) => Some((name, place)),
            },
        };
        let reader = &mut *self.reader;
        seed.deserialize(Key { reader, read }).map(Some)
    }

    #[inline]
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        self.value_by(|reader| seed.deserialize(reader))
    }
}

// === impl Key ===

impl<'de> Key<'_, 'de> {
    /// The reader, at the name.
    fn at_name(&mut self) -> &mut Reader<'de> {
        if let Some((_, place)) = self.read.take() {
            self.reader.resume(place);
        }
        self.reader
    }

    /// The name, if it has no escapes.
    fn plain(&mut self) -> Result<&'de str, Error> {
        if let Some((name, _)) = self.read {
            return Ok(name);
        }
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
        match self.read {
            Some((name, _)) => visitor.visit_borrowed_str(name),
            None => self.reader.string(visitor),
        }
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
        mut self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == RAW {
            return self.at_name().deserialize_newtype_struct(name, visitor);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.at_name().deserialize_enum(name, variants, visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.at_name().deserialize_bytes(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.at_name().deserialize_bytes(visitor)
    }

    serde::forward_to_deserialize_any! {
        char str string unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

// === impl Variant ===

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        if self.reader.peek() != Some(b'"') {
            return Err(Error::custom("an object without a field names no variant"));
        }
        // As the name of a field, as in serde_json: it may be a number in quotes.
        let reader = &mut *self.reader;
        let name = seed.deserialize(Key { reader, read: None })?;
        self.reader.expect(b':')?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        <()>::deserialize(self.reader)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.reader.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.reader.deserialize_struct("", fields, visitor)
    }
}

// === impl Name ===

impl<'de> EnumAccess<'de> for Name<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        let name = seed.deserialize(&mut *self.reader)?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Name<'_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Error> {
        Err(unit("newtype variant"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(unit("tuple variant"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        Err(unit("struct variant"))
    }
}

fn unit(wanted: &'static str) -> Error {
    Error::invalid_type(Unexpected::UnitVariant, &wanted)
}

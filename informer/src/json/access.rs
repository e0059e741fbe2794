//! Access to the elements of arrays, the fields of objects, and the variants of enums.

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde_json::Error;

use super::key::Key;
use super::reader::Reader;

/// The elements of an array.
pub(crate) struct Elements<'a, 'de> {
    reader: &'a mut Reader<'de>,
    first: bool,
}

/// The fields of an object.
pub(crate) struct Fields<'a, 'de> {
    pub(crate) reader: &'a mut Reader<'de>,
    first: bool,
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
    #[inline]
    pub(crate) fn new(reader: &'a mut Reader<'de>) -> Self {
        let first = true;
        Self { reader, first }
    }

    /// The number of bytes read so far.
    pub(crate) fn at(&self) -> usize {
        self.reader.at()
    }
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
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
        seed.deserialize(&mut *self.reader).map(Some)
    }

    /// Known before the first element only, and if the end is within the lookahead.
    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.first.then(|| self.reader.count()).flatten()
    }
}

// === impl Fields ===

impl<'a, 'de> Fields<'a, 'de> {
    #[inline]
    pub(crate) fn new(reader: &'a mut Reader<'de>) -> Self {
        let first = true;
        Self { reader, first }
    }
}

impl<'de> MapAccess<'de> for Fields<'_, 'de> {
    type Error = Error;

    #[inline]
    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        match self.reader.peek() {
            Some(b'}') => return Ok(None),
            _ if std::mem::take(&mut self.first) => {}
            _ => self.reader.expect(b',')?,
        }
        if self.reader.peek() != Some(b'"') {
            return Err(self.reader.refused());
        }
        let reader = &mut *self.reader;
        seed.deserialize(Key { reader }).map(Some)
    }

    #[inline]
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        self.reader.expect(b':')?;
        seed.deserialize(&mut *self.reader)
    }
}

// === impl Variant ===

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        if self.reader.peek() != Some(b'"') {
            return Err(self.reader.refused());
        }
        // As a value, and not as the name of a field, which may be a number in quotes.
        let name = seed.deserialize(&mut *self.reader)?;
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

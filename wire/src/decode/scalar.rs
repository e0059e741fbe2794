//! Values without members: texts, bytes, truth values and numbers.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::{DeserializeSeed, IntoDeserializer, Visitor, value};

use super::stack::wrong_type;
use crate::error::{Cause, Error};
use crate::fields::{Wire, fixed64, varint};
use crate::table::{Field, Type};

/// A value without members.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar<'de> {
    Text(Cow<'de, str>),
    Bytes(&'de [u8]),
    Bool(bool),
    Integer(i64),
    Double(f64),
    /// Bytes without a value.
    None,
}

// === impl Scalar ===

impl<'de> Scalar<'de> {
    /// The value of a field of a scalar type.
    ///
    /// # Errors
    /// For a value of another wire type.
    pub(super) fn read(field: &Field, value: Wire<'de>) -> Result<Self, Cause> {
        // Go shifts the groups of seven bits into a number of the field's size.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "as Go truncates it"
        )]
        match (field.of, value) {
            (Type::Text, Wire::Bytes(text)) => Ok(Self::Text(text_of(text))),
            (Type::Bytes, Wire::Bytes(bytes)) => Ok(Self::Bytes(bytes)),
            (Type::Bool, Wire::Varint(number)) => Ok(Self::Bool(number != 0)),
            (Type::Int32, Wire::Varint(number)) => Ok(Self::Integer((number as i32).into())),
            (Type::Int64, Wire::Varint(number)) => Ok(Self::Integer(number as i64)),
            (Type::Double, Wire::Fixed64(bits)) => Ok(Self::Double(f64::from_bits(bits))),
            (_, other) => Err(wrong_type(field, other)),
        }
    }

    /// The first of the packed numbers, which is removed.
    ///
    /// # Errors
    /// For bytes that are not numbers.
    pub(super) fn unpack(field: &Field, packed: &mut &'de [u8]) -> Result<Self, Cause> {
        let value = if field.of == Type::Double {
            Wire::Fixed64(fixed64(packed)?)
        } else {
            Wire::Varint(varint(packed)?)
        };
        Self::read(field, value)
    }

    /// The value of a non-pointer field without a value on the wire.
    pub(super) fn zero(of: Type) -> Self {
        match of {
            Type::Text => Self::Text(Cow::Borrowed("")),
            Type::Bool => Self::Bool(false),
            Type::Int32 | Type::Int64 => Self::Integer(0),
            Type::Double => Self::Double(0.0),
            _ => Self::None,
        }
    }

    /// Whether `omitempty` leaves a value of the right wire type out; `None` for another one, and for other types.
    #[inline]
    pub(super) fn is_plain_empty(of: Type, value: Wire<'_>) -> Option<bool> {
        #[allow(clippy::cast_possible_truncation, reason = "as Go truncates it")]
        match (of, value) {
            (Type::Text | Type::Bytes, Wire::Bytes(bytes)) => Some(bytes.is_empty()),
            (Type::Bool | Type::Int64, Wire::Varint(number)) => Some(number == 0),
            (Type::Int32, Wire::Varint(number)) => Some(number as i32 == 0),
            _ => None,
        }
    }

    /// Whether `omitempty` leaves a value out.
    ///
    /// # Errors
    /// For a value of another wire type.
    pub(super) fn is_empty(field: &Field, value: Wire<'_>) -> Result<bool, Cause> {
        if let Some(is_empty) = Self::is_plain_empty(field.of, value) {
            return Ok(is_empty);
        }
        match (field.of, value) {
            (Type::Double, Wire::Fixed64(bits)) => Ok(f64::from_bits(bits) == 0.0),
            (_, other) => Err(wrong_type(field, other)),
        }
    }

    pub(super) fn visit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Text(text) => visit_text(text, visitor),
            Self::Bytes(bytes) => visitor.visit_string(BASE64.encode(bytes)),
            Self::Bool(value) => visitor.visit_bool(value),
            Self::Integer(number) => visitor.visit_i64(number),
            Self::Double(number) => match whole(number)? {
                Some(number) => visitor.visit_i64(number),
                None => visitor.visit_f64(number),
            },
            Self::None => visitor.visit_unit(),
        }
    }

    /// Passes an item of a packed list.
    pub(super) fn seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        match self {
            Self::Bool(value) => seed.deserialize(value::BoolDeserializer::new(value)),
            Self::Integer(number) => seed.deserialize(value::I64Deserializer::new(number)),
            Self::Double(number) => match whole(number)? {
                Some(number) => seed.deserialize(value::I64Deserializer::new(number)),
                None => seed.deserialize(value::F64Deserializer::new(number)),
            },
            Self::Text(text) => seed_text(text, seed),
            Self::Bytes(bytes) => seed.deserialize(BASE64.encode(bytes).into_deserializer()),
            Self::None => seed.deserialize(().into_deserializer()),
        }
    }
}

/// A text. Go replaces invalid UTF-8, too. `from_utf8` is faster for a valid text.
#[inline]
pub(super) fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

pub(super) fn visit_text<'de, V: Visitor<'de>>(
    text: Cow<'de, str>,
    visitor: V,
) -> Result<V::Value, Error> {
    match text {
        Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
        Cow::Owned(text) => visitor.visit_string(text),
    }
}

/// Passes a text, which a visitor can borrow.
pub(super) fn seed_text<'de, S: DeserializeSeed<'de>>(
    text: Cow<'de, str>,
    seed: S,
) -> Result<S::Value, Error> {
    match text {
        Cow::Borrowed(text) => seed.deserialize(value::BorrowedStrDeserializer::new(text)),
        Cow::Owned(text) => seed.deserialize(value::StringDeserializer::new(text)),
    }
}

/// Go writes an integral number without a point, so that it is read as an integer.
fn whole(number: f64) -> Result<Option<i64>, Cause> {
    if !number.is_finite() {
        return Err(Cause::Number(if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        }));
    }
    let is_negative_zero = number == 0.0 && number.is_sign_negative();
    let is_whole = number.fract() == 0.0 && number.abs() < 2f64.powi(63) && !is_negative_zero;
    #[allow(clippy::cast_possible_truncation, reason = "it is whole and in range")]
    Ok(is_whole.then_some(number as i64))
}

//! The value of one member, item or entry.

use serde::de::{Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::members::Members;
use super::scalar::{Scalar, visit_text};
use super::sequences::{Entries, Items, Texts};
use super::special::{self, IntOrString};
use super::stack::{Context, Frame, Span};
use crate::error::{Cause, Error};
use crate::fields::Wire;
use crate::table::{Field, Message, Shape, Type, Union};
use crate::time::TimeText;
use crate::trim::Rule;

/// The value of one member, item or entry.
#[derive(Clone, Copy)]
pub(super) struct Element<'a, 'de> {
    context: &'a Context<'de>,
    field: &'static Field,
    span: Span,
    shape: Shape,
    /// The depth of the container that it is in.
    depth: usize,
    /// What is left out of it.
    rule: Option<&'de Rule>,
}

// === impl Element ===

impl<'a, 'de> Element<'a, 'de> {
    /// The value of a field, from all its occurrences.
    pub(super) fn new(
        context: &'a Context<'de>,
        field: &'static Field,
        span: Span,
        depth: usize,
        rule: Option<&'de Rule>,
    ) -> Self {
        Self {
            context,
            field,
            span,
            shape: field.shape,
            depth,
            rule,
        }
    }

    /// One item of a list, or the value of an entry.
    pub(super) fn item(
        context: &'a Context<'de>,
        field: &'static Field,
        span: Span,
        depth: usize,
        rule: Option<&'de Rule>,
    ) -> Self {
        Self {
            shape: Shape::Plain,
            ..Self::new(context, field, span, depth, rule)
        }
    }

    /// Whether it is not on the wire, and has no zero value.
    fn is_absent(&self) -> bool {
        self.span.is_empty() && self.shape != Shape::Plain
    }

    /// Whether `omitempty` leaves it out: never for a struct in Go.
    pub(super) fn is_empty(&self) -> Result<bool, Error> {
        // All are looked at, so that an invalid one is refused; the last counts.
        let mut is_empty = true;
        for at in self.span.positions() {
            is_empty = Scalar::is_empty(self.field, self.context.wire(at))?;
        }
        Ok(is_empty)
    }

    /// A packed list without numbers is not a list.
    pub(super) fn is_packed_empty(&self) -> bool {
        self.field.of.is_number()
            && self
                .span
                .positions()
                .all(|at| self.context.wire(at) == Wire::Bytes(b""))
    }

    /// Whether the value is null in JSON.
    pub(super) fn is_null(&self) -> Result<bool, Error> {
        if self.is_absent() || matches!(self.shape, Shape::Repeated | Shape::Map) {
            return Ok(self.is_absent());
        }
        Ok(match self.field.of {
            Type::Bytes => self.span.is_empty(),
            Type::Time => special::time(self.pieces()?)?.is_none(),
            Type::MicroTime => special::micro_time(self.pieces()?)?.is_none(),
            Type::Raw => self.raw()?.is_empty(),
            Type::Message(index) => match self.context.table.message(index) {
                Message {
                    union: Some(union), ..
                } => self.chosen(*union, index, |chosen| Ok(chosen.is_none()))?,
                _ => false,
            },
            _ => false,
        })
    }

    fn pieces(&self) -> Result<impl Iterator<Item = &'de [u8]> + use<'a, 'de>, Error> {
        Ok(self.context.pieces(self.field, self.span)?)
    }

    fn scalar(&self) -> Result<Scalar<'de>, Error> {
        // All are read, so that an invalid one is refused; the last counts.
        let mut last = Scalar::zero(self.field.of);
        for at in self.span.positions() {
            last = Scalar::read(self.field, self.context.wire(at))?;
        }
        Ok(last)
    }

    /// The text of a time, if the value is one; none for the zero time and for one that is absent.
    fn time(&self) -> Result<Option<Option<TimeText>>, Error> {
        if matches!(self.shape, Shape::Repeated | Shape::Map) {
            return Ok(None);
        }
        Ok(match self.field.of {
            Type::Time | Type::MicroTime if self.is_absent() => Some(None),
            Type::Time => Some(special::time(self.pieces()?)?),
            Type::MicroTime => Some(special::micro_time(self.pieces()?)?),
            _ => None,
        })
    }

    fn raw(&self) -> Result<&'de [u8], Error> {
        let left = self.context.limits.depth.saturating_sub(self.depth + 1);
        Ok(special::raw(self.pieces()?, left)?)
    }

    fn check_depth(&self) -> Result<(), Error> {
        // A list of texts in the innermost message is then as deep as values may be.
        if self.depth + 3 > self.context.limits.depth {
            return Err(Cause::Depth.into());
        }
        Ok(())
    }

    /// Passes the field that a union has in JSON, if it has one.
    fn chosen<T>(
        &self,
        union: Union,
        index: usize,
        then: impl FnOnce(Option<Element<'_, 'de>>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let message = self.context.table.message(index);
        let frame = Frame::open(self.context, message, None, self.pieces()?)?;
        let depth = self.depth + 1;
        let element = |name: &str| {
            let (field, span) = frame.named(name)?;
            Some(Element::new(self.context, field, span, depth, None))
        };
        let filled = |name: &str| element(name).filter(|element| !element.span.is_empty());
        then(match union {
            Union::Array => filled("JSONSchemas").or_else(|| filled("Schema")),
            Union::Texts => filled("Property").or_else(|| filled("Schema")),
            Union::Bool => filled("Schema").or_else(|| element("Allows")),
        })
    }

    fn visit_single<V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, Error> {
        // The common values, without those in between.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "as Go truncates it"
        )]
        match self.field.of {
            Type::Text => {
                if let Some(bytes) = self.context.bytes(self.span)
                    && let Ok(text) = std::str::from_utf8(bytes)
                {
                    return visitor.visit_borrowed_str(text);
                }
            }
            Type::Bool | Type::Int32 | Type::Int64 => {
                if let Some(number) = self.context.number(self.span) {
                    return match self.field.of {
                        Type::Bool => visitor.visit_bool(number != 0),
                        Type::Int32 => visitor.visit_i64((number as i32).into()),
                        _ => visitor.visit_i64(number as i64),
                    };
                }
            }
            Type::Message(index) => {
                let message = self.context.table.message(index);
                if message.union.is_none()
                    && let Some(bytes) = self.context.bytes(self.span)
                {
                    self.check_depth()?;
                    let piece = std::iter::once(bytes);
                    let frame = Frame::open(self.context, message, self.rule, piece)?;
                    let depth = self.depth + 1;
                    return visitor.visit_map(Members::new(self.context, frame, depth, None));
                }
            }
            _ => {}
        }
        if !self.field.of.is_scalar() {
            self.check_depth()?;
        }
        match self.field.of {
            Type::Text | Type::Bytes | Type::Bool | Type::Int32 | Type::Int64 | Type::Double => {
                self.scalar()?.visit(visitor)
            }
            Type::Time => visit_option(special::time(self.pieces()?)?, visitor),
            Type::MicroTime => visit_option(special::micro_time(self.pieces()?)?, visitor),
            Type::Quantity => visit_text(special::quantity(self.pieces()?)?, visitor),
            Type::IntOrString => match special::int_or_string(self.pieces()?)? {
                IntOrString::Int(number) => visitor.visit_i64(number.into()),
                IntOrString::String(text) => visit_text(text, visitor),
            },
            Type::Raw => match self.raw()? {
                b"" => visitor.visit_unit(),
                text => json(text, |json| json.deserialize_any(visitor)),
            },
            Type::Texts => {
                let texts = special::texts(self.pieces()?)?;
                visitor.visit_seq(Texts::new(self.context, texts))
            }
            Type::Message(index) => {
                let message = self.context.table.message(index);
                if let Some(union) = message.union {
                    return self.chosen(union, index, |chosen| match chosen {
                        Some(element) => element.deserialize_any(visitor),
                        None => visitor.visit_unit(),
                    });
                }
                let frame = Frame::open(self.context, message, self.rule, self.pieces()?)?;
                let depth = self.depth + 1;
                visitor.visit_map(Members::new(self.context, frame, depth, None))
            }
        }
    }
}

impl<'de> Deserializer<'de> for &Element<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.shape {
            _ if self.is_absent() => visitor.visit_unit(),
            Shape::Repeated => visitor.visit_seq(Items::new(
                self.context,
                self.field,
                self.span,
                self.depth + 1,
                self.rule,
            )),
            Shape::Map => visitor.visit_map(Entries::new(
                self.context,
                self.field,
                self.span,
                self.depth + 1,
                self.rule,
            )),
            Shape::Plain | Shape::Pointer => self.visit_single(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        // The common values are never null.
        let is_common = match self.field.of {
            Type::Text => self.context.bytes(self.span).is_some(),
            Type::Bool | Type::Int32 | Type::Int64 => self.context.number(self.span).is_some(),
            _ => false,
        };
        if is_common && matches!(self.shape, Shape::Plain | Shape::Pointer) {
            return visitor.visit_some(self);
        }
        if matches!(self.field.of, Type::Time | Type::MicroTime)
            && let Some(time) = self.time()?
        {
            return match time {
                Some(text) => visitor.visit_some(Formatted(text.as_str())),
                None => visitor.visit_none(),
            };
        }
        if self.is_null()? {
            return visitor.visit_none();
        }
        if self.field.of == Type::Raw && self.shape != Shape::Repeated {
            return json(self.raw()?, |json| json.deserialize_option(visitor));
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.field.of == Type::Raw && self.shape != Shape::Repeated {
            let text = self.raw()?;
            return json(text, |json| json.deserialize_enum(name, variants, visitor));
        }
        match self.scalar()? {
            Scalar::Text(text) => visitor.visit_enum(text.into_deserializer()),
            _ => Err(serde::de::Error::custom("an enum is read from a text only")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string
        bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
    }
}

fn visit_option<'de, V: Visitor<'de>>(
    text: Option<TimeText>,
    visitor: V,
) -> Result<V::Value, Error> {
    match text {
        Some(text) => visitor.visit_str(text.as_str()),
        None => visitor.visit_unit(),
    }
}

/// A text that was made for the reader.
struct Formatted<'t>(&'t str);

// === impl Formatted ===

impl<'de> Deserializer<'de> for Formatted<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string
        bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// Reads a whole JSON text.
fn json<'de, T>(
    text: &'de [u8],
    read: impl FnOnce(
        &mut serde_json::Deserializer<serde_json::de::SliceRead<'de>>,
    ) -> Result<T, serde_json::Error>,
) -> Result<T, Error> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let value = read(&mut json).and_then(|value| json.end().map(|()| value));
    value.map_err(|error| Cause::Json(error.to_string()).into())
}

//! The members of a message as a map of names and values.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, MapAccess, value};

use super::element::Element;
use super::scalar::seed_text;
use super::stack::{Context, Frame, Span};
use crate::error::Error;
use crate::table::{Field, Shape, Type};
use crate::trim::Rule;

/// The members of one message, and of the messages that are inlined in it.
pub(super) struct Members<'a, 'de> {
    context: &'a Context<'de>,
    frame: Frame<'a, 'de>,
    /// The messages in which `frame` is inlined.
    outer: Vec<Frame<'a, 'de>>,
    depth: usize,
    /// `apiVersion` and `kind`, of the outermost object.
    kind: Option<TypeMeta<'de>>,
    current: Current<'de>,
    /// The `kind`, once `apiVersion` was returned.
    text: Cow<'de, str>,
}

/// `apiVersion` and `kind`, which are not in the message.
#[derive(Clone, Debug)]
pub(super) struct TypeMeta<'de> {
    pub(super) api_version: Cow<'de, str>,
    pub(super) kind: Cow<'de, str>,
}

/// The member whose name was returned.
#[derive(Clone, Copy)]
enum Current<'de> {
    None,
    /// Its value is the text.
    Text(&'static str),
    Field(Shown<'de>),
}

/// A member that has a value.
#[derive(Clone, Copy)]
struct Shown<'de> {
    field: &'static Field,
    name: &'static str,
    span: Span,
    rule: Option<&'de Rule>,
}

// === impl Members ===

impl<'a, 'de> Members<'a, 'de> {
    pub(super) fn new(
        context: &'a Context<'de>,
        frame: Frame<'a, 'de>,
        depth: usize,
        kind: Option<TypeMeta<'de>>,
    ) -> Self {
        Self {
            context,
            frame,
            outer: Vec::new(),
            depth,
            kind,
            current: Current::None,
            text: Cow::Borrowed(""),
        }
    }

    /// Moves to the next field that has a value, and returns its name.
    fn next(&mut self) -> Result<Option<&'static str>, Error> {
        loop {
            let Some((field, span, rule)) = self.frame.next() else {
                let Some(outer) = self.outer.pop() else {
                    return Ok(None);
                };
                self.frame = outer;
                continue;
            };
            let Some(name) = field.name else {
                self.enter(field, span, rule)?;
                continue;
            };
            let shown = self.is_shown(field, span);
            if shown.map_err(|error| error.in_field(name))? {
                self.context.count()?;
                self.current = Current::Field(Shown {
                    field,
                    name,
                    span,
                    rule,
                });
                return Ok(Some(name));
            }
        }
    }

    /// Goes on with the fields of an inlined message.
    fn enter(
        &mut self,
        field: &'static Field,
        span: Span,
        rule: Option<&'de Rule>,
    ) -> Result<(), Error> {
        if let Type::Message(index) = field.of {
            let message = self.context.table.message(index);
            let pieces = self.context.pieces(field, span)?;
            let inner = Frame::open(self.context, message, rule, pieces)?;
            self.outer.push(std::mem::replace(&mut self.frame, inner));
        }
        Ok(())
    }

    fn is_shown(&self, field: &'static Field, span: Span) -> Result<bool, Error> {
        // It was found for this.
        if span.is_empty() {
            return Ok(true);
        }
        if field.shape == Shape::Plain && field.omit_empty {
            match field.of {
                Type::Text | Type::Bytes => {
                    if let Some(bytes) = self.context.bytes(span) {
                        return Ok(!bytes.is_empty());
                    }
                }
                Type::Bool | Type::Int64 => {
                    if let Some(number) = self.context.number(span) {
                        return Ok(number != 0);
                    }
                }
                _ => {}
            }
        }
        let element = || Element::new(self.context, field, span, self.depth, None);
        Ok(match field.shape {
            Shape::Plain if field.omit_empty && field.of.is_scalar() => !element().is_empty()?,
            Shape::Plain => !(field.omit_zero && element().is_null()?),
            Shape::Repeated if field.omit_empty && field.of.is_number() => {
                !element().is_packed_empty()
            }
            Shape::Pointer | Shape::Map | Shape::Repeated => true,
        })
    }
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let name = if let Some(kind) = &mut self.kind {
            if let Current::None = self.current {
                self.text = std::mem::take(&mut kind.api_version);
                self.current = Current::Text("apiVersion");
                "apiVersion"
            } else {
                self.text = std::mem::take(&mut kind.kind);
                self.current = Current::Text("kind");
                self.kind = None;
                "kind"
            }
        } else {
            let Some(name) = self.next()? else {
                return Ok(None);
            };
            name
        };
        seed.deserialize(value::BorrowedStrDeserializer::new(name))
            .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        match self.current {
            Current::None => Err(serde::de::Error::custom("a value without a name")),
            Current::Text(name) => {
                let text = std::mem::take(&mut self.text);
                seed_text(text, seed).map_err(|error| error.in_field(name))
            }
            Current::Field(shown) => {
                let Shown {
                    field,
                    name,
                    span,
                    rule,
                } = shown;
                let element = Element::new(self.context, field, span, self.depth, rule);
                seed.deserialize(&element).map_err(|error| {
                    let error = error.in_field(name);
                    match self.context.offset(span) {
                        Some(offset) => error.or_at(offset),
                        None => error,
                    }
                })
            }
        }
    }
}

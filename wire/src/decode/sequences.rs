//! Lists and maps.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess};

use super::element::Element;
use super::scalar::{Scalar, seed_text, text_of};
use super::stack::{Context, Pushed, Span, wrong_type};
use crate::error::{Cause, Error};
use crate::fields::{Fields, Wire};
use crate::table::{Field, Type};
use crate::trim::Rule;

/// The items of a list.
pub(super) struct Items<'a, 'de> {
    context: &'a Context<'de>,
    field: &'static Field,
    positions: std::ops::Range<usize>,
    /// The rest of a sequence of numbers without tags.
    packed: &'de [u8],
    index: usize,
    depth: usize,
    /// What is left out of each item.
    each: Option<&'de Rule>,
}

/// The entries of a map with text keys.
pub(super) struct Entries<'a, 'de> {
    context: &'a Context<'de>,
    field: &'static Field,
    positions: std::ops::Range<usize>,
    /// The key that was returned, and the value of its entry.
    current: Option<(Cow<'de, str>, Option<Wire<'de>>)>,
    depth: usize,
    /// What is left out of the entries.
    rule: Option<&'de Rule>,
}

/// The items of a list of texts that is a message of its own.
pub(super) struct Texts<'a, 'de> {
    context: &'a Context<'de>,
    texts: std::vec::IntoIter<Cow<'de, str>>,
}

// === impl Items ===

impl<'a, 'de> Items<'a, 'de> {
    pub(super) fn new(
        context: &'a Context<'de>,
        field: &'static Field,
        span: Span,
        depth: usize,
        rule: Option<&'de Rule>,
    ) -> Self {
        let each = rule.and_then(Rule::each);
        let positions = match each {
            Some(each) if each.whole => Span::NONE.positions(),
            _ => span.positions(),
        };
        Self {
            context,
            field,
            positions,
            packed: b"",
            index: 0,
            depth,
            each,
        }
    }

    fn next<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let is_number = self.field.of.is_number();
        while self.packed.is_empty() {
            let Some(at) = self.positions.next() else {
                return Ok(None);
            };
            if let Wire::Bytes(packed) = self.context.wire(at)
                && is_number
            {
                self.packed = packed;
                continue;
            }
            self.context.count()?;
            let element = Element::item(
                self.context,
                self.field,
                Span::one(at),
                self.depth,
                self.each,
            );
            let read = seed.deserialize(&element);
            let offset = || self.context.offset(Span::one(at)).unwrap_or_default();
            return read.map(Some).map_err(|error| error.or_at(offset()));
        }
        let number = Scalar::unpack(self.field, &mut self.packed)?;
        self.context.count()?;
        number.seed(seed).map(Some)
    }
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let index = self.index;
        self.index += 1;
        self.next(seed).map_err(|error| error.in_item(index))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.positions.len())
    }
}

// === impl Entries ===

impl<'a, 'de> Entries<'a, 'de> {
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
            positions: span.positions(),
            current: None,
            depth,
            rule,
        }
    }

    /// What is left out of the entry of a key.
    fn entry(&self, key: &str) -> Option<&'de Rule> {
        self.rule?.entry(key)
    }

    fn read(&self, at: usize) -> Result<(Cow<'de, str>, Option<Wire<'de>>), Cause> {
        let Wire::Bytes(entry) = self.context.wire(at) else {
            return Err(wrong_type(self.field, self.context.wire(at)));
        };
        let (mut key, mut last) = (Cow::Borrowed(""), None);
        let mut fields = Fields::new(entry, "Entry");
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, Wire::Bytes(text)) => key = text_of(text),
                (1, other) => return Err(wrong_type(self.field, other)),
                // Of a message that is written twice in one entry the later counts.
                (2, value) => last = Some(value),
                _ => {}
            }
        }
        // An entry without bytes has empty ones.
        if self.field.of == Type::Bytes {
            last = last.or(Some(Wire::Bytes(b"")));
        }
        Ok((key, last))
    }
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let (key, value) = loop {
            let Some(at) = self.positions.next() else {
                return Ok(None);
            };
            let offset = || self.context.offset(Span::one(at)).unwrap_or_default();
            let read = self.read(at);
            let (key, value) = read.map_err(|cause| Error::at(cause, offset()))?;
            if !self.entry(&key).is_some_and(|rule| rule.whole) {
                break (key, value);
            }
        };
        self.context.count()?;
        self.current = Some((key.clone(), value));
        seed_text(key, seed).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some((key, value)) = self.current.take() else {
            return Err(serde::de::Error::custom("a value without a key"));
        };
        let pushed = value.map(|value| self.context.push(value));
        let span = pushed.as_ref().map_or(Span::NONE, Pushed::span);
        let rule = self.entry(&key);
        let element = Element::item(self.context, self.field, span, self.depth, rule);
        seed.deserialize(&element)
            .map_err(|error| error.in_entry(&key))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.positions.len())
    }
}

// === impl Texts ===

impl<'a, 'de> Texts<'a, 'de> {
    pub(super) fn new(context: &'a Context<'de>, texts: Vec<Cow<'de, str>>) -> Self {
        Self {
            context,
            texts: texts.into_iter(),
        }
    }
}

impl<'de> SeqAccess<'de> for Texts<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(text) = self.texts.next() else {
            return Ok(None);
        };
        self.context.count()?;
        seed_text(text, seed).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.texts.len())
    }
}

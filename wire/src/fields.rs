//! The wire format: tags, numbers, lengths.

use std::borrow::Cow;
use std::str;

use crate::error::Cause;

/// The value of a field on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wire<'a> {
    /// A number in groups of seven bits.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// A text, bytes, or a message.
    Bytes(&'a [u8]),
    /// No Kubernetes type has groups.
    Group,
    /// Four bytes, which no Kubernetes type has.
    Fixed32,
}

/// The fields of one message, in the order of the wire: for a reader that needs a few of them.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    /// The message's name, for errors.
    message: &'static str,
}

// === impl Wire ===

impl Wire<'_> {
    /// The number of the wire type.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Group => 3,
            Self::Fixed32 => 5,
        }
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// Reads `bytes`. Errors name `message`.
    #[must_use]
    pub fn new(bytes: &'a [u8], message: &'static str) -> Self {
        Self { bytes, message }
    }

    /// The bytes that were not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The next field: its number and its value; `None` at the end.
    ///
    /// # Errors
    /// For anything that is not a field.
    #[allow(
        clippy::should_implement_trait,
        reason = "an error ends it, and a loop uses `?`"
    )]
    #[inline(always)]
    pub fn next(&mut self) -> Result<Option<(u32, Wire<'a>)>, Cause> {
        match plain(self.bytes) {
            Some((number, value, rest)) => {
                self.bytes = rest;
                Ok(Some((number, value)))
            }
            None if self.bytes.is_empty() => Ok(None),
            None => self.next_of_any_form(),
        }
    }

    /// As [`Fields::next`], for the rare forms and for errors.
    #[cold]
    pub(crate) fn next_of_any_form(&mut self) -> Result<Option<(u32, Wire<'a>)>, Cause> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let tag = varint(&mut self.bytes)?;
        // Go reads the number of a field as 32 bits with a sign.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "as Go truncates it"
        )]
        let number = (tag >> 3) as i32;
        if tag & 7 == 4 {
            return Err(Cause::EndGroup(self.short_name()));
        }
        let Ok(known @ 1..) = u32::try_from(number) else {
            return Err(Cause::Tag {
                message: self.short_name(),
                number,
                tag,
            });
        };
        Ok(Some((known, value(&mut self.bytes, tag)?)))
    }

    fn short_name(&self) -> String {
        let name = self.message.rsplit('.').next();
        name.unwrap_or_default().to_owned()
    }
}

/// The first field, and the rest, if it has one of the common forms. Most of the time of reading is spent here, so it makes
/// no error, which would be a large value, and is inlined: a field that is returned through memory is read back before it
/// is written.
#[inline(always)]
pub(crate) fn plain(bytes: &[u8]) -> Option<(u32, Wire<'_>, &[u8])> {
    let (tag, rest) = short(bytes)?;
    let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?;
    match tag & 7 {
        2 => {
            let (length, rest) = short(rest)?;
            let (text, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some((number, Wire::Bytes(text), rest))
        }
        0 => {
            let (value, rest) = short(rest).or_else(|| long(rest))?;
            Some((number, Wire::Varint(value), rest))
        }
        _ => None,
    }
}

/// A number of up to three bytes, and what follows it.
#[inline(always)]
pub(crate) fn short(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let low = |byte: u8| u64::from(byte & 0x7f);
    match bytes {
        [a, rest @ ..] if *a < 0x80 => Some((low(*a), rest)),
        [a, b, rest @ ..] if *b < 0x80 => Some((low(*a) | low(*b) << 7, rest)),
        [a, b, c, rest @ ..] if *c < 0x80 => Some((low(*a) | low(*b) << 7 | low(*c) << 14, rest)),
        _ => None,
    }
}

/// A number of any length, and what follows it.
pub(crate) fn long(mut bytes: &[u8]) -> Option<(u64, &[u8])> {
    let number = long_varint(&mut bytes).ok()?;
    Some((number, bytes))
}

/// The value that follows `tag`.
#[inline]
fn value<'a>(bytes: &mut &'a [u8], tag: u64) -> Result<Wire<'a>, Cause> {
    match tag & 7 {
        0 => varint(bytes).map(Wire::Varint),
        1 => fixed64(bytes).map(Wire::Fixed64),
        2 => text(bytes).map(Wire::Bytes),
        3 => {
            skip_group(bytes)?;
            Ok(Wire::Group)
        }
        5 => {
            *bytes = bytes.get(4..).ok_or(Cause::End)?;
            Ok(Wire::Fixed32)
        }
        #[allow(clippy::cast_possible_truncation, reason = "three bits")]
        other => Err(Cause::IllegalType(other as u8)),
    }
}

/// Skips the rest of a group, and the groups within.
fn skip_group(bytes: &mut &[u8]) -> Result<(), Cause> {
    let mut open = 1usize;
    while open > 0 {
        let tag = varint(bytes)?;
        match tag & 7 {
            3 => open += 1,
            4 => open -= 1,
            _ => {
                value(bytes, tag)?;
            }
        }
    }
    Ok(())
}

/// Writes a number in groups of seven bits, lowest first.
pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// A number of up to 64 bits in groups of seven, lowest first.
#[inline]
pub(crate) fn varint(bytes: &mut &[u8]) -> Result<u64, Cause> {
    // Most numbers, tags and lengths have one byte.
    if let Some((&byte, rest)) = bytes.split_first()
        && byte < 0x80
    {
        *bytes = rest;
        return Ok(byte.into());
    }
    long_varint(bytes)
}

fn long_varint(bytes: &mut &[u8]) -> Result<u64, Cause> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(Cause::End)?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Cause::Overflow)
}

/// A number of 64 bits, lowest byte first.
pub(crate) fn fixed64(bytes: &mut &[u8]) -> Result<u64, Cause> {
    let (fixed, rest) = bytes.split_first_chunk().ok_or(Cause::End)?;
    *bytes = rest;
    Ok(u64::from_le_bytes(*fixed))
}

/// A text in which invalid bytes are replaced. Nearly none has any, and [`str::from_utf8`] finds that out faster.
pub(crate) fn lossy(text: &[u8]) -> Cow<'_, str> {
    str::from_utf8(text).map_or_else(|_| String::from_utf8_lossy(text), Cow::Borrowed)
}

#[inline]
fn text<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Cause> {
    let length = i64::try_from(varint(bytes)?).map_err(|_| Cause::Length)?;
    let length = usize::try_from(length).map_err(|_| Cause::Length)?;
    let (text, rest) = bytes.split_at_checked(length).ok_or(Cause::End)?;
    *bytes = rest;
    Ok(text)
}

//! Types with a JSON form of their own.
//!
//! Each function takes the pieces of one message, in the order of the wire.

use std::borrow::Cow;

use super::scalar::text_of;
use crate::error::Cause;
use crate::fields::{Fields, Wire};
use crate::time::{TimeText, ZERO};

/// A number or a text.
#[derive(Debug, PartialEq)]
pub(super) enum IntOrString<'de> {
    Int(i32),
    String(Cow<'de, str>),
}

/// `Time`: RFC 3339 with whole seconds; `None` for the zero time.
pub(super) fn time<'de>(
    pieces: impl Iterator<Item = &'de [u8]>,
) -> Result<Option<TimeText>, Cause> {
    let (seconds, _) = moment(pieces)?;
    if seconds == ZERO {
        return Ok(None);
    }
    let text = TimeText::seconds(seconds).ok_or(Cause::Time(seconds))?;
    Ok(Some(text))
}

/// `MicroTime`: with six digits after the point.
pub(super) fn micro_time<'de>(
    pieces: impl Iterator<Item = &'de [u8]>,
) -> Result<Option<TimeText>, Cause> {
    let (seconds, nanoseconds) = moment(pieces)?;
    let truncated = nanoseconds / 1000 * 1000;
    if (seconds, truncated) == (ZERO, 0) {
        return Ok(None);
    }
    let text = TimeText::microseconds(seconds, truncated).ok_or(Cause::Time(seconds))?;
    Ok(Some(text))
}

/// Seconds and nanoseconds.
fn moment<'de>(pieces: impl Iterator<Item = &'de [u8]>) -> Result<(i64, i32), Cause> {
    // Go replaces a time as a whole: the last of several counts.
    let mut moment = (ZERO, 0);
    for piece in pieces {
        if piece.is_empty() {
            moment = (ZERO, 0);
            continue;
        }
        let (mut seconds, mut nanoseconds) = (0, 0);
        let mut fields = Fields::new(piece, "Timestamp");
        while let Some((number, value)) = fields.next()? {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_possible_wrap,
                reason = "as Go truncates it"
            )]
            match (number, value) {
                (1, Wire::Varint(number)) => seconds = number as i64,
                (2, Wire::Varint(number)) => nanoseconds = number as i32,
                (1, other) => return Err(wrong_type("Seconds", other)),
                (2, other) => return Err(wrong_type("Nanos", other)),
                _ => {}
            }
        }
        moment = (seconds, nanoseconds);
    }
    Ok(moment)
}

/// `RawExtension`, `FieldsV1` and `JSON`: the JSON text, which may nest up to `depth`; empty for none.
pub(super) fn raw<'de>(
    pieces: impl Iterator<Item = &'de [u8]>,
    depth: usize,
) -> Result<&'de [u8], Cause> {
    let mut text: &[u8] = b"";
    each(pieces, "RawExtension", |number, value| {
        match (number, value) {
            (1, Wire::Bytes(bytes)) => text = bytes,
            (1, other) => return Err(wrong_type("Raw", other)),
            _ => {}
        }
        Ok(())
    })?;
    if nests_deeper(text, depth) {
        return Err(Cause::Depth);
    }
    Ok(text)
}

/// Whether the containers of a JSON text nest deeper than `depth`. Of a text that is not JSON it returns either.
pub(crate) fn nests_deeper(text: &[u8], depth: usize) -> bool {
    let (mut open, mut in_text, mut escaped) = (0usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                open += 1;
                if open > depth {
                    return true;
                }
            }
            b'}' | b']' if !in_text => open = open.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// `Quantity`: its text.
pub(super) fn quantity<'de>(
    pieces: impl Iterator<Item = &'de [u8]>,
) -> Result<Cow<'de, str>, Cause> {
    let mut quantity = Cow::Borrowed("0");
    each(pieces, "Quantity", |number, value| {
        match (number, value) {
            (1, Wire::Bytes(text)) => quantity = text_of(text),
            (1, other) => return Err(wrong_type("String_", other)),
            _ => {}
        }
        Ok(())
    })?;
    Ok(quantity)
}

/// `IntOrString`: a number or a text.
pub(super) fn int_or_string<'de>(
    pieces: impl Iterator<Item = &'de [u8]>,
) -> Result<IntOrString<'de>, Cause> {
    let (mut kind, mut int, mut text) = (0, 0, Cow::Borrowed(""));
    each(pieces, "IntOrString", |number, value| {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "as Go truncates it"
        )]
        match (number, value) {
            (1, Wire::Varint(value)) => kind = value as i64,
            (2, Wire::Varint(value)) => int = value as i32,
            (3, Wire::Bytes(bytes)) => text = text_of(bytes),
            (1, other) => return Err(wrong_type("Type", other)),
            (2, other) => return Err(wrong_type("IntVal", other)),
            (3, other) => return Err(wrong_type("StrVal", other)),
            _ => {}
        }
        Ok(())
    })?;
    match kind {
        0 => Ok(IntOrString::Int(int)),
        1 => Ok(IntOrString::String(text)),
        _ => Err(Cause::IntOrString),
    }
}

/// A list of texts that is a message of its own.
pub(super) fn texts<'de>(
    pieces: impl Iterator<Item = &'de [u8]>,
) -> Result<Vec<Cow<'de, str>>, Cause> {
    let mut texts = Vec::new();
    each(pieces, "ExtraValue", |number, value| {
        match (number, value) {
            (1, Wire::Bytes(text)) => texts.push(text_of(text)),
            (1, other) => return Err(wrong_type("Items", other)),
            _ => {}
        }
        Ok(())
    })?;
    Ok(texts)
}

/// Passes the fields of all pieces to `read`.
fn each<'de>(
    pieces: impl Iterator<Item = &'de [u8]>,
    message: &'static str,
    mut read: impl FnMut(u32, Wire<'de>) -> Result<(), Cause>,
) -> Result<(), Cause> {
    for piece in pieces {
        let mut fields = Fields::new(piece, message);
        while let Some((number, value)) = fields.next()? {
            read(number, value)?;
        }
    }
    Ok(())
}

fn wrong_type(field: &str, found: Wire<'_>) -> Cause {
    Cause::WrongType {
        found: found.number(),
        field: field.to_owned(),
    }
}

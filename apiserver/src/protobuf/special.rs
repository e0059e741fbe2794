//! Types with a JSON form of their own.
//!
//! Each function takes the pieces of one message, in the order of the wire.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use serde_json::Value;

use super::Error;
use super::wire::{Fields, Wire};

/// The seconds of Go's zero time, the first of January of the year 1.
const ZERO: i64 = -62_135_596_800;

/// `Time`: RFC 3339 with whole seconds; null for the zero time.
pub(super) fn time(pieces: &[&[u8]]) -> Result<Value, Error> {
    moment(pieces, |seconds, _| {
        let time = date_time(seconds, 0)?;
        Ok(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
    })
}

/// `MicroTime`: with six digits after the point.
pub(super) fn micro_time(pieces: &[&[u8]]) -> Result<Value, Error> {
    moment(pieces, |seconds, nanoseconds| {
        let time = date_time(seconds, nanoseconds / 1000 * 1000)?;
        Ok(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
    })
}

fn moment(
    pieces: &[&[u8]],
    text: impl Fn(i64, i32) -> Result<String, Error>,
) -> Result<Value, Error> {
    // Go replaces a time as a whole: the last of several counts.
    let mut moment = Value::Null;
    for piece in pieces {
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
        let is_zero = piece.is_empty() || (seconds, nanoseconds) == (ZERO, 0);
        moment = if is_zero {
            Value::Null
        } else {
            text(seconds, nanoseconds)?.into()
        };
    }
    Ok(moment)
}

fn date_time(seconds: i64, nanoseconds: i32) -> Result<DateTime, Error> {
    let epoch = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    // Nanoseconds beyond a second, or below zero, carry.
    let carried = seconds.checked_add(i64::from(nanoseconds.div_euclid(1_000_000_000)));
    let since =
        carried.map(|seconds| SignedDuration::new(seconds, nanoseconds.rem_euclid(1_000_000_000)));
    since
        .and_then(|since| epoch.checked_add(since).ok())
        .filter(|time| time.year() >= 0)
        .ok_or(Error::Time(seconds))
}

/// `RawExtension`, `FieldsV1` and `JSON`: JSON text, which may nest up to `depth`.
pub(super) fn raw(pieces: &[&[u8]], depth: usize) -> Result<Value, Error> {
    let mut text: &[u8] = b"";
    for (number, value) in all(pieces, "RawExtension")? {
        match (number, value) {
            (1, Wire::Bytes(bytes)) => text = bytes,
            (1, other) => return Err(wrong_type("Raw", other)),
            _ => {}
        }
    }
    if text.is_empty() {
        return Ok(Value::Null);
    }
    let value = serde_json::from_slice(text).map_err(|error| Error::Json(error.to_string()))?;
    if nests_deeper(&value, depth) {
        return Err(Error::Depth);
    }
    Ok(value)
}

fn nests_deeper(value: &Value, depth: usize) -> bool {
    let within = |value: &Value| depth == 0 || nests_deeper(value, depth - 1);
    match value {
        Value::Array(items) => items.iter().any(within),
        Value::Object(members) => members.values().any(within),
        _ => false,
    }
}

/// `Quantity`: its text.
pub(super) fn quantity(pieces: &[&[u8]]) -> Result<Value, Error> {
    let mut quantity = "0".to_owned();
    for (number, value) in all(pieces, "Quantity")? {
        match (number, value) {
            (1, Wire::Bytes(text)) => quantity = String::from_utf8_lossy(text).into_owned(),
            (1, other) => return Err(wrong_type("String_", other)),
            _ => {}
        }
    }
    Ok(quantity.into())
}

/// `IntOrString`: a number or a text.
pub(super) fn int_or_string(pieces: &[&[u8]]) -> Result<Value, Error> {
    let (mut kind, mut number, mut text) = (0, 0, String::new());
    for (field, value) in all(pieces, "IntOrString")? {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "as Go truncates it"
        )]
        match (field, value) {
            (1, Wire::Varint(value)) => kind = value as i64,
            (2, Wire::Varint(value)) => number = value as i32,
            (3, Wire::Bytes(bytes)) => text = String::from_utf8_lossy(bytes).into_owned(),
            (1, other) => return Err(wrong_type("Type", other)),
            (2, other) => return Err(wrong_type("IntVal", other)),
            (3, other) => return Err(wrong_type("StrVal", other)),
            _ => {}
        }
    }
    match kind {
        0 => Ok(number.into()),
        1 => Ok(text.into()),
        _ => Err(Error::IntOrString),
    }
}

/// A list of texts that is a message of its own.
pub(super) fn texts(pieces: &[&[u8]]) -> Result<Vec<Value>, Error> {
    let mut texts = Vec::new();
    for (number, value) in all(pieces, "ExtraValue")? {
        match (number, value) {
            (1, Wire::Bytes(text)) => texts.push(String::from_utf8_lossy(text).into()),
            (1, other) => return Err(wrong_type("Items", other)),
            _ => {}
        }
    }
    Ok(texts)
}

/// The fields of all pieces.
fn all<'a>(pieces: &[&'a [u8]], message: &'a str) -> Result<Vec<(u32, Wire<'a>)>, Error> {
    let mut found = Vec::new();
    for piece in pieces {
        let mut fields = Fields::new(piece, message);
        while let Some(field) = fields.next()? {
            found.push(field);
        }
    }
    Ok(found)
}

fn wrong_type(field: &str, found: Wire<'_>) -> Error {
    Error::WrongType {
        found: found.number(),
        field: field.to_owned(),
    }
}

//! A JSON reader for what API servers write: faster than serde_json, and arrays say how long they are.
//!
//! It knows structure only: white space, brackets, strings without escapes, literals and short integers. What is
//! more difficult it hands to serde_json, value by value. It reads nothing that serde_json would refuse, and gives
//! what serde_json would give, but for one thing: before its first element an array tells its length, if that can be
//! seen within [`LOOKAHEAD`] bytes. So a `Vec` is as large as it has to be, where it would grow to 4, 8, 16 …
//!
//! # What it refuses
//! It has no words for what is wrong. A document that it refuses, for whatever reason, is read again by serde_json,
//! which alone decides, and whose error is the one that is told ([`from_str`]). It refuses everything that is no JSON
//! or not of the wanted type, and two things that serde_json reads: what is skipped and nested 128 deep, and a document
//! with an array or object whose reader failed, though who asked for it went on.

mod access;
#[cfg(any(test, fuzzing))]
#[allow(dead_code, reason = "fields are compared as they are printed")]
pub(crate) mod agree;
mod key;
mod reader;
mod text;
mod values;

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde_json::Error;

pub(crate) use access::{Elements, Fields};
pub(crate) use reader::Reader;

/// How many bytes are looked at to count the elements of an array. It bounds what that costs: no more than as many
/// bytes again for each level of nesting.
pub(crate) const LOOKAHEAD: usize = 8 * 1024;

/// Reads a whole document by `read`.
///
/// # Errors
/// The document is to be read by serde_json. The error says nothing that is worth to be told.
pub(crate) fn read<'de, T>(
    document: &'de str,
    read: impl FnOnce(&mut Reader<'de>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut reader = Reader::new(document);
    let value = read(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Reads a document as [`serde_json::from_slice`] does.
///
/// # Errors
/// serde_json's.
pub(crate) fn from_str<'de, T: Deserialize<'de>>(document: &'de str) -> Result<T, Error> {
    read(document, |reader| T::deserialize(reader))
        .or_else(|_| serde_json::from_slice(document.as_bytes()))
}

/// serde_json's own reader of a document.
pub(crate) fn by_serde_json(
    document: &str,
) -> serde_json::Deserializer<serde_json::de::SliceRead<'_>> {
    // As bytes: of a text it takes for granted that what it cuts out is one, and where a name of a field is wanted as a
    // `bool` it cuts through the first character (1.0.154), which makes its error panic.
    serde_json::Deserializer::from_slice(document.as_bytes())
}

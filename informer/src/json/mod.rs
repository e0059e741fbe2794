//! A JSON reader for the output of API servers: faster than serde_json, and arrays have a length hint.
//!
//! The reader knows structure only: white space, brackets, strings without escapes, literals and short integers. Harder
//! values go to serde_json, one by one. It reads nothing that serde_json would refuse, and returns what serde_json
//! would return, with one difference: before its first element an array has an exact size hint, if its end is within
//! [`LOOKAHEAD`](text::LOOKAHEAD) bytes. So a `Vec` has exactly the needed size, where it would grow to 4, 8, 16 …
//!
//! # Refusals
//! The reader has no error messages. A document that it refuses, for whatever reason, is read again by serde_json,
//! which decides, and whose error is returned ([`from_str`]). The reader refuses everything that is not JSON or not of
//! the expected type, and two things that serde_json reads: a skipped value nested 128 deep, and a document with an
//! array or object whose visitor failed while its caller went on.

mod access;
#[cfg(any(test, fuzzing))]
#[allow(dead_code, reason = "fields are compared as they are printed")]
pub(crate) mod agree;
mod document;
mod isolated;
mod key;
mod raw;
mod reader;
mod redacted;
mod text;
mod values;

#[cfg(test)]
mod tests;

pub(crate) use access::{Elements, Fields};
pub(crate) use document::{by_serde_json, from_str, read};
pub(crate) use isolated::{attempt, read_alone};
pub(crate) use reader::Reader;
pub(crate) use redacted::redacted;

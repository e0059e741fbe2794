//! A JSON reader for the output of API servers: faster than serde_json, arrays have a length hint, and fields can be left
//! out.
//!
//! The reader is the only deserializer of Kubernetes types in this crate and in the crates above it, so each type is
//! compiled for one deserializer. It knows structure: white space, brackets, strings without escapes, literals and short integers. Harder
//! values go to serde_json, one by one. It reads what serde_json reads, and returns what serde_json would return, with
//! three differences:
//! * before its first element an array has an exact size hint, if its end is within 8 KiB. So a `Vec` has exactly the
//!   needed size, where it would grow to 4, 8, 16 …;
//! * an error does not quote a value of a wrong type, unless the type asks for any value;
//! * a document that is nested more than 128 deep is refused, whatever the type makes of that.
//!
//! # Errors
//! The reader stops where it cannot go on. An error is then found by a second look ([`Reader::explain`]): serde_json's
//! own if the document is not JSON, else that of the type, with the line and column where the reader stopped.

mod access;
#[cfg(any(test, fuzzing))]
#[allow(dead_code, reason = "fields are compared as they are printed")]
pub mod agree;
mod document;
mod error;
mod raw;
mod reader;
mod text;
mod trim;
mod values;

#[cfg(test)]
mod tests;

pub use access::{Elements, Fields};
pub use document::{attempt, from_slice, from_str, read, read_alone, reencode};
pub use error::redacted;
pub use reader::Reader;
pub use trim::{Plain, Skip, SkipPath, SkipPathError, Trimming, another};

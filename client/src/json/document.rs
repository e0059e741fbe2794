//! Reading a whole document, and one whose type may panic: the panic costs the one object at which the type panicked.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Error;

use super::error::{explain_bytes, redacted};
use super::reader::Reader;

/// The error of a type that panics at an object. The message of the panic may hold values of the object.
const PANICKED: &str = "its type panicked as it was read";

/// Reads a whole document by `read`.
///
/// # Errors
/// serde_json's, if the document is not JSON; else that of the type, at the place where the reader stopped. It does not
/// quote a value of a wrong type, unless the type asks for any value; an error of the type's own may quote anything.
pub fn read<'de, T>(
    document: &'de str,
    read: impl FnOnce(&mut Reader<'de>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut reader = Reader::new(document);
    match read(&mut reader).and_then(|value| reader.end().map(|()| value)) {
        Ok(value) => Ok(value),
        Err(error) => Err(reader.explain(&error)),
    }
}

/// Reads a document of one value.
///
/// # Errors
/// As [`read`].
pub fn from_str<'de, T: Deserialize<'de>>(document: &'de str) -> Result<T, Error> {
    read(document, |reader| T::deserialize(reader))
}

/// Reads a document of one value, in UTF-8.
///
/// # Errors
/// As [`read`].
pub fn from_slice<'de, T: Deserialize<'de>>(document: &'de [u8]) -> Result<T, Error> {
    match std::str::from_utf8(document) {
        Ok(document) => from_str(document),
        Err(error) => Err(explain_bytes(document, error.valid_up_to())),
    }
}

/// A value as another type, through its JSON text.
///
/// # Errors
/// When it does not encode, or as [`read`].
pub fn reencode<T: DeserializeOwned>(value: &impl Serialize) -> Result<T, Error> {
    from_str(&serde_json::to_string(value)?)
}

/// The result of `read`; `None` if it fails or panics.
pub fn attempt<T, E>(read: impl FnOnce() -> Result<T, E>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(read)).ok()?.ok()
}

/// Reads one object by itself.
///
/// # Errors
/// The error without any of the object's content; also if its type panics.
pub fn read_alone<T>(read: impl FnOnce() -> Result<T, serde_json::Error>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(|error| redacted(&error)),
        Err(_) => Err(PANICKED.to_owned()),
    }
}

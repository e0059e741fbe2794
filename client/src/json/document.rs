//! Reading a whole document.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Error;

use super::error::explain_bytes;
use super::reader::Reader;

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

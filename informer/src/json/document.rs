//! Reading a whole document: by the reader of this module, and by serde_json.

use serde::Deserialize;
use serde_json::Error;

use super::reader::Reader;

/// Reads a whole document by `read`.
///
/// # Errors
/// The reader refused the document; read it by serde_json. The error has no useful message.
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
    // From bytes: from a text it assumes that each part that it cuts out is valid UTF-8, and where the name of a field
    // is read as a `bool` it cuts through the first character (1.0.154), and formatting its error panics.
    serde_json::Deserializer::from_slice(document.as_bytes())
}

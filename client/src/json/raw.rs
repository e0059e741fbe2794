//! The text of a value, for serde_json's `RawValue`.

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, MapAccess};
use serde_json::Error;

/// The name by which serde_json's `RawValue` requests the text of a value, and the key of the answer.
pub(super) const RAW: &str = "$serde_json::private::RawValue";

/// The input of `RawValue`: a map of one field.
pub(super) struct Raw<'de> {
    pub(super) raw: &'de str,
    pub(super) taken: bool,
}

impl<'de> MapAccess<'de> for Raw<'de> {
    type Error = Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if std::mem::replace(&mut self.taken, true) {
            return Ok(None);
        }
        seed.deserialize(BorrowedStrDeserializer::new(RAW))
            .map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(BorrowedStrDeserializer::new(self.raw))
    }
}

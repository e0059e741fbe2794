//! YAML of bodies, answers and kubeconfigs.

use serde::Serialize;
use serde_json::Value;

/// Reads the first document. Of a key that is given twice, the last value counts, as on a real server. The error is one
/// line.
pub(crate) fn read(mut text: &[u8]) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
    };
    let document = serde_saphyr::read_with_options(&mut text, options).next();
    document
        .unwrap_or(Ok(Value::Null))
        .map_err(|error| error.without_snippet().to_string())
}

/// Writes one line for each text.
pub(crate) fn write(value: &impl Serialize) -> String {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(value, options).unwrap_or_default()
}

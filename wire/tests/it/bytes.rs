//! Messages made by hand.

use reeve_wire::{Cause, Envelope, Error, Limits};
use serde_json::Value;

/// The limits of the tests.
pub fn limits() -> Limits {
    Limits::default().values(MAX_VALUES)
}

pub const MAX_VALUES: usize = 500_000;

/// A field of bytes.
pub fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut written = vec![number << 3 | 2];
    written.extend(varint(bytes.len() as u64));
    written.extend(bytes);
    written
}

/// A field of a number.
pub fn number(number: u8, value: u64) -> Vec<u8> {
    [vec![number << 3], varint(value)].concat()
}

pub fn varint(mut value: u64) -> Vec<u8> {
    let mut written = Vec::new();
    while value >= 0x80 {
        written.push(value as u8 | 0x80);
        value >>= 7;
    }
    written.push(value as u8);
    written
}

/// An object in its envelope.
pub fn body(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let of = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &of), field(2, object)].concat()
}

pub fn decode(body: &[u8]) -> Result<Value, Error> {
    Envelope::parse(body)?.decode(limits())
}

/// The cause alone.
pub fn read(api_version: &str, kind: &str, object: &[u8]) -> Result<Value, Cause> {
    decode(&body(api_version, kind, object)).map_err(|error| error.cause().clone())
}

//! An object with holes of fixed width.

use bytes::{BufMut, BytesMut};

/// The placeholders in the files of `templates/`.
const NUMBER: &[u8] = b"4444444444";
const NAMESPACE: &[u8] = b"ns-3333";
const UID: &[u8] = b"555555555555";
const VERSION: &[u8] = b"6666666666";
const STAMP: &[u8] = b"7777777777777777";

/// The values that replace the placeholders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) number: u32,
    /// Ten digits.
    pub(crate) version: u64,
    /// Microseconds since 1970, sixteen digits.
    pub(crate) stamp: u64,
}

/// The bytes of an object, and where its holes are.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    numbers: Vec<usize>,
    namespaces: Vec<usize>,
    uids: Vec<usize>,
    versions: Vec<usize>,
    stamps: Vec<usize>,
}

// === impl Template ===

impl Template {
    /// Finds the holes.
    ///
    /// # Panics
    /// If the number, the namespace or the version has no placeholder: files of `templates/` have them.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let find = |what: &[u8]| -> Vec<usize> {
            let places = 0..(bytes.len() + 1).saturating_sub(what.len());
            places.filter(|&at| bytes[at..].starts_with(what)).collect()
        };
        let template = Self {
            numbers: find(NUMBER),
            namespaces: find(NAMESPACE).iter().map(|at| at + b"ns-".len()).collect(),
            uids: find(UID),
            versions: find(VERSION),
            stamps: find(STAMP),
            bytes,
        };
        let one = |places: &[usize]| places.len() == 1;
        assert!(
            one(&template.numbers) && one(&template.namespaces) && one(&template.versions),
            "a template without holes, or with too many"
        );
        template
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the object.
    pub(crate) fn write(&self, object: Object, out: &mut BytesMut) {
        let start = out.len();
        out.put_slice(&self.bytes);
        let written = &mut out[start..];
        let number = u64::from(object.number);
        for (places, value, width) in [
            (&self.numbers, number, 10),
            (&self.namespaces, number % 100, 4),
            (&self.uids, number, 12),
            (&self.versions, object.version, 10),
            (&self.stamps, object.stamp, 16),
        ] {
            for &at in places {
                digits(value, &mut written[at..at + width]);
            }
        }
    }
}

/// Writes a number with leading zeroes.
fn digits(mut value: u64, out: &mut [u8]) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_filled() {
        let template = Template::new(
            b"name-4444444444 ns-3333 u-555555555555 6666666666 7777777777777777".to_vec(),
        );
        let mut out = BytesMut::from("| ");
        let object = Object {
            number: 1234,
            version: 1_000_000_005,
            stamp: 1_700_000_000_000_000,
        };
        template.write(object, &mut out);
        assert_eq!(
            out,
            "| name-0000001234 ns-0034 u-000000001234 1000000005 1700000000000000"
        );
    }
}

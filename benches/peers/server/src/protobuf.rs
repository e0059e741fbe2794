//! The few protobuf messages around the templates, as Kubernetes writes them.

/// The first bytes of every Kubernetes object in protobuf.
const MAGIC: &[u8] = b"k8s\0";

/// A field whose value is bytes: text, or a message.
pub(crate) fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = open(number, value.len());
    out.extend_from_slice(value);
    out
}

/// The beginning of a field of `length` bytes.
pub(crate) fn open(number: u8, length: usize) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    varint(length as u64, &mut out);
    out
}

/// A field whose value is a number.
fn number_field(number: u8, value: u64) -> Vec<u8> {
    let mut out = vec![number << 3];
    varint(value, &mut out);
    out
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The beginning of an object of `length` bytes: `runtime.Unknown` up to its content.
pub(crate) fn object(api_version: &str, kind: &str, length: usize) -> Vec<u8> {
    let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), field(1, &type_meta), open(2, length)].concat()
}

/// `metav1.ListMeta`.
pub(crate) fn list_meta(version: u64, token: &str, remaining: usize) -> Vec<u8> {
    let mut meta = field(2, version.to_string().as_bytes());
    if !token.is_empty() {
        meta.extend(field(3, token.as_bytes()));
        meta.extend(number_field(4, remaining as u64));
    }
    meta
}

/// The beginning of a watch frame for an object of `length` bytes: the length, then `metav1.WatchEvent` up to
/// the object.
pub(crate) fn event(what: &str, length: usize) -> Vec<u8> {
    let raw = open(1, length);
    let head = [field(1, what.as_bytes()), open(2, raw.len() + length), raw].concat();
    let frame = (head.len() + length) as u32;
    [frame.to_be_bytes().to_vec(), head].concat()
}

/// An object with only a version and an annotation: `metav1.ObjectMeta` in field 1.
pub(crate) fn bookmark(version: u64, annotation: &str) -> Vec<u8> {
    let entry = [field(1, annotation.as_bytes()), field(2, b"true")].concat();
    let meta = [field(6, version.to_string().as_bytes()), field(12, &entry)].concat();
    field(1, &meta)
}

/// `metav1.Status` of a failure.
pub(crate) fn status(message: &str, reason: &str, code: u64) -> Vec<u8> {
    [
        field(1, &[]),
        field(2, b"Failure"),
        field(3, message.as_bytes()),
        field(4, reason.as_bytes()),
        number_field(6, code),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_varints() {
        assert_eq!(open(2, 300), [0x12, 0xac, 0x02]);
        assert_eq!(field(1, b"v1"), [0x0a, 2, b'v', b'1']);
    }

    #[test]
    fn a_frame_says_its_length() {
        let head = event("ADDED", 10);
        let length = u32::from_be_bytes(head[..4].try_into().unwrap());
        assert_eq!(length as usize, head.len() - 4 + 10);
    }
}

//! A buffer that is filled from its end.

/// A buffer that is filled from its end: what is put last comes first.
#[derive(Debug)]
pub(super) struct Backward {
    bytes: Vec<u8>,
    /// Everything from here on is filled.
    begin: usize,
}

// === impl Backward ===

impl Backward {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            bytes: vec![0; capacity],
            begin: capacity,
        }
    }

    /// The number of bytes so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.begin
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        if bytes.len() > self.begin {
            self.grow(bytes.len());
        }
        let end = self.begin;
        self.begin -= bytes.len();
        self.bytes[self.begin..end].copy_from_slice(bytes);
    }

    fn grow(&mut self, more: usize) {
        let filled = self.len();
        let mut bytes = vec![0; (filled + more).next_power_of_two().max(256) * 2];
        let begin = bytes.len() - filled;
        bytes[begin..].copy_from_slice(&self.bytes[self.begin..]);
        self.bytes = bytes;
        self.begin = begin;
    }

    /// A number in groups of seven bits, lowest first.
    pub(super) fn varint(&mut self, mut number: u64) {
        let mut groups = [0; 10];
        let mut length = 0;
        loop {
            let more = number >= 0x80;
            groups[length] = number.to_le_bytes()[0] & 0x7f | u8::from(more) << 7;
            length += 1;
            number >>= 7;
            if !more {
                break;
            }
        }
        self.put(&groups[..length]);
    }

    /// The number of a field and its wire type.
    pub(super) fn tag(&mut self, number: u32, wire: u8) {
        self.varint(u64::from(number) << 3 | u64::from(wire));
    }

    /// A field of bytes.
    pub(super) fn field(&mut self, number: u32, bytes: &[u8]) {
        self.put(bytes);
        self.varint(bytes.len() as u64);
        self.tag(number, 2);
    }

    /// The length and the tag of a field whose content was put since the buffer had `before` bytes.
    pub(super) fn close(&mut self, number: u32, before: usize) {
        self.varint((self.len() - before) as u64);
        self.tag(number, 2);
    }

    /// What was put, without spare room: a message may be kept for long.
    pub(super) fn into_vec(self) -> Vec<u8> {
        self.bytes[self.begin..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_that_is_put_comes_first() {
        let mut buffer = Backward::with_capacity(1);
        buffer.put(b"b");
        buffer.put(b"aa");
        let before = buffer.len();
        buffer.put(&[b'x'; 300]);
        buffer.close(3, before);
        let written = buffer.into_vec();
        assert_eq!(written[..4], [3 << 3 | 2, 0xac, 2, b'x']);
        assert_eq!(written.len(), 306);
        assert_eq!(written[303..], *b"aab");
    }

    #[test]
    fn numbers_have_up_to_ten_groups() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut buffer = Backward::with_capacity(0);
            buffer.varint(number);
            let bytes = buffer.into_vec();
            let mut bytes = bytes.as_slice();
            assert_eq!(crate::fields::varint(&mut bytes), Ok(number));
            assert!(bytes.is_empty());
        }
    }
}

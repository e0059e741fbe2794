//! Finds the ends of texts, arrays, escapes and numbers.

/// How many bytes are scanned to count the elements of an array. This bounds the cost: at most as many bytes again for
/// each level of nesting.
pub(crate) const LOOKAHEAD: usize = 8 * 1024;

/// The first quote, backslash or control character at or after `from`: the end of a string without escapes. The end of
/// `bytes` if there is none.
#[inline]
pub(super) fn special(bytes: &[u8], from: usize) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let mut at = from;
    // Eight bytes at a time. The lowest bit set in `found` belongs to the first such byte, since a borrow only moves
    // upwards.
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let chars = u64::from_le_bytes(*chunk);
        let quote = chars ^ (ONES * b'"' as u64);
        let backslash = chars ^ (ONES * b'\\' as u64);
        let found = ((quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (chars.wrapping_sub(ONES * 0x20) & !chars))
            & HIGH;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while let Some(byte) = bytes.get(at) {
        if matches!(byte, b'"' | b'\\' | ..=0x1f) {
            break;
        }
        at += 1;
    }
    at
}

/// The number of elements of the array whose first byte after the bracket is at `from`, if its end is at most
/// [`LOOKAHEAD`] bytes from there. Wrong for text that is not JSON.
pub(super) fn count(bytes: &[u8], from: usize) -> Option<usize> {
    let end = bytes.len().min(from + LOOKAHEAD);
    let bytes = bytes.get(..end)?;
    let (mut at, mut depth) = (from, 0_usize);
    let (mut empty, mut commas) = (true, 0);
    loop {
        match *bytes.get(at)? {
            b'"' => {
                empty = false;
                at = special(bytes, at + 1);
                while *bytes.get(at)? != b'"' {
                    let escape = usize::from(bytes[at] == b'\\');
                    at = special(bytes, at + 1 + escape);
                }
            }
            b'[' | b'{' => {
                empty = false;
                depth += 1;
            }
            b']' | b'}' if depth == 0 => return Some(if empty { 0 } else { commas + 1 }),
            b']' | b'}' => depth -= 1,
            b',' if depth == 0 => commas += 1,
            b' ' | b'\n' | b'\r' | b'\t' => {}
            _ => empty = false,
        }
        at += 1;
    }
}

/// The end of the escape whose backslash is at `at`, if it is one.
#[inline]
pub(super) fn escape(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
        b'u' => {
            let digits = bytes.get(at + 2..at + 6)?;
            let all = digits.iter().all(u8::is_ascii_hexdigit);
            all.then_some(at + 6)
        }
        _ => None,
    }
}

/// The end of the number that begins at `at`, if it is one.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let some_digits = |at: usize| {
        let end = digits(at);
        (end > at).then_some(end)
    };
    let mut at = at + usize::from(bytes.get(at) == Some(&b'-'));
    at = match bytes.get(at)? {
        b'0' => at + 1,
        b'1'..=b'9' => digits(at),
        _ => return None,
    };
    if bytes.get(at) == Some(&b'.') {
        at = some_digits(at + 1)?;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = matches!(bytes.get(at + 1), Some(b'+' | b'-'));
        at = some_digits(at + 1 + usize::from(sign))?;
    }
    Some(at)
}

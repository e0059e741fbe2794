//! The values of fields, read in place.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, MicroTime, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::cursor::Cursor;
use crate::decode::nests_deeper;
use crate::fields::Wire;
use crate::time::ZERO;
use crate::trim::Rule;

/// The JSON texts that are read here nest less than the strictest limit that reads objects directly.
const JSON_DEPTH: usize = 24;

/// A value that is read in place.
pub(super) trait Value: Sized {
    /// A value to read into.
    fn fresh() -> Self;

    /// Reads the field at the cursor: false for null, `None` for a form that is left to the serde deserializer.
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool>;
}

impl Value for String {
    #[inline]
    fn fresh() -> Self {
        Self::new()
    }

    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        // Not `clone_into`, which would grow an empty text.
        let text = str::from_utf8(cursor.bytes()?).ok()?;
        *self = Self::from(text);
        Some(true)
    }
}

impl Value for bool {
    #[inline]
    fn fresh() -> Self {
        false
    }

    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        let Wire::Varint(number) = cursor.value() else {
            return None;
        };
        *self = number != 0;
        Some(true)
    }
}

impl Value for i64 {
    #[inline]
    fn fresh() -> Self {
        0
    }

    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        let Wire::Varint(number) = cursor.value() else {
            return None;
        };
        *self = number.cast_signed();
        Some(true)
    }
}

impl Value for i32 {
    #[inline]
    fn fresh() -> Self {
        0
    }

    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        let mut number = 0i64;
        number.read(cursor)?;
        *self = Self::try_from(number).ok()?;
        Some(true)
    }
}

impl Value for ByteString {
    fn fresh() -> Self {
        Self::default()
    }

    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        self.0 = cursor.bytes()?.to_vec();
        Some(true)
    }
}

impl Value for Quantity {
    fn fresh() -> Self {
        Self::default()
    }

    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        let mut fields = Cursor::new(cursor.bytes()?, None);
        if fields.next()? != 1 {
            return None;
        }
        self.0.read(&mut fields)?;
        (fields.next()? == 0).then_some(true)
    }
}

impl Value for IntOrString {
    fn fresh() -> Self {
        Self::default()
    }

    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        let mut fields = Cursor::new(cursor.bytes()?, None);
        let (mut kind, mut int, mut text) = (0i64, 0i32, "");
        loop {
            match fields.next()? {
                0 => break,
                1 => kind.read(&mut fields)?,
                2 => int.read(&mut fields)?,
                3 => {
                    text = str::from_utf8(fields.bytes()?).ok()?;
                    true
                }
                _ => return None,
            };
        }
        *self = match kind {
            0 => Self::Int(int),
            1 => Self::String(text.to_owned()),
            _ => return None,
        };
        Some(true)
    }
}

impl Value for Time {
    fn fresh() -> Self {
        Self(Timestamp::UNIX_EPOCH)
    }

    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        let (seconds, _) = moment(cursor)?;
        if seconds == ZERO {
            return Some(false);
        }
        self.0 = Timestamp::from_second(seconds).ok()?;
        Some(true)
    }
}

impl Value for MicroTime {
    fn fresh() -> Self {
        Self(Timestamp::UNIX_EPOCH)
    }

    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        let (seconds, nanoseconds) = moment(cursor)?;
        let truncated = nanoseconds / 1000 * 1000;
        if (seconds, truncated) == (ZERO, 0) {
            return Some(false);
        }
        self.0 = Timestamp::new(seconds, truncated).ok()?;
        Some(true)
    }
}

/// Seconds and nanoseconds of a time that is not before Go's zero time.
fn moment(cursor: &Cursor<'_>) -> Option<(i64, i32)> {
    let bytes = cursor.bytes()?;
    if bytes.is_empty() {
        return Some((ZERO, 0));
    }
    let mut fields = Cursor::new(bytes, None);
    let (mut seconds, mut nanoseconds) = (0i64, 0i32);
    loop {
        match fields.next()? {
            0 => break,
            1 => seconds.read(&mut fields)?,
            2 => nanoseconds.read(&mut fields)?,
            _ => return None,
        };
    }
    let is_plain = seconds >= ZERO && (0..1_000_000_000).contains(&nanoseconds);
    is_plain.then_some((seconds, nanoseconds))
}

impl Value for FieldsV1 {
    fn fresh() -> Self {
        Self::default()
    }

    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        let mut fields = Cursor::new(cursor.bytes()?, None);
        let text = match fields.next()? {
            0 => return Some(false),
            1 => fields.bytes()?,
            _ => return None,
        };
        if fields.next()? != 0 || nests_deeper(text, JSON_DEPTH) {
            return None;
        }
        if text.is_empty() {
            return Some(false);
        }
        self.0 = serde_json::from_slice(text).ok()?;
        Some(!self.0.is_null())
    }
}

impl<T: Value> Value for Option<T> {
    #[inline]
    fn fresh() -> Self {
        None
    }

    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        if !self.insert(T::fresh()).read(cursor)? {
            *self = None;
        }
        Some(true)
    }
}

impl<T: Value> Value for Vec<T> {
    #[inline]
    fn fresh() -> Self {
        Self::new()
    }

    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        let each = cursor.rule().and_then(Rule::each);
        if each.is_some_and(|each| each.whole) {
            cursor.skip();
            return Some(true);
        }
        self.reserve_exact(cursor.occurrences());
        loop {
            let mut item = cursor.of_part(each);
            self.push(T::fresh());
            if !self.last_mut()?.read(&mut item)? {
                return None;
            }
            if !cursor.again() {
                return Some(true);
            }
        }
    }
}

impl<T: Value> Value for BTreeMap<String, T> {
    #[inline]
    fn fresh() -> Self {
        Self::new()
    }

    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        loop {
            let mut entry = Cursor::new(cursor.bytes()?, None);
            if entry.next()? != 1 {
                return None;
            }
            let key = str::from_utf8(entry.bytes()?).ok()?;
            if entry.next()? != 2 {
                return None;
            }
            let rule = cursor.rule().and_then(|rule| rule.entry(key));
            if !rule.is_some_and(|rule| rule.whole) {
                let mut value = T::fresh();
                if !value.read(&mut entry.of_part(rule))? {
                    return None;
                }
                self.insert(key.to_owned(), value);
            }
            if entry.next()? != 0 {
                return None;
            }
            if !cursor.again() {
                return Some(true);
            }
        }
    }
}

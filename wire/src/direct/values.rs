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

/// The grain of memory. A text stays in a place that has less than this to spare: it takes one grain more than in its own place at
/// most.
const GRAIN: usize = 16;

/// A value that is read in place.
pub(super) trait Value: Sized {
    /// A value to read into.
    fn fresh() -> Self;

    /// Reads the field at the cursor over whatever is here: false for null, `None` for a form that is left to the serde
    /// deserializer.
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool>;
}

impl Value for String {
    #[inline]
    fn fresh() -> Self {
        Self::new()
    }

    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<bool> {
        let bytes = cursor.bytes()?;
        if self.as_bytes() == bytes {
            return Some(true);
        }
        let text = str::from_utf8(bytes).ok()?;
        let spare = self.capacity().checked_sub(text.len());
        if spare.is_some_and(|spare| spare < GRAIN) {
            self.clear();
            self.push_str(text);
        } else {
            *self = Self::from(text);
        }
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
        if !self.get_or_insert_with(T::fresh).read(cursor)? {
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
            self.clear();
            cursor.skip();
            return Some(true);
        }
        // Of exactly this capacity, so it has no more items.
        let count = cursor.occurrences();
        if self.capacity() != count {
            let former = std::mem::replace(self, Self::with_capacity(count));
            self.extend(former.into_iter().take(count));
        }
        let mut place = 0;
        loop {
            if place == self.len() {
                self.push(T::fresh());
            }
            if !self.get_mut(place)?.read(&mut cursor.of_part(each))? {
                return None;
            }
            place += 1;
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
        let mut more = true;
        if !self.is_empty() {
            more = read_same_keys(self, cursor)?;
        }
        while more {
            let (key, mut value) = cursor.entry()?;
            if !value.leaves_out() {
                let mut place = T::fresh();
                if !place.read(&mut value)? {
                    return None;
                }
                self.insert(key.to_owned(), place);
            }
            more = cursor.again();
        }
        Some(true)
    }
}

/// Reads the entries whose keys a map has, in the same order, and removes all others from it. Returns whether the cursor is at an
/// entry that is left.
fn read_same_keys<T: Value>(
    map: &mut BTreeMap<String, T>,
    cursor: &mut Cursor<'_>,
) -> Option<bool> {
    let (mut places, mut same, mut more) = (map.iter_mut(), 0, true);
    while more {
        let (key, mut value) = cursor.entry()?;
        let place = places.next().filter(|(known, _)| *known == key);
        let Some((_, place)) = place.filter(|_| !value.leaves_out()) else {
            break;
        };
        if !place.read(&mut value)? {
            return None;
        }
        same += 1;
        more = cursor.again();
    }
    if let Some(rest) = map.keys().nth(same).cloned() {
        map.split_off(&rest);
    }
    Some(more)
}

//! The reader of one document: structure, texts, numbers, and skipped values.

use std::fmt;

use serde::de::{Error as _, Expected, Unexpected, Visitor};
use serde_json::Error;

use super::error::explain;
use super::text::{self, special};
use super::trim::{Trim, Trimming};

/// How deep arrays and objects may be nested, as in serde_json.
const DEPTH: u8 = 128;

/// A reader of one document.
pub struct Reader<'de> {
    text: &'de str,
    at: usize,
    /// How many more arrays and objects may be opened, plus one.
    depth: u8,
    /// The document is nested too deep, whatever the caller made of that.
    too_deep: bool,
    /// What is left out of the next value.
    trim: Option<Trim<'de>>,
    /// The place in the document to go back to after a text that was added.
    interrupted: Option<Place<'de>>,
}

/// A place in a text.
#[derive(Clone, Copy)]
pub(super) struct Place<'de> {
    text: &'de str,
    at: usize,
}

impl fmt::Debug for Reader<'_> {
    /// Prints the place only: the text may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} of {} bytes)", self.at, self.text.len())
    }
}

impl fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({})", self.at)
    }
}

// === impl Reader: structure ===

impl<'de> Reader<'de> {
    /// A reader at the begin of `text`.
    #[must_use]
    pub fn new(text: &'de str) -> Self {
        Self {
            text,
            at: 0,
            depth: DEPTH,
            too_deep: false,
            trim: None,
            interrupted: None,
        }
    }

    /// Leaves out of the next value, an object, what `trimming` names.
    pub fn trimming(&mut self, trimming: &'de Trimming) -> &mut Self {
        self.trim = Some(Trim::Object(trimming));
        self
    }

    #[inline]
    pub(super) fn set_trim(&mut self, trim: Option<Trim<'de>>) {
        self.trim = trim;
    }

    #[inline]
    pub(super) fn take_trim(&mut self) -> Option<Trim<'de>> {
        self.trim.take()
    }

    pub(super) fn place(&self) -> Place<'de> {
        Place {
            text: self.text,
            at: self.at,
        }
    }

    /// Continues at `place`.
    pub(super) fn resume(&mut self, place: Place<'de>) {
        Place {
            text: self.text,
            at: self.at,
        } = place;
    }

    /// Reads `text` next, until [`Reader::end_detour`].
    pub(super) fn detour(&mut self, text: &'de str) {
        let place = self.place();
        self.interrupted.get_or_insert(place);
        self.resume(Place { text, at: 0 });
    }

    pub(super) fn is_on_detour(&self) -> bool {
        self.interrupted.is_some()
    }

    /// Goes back to the document, if it was left.
    #[inline]
    pub(super) fn end_detour(&mut self) {
        if let Some(place) = self.interrupted.take() {
            self.resume(place);
        }
    }

    /// Checks that the document ends here.
    ///
    /// # Errors
    /// It does not, or it is nested too deep.
    pub fn end(&mut self) -> Result<(), Error> {
        if self.too_deep {
            return Err(Error::custom("recursion limit exceeded"));
        }
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.refused()),
        }
    }

    /// The error of a document that could not be read because of `error`: see [`read`](super::read).
    #[must_use]
    pub fn explain(&self, error: &Error) -> Error {
        let place = self.interrupted.unwrap_or_else(|| self.place());
        explain(place.text, place.at, error)
    }

    /// The error of a text that is not JSON. The text is read again for a better one.
    #[cold]
    #[inline(never)]
    pub(super) fn refused(&self) -> Error {
        Error::custom("not valid JSON")
    }

    /// The error of a value of another type than `expected`. Moves past it, unless it is an array or an object, as
    /// serde_json does: a caller may go on.
    #[cold]
    #[inline(never)]
    pub(super) fn unexpected(&mut self, expected: &dyn Expected) -> Error {
        let found = match self.peek() {
            Some(b'n') => Unexpected::Unit,
            Some(b't' | b'f') => Unexpected::Other("boolean"),
            Some(b'"') => Unexpected::Other("string"),
            Some(b'[') => return Error::invalid_type(Unexpected::Seq, expected),
            Some(b'{') => return Error::invalid_type(Unexpected::Map, expected),
            _ => Unexpected::Other("number"),
        };
        match self.skip() {
            Ok(()) => Error::invalid_type(found, expected),
            Err(error) => error,
        }
    }

    #[inline]
    fn bytes(&self) -> &'de [u8] {
        self.text.as_bytes()
    }

    /// The number of bytes read so far.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Enters the array or object that `open` begins, for a caller that reads it in steps and may pause between them.
    ///
    /// # Errors
    /// Something else comes next, or it is nested too deep.
    pub fn enter(&mut self, open: u8) -> Result<(), Error> {
        if self.peek() != Some(open) {
            let expected = if open == b'{' {
                "an object"
            } else {
                "an array"
            };
            return Err(self.unexpected(&expected));
        }
        self.open()
    }

    /// Leaves the array or object that was entered, which `close` ends.
    ///
    /// # Errors
    /// Something else comes next.
    pub fn leave(&mut self, close: u8) -> Result<(), Error> {
        self.depth += 1;
        self.expect(close)
    }

    /// Counts an array or object that was opened.
    #[inline]
    fn deeper(&mut self) -> Result<(), Error> {
        if self.depth == 1 {
            self.too_deep = true;
            return Err(Error::custom("recursion limit exceeded"));
        }
        self.depth -= 1;
        Ok(())
    }

    /// The next byte that is not white space.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes().get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(*byte),
            }
        }
    }

    /// Moves past the byte that was peeked at.
    #[inline]
    pub(super) fn take(&mut self) {
        self.at += 1;
    }

    /// Moves past `byte`, which has to come next.
    ///
    /// # Errors
    /// Something else comes next.
    #[inline]
    pub fn expect(&mut self, byte: u8) -> Result<(), Error> {
        if self.peek() == Some(byte) {
            self.take();
            return Ok(());
        }
        Err(self.refused())
    }

    #[inline]
    pub(super) fn literal(&mut self, literal: &str) -> Result<(), Error> {
        let rest = self.bytes().get(self.at..).unwrap_or_default();
        if rest.starts_with(literal.as_bytes()) {
            self.at += literal.len();
            return Ok(());
        }
        Err(self.refused())
    }

    /// The number of elements of the array whose bracket was taken.
    pub(super) fn count(&self) -> Option<usize> {
        text::count(self.bytes(), self.at)
    }

    /// Begins the array or object whose bracket was peeked at.
    #[inline]
    pub(super) fn open(&mut self) -> Result<(), Error> {
        self.take();
        self.deeper()
    }

    /// Ends the array or object that was opened. `read` is whether its content could be read: if not, this moves past its
    /// end as serde_json does, because a caller may go on.
    #[inline]
    pub(super) fn close(&mut self, close: u8, read: bool) -> Result<(), Error> {
        self.depth += 1;
        // A type may stop at a field that was added.
        self.end_detour();
        if !read {
            self.give_up(close);
            return Ok(());
        }
        if self.peek() == Some(close) {
            self.take();
            return Ok(());
        }
        Err(self.left_over(close))
    }

    /// The error of an array or object of which its type has not read everything.
    #[cold]
    #[inline(never)]
    fn left_over(&self, close: u8) -> Error {
        Error::custom(if close == b']' {
            "an array has more elements than its type"
        } else {
            "an object has more fields than its type, such as two for the variant of an enum"
        })
    }

    #[cold]
    fn give_up(&mut self, close: u8) {
        if self.peek() == Some(close) || (close == b']' && self.peek() == Some(b',')) {
            self.take();
        }
    }

    /// The text between `from` and the position of the reader.
    #[inline]
    fn since(&mut self, from: usize) -> Result<&'de str, Error> {
        match self.text.get(from..self.at) {
            Some(text) => Ok(text),
            None => Err(self.refused()),
        }
    }
}

/// A text.
pub(super) enum Text<'de> {
    /// It had no escapes.
    Plain(&'de str),
    /// With its quotes and escapes, unchecked.
    Quoted(&'de str),
}

// === impl Reader: texts ===

impl<'de> Reader<'de> {
    /// The text whose quote was peeked at.
    #[inline]
    pub(super) fn text(&mut self) -> Result<Text<'de>, Error> {
        let from = self.at + 1;
        let bytes = self.bytes();
        self.at = special(bytes, from);
        if bytes.get(self.at) == Some(&b'"') {
            let text = self.since(from)?;
            self.at += 1;
            return Ok(Text::Plain(text));
        }
        self.quoted(from)
    }

    /// Moves past the rest of a text, from its first special byte.
    #[cold]
    fn quoted(&mut self, from: usize) -> Result<Text<'de>, Error> {
        let bytes = self.bytes();
        loop {
            match bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return self.since(from - 1).map(Text::Quoted);
                }
                Some(b'\\') => self.at = special(bytes, self.at + 2),
                _ => return Err(self.refused()),
            }
        }
    }

    /// The text whose quote was peeked at, with its quotes, for bytes: these may be control characters, as in
    /// serde_json.
    pub(super) fn quoted_bytes(&mut self) -> Result<&'de str, Error> {
        let (from, bytes) = (self.at, self.bytes());
        self.at = special(bytes, from + 1);
        loop {
            match bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return self.since(from);
                }
                Some(b'\\') => self.at = special(bytes, self.at + 2),
                Some(_) => self.at = special(bytes, self.at + 1),
                None => return Err(self.refused()),
            }
        }
    }

    #[inline]
    pub(super) fn string<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected(&visitor));
        }
        match self.text()? {
            Text::Plain(text) => visitor.visit_borrowed_str(text),
            Text::Quoted(text) => visitor.visit_str(&unescaped(text)?),
        }
    }
}

/// A text without its quotes and escapes.
#[cold]
fn unescaped(quoted: &str) -> Result<String, Error> {
    serde_json::from_str(quoted)
}

/// Reads a part of the document by serde_json, which reads all of it.
pub(super) fn hand_over<'de, T>(
    part: &'de str,
    read: impl FnOnce(&mut Handed<'de>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut document = serde_json::Deserializer::from_str(part);
    read(&mut document).and_then(|value| document.end().map(|()| value))
}

/// serde_json on a part of the document.
pub(super) type Handed<'de> = serde_json::Deserializer<serde_json::de::StrRead<'de>>;

// === impl Reader: numbers ===

impl<'de> Reader<'de> {
    /// An integer of less than 19 digits; reads nothing if another number comes.
    #[inline]
    fn short_integer(&mut self) -> Option<(bool, u64)> {
        let bytes = self.bytes();
        let negative = bytes.get(self.at) == Some(&b'-');
        let first = self.at + usize::from(negative);
        let (mut at, mut number) = (first, 0_u64);
        while let Some(byte @ b'0'..=b'9') = bytes.get(at) {
            if at - first == 18 {
                return None;
            }
            number = number * 10 + u64::from(byte - b'0');
            at += 1;
        }
        let zero = bytes.get(first) == Some(&b'0');
        let zero_wrong = zero && (negative || at - first > 1);
        if at == first || zero_wrong || matches!(bytes.get(at), Some(b'.' | b'e' | b'E')) {
            return None;
        }
        self.at = at;
        Some((negative, number))
    }

    /// A number, read as serde_json reads it.
    #[inline]
    pub(super) fn number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Error> {
        if !matches!(self.peek(), Some(b'-' | b'0'..=b'9')) {
            return Err(self.unexpected(&visitor));
        }
        match self.short_integer() {
            Some((false, number)) => visitor.visit_u64(number),
            Some((true, number)) => visitor.visit_i64(-number.cast_signed()),
            None => long_number(self.number_text()?)?.visit(visitor),
        }
    }

    /// The text of a number that was peeked at.
    #[cold]
    pub(super) fn number_text(&mut self) -> Result<&'de str, Error> {
        let from = self.at;
        match text::number(self.bytes(), from) {
            Some(end) => self.at = end,
            None => return Err(self.refused()),
        }
        self.since(from)
    }
}

/// A number as serde_json shows it to a visitor.
pub(super) enum Number {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

/// A number that serde_json reads.
#[cold]
pub(super) fn long_number(text: &str) -> Result<Number, Error> {
    let number: serde_json::Number = serde_json::from_str(text)?;
    let unsigned = number.as_u64().map(Number::Unsigned);
    let integer = unsigned.or_else(|| number.as_i64().map(Number::Signed));
    integer
        .or_else(|| number.as_f64().map(Number::Float))
        .ok_or_else(|| Error::custom("number out of range"))
}

impl Number {
    pub(super) fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Unsigned(number) => visitor.visit_u64(number),
            Self::Signed(number) => visitor.visit_i64(number),
            Self::Float(number) => visitor.visit_f64(number),
        }
    }
}

// === impl Reader: skipped values ===

impl<'de> Reader<'de> {
    /// Moves past a value, and checks only that it is JSON.
    ///
    /// # Errors
    /// It is not.
    pub fn skip(&mut self) -> Result<(), Error> {
        // The open arrays and objects, the innermost in the lowest bit: 1 for an object. Each 128 go to `outer`.
        let (mut open, mut depth) = (0_u128, 0_u32);
        let mut outer = Vec::new();
        loop {
            match self.peek() {
                Some(b'"') => self.skip_text()?,
                Some(bracket @ (b'{' | b'[')) => {
                    self.take();
                    let object = bracket == b'{';
                    if self.peek() == Some(if object { b'}' } else { b']' }) {
                        self.take();
                    } else {
                        if depth == u128::BITS {
                            outer.push(std::mem::take(&mut open));
                            depth = 0;
                        }
                        open = open << 1 | u128::from(object);
                        depth += 1;
                        if object {
                            self.skip_name()?;
                        }
                        continue;
                    }
                }
                Some(b'n') => self.literal("null")?,
                Some(b't') => self.literal("true")?,
                Some(b'f') => self.literal("false")?,
                _ => match text::number(self.bytes(), self.at) {
                    Some(end) => self.at = end,
                    None => return Err(self.refused()),
                },
            }
            loop {
                if depth == 0 {
                    match outer.pop() {
                        Some(around) => (open, depth) = (around, u128::BITS),
                        None => return Ok(()),
                    }
                }
                let object = open & 1 == 1;
                match self.peek() {
                    Some(b',') => {
                        self.take();
                        if object {
                            self.skip_name()?;
                        }
                        break;
                    }
                    Some(b'}') if object => {}
                    Some(b']') if !object => {}
                    _ => return Err(self.refused()),
                }
                self.take();
                open >>= 1;
                depth -= 1;
            }
        }
    }

    #[inline]
    fn skip_name(&mut self) -> Result<(), Error> {
        if self.peek() != Some(b'"') {
            return Err(self.refused());
        }
        self.skip_text()?;
        self.expect(b':')
    }

    /// Moves past the text whose quote was peeked at.
    #[inline]
    fn skip_text(&mut self) -> Result<(), Error> {
        let bytes = self.bytes();
        let mut at = special(bytes, self.at + 1);
        loop {
            match bytes.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(());
                }
                Some(b'\\') => match text::escape(bytes, at) {
                    Some(end) => at = special(bytes, end),
                    None => return Err(self.refused()),
                },
                _ => return Err(self.refused()),
            }
        }
    }

    /// The text of a value.
    pub(super) fn raw(&mut self) -> Result<&'de str, Error> {
        self.peek();
        let from = self.at;
        self.skip()?;
        self.since(from)
    }
}

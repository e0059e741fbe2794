//! The fields of one message in the order that encoders write.

use crate::fields::{Wire, plain};
use crate::table::{Table, Type};
use crate::trim::Rule;

use super::values::Value;

/// The fields of one message: numbers ascend, and the occurrences of a list or a map are adjacent.
///
/// Each function returns `None` where the bytes have another form.
pub(super) struct Cursor<'a> {
    left: &'a [u8],
    number: u32,
    value: Wire<'a>,
    /// What is left out of the message.
    outer_rule: Option<&'a Rule>,
    /// What is left out of the value.
    rule: Option<&'a Rule>,
    /// Whether what is read into may hold another object.
    over: bool,
}

/// A field of a message or of one that is inlined in it.
pub(super) struct Must {
    /// One if the field is on the wire in any case.
    pub(super) count: u32,
    /// The number of the field that has the inlined message.
    pub(super) inlined: Option<u32>,
    pub(super) number: u32,
}

// === impl Cursor ===

impl<'a> Cursor<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8], rule: Option<&'a Rule>) -> Self {
        Self {
            left: bytes,
            number: 0,
            value: Wire::Group,
            outer_rule: rule,
            rule: None,
            over: false,
        }
    }

    /// At the value of an outermost message, which is read `over` another object or into a fresh one.
    pub(super) fn at(bytes: &'a [u8], rule: Option<&'a Rule>, over: bool) -> Self {
        Self {
            value: Wire::Bytes(bytes),
            rule,
            over,
            ..Self::new(b"", None)
        }
    }

    /// What a message that is read over another one has before: it is fresh again, and takes back what it reads over.
    #[inline]
    pub(super) fn former<T: Value>(&self, message: &mut T) -> Option<T> {
        self.over.then(|| std::mem::replace(message, T::fresh()))
    }

    /// Moves to the next field, and returns its number; zero at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u32> {
        if self.left.is_empty() {
            return Some(0);
        }
        let (number, value, left) = plain(self.left)?;
        if number <= self.number {
            return None;
        }
        self.number = number;
        self.value = value;
        self.left = left;
        self.rule = self.outer_rule.and_then(|rule| rule.numbered(number));
        Some(number)
    }

    /// Moves to the next occurrence of the same field, if it comes next.
    #[inline]
    pub(super) fn again(&mut self) -> bool {
        match plain(self.left) {
            Some((number, value, left)) if number == self.number => {
                self.value = value;
                self.left = left;
                true
            }
            _ => false,
        }
    }

    /// The number of adjacent occurrences, from this one.
    pub(super) fn occurrences(&self) -> usize {
        let mut count = 1;
        let mut left = self.left;
        while let Some((number, _, after)) = plain(left)
            && number == self.number
        {
            left = after;
            count += 1;
        }
        count
    }

    /// Skips all occurrences.
    pub(super) fn skip(&mut self) {
        while self.again() {}
    }

    /// The value of this occurrence.
    #[inline]
    pub(super) fn value(&self) -> Wire<'a> {
        self.value
    }

    /// The bytes of this occurrence.
    #[inline]
    pub(super) fn bytes(&self) -> Option<&'a [u8]> {
        match self.value {
            Wire::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// What is left out of the value.
    #[inline]
    pub(super) fn rule(&self) -> Option<&'a Rule> {
        self.rule
    }

    /// A cursor at this occurrence alone, with the rule of a part of the value.
    #[inline]
    pub(super) fn of_part(&self, rule: Option<&'a Rule>) -> Self {
        Self {
            left: b"",
            rule,
            ..*self
        }
    }

    /// The fields of the message that is the value.
    #[inline]
    pub(super) fn fields(&self) -> Option<Self> {
        Some(Self {
            over: self.over,
            ..Self::new(self.bytes()?, self.rule)
        })
    }

    /// Skips a field without a reader: one that is left out of the object, or that the table does not know, as one of a
    /// newer server. `None` for one that serde reads. `message` is the name of the message in the table, and `inlined` the
    /// number of the field in it whose message this is.
    #[cold]
    pub(super) fn skip_unread(&mut self, message: &str, inlined: Option<u32>) -> Option<()> {
        if !self.leaves_out() {
            let table = Table::get();
            let mut message = table.find(message)?;
            if let Some(number) = inlined {
                let Type::Message(inner) = message.fields[message.field(number)?].of else {
                    return None;
                };
                message = table.message(inner);
            }
            if message.field(self.number).is_some() {
                return None;
            }
        }
        self.skip();
        Some(())
    }

    /// The key of this occurrence, which is an entry of a map, and a cursor at its value alone.
    #[inline]
    pub(super) fn entry(&self) -> Option<(&'a str, Self)> {
        let mut entry = Self {
            over: self.over,
            ..Self::new(self.bytes()?, None)
        };
        if entry.next()? != 1 {
            return None;
        }
        let key = str::from_utf8(entry.bytes()?).ok()?;
        if entry.next()? != 2 {
            return None;
        }
        let value = entry.of_part(self.rule.and_then(|rule| rule.entry(key)));
        (entry.next()? == 0).then_some((key, value))
    }

    /// Whether the value is left out.
    #[inline]
    pub(super) fn leaves_out(&self) -> bool {
        self.rule.is_some_and(|rule| rule.whole)
    }

    /// Whether all fields were seen that are on the wire in any case: `seen` of them, and those that are left out, which a
    /// copy of the bytes does not have.
    #[cold]
    pub(super) fn lacks_only_left_out(&self, seen: u32, all: &[Must]) -> bool {
        let Some(rule) = self.outer_rule else {
            return false;
        };
        let is_left_out = |must: &&Must| {
            let outer = match must.inlined {
                Some(number) => rule.numbered(number),
                None => Some(rule),
            };
            let rule = outer.and_then(|rule| rule.numbered(must.number));
            rule.is_some_and(|rule| rule.whole)
        };
        let all = || all.iter().filter(|field| field.count == 1);
        seen as usize + all().filter(is_left_out).count() == all().count()
    }

    /// Reads a field in place, over what `former` has of it.
    #[inline]
    pub(super) fn read<T: Value>(&mut self, into: &mut T, former: Option<&mut T>) -> Option<()> {
        if self.leaves_out() {
            self.skip();
            return Some(());
        }
        if let Some(former) = former {
            std::mem::swap(into, former);
        }
        into.read(self)?.then_some(())
    }

    /// Reads a field in place that an object leaves out when it is empty.
    #[inline]
    pub(super) fn read_filled<T: Value>(
        &mut self,
        into: &mut T,
        former: Option<&mut T>,
    ) -> Option<()> {
        match self.value {
            // It is read nevertheless: its wire type may be a wrong one.
            Wire::Bytes(b"") | Wire::Varint(0) => self.read(&mut T::fresh(), None),
            _ => self.read(into, former),
        }
    }
}

//! The fields of the messages that are being read, in one stack for all levels.
//!
//! The fields of a message can come in any order, and in pieces. So all fields of a message are found before the first
//! one is read. The inner message is read to its end before the outer one goes on; so each level is a part of one stack,
//! and needs no memory of its own.

use std::cell::{Cell, RefCell};

use crate::error::{Cause, Error};
use crate::fields::{Fields, Wire, long, short};
use crate::limits::Limits;
use crate::table::{Field, Message, Table};
use crate::trim::Rule;

/// The state that all levels of one object share.
pub(super) struct Context<'de> {
    pub(super) table: &'static Table,
    pub(super) limits: Limits,
    /// Number of values that are left.
    left: Cell<usize>,
    entries: RefCell<Vec<Entry<'de>>>,
    /// The address of the first byte, for offsets in errors.
    origin: usize,
}

/// One field on the wire.
#[derive(Clone, Copy, Debug)]
struct Entry<'de> {
    /// Its index in the description of the message.
    field: u32,
    /// Its offset in the bytes of the object.
    offset: u32,
    wire: Wire<'de>,
}

/// The occurrences of one field: a range of the stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    begin: usize,
    end: usize,
}

/// The fields of one open message.
pub(super) struct Frame<'a, 'de> {
    context: &'a Context<'de>,
    message: &'static Message,
    begin: usize,
    end: usize,
    /// The entry that is next.
    at: usize,
    /// The number of fields passed of those that are in the object in any case.
    always: usize,
    /// What is left out of the message.
    rule: Option<&'de Rule>,
}

/// An entry beside those of a message; dropping it removes it.
pub(super) struct Pushed<'a, 'de> {
    context: &'a Context<'de>,
    at: usize,
}

// === impl Context ===

impl<'de> Context<'de> {
    pub(super) fn new(bytes: &'de [u8], limits: Limits) -> Self {
        Self {
            table: Table::get(),
            limits,
            left: Cell::new(limits.values),
            entries: RefCell::new(Vec::with_capacity(64)),
            origin: bytes.as_ptr().addr(),
        }
    }

    /// Counts one more value.
    #[inline]
    pub(super) fn count(&self) -> Result<(), Cause> {
        let left = self.left.get().checked_sub(1);
        self.left
            .set(left.ok_or(Cause::TooMany(self.limits.values))?);
        Ok(())
    }

    /// The value at a position of the stack.
    #[inline]
    pub(super) fn wire(&self, at: usize) -> Wire<'de> {
        self.entries.borrow()[at].wire
    }

    /// The offset of the last occurrence.
    pub(super) fn offset(&self, span: Span) -> Option<usize> {
        let entries = self.entries.borrow();
        let entry = span.positions().next_back().map(|at| entries[at]);
        entry.map(|entry| entry.offset as usize)
    }

    /// The bytes of a field that occurs once.
    #[inline]
    pub(super) fn bytes(&self, span: Span) -> Option<&'de [u8]> {
        match self.entries.borrow().get(span.begin..span.end) {
            Some(
                &[
                    Entry {
                        wire: Wire::Bytes(bytes),
                        ..
                    },
                ],
            ) => Some(bytes),
            _ => None,
        }
    }

    /// The number of a field that occurs once.
    #[inline]
    pub(super) fn number(&self, span: Span) -> Option<u64> {
        match self.entries.borrow().get(span.begin..span.end) {
            Some(
                &[
                    Entry {
                        wire: Wire::Varint(number),
                        ..
                    },
                ],
            ) => Some(number),
            _ => None,
        }
    }

    /// The bytes of every occurrence of a field.
    ///
    /// # Errors
    /// For an occurrence that is not of bytes.
    pub(super) fn pieces(
        &self,
        field: &Field,
        span: Span,
    ) -> Result<impl Iterator<Item = &'de [u8]>, Cause> {
        for at in span.positions() {
            match self.wire(at) {
                Wire::Bytes(_) => {}
                other => return Err(wrong_type(field, other)),
            }
        }
        let piece = move |at| match self.wire(at) {
            Wire::Bytes(bytes) => bytes,
            _ => &[],
        };
        Ok(span.positions().map(piece))
    }

    /// Adds an entry for one value.
    pub(super) fn push(&self, wire: Wire<'de>) -> Pushed<'_, 'de> {
        let mut entries = self.entries.borrow_mut();
        let at = entries.len();
        entries.push(Entry {
            field: 0,
            offset: self.offset_of(wire),
            wire,
        });
        Pushed { context: self, at }
    }

    fn offset_of(&self, wire: Wire<'de>) -> u32 {
        match wire {
            Wire::Bytes(bytes) => self.position(bytes),
            _ => 0,
        }
    }

    fn position(&self, rest: &[u8]) -> u32 {
        let position = rest.as_ptr().addr().wrapping_sub(self.origin);
        u32::try_from(position).unwrap_or(u32::MAX)
    }
}

// === impl Span ===

impl Span {
    /// No occurrence.
    pub(super) const NONE: Self = Self { begin: 0, end: 0 };

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.begin == self.end
    }

    pub(super) fn positions(self) -> std::ops::Range<usize> {
        self.begin..self.end
    }

    /// The occurrence at a position.
    pub(super) fn one(at: usize) -> Self {
        Self {
            begin: at,
            end: at + 1,
        }
    }
}

/// Whether the fields of a message came in ascending order.
#[derive(Default)]
struct Order {
    last: u32,
    unsorted: bool,
}

// === impl Order ===

impl Order {
    /// Adds the fields of a piece of a message to the stack.
    fn scan<'de>(
        &mut self,
        context: &Context<'de>,
        message: &'static Message,
        piece: &'de [u8],
    ) -> Result<(), Error> {
        let mut entries = context.entries.borrow_mut();
        let mut left = piece;
        while !left.is_empty() {
            let offset = context.position(left);
            // The two common forms are stored at once: a value that goes through memory is read back before it is written.
            if let Some((tag, rest)) = short(left)
                && let Ok(number @ 1..) = u32::try_from(tag >> 3)
            {
                if tag & 7 == 2
                    && let Some((length, rest)) = short(rest)
                    && let Ok(length) = usize::try_from(length)
                    && let Some((text, rest)) = rest.split_at_checked(length)
                {
                    left = rest;
                    self.add(&mut entries, message, number, offset, Wire::Bytes(text));
                    continue;
                }
                if tag & 7 == 0
                    && let Some((value, rest)) = short(rest).or_else(|| long(rest))
                {
                    left = rest;
                    self.add(&mut entries, message, number, offset, Wire::Varint(value));
                    continue;
                }
            }
            let mut fields = Fields::new(left, message.name);
            match fields.next_of_any_form() {
                Ok(Some((number, wire))) => {
                    self.add(&mut entries, message, number, offset, wire);
                }
                Ok(None) => {}
                Err(cause) => return Err(Error::at(cause, offset as usize)),
            }
            left = fields.rest();
        }
        Ok(())
    }

    /// Adds a field, if the message has it.
    #[inline(always)]
    fn add<'de>(
        &mut self,
        entries: &mut Vec<Entry<'de>>,
        message: &'static Message,
        number: u32,
        offset: u32,
        wire: Wire<'de>,
    ) {
        let Some(index) = message.field(number) else {
            return;
        };
        #[allow(clippy::cast_possible_truncation, reason = "a message has few fields")]
        let field = index as u32;
        self.unsorted |= field < self.last;
        self.last = field;
        entries.push(Entry {
            field,
            offset,
            wire,
        });
    }
}

// === impl Frame ===

impl<'a, 'de> Frame<'a, 'de> {
    /// Finds the fields of a message that was written in `pieces`.
    ///
    /// # Errors
    /// For bytes that are not fields.
    pub(super) fn open(
        context: &'a Context<'de>,
        message: &'static Message,
        rule: Option<&'de Rule>,
        pieces: impl Iterator<Item = &'de [u8]>,
    ) -> Result<Self, Error> {
        let begin = context.entries.borrow().len();
        let mut frame = Self {
            context,
            message,
            begin,
            end: begin,
            at: begin,
            always: 0,
            rule,
        };
        let mut order = Order::default();
        for piece in pieces {
            order.scan(context, message, piece)?;
        }
        let mut entries = context.entries.borrow_mut();
        frame.end = entries.len();
        if order.unsorted {
            // Stable: the values of one field stay in their order.
            entries[begin..].sort_by_key(|entry| entry.field);
        }
        drop(entries);
        Ok(frame)
    }

    /// The next field that is on the wire, or may be in the object without that: its occurrences, and what is left out
    /// of it.
    pub(super) fn next(&mut self) -> Option<(&'static Field, Span, Option<&'de Rule>)> {
        let entries = self.context.entries.borrow();
        let own = &entries[..self.end];
        loop {
            let on_wire = own.get(self.at).map(|entry| entry.field as usize);
            let always = self.message.always.get(self.always).copied();
            let index = match (on_wire, always) {
                (Some(one), Some(other)) => one.min(other),
                (one, other) => one.or(other)?,
            };
            self.always += usize::from(always == Some(index));
            let begin = self.at;
            while own
                .get(self.at)
                .is_some_and(|entry| entry.field as usize == index)
            {
                self.at += 1;
            }
            let rule = self.rule.and_then(|rule| rule.field(index));
            if rule.is_some_and(|rule| rule.whole) {
                continue;
            }
            let span = Span {
                begin,
                end: self.at,
            };
            return Some((&self.message.fields[index], span, rule));
        }
    }

    /// The occurrences of the field of this name.
    pub(super) fn named(&self, name: &str) -> Option<(&'static Field, Span)> {
        let mut fields = self.message.fields.iter().enumerate();
        let (index, field) = fields.find(|(_, field)| field.name == Some(name))?;
        let entries = self.context.entries.borrow();
        let own = &entries[self.begin..self.end];
        let begin = self.begin + own.partition_point(|entry| (entry.field as usize) < index);
        let end = self.begin + own.partition_point(|entry| entry.field as usize <= index);
        Some((field, Span { begin, end }))
    }
}

impl Drop for Frame<'_, '_> {
    fn drop(&mut self) {
        self.context.entries.borrow_mut().truncate(self.begin);
    }
}

// === impl Pushed ===

impl Pushed<'_, '_> {
    pub(super) fn span(&self) -> Span {
        Span::one(self.at)
    }
}

impl Drop for Pushed<'_, '_> {
    fn drop(&mut self) {
        self.context.entries.borrow_mut().truncate(self.at);
    }
}

pub(super) fn wrong_type(field: &Field, found: Wire<'_>) -> Cause {
    Cause::WrongType {
        found: found.number(),
        field: field.go_name(),
    }
}

//! Parts of an object that are left out: while it is read, and of a copy of its bytes.

use crate::error::Cause;
use crate::fields::{Fields, Wire, put_varint};
use crate::table::{Field, Message, Shape, Table, Type};

/// Parts of the objects of one kind that are left out.
///
/// [`Deserializer::with_trim`](crate::Deserializer::with_trim) reads an object without them, as if it had been read from
/// a JSON text without them. [`Trim::copy`] makes a copy of its bytes without them.
#[derive(Clone, Debug)]
pub struct Trim {
    message: &'static Message,
    rule: Rule,
}

/// One step of a path to a part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// The member of this name, or the entry with this key.
    Field(&'a str),
    /// Every item of a list.
    Each,
}

/// The rule for one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Leaves the whole value out.
    pub(crate) whole: bool,
    /// By the index of a field in the description of the message, and its number.
    fields: Vec<((usize, u32), Rule)>,
    /// By the key of an entry.
    entries: Vec<(Box<str>, Rule)>,
    each: Option<Box<Rule>>,
}

// === impl Trim ===

impl Trim {
    /// Leaves nothing out of the objects of this description.
    #[must_use]
    pub fn new(message: &'static Message) -> Self {
        Self {
            message,
            rule: Rule::default(),
        }
    }

    /// Leaves out one more part. A path that leads nowhere leaves nothing out. False, without any effect on the objects
    /// that are read, if the path leads into a value that protobuf does not describe, such as JSON text.
    #[must_use]
    pub fn skip<'a>(&mut self, path: impl IntoIterator<Item = Step<'a>>) -> bool {
        let path: Vec<Step<'_>> = path.into_iter().collect();
        let mut rule = self.rule.clone();
        let added = rule.add(Place::Message(self.message), &path);
        if added.is_some() {
            self.rule = rule;
        }
        added.is_some()
    }

    /// The description of the objects.
    #[must_use]
    pub fn message(&self) -> &'static Message {
        self.message
    }

    /// A copy of a message without these parts. Its `metadata` comes first, and in one piece.
    ///
    /// The copy still shows that a map or a list was there, if all of it is left out: read it with the same `Trim`.
    ///
    /// # Errors
    /// For bytes that are not such a message, as far as they are looked at.
    pub fn copy(&self, bytes: &[u8]) -> Result<Vec<u8>, Cause> {
        let mut copy = Vec::with_capacity(bytes.len());
        let metadata = self.message.named("metadata").map(|field| field.number);
        let is_metadata = |number| Some(number) == metadata;
        let mut pieces = Pieces::default();
        each_field(bytes, self.message, |number, value, _| {
            if is_metadata(number) {
                pieces.add(value);
            }
            Ok(())
        })?;
        if let (Some(number), Some(whole)) = (metadata, pieces.joined()) {
            let field = self.message.field(number);
            self.rule
                .copy_field(self.message, field, number, Wire::Bytes(&whole), &mut copy)?;
        }
        each_field(bytes, self.message, |number, value, raw| {
            if is_metadata(number) && matches!(value, Wire::Bytes(_)) {
                return Ok(());
            }
            self.rule
                .copy_or(self.message, number, value, raw, &mut copy)
        })?;
        self.rule.restore(self.message, bytes, &mut copy)?;
        Ok(copy)
    }

    /// The rule for `metadata` alone.
    #[must_use]
    pub fn metadata(&self) -> Option<Self> {
        let index = self.message.position("metadata")?;
        let Type::Message(of) = self.message.fields[index].of else {
            return None;
        };
        Some(Self {
            message: Table::get().message(of),
            rule: self.rule.field(index).cloned().unwrap_or_default(),
        })
    }

    pub(crate) fn rule(&self) -> Option<&Rule> {
        (self.rule != Rule::default()).then_some(&self.rule)
    }
}

/// The bytes of a field that may come in pieces.
#[derive(Default)]
struct Pieces<'a> {
    first: Option<&'a [u8]>,
    rest: Vec<u8>,
}

// === impl Pieces ===

impl<'a> Pieces<'a> {
    fn add(&mut self, value: Wire<'a>) {
        let Wire::Bytes(bytes) = value else { return };
        match self.first {
            None => self.first = Some(bytes),
            Some(_) => self.rest.extend_from_slice(bytes),
        }
    }

    /// All pieces one after the other, which is the message with the fields of all of them.
    fn joined(self) -> Option<std::borrow::Cow<'a, [u8]>> {
        let first = self.first?;
        if self.rest.is_empty() {
            return Some(first.into());
        }
        Some([first, &self.rest].concat().into())
    }
}

/// The type of a value, for the next step of a path.
#[derive(Clone, Copy)]
enum Place {
    Message(&'static Message),
    List(&'static Field),
    Map(&'static Field),
    /// Has no members.
    Scalar,
    /// Is not described.
    Other,
}

// === impl Place ===

impl Place {
    fn of(field: &'static Field) -> Self {
        match field.shape {
            Shape::Repeated => Self::List(field),
            Shape::Map => Self::Map(field),
            Shape::Plain | Shape::Pointer => Self::of_value(field),
        }
    }

    fn of_value(field: &'static Field) -> Self {
        match field.of {
            Type::Message(index) => match Table::get().message(index) {
                Message { union: Some(_), .. } => Self::Other,
                message => Self::Message(message),
            },
            Type::Raw | Type::Texts => Self::Other,
            _ => Self::Scalar,
        }
    }
}

// === impl Rule ===

impl Rule {
    /// The rule for a field, by its index.
    pub(crate) fn field(&self, index: usize) -> Option<&Self> {
        find(&self.fields, |(known, _)| *known == index)
    }

    /// The rule for a field, by its number.
    #[cfg(feature = "k8s-openapi")]
    pub(crate) fn numbered(&self, number: u32) -> Option<&Self> {
        find(&self.fields, |(_, known)| *known == number)
    }

    /// The rule for the entry of a key.
    pub(crate) fn entry(&self, key: &str) -> Option<&Self> {
        find(&self.entries, |known| **known == *key)
    }

    /// The rule for every item.
    pub(crate) fn each(&self) -> Option<&Self> {
        self.each.as_deref()
    }

    /// Adds a path from a value at `place`; `None` if it leads into a value that is not described.
    fn add(&mut self, place: Place, path: &[Step<'_>]) -> Option<()> {
        let Some((step, rest)) = path.split_first() else {
            self.whole = true;
            return Some(());
        };
        match (place, *step) {
            (Place::Other, _) => None,
            (Place::Message(message), Step::Field(name)) => {
                if let Some(index) = message.position(name) {
                    let field = &message.fields[index];
                    let inner = get(&mut self.fields, (index, field.number));
                    return inner.add(Place::of(field), rest);
                }
                // Members of an inlined message stand among those of the outer one.
                for (index, field) in message.fields.iter().enumerate() {
                    if field.name.is_none()
                        && let Place::Message(inlined) = Place::of(field)
                        && inlined.has(name)
                    {
                        let rule = get(&mut self.fields, (index, field.number));
                        return rule.add(Place::Message(inlined), path);
                    }
                }
                Some(())
            }
            (Place::Map(field), Step::Field(key)) => {
                get(&mut self.entries, key.into()).add(Place::of_value(field), rest)
            }
            (Place::List(field), Step::Each) => {
                let each = self.each.get_or_insert_default();
                each.add(Place::of_value(field), rest)
            }
            _ => Some(()),
        }
    }

    /// Copies a message.
    fn copy(&self, message: &'static Message, bytes: &[u8]) -> Result<Vec<u8>, Cause> {
        let mut copy = Vec::with_capacity(bytes.len());
        each_field(bytes, message, |number, value, raw| {
            self.copy_or(message, number, value, raw, &mut copy)
        })?;
        self.restore(message, bytes, &mut copy)?;
        Ok(copy)
    }

    /// Copies a field, without a part of it where there is a rule for it.
    fn copy_or(
        &self,
        message: &'static Message,
        number: u32,
        value: Wire<'_>,
        raw: &[u8],
        copy: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        let index = message.field(number);
        match index.and_then(|index| self.field(index)) {
            Some(rule) if rule.whole => Ok(()),
            Some(_) if matches!(value, Wire::Bytes(_)) => {
                self.copy_field(message, index, number, value, copy)
            }
            _ => {
                copy.extend_from_slice(raw);
                Ok(())
            }
        }
    }

    fn copy_field(
        &self,
        message: &'static Message,
        index: Option<usize>,
        number: u32,
        value: Wire<'_>,
        copy: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        let Wire::Bytes(bytes) = value else {
            return Ok(());
        };
        let rule = index.and_then(|index| Some((&message.fields[index], self.field(index)?)));
        let Some((field, rule)) = rule else {
            put_bytes(copy, number, bytes);
            return Ok(());
        };
        if rule.whole {
            return Ok(());
        }
        let inner = match field.shape {
            Shape::Plain | Shape::Pointer => Some(rule),
            Shape::Repeated => rule.each(),
            Shape::Map => return rule.copy_entry(field, number, bytes, copy),
        };
        match (inner, field.of) {
            // One of them is restored.
            (Some(inner), _) if inner.whole => {}
            (Some(inner), Type::Message(of)) => {
                let part = inner.copy(Table::get().message(of), bytes)?;
                put_bytes(copy, number, &part);
            }
            _ => put_bytes(copy, number, bytes),
        }
        Ok(())
    }

    fn copy_entry(
        &self,
        field: &'static Field,
        number: u32,
        entry: &[u8],
        copy: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        let key = key_of(entry)?;
        match (self.entry(&key), field.of) {
            (None, _) => put_bytes(copy, number, entry),
            // One of them is restored.
            (Some(rule), _) if rule.whole => {}
            (Some(rule), Type::Message(of)) => {
                let mut part = Vec::with_capacity(entry.len());
                let mut fields = Fields::new(entry, "Entry");
                while let Some((inner, value)) = fields.next()? {
                    match (inner, value) {
                        (2, Wire::Bytes(bytes)) => {
                            put_bytes(&mut part, 2, &rule.copy(Table::get().message(of), bytes)?);
                        }
                        (_, Wire::Bytes(bytes)) => put_bytes(&mut part, inner, bytes),
                        _ => {}
                    }
                }
                put_bytes(copy, number, &part);
            }
            _ => put_bytes(copy, number, entry),
        }
        Ok(())
    }

    /// Shows in a copy each map and list of which every part was left out, by one part without a value: it is read as
    /// empty, and not as missing.
    fn restore(
        &self,
        message: &'static Message,
        bytes: &[u8],
        copy: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        for ((index, _), rule) in &self.fields {
            let field = &message.fields[*index];
            if rule.whole || !matches!(field.shape, Shape::Repeated | Shape::Map) {
                continue;
            }
            let mut left_out = None;
            let mut kept = false;
            each_field(bytes, message, |number, value, _| {
                let Wire::Bytes(part) = value else {
                    return Ok(());
                };
                if number != field.number {
                    return Ok(());
                }
                if field.shape == Shape::Repeated {
                    if rule.each().is_some_and(|each| each.whole) {
                        left_out = Some(Vec::new());
                    } else {
                        kept = true;
                    }
                    return Ok(());
                }
                let key = key_of(part)?;
                if rule.entry(&key).is_some_and(|entry| entry.whole) {
                    let mut entry = Vec::new();
                    put_bytes(&mut entry, 1, key.as_bytes());
                    left_out = Some(entry);
                } else {
                    kept = true;
                }
                Ok(())
            })?;
            if let Some(part) = left_out.filter(|_| !kept) {
                put_bytes(copy, field.number, &part);
            }
        }
        Ok(())
    }
}

fn find<K>(rules: &[(K, Rule)], is: impl Fn(&K) -> bool) -> Option<&Rule> {
    let found = rules.iter().find(|(known, _)| is(known));
    found.map(|(_, rule)| rule)
}

fn get<K: PartialEq>(rules: &mut Vec<(K, Rule)>, key: K) -> &mut Rule {
    let known = rules.iter().position(|(known, _)| *known == key);
    let index = known.unwrap_or_else(|| {
        rules.push((key, Rule::default()));
        rules.len() - 1
    });
    &mut rules[index].1
}

/// The key of an entry; the last one counts.
fn key_of(entry: &[u8]) -> Result<std::borrow::Cow<'_, str>, Cause> {
    let mut key: &[u8] = b"";
    let mut fields = Fields::new(entry, "Entry");
    while let Some((number, value)) = fields.next()? {
        if let (1, Wire::Bytes(text)) = (number, value) {
            key = text;
        }
    }
    Ok(String::from_utf8_lossy(key))
}

/// Passes the fields of a message to `visit`: number, value, and all bytes of the field.
fn each_field<'a>(
    bytes: &'a [u8],
    message: &'static Message,
    mut visit: impl FnMut(u32, Wire<'a>, &'a [u8]) -> Result<(), Cause>,
) -> Result<(), Cause> {
    let mut fields = Fields::new(bytes, message.name);
    loop {
        let before = fields.rest();
        let Some((number, value)) = fields.next()? else {
            return Ok(());
        };
        visit(number, value, &before[..before.len() - fields.rest().len()])?;
    }
}

fn put_bytes(copy: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(copy, u64::from(number) << 3 | 2);
    put_varint(copy, bytes.len() as u64);
    copy.extend_from_slice(bytes);
}

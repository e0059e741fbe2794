//! Conversion of the fields on the wire to the members of a JSON object.
//!
//! | on the wire | in JSON |
//! |---|---|
//! | a field that is not a pointer | left out when it is empty and `omitempty`, else present, zero without a value on the wire |
//! | a pointer | present when it is on the wire, a zero too |
//! | a message written twice | one message with the fields of both (the later of two values) |
//! | a list in pieces, or numbers packed into one | one list |
//! | unknown fields | left out |

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Number, Value};

use super::table::{Field, Message, Shape, Table, Type, Union};
use super::wire::{Fields, Wire, varint};
use super::{Error, special};
use crate::json_text;

/// Maximum depth of messages: a list of texts in the innermost one is then as deep as values of JSON bodies may be.
pub(super) const MAX_DEPTH: usize = json_text::MAX_DEPTH - 2;

/// Maximum number of values of a body. The largest body, of 3 MiB, has fewer in any real object; one of the shortest
/// fields alone would fill hundreds of megabytes.
pub(super) const MAX_VALUES: usize = 500_000;

/// Reads one body.
pub(super) struct Reader {
    table: &'static Table,
    /// Number of values that are left.
    left: usize,
}

// === impl Reader ===

impl Reader {
    pub(super) fn new(table: &'static Table) -> Self {
        Self {
            table,
            left: MAX_VALUES,
        }
    }

    /// Decodes the whole object.
    ///
    /// # Errors
    /// For bytes that are not such a message, and for one that is too large.
    pub(super) fn object(
        &mut self,
        message: &Message,
        bytes: &[u8],
    ) -> Result<Map<String, Value>, Error> {
        let mut object = Map::new();
        self.members(message, &[bytes], 0, &mut object)?;
        Ok(object)
    }

    fn count(&mut self) -> Result<(), Error> {
        self.left = self.left.checked_sub(1).ok_or(Error::TooMany(MAX_VALUES))?;
        Ok(())
    }

    /// Adds the members of a message, which was written in `pieces`, to an object.
    fn members(
        &mut self,
        message: &Message,
        pieces: &[&[u8]],
        depth: usize,
        object: &mut Map<String, Value>,
    ) -> Result<(), Error> {
        let mut written: Vec<(usize, Wire<'_>)> = Vec::new();
        for piece in pieces {
            let mut fields = Fields::new(piece, message.name);
            while let Some((number, value)) = fields.next()? {
                if let Some(index) = message.field(number) {
                    written.push((index, value));
                }
            }
        }
        // Stable: the values of one field stay in their order.
        written.sort_by_key(|(index, _)| *index);
        let mut rest = written.as_slice();
        for (index, field) in message.fields.iter().enumerate() {
            let own = rest.partition_point(|(of, _)| *of == index);
            let (values, later) = rest.split_at(own);
            rest = later;
            self.member(field, values, depth, object)?;
        }
        Ok(())
    }

    fn member(
        &mut self,
        field: &Field,
        values: &[(usize, Wire<'_>)],
        depth: usize,
        object: &mut Map<String, Value>,
    ) -> Result<(), Error> {
        let Some(name) = field.name else {
            if let Type::Message(index) = field.of {
                let pieces = pieces(field, values)?;
                let message = self.table.message(index);
                self.members(message, &pieces, depth, object)?;
            }
            return Ok(());
        };
        let value = match field.shape {
            Shape::Plain => {
                let value = self.single(field, values, depth)?;
                let is_empty = field.omit_empty && is_empty(field.of, &value);
                let is_zero = field.omit_zero && value == zero(field.of);
                (!is_empty && !is_zero).then_some(value)
            }
            _ if values.is_empty() => (!field.omit_empty).then_some(Value::Null),
            Shape::Pointer => Some(self.single(field, values, depth)?),
            Shape::Repeated => Some(Value::Array(self.list(field, values, depth)?)),
            Shape::Map => Some(Value::Object(self.map(field, values, depth)?)),
        };
        if let Some(value) = value.filter(|value| !is_empty_list(field, value)) {
            self.count()?;
            object.insert(name.to_owned(), value);
        }
        Ok(())
    }

    /// The value of a singular field, from all its occurrences.
    fn single(
        &mut self,
        field: &Field,
        values: &[(usize, Wire<'_>)],
        depth: usize,
    ) -> Result<Value, Error> {
        match field.of {
            Type::Message(_)
            | Type::Time
            | Type::MicroTime
            | Type::Raw
            | Type::Quantity
            | Type::IntOrString
            | Type::Texts => self.composed(field.of, &pieces(field, values)?, depth + 1),
            _ => {
                // All are decoded, so that an invalid one is refused; the last counts.
                let mut last = zero(field.of);
                for (_, value) in values {
                    last = scalar(field, *value)?;
                }
                Ok(last)
            }
        }
    }

    /// The value of a message, which was written in `pieces`.
    fn composed(&mut self, of: Type, pieces: &[&[u8]], depth: usize) -> Result<Value, Error> {
        if depth > MAX_DEPTH {
            return Err(Error::Depth);
        }
        match of {
            Type::Time => special::time(pieces),
            Type::MicroTime => special::micro_time(pieces),
            Type::Raw => special::raw(pieces, json_text::MAX_DEPTH - depth),
            Type::Quantity => special::quantity(pieces),
            Type::IntOrString => special::int_or_string(pieces),
            Type::Texts => {
                let texts = special::texts(pieces)?;
                for _ in &texts {
                    self.count()?;
                }
                Ok(Value::Array(texts))
            }
            Type::Message(index) => {
                let message = self.table.message(index);
                let mut object = Map::new();
                self.members(message, pieces, depth, &mut object)?;
                Ok(match message.union {
                    None => Value::Object(object),
                    Some(union) => choose(union, object),
                })
            }
            scalar => Ok(zero(scalar)),
        }
    }

    fn list(
        &mut self,
        field: &Field,
        values: &[(usize, Wire<'_>)],
        depth: usize,
    ) -> Result<Vec<Value>, Error> {
        let mut items = Vec::new();
        for (_, value) in values {
            let is_number = matches!(
                field.of,
                Type::Bool | Type::Int32 | Type::Int64 | Type::Double
            );
            match *value {
                Wire::Bytes(packed) if is_number => self.unpack(field, packed, &mut items)?,
                value => {
                    self.count()?;
                    items.push(self.single(field, &[(0, value)], depth + 1)?);
                }
            }
        }
        Ok(items)
    }

    /// Numbers without tags, in sequence.
    fn unpack(
        &mut self,
        field: &Field,
        mut packed: &[u8],
        items: &mut Vec<Value>,
    ) -> Result<(), Error> {
        while !packed.is_empty() {
            let value = if field.of == Type::Double {
                let (fixed, rest) = packed.split_first_chunk().ok_or(Error::End)?;
                packed = rest;
                Wire::Fixed64(u64::from_le_bytes(*fixed))
            } else {
                Wire::Varint(varint(&mut packed)?)
            };
            self.count()?;
            items.push(scalar(field, value)?);
        }
        Ok(())
    }

    fn map(
        &mut self,
        field: &Field,
        values: &[(usize, Wire<'_>)],
        depth: usize,
    ) -> Result<Map<String, Value>, Error> {
        let mut entries = Map::new();
        for (_, value) in values {
            let Wire::Bytes(entry) = *value else {
                return Err(wrong_type(field, *value));
            };
            let (mut key, mut written) = (String::new(), Vec::new());
            let mut fields = Fields::new(entry, "Entry");
            while let Some((number, value)) = fields.next()? {
                match (number, value) {
                    (1, Wire::Bytes(text)) => key = String::from_utf8_lossy(text).into_owned(),
                    (1, other) => return Err(wrong_type(field, other)),
                    (2, value) => written.push((0, value)),
                    _ => {}
                }
            }
            // For a message written twice in one entry the later counts; for a missing value, zero.
            let last = written.last().copied();
            let value = match (field.of, last) {
                (Type::Bytes, None) => Value::String(String::new()),
                (_, last) => self.single(field, last.as_slice(), depth + 1)?,
            };
            self.count()?;
            entries.insert(key, value);
        }
        Ok(entries)
    }
}

/// The bytes of every piece of a message.
fn pieces<'a>(field: &Field, values: &[(usize, Wire<'a>)]) -> Result<Vec<&'a [u8]>, Error> {
    let bytes = values.iter().map(|(_, value)| match *value {
        Wire::Bytes(bytes) => Ok(bytes),
        other => Err(wrong_type(field, other)),
    });
    bytes.collect()
}

fn scalar(field: &Field, value: Wire<'_>) -> Result<Value, Error> {
    // Go shifts the groups of seven bits into a number of the field's size.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "as Go truncates it"
    )]
    match (field.of, value) {
        (Type::Text, Wire::Bytes(text)) => {
            Ok(Value::String(String::from_utf8_lossy(text).into_owned()))
        }
        (Type::Bytes, Wire::Bytes(bytes)) => Ok(Value::String(BASE64.encode(bytes))),
        (Type::Bool, Wire::Varint(number)) => Ok(Value::Bool(number != 0)),
        (Type::Int32, Wire::Varint(number)) => Ok(Value::from(number as i32)),
        (Type::Int64, Wire::Varint(number)) => Ok(Value::from(number as i64)),
        (Type::Double, Wire::Fixed64(bits)) => double(f64::from_bits(bits)),
        (_, other) => Err(wrong_type(field, other)),
    }
}

/// Go writes an integral number without a point, so that it is read as an integer.
fn double(number: f64) -> Result<Value, Error> {
    let number_of = |number| Number::from_f64(number).map(Value::Number);
    #[allow(clippy::cast_possible_truncation, reason = "it is whole and in range")]
    let value =
        if number.fract() == 0.0 && number.abs() < 2f64.powi(63) && !is_negative_zero(number) {
            Some(Value::from(number as i64))
        } else {
            number_of(number)
        };
    value.ok_or(Error::Number(if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "+Inf"
    } else {
        "-Inf"
    }))
}

fn is_negative_zero(number: f64) -> bool {
    number == 0.0 && number.is_sign_negative()
}

/// The value of a non-pointer field without a value on the wire.
fn zero(of: Type) -> Value {
    match of {
        Type::Text => Value::String(String::new()),
        Type::Bool => Value::Bool(false),
        Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => Value::from(0),
        Type::Quantity => Value::String("0".to_owned()),
        Type::Texts => Value::Array(Vec::new()),
        Type::Bytes | Type::Time | Type::MicroTime | Type::Raw | Type::Message(_) => Value::Null,
    }
}

/// Whether `omitempty` leaves a value out: never for a struct in Go.
fn is_empty(of: Type, value: &Value) -> bool {
    match of {
        Type::Text | Type::Bool | Type::Int32 | Type::Int64 | Type::Double => *value == zero(of),
        Type::Bytes => value.as_str().is_none_or(str::is_empty),
        _ => false,
    }
}

/// A packed list without numbers is not a list.
fn is_empty_list(field: &Field, value: &Value) -> bool {
    field.shape == Shape::Repeated
        && field.omit_empty
        && value.as_array().is_some_and(Vec::is_empty)
}

/// Replaces the object of a union by its chosen field.
fn choose(union: Union, mut object: Map<String, Value>) -> Value {
    let mut take = |name: &str| object.remove(name).unwrap_or_default();
    let is_filled = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    match union {
        Union::Array => Some(take("JSONSchemas")).filter(is_filled),
        Union::Texts => Some(take("Property")).filter(is_filled),
        Union::Bool => {
            let schema = take("Schema");
            return if schema.is_null() {
                take("Allows")
            } else {
                schema
            };
        }
    }
    .unwrap_or_else(|| take("Schema"))
}

fn wrong_type(field: &Field, found: Wire<'_>) -> Error {
    Error::WrongType {
        found: found.number(),
        field: field.go_name(),
    }
}

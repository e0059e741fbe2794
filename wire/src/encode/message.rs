//! The fields of a message from the members of a JSON object, last to first.

use base64::Engine;
use base64::alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use super::backward::Backward;
use crate::error::{Cause, Error};
use crate::table::{Field, Message, Shape, Table, Type, Union};
use crate::time::{self, ZERO};

/// As Go's decoder: the bits after the last byte may have any value.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The field of a manager's fields. A text that begins as an object is their JSON.
const FIELDS: &str = "fieldsV1";

/// Maximum depth of messages.
const MAX_DEPTH: usize = 200;

/// The members of an object; `None` for an absent one.
type Object<'a> = Option<&'a Map<String, Value>>;

/// Writes messages into a buffer.
pub(super) struct Encoder<'a> {
    table: &'static Table,
    buffer: &'a mut Backward,
    depth: usize,
}

// === impl Encoder ===

impl<'a> Encoder<'a> {
    pub(super) fn new(buffer: &'a mut Backward) -> Self {
        Self {
            table: Table::get(),
            buffer,
            depth: 0,
        }
    }

    /// Writes the fields of a message.
    ///
    /// # Errors
    /// For a member of another type than its field.
    pub(super) fn members(&mut self, message: &Message, object: Object<'_>) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Cause::Depth.into());
        }
        for field in message.fields.iter().rev() {
            let Some(name) = field.name else {
                // The members of an inlined message are among those of the outer one.
                if let Type::Message(index) = field.of {
                    let before = self.buffer.len();
                    self.members(self.table.message(index), object)?;
                    self.buffer.close(field.number, before);
                }
                continue;
            };
            let value = object.and_then(|object| object.get(name));
            self.field(field, value.filter(|value| !value.is_null()))
                .map_err(|error| error.in_field(name))?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Writes a field; `None` for an absent member.
    pub(super) fn field(&mut self, field: &Field, value: Option<&Value>) -> Result<(), Error> {
        match (field.shape, value) {
            (Shape::Plain, None) if field.of == Type::Bytes => Ok(()),
            (Shape::Pointer, Some(Value::String(fields)))
                if field.name == Some(FIELDS) && fields.starts_with('{') =>
            {
                let before = self.buffer.len();
                self.buffer.field(1, fields.as_bytes());
                self.buffer.close(field.number, before);
                Ok(())
            }
            (Shape::Plain, value) => self.single(field.number, field.of, value),
            (_, None) => Ok(()),
            (Shape::Pointer, value) => self.single(field.number, field.of, value),
            (Shape::Repeated, Some(Value::Array(items))) => self.list(field, items),
            (Shape::Repeated, Some(other)) => Err(mismatch("list", other)),
            (Shape::Map, Some(Value::Object(entries))) => self.entries(field, entries),
            (Shape::Map, Some(other)) => Err(mismatch("map", other)),
        }
    }

    fn list(&mut self, field: &Field, items: &[Value]) -> Result<(), Error> {
        for (index, item) in items.iter().enumerate().rev() {
            let item = Some(item).filter(|item| !item.is_null());
            self.single(field.number, field.of, item)
                .map_err(|error| error.in_item(index))?;
        }
        Ok(())
    }

    fn entries(&mut self, field: &Field, entries: &Map<String, Value>) -> Result<(), Error> {
        let mut sorted: Vec<(&String, &Value)> = entries.iter().collect();
        // Maps of serde_json are sorted already, unless a program asks for another order.
        sorted.sort_by_key(|(key, _)| *key);
        for (key, value) in sorted.into_iter().rev() {
            let before = self.buffer.len();
            let value = Some(value).filter(|value| !value.is_null());
            if value.is_some() || field.of != Type::Bytes {
                self.single(2, field.of, value)
                    .map_err(|error| error.in_entry(key))?;
            }
            self.buffer.field(1, key.as_bytes());
            self.buffer.close(field.number, before);
        }
        Ok(())
    }

    /// Writes one value with its tag; `None` for the zero value.
    fn single(&mut self, number: u32, of: Type, value: Option<&Value>) -> Result<(), Error> {
        match of {
            Type::Text => self.buffer.field(number, text(value)?.as_bytes()),
            Type::Bytes => {
                let text = text(value)?;
                let text = text.replace(['\n', '\r'], "");
                let bytes = BASE64.decode(text).map_err(|error| {
                    Cause::Custom(format!("a text that is not base64: {error}"))
                })?;
                self.buffer.field(number, &bytes);
            }
            Type::Bool => {
                let value = match value {
                    None => false,
                    Some(Value::Bool(value)) => *value,
                    Some(other) => return Err(mismatch("boolean", other)),
                };
                self.number(number, value.into());
            }
            Type::Int32 => {
                let value = integer(value)?;
                let value = i32::try_from(value).map_err(|_| {
                    Cause::Custom(format!("the number {value} has more than 32 bits"))
                })?;
                self.number(number, value.into());
            }
            Type::Int64 => self.number(number, integer(value)?),
            Type::Double => {
                let value = match value {
                    None => 0.0,
                    Some(value) => value.as_f64().ok_or_else(|| mismatch("number", value))?,
                };
                self.buffer.put(&value.to_bits().to_le_bytes());
                self.buffer.tag(number, 1);
            }
            Type::Time | Type::MicroTime | Type::Raw | Type::Quantity => {
                let before = self.buffer.len();
                self.special(of, value)?;
                self.buffer.close(number, before);
            }
            Type::IntOrString => {
                let before = self.buffer.len();
                self.int_or_string(value)?;
                self.buffer.close(number, before);
            }
            Type::Texts => {
                let before = self.buffer.len();
                self.texts(value)?;
                self.buffer.close(number, before);
            }
            Type::Message(index) => {
                let before = self.buffer.len();
                let message = self.table.message(index);
                match message.union {
                    Some(union) => self.union(union, message, value)?,
                    None => self.members(message, object(value)?)?,
                }
                self.buffer.close(number, before);
            }
        }
        Ok(())
    }

    /// A number with its tag; Go extends the sign to 64 bits.
    fn number(&mut self, number: u32, value: i64) {
        self.buffer.varint(value.cast_unsigned());
        self.buffer.tag(number, 0);
    }

    fn special(&mut self, of: Type, value: Option<&Value>) -> Result<(), Error> {
        match (of, value) {
            (Type::Time | Type::MicroTime, None) => {}
            (Type::Time | Type::MicroTime, value) => {
                let text = text(value)?;
                let Some((seconds, nanoseconds)) = time::parse(text) else {
                    return Err(Cause::Custom(format!("{text:?} is not a time")).into());
                };
                let nanoseconds = match of {
                    Type::MicroTime => nanoseconds / 1000 * 1000,
                    _ => 0,
                };
                if (seconds, nanoseconds) != (ZERO, 0) {
                    self.number(2, nanoseconds.into());
                    self.number(1, seconds);
                }
            }
            (Type::Quantity, None) => self.buffer.field(1, b"0"),
            (Type::Quantity, Some(Value::Number(number))) => {
                self.buffer.field(1, number.to_string().as_bytes());
            }
            (Type::Quantity, value) => self.buffer.field(1, text(value)?.as_bytes()),
            (_, None) => {}
            (_, Some(value)) => {
                let text = serde_json::to_vec(value);
                let text = text.map_err(|error| Cause::Json(error.to_string()))?;
                self.buffer.field(1, &text);
            }
        }
        Ok(())
    }

    fn int_or_string(&mut self, value: Option<&Value>) -> Result<(), Error> {
        let (kind, number, text) = match value {
            None => (0, 0, ""),
            Some(Value::String(text)) => (1, 0, text.as_str()),
            Some(value) => (0, integer(Some(value))?, ""),
        };
        self.buffer.field(3, text.as_bytes());
        self.number(2, number);
        self.number(1, kind);
        Ok(())
    }

    fn texts(&mut self, value: Option<&Value>) -> Result<(), Error> {
        match value {
            None => {}
            Some(Value::Array(items)) => {
                for (index, item) in items.iter().enumerate().rev() {
                    let item = Some(item).filter(|item| !item.is_null());
                    let text = text(item).map_err(|error| error.in_item(index))?;
                    self.buffer.field(1, text.as_bytes());
                }
            }
            Some(other) => return Err(mismatch("list", other)),
        }
        Ok(())
    }

    /// A message that is one of its fields in JSON.
    fn union(
        &mut self,
        union: Union,
        message: &Message,
        value: Option<&Value>,
    ) -> Result<(), Error> {
        let is_schema = matches!(value, Some(Value::Object(_)));
        let (name, list_or_bool) = match union {
            Union::Array => ("JSONSchemas", value),
            Union::Texts => ("Property", value),
            // A schema allows what it describes.
            Union::Bool if is_schema => ("Allows", Some(&Value::Bool(true))),
            Union::Bool => ("Allows", value),
        };
        let is_second = union != Union::Bool && is_schema;
        for field in message.fields.iter().rev() {
            if field.name == Some(name) {
                self.field(field, list_or_bool.filter(|_| !is_second))?;
            } else {
                self.field(field, value.filter(|_| is_schema))?;
            }
        }
        Ok(())
    }
}

fn object(value: Option<&Value>) -> Result<Object<'_>, Error> {
    match value {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(other) => Err(mismatch("object", other)),
    }
}

fn text(value: Option<&Value>) -> Result<&str, Error> {
    match value {
        None => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(mismatch("text", other)),
    }
}

fn integer(value: Option<&Value>) -> Result<i64, Error> {
    match value {
        None => Ok(0),
        Some(value) => value.as_i64().ok_or_else(|| mismatch("integer", value)),
    }
}

fn mismatch(expected: &'static str, value: &Value) -> Error {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    Cause::Mismatch { expected, found }.into()
}

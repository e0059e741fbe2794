//! Errors of reading and writing: the cause, the field and the offset.

use std::fmt::{self, Write as _};

/// Error of reading or writing an object.
///
/// Shown as `spec.containers[0].name: proto: wrong wireType = 0 for field Name (byte 17)`.
pub struct Error(Box<Inner>);

struct Inner {
    cause: Cause,
    /// From the innermost field outwards.
    path: Vec<Segment>,
    offset: Option<usize>,
}

/// One step of the path to a field.
enum Segment {
    Field(&'static str),
    Index(usize),
    Key(String),
}

/// The cause of an [`Error`]; those that Kubernetes' decoders have, too, have their texts.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// There is no body.
    #[error("empty data")]
    Empty,
    /// The body does not begin with the prefix of Kubernetes.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    Prefix,
    /// The body has only the prefix.
    #[error("empty body")]
    EmptyBody,
    /// The kind is not in the table.
    #[error("no fields are known of kind {kind:?} in version {api_version:?}")]
    UnknownKind {
        /// Group and version.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// The bytes end within a field.
    #[error("unexpected EOF")]
    End,
    /// A number has more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A length has more than 63 bits.
    #[error("proto: negative length found during unmarshaling")]
    Length,
    /// A field without a number.
    #[error("proto: {message}: illegal tag {number} (wire type {tag})")]
    Tag {
        /// The message without its package.
        message: String,
        /// The number of the field.
        number: i32,
        /// The whole tag.
        tag: u64,
    },
    /// A group end without a start.
    #[error("proto: {0}: wiretype end group for non-group")]
    EndGroup(String),
    /// One of the two values without a type.
    #[error("proto: illegal wireType {0}")]
    IllegalType(u8),
    /// A field has another wire type than its own.
    #[error("proto: wrong wireType = {found} for field {field}")]
    WrongType {
        /// The type on the wire.
        found: u8,
        /// The name of the field in Go.
        field: String,
    },
    /// Objects nest deeper than [`Limits::depth`](crate::Limits::depth).
    #[error("exceeded max depth")]
    Depth,
    /// The object has more values than [`Limits::values`](crate::Limits::values).
    #[error("the object has more than {0} values")]
    TooMany(usize),
    /// A JSON text is invalid.
    #[error("{0}")]
    Json(String),
    /// A number that JSON cannot represent.
    #[error("json: unsupported value: {0}")]
    Number(&'static str),
    /// A time before the year 0 or after 9999.
    #[error("a time of {0} seconds is not within the years 0 to 9999")]
    Time(i64),
    /// An `IntOrString` that is neither.
    #[error("impossible IntOrString.Type")]
    IntOrString,
    /// A value that the Rust type of the field does not accept.
    #[error("{0}")]
    Custom(String),
    /// A JSON value that its field cannot hold.
    #[error("a value of type {found} where {expected} is expected")]
    Mismatch {
        /// The type of the field.
        expected: &'static str,
        /// The type of the value.
        found: &'static str,
    },
    /// A frame of a watch that is longer than the limit.
    #[error("a frame of {length} bytes is longer than the limit of {limit} bytes")]
    Frame {
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
    },
}

// === impl Error ===

impl Error {
    pub(crate) fn at(cause: Cause, offset: usize) -> Self {
        let mut error = Self::from(cause);
        error.0.offset = Some(offset);
        error
    }

    /// The cause, without the place.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// The offset of the field in the bytes of the object, where it is known.
    #[must_use]
    pub fn offset(&self) -> Option<usize> {
        self.0.offset
    }

    /// The JSON path of the field, such as `spec.containers[0].name`; empty for the object itself.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = String::new();
        for segment in self.0.path.iter().rev() {
            // Writing to a String does not fail.
            let _ = match segment {
                Segment::Field(name) if path.is_empty() => write!(path, "{name}"),
                Segment::Field(name) => write!(path, ".{name}"),
                Segment::Index(index) => write!(path, "[{index}]"),
                Segment::Key(key) => write!(path, "[{key:?}]"),
            };
        }
        path
    }

    pub(crate) fn in_field(mut self, name: &'static str) -> Self {
        self.0.path.push(Segment::Field(name));
        self
    }

    pub(crate) fn in_item(mut self, index: usize) -> Self {
        self.0.path.push(Segment::Index(index));
        self
    }

    pub(crate) fn in_entry(mut self, key: &str) -> Self {
        self.0.path.push(Segment::Key(key.to_owned()));
        self
    }

    /// Sets the offset, if it is unknown.
    pub(crate) fn or_at(mut self, offset: usize) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Self(Box::new(Inner {
            cause,
            path: Vec::new(),
            offset: None,
        }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path();
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        write!(f, "{}", self.0.cause)?;
        match self.0.offset {
            Some(offset) => write!(f, " (byte {offset})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("cause", &self.0.cause)
            .field("path", &self.path())
            .field("offset", &self.0.offset)
            .finish()
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Cause::Custom(message.to_string()).into()
    }
}

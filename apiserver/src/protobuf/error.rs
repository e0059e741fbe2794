//! Errors of decoding a body, with the texts of Kubernetes' decoders where they have some.

/// Error of decoding a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// There is no body.
    #[error("empty data")]
    Empty,
    /// It has another format.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    Prefix,
    /// It has only the prefix.
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
    /// The object in the envelope is invalid.
    #[error("{error}")]
    Object {
        /// Group and version.
        api_version: String,
        /// The kind.
        kind: String,
        /// The cause.
        error: Box<Error>,
    },
    /// It ends within a field.
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
    /// Objects nest too deep.
    #[error("exceeded max depth")]
    Depth,
    /// It has more values than a JSON body of the maximum size could reasonably have.
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
}

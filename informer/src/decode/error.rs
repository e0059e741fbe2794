//! The error of a document that cannot be read at all.

/// A document that could not be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be read: {error}")]
pub(crate) struct DecodeError {
    /// The kind of document.
    pub(crate) what: &'static str,
    /// The error, without any content of the document.
    pub(crate) error: String,
}

// === impl DecodeError ===

impl DecodeError {
    /// Of a document whose reader has stopped.
    pub(crate) fn given_up() -> Self {
        Self {
            what: "the document",
            error: "its reader has stopped".to_owned(),
        }
    }
}

impl From<DecodeError> for reeve_client::transport::Error {
    fn from(error: DecodeError) -> Self {
        Self::Decode(Box::new(error))
    }
}

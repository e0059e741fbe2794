//! The reason why an object was not applied.

use super::conflict::{self, Conflict};

/// The reason why an object was not applied. Each variant is one HTTP status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApplyError {
    /// 400: the applied object is of another type, or has managedFields.
    #[error("{0}")]
    Malformed(String),
    /// 409: other managers own fields that it changes.
    #[error("{}", conflict::message(.0))]
    Conflicts(Vec<Conflict>),
    /// 500: an object does not fit the schema, or its managedFields cannot be read.
    #[error("{0}")]
    Unprocessable(String),
}

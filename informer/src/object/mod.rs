//! Entries of the store: one object each, in one of several forms, and how it is read from JSON or protobuf.
//!
//! [`Stored`] is the trait of all entries, [`Form`] that of their types. Every Kubernetes type is an entry of itself;
//! [`Compact`] keeps the bytes. [`Decoding`] names what is left out while it is read.

mod body;
mod compact;
mod compact_text;
mod decode_cache;
mod form;
mod packing;
mod protobuf;
mod selector;
mod spares;
mod stored;
mod view_error;

#[cfg(test)]
mod trim_tests;

pub use compact::Compact;
pub(crate) use decode_cache::DecodeCache;
pub(crate) use form::EntryReader;
pub use form::{Decoding, EntryType, Form};
pub(crate) use packing::Packing;
pub use protobuf::ProtobufObject;
pub(crate) use protobuf::{Origin, text};
pub use reeve_client::json::{SkipPath, SkipPathError};
pub use selector::{FieldSelector, FieldSelectorError};
pub(crate) use selector::{FieldTerm, retain_labelled};
pub(crate) use spares::Spares;
pub use stored::Stored;
pub use view_error::ViewError;

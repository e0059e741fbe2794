//! Entries of the store: one object each, in one of several forms, and how it is read from JSON.
//!
//! [`Stored`] is the trait of all forms. Every Kubernetes type is an entry of itself (`typed`); [`Compact`] keeps the
//! JSON text. [`Decoding`] says what is left out, and [`Trimmed`] leaves it out during deserialization.

mod compact;
mod decode_cache;
mod decoding;
mod selector;
mod skip;
mod stored;
mod trimmed;
mod typed;
mod view_error;

pub use compact::Compact;
pub(crate) use decode_cache::DecodeCache;
pub use decoding::Decoding;
pub use selector::{FieldSelector, FieldSelectorError};
pub(crate) use selector::{FieldTerm, retain_labelled};
pub use skip::{SkipPath, SkipPathError};
pub use stored::Stored;
pub use trimmed::Trimmed;
pub use view_error::ViewError;

//! From bytes to entries: lists and lines of a watch, in one pass, without the skipped fields.
//!
//! A body is never logged, and no error quotes it: serde's messages name the wrong value, which may be a secret, so
//! [`redacted`](reeve_client::json::redacted) keeps only the expectation and the place.
//!
//! An object that cannot be read costs that object only. A list or a frame is read in one pass; only when that fails it
//! is split into objects, each of which is tried by itself, and those that fail become [`Undecodable`]. The same holds
//! for a type that panics at an object, where panics unwind.

mod budget;
mod error;
mod frame;
mod identity;
mod list;
mod outline;
mod protobuf;
#[cfg(test)]
mod protobuf_tests;
#[cfg(test)]
mod tests;
mod undecodable;

pub(crate) use budget::Budget;
pub(crate) use error::DecodeError;
pub(crate) use frame::{Frame, changed, decode_frame};
pub(crate) use identity::Identity;
#[cfg(any(test, fuzzing))]
pub(crate) use list::decode_list;
pub(crate) use list::{ListPage, continue_token, read_list};
pub(crate) use undecodable::Undecodable;

//! Writing: the bytes that Kubernetes' generated code makes of the same object.
//!
//! Fields are in the order of their numbers, entries of maps in that of their keys. A field that is not a pointer is
//! written even when it is zero, except for bytes, lists and maps.
//!
//! A message begins with its length. So [`backward`] fills a buffer from its end, as the generated code does, and
//! [`message`] walks the fields from the last to the first. [`object`] puts messages into envelopes and lists.

mod backward;
mod message;
mod object;

pub(crate) use object::frame;
pub use object::{List, encode, encode_list, envelope, to_vec};

//! Request bodies in protobuf, decoded to the equivalent JSON.
//!
//! The wire carries numbers where JSON has names, and does not show which Go fields are pointers, are left out when
//! empty, or are inlined in the outer object. [`table`] holds those facts for every message, generated from the Go
//! types by `tools/protobuf`; [`message`] uses it, [`special`] has the types with a JSON form of their own, and
//! [`envelope`] has the kind. The result equals that of client-go's decoder and JSON encoder for the same bytes.
//!
//! Bodies are untrusted: the depth and the number of values are bounded, and every error is a text for a 400.

mod envelope;
mod error;
mod message;
mod special;
mod table;
mod wire;

pub(crate) use envelope::decode;
pub(crate) use error::Error;

#[cfg(test)]
mod tests;

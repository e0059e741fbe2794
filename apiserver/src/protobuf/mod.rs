//! Request bodies in protobuf, read into the JSON that a client would have sent instead.
//!
//! The wire carries numbers where JSON has names, and nothing says which Go fields are pointers, are left out when empty
//! or stand among the fields of the outer object. [`table`] holds those facts for every message, generated from the Go
//! types by `tools/protobuf`; [`message`] follows it, [`special`] knows the types with a form of their own in JSON, and
//! [`envelope`] names the kind. The result is what client-go's decoder and JSON encoder make of the same bytes.
//!
//! Bodies come from anywhere: the depth and the number of values are bounded, and every error is a text for a 400.

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

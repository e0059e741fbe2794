//! Reading: a serde `Deserializer` over the bytes of a message and its description.
//!
//! | on the wire | in the object |
//! |---|---|
//! | a field that is not a pointer | left out when it is empty and `omitempty`, else present, zero without a value on the wire |
//! | a pointer | present when it is on the wire, a zero too |
//! | a message written twice | one message with the fields of both (the later of two values) |
//! | a list in pieces, or numbers packed into one | one list |
//! | unknown fields | left out |
//!
//! [`stack`] gathers the fields of each open message, [`members`] is the map of a message, [`element`] a value, and
//! [`sequences`] has lists and maps. [`scalar`] and [`special`] read the values without members.

mod element;
mod members;
mod object;
mod scalar;
mod sequences;
mod special;
mod stack;

pub use object::{Deserializer, is_read_in_place};
#[cfg(feature = "k8s-openapi")]
pub(crate) use special::nests_deeper;

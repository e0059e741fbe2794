//! Kubernetes objects in protobuf: a serde deserializer and an encoder, from a table of the built-in kinds.
//!
//! ```
//! use serde_json::{Value, json};
//!
//! let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"key": "value"}});
//! let body = reeve_wire::to_vec(&map)?;
//! let read: Value = reeve_wire::from_slice(&body)?;
//! assert_eq!(read, map);
//! # Ok::<(), reeve_wire::Error>(())
//! ```
//!
//! # The table
//! The wire carries numbers where JSON has names, and does not show which Go fields are pointers, are left out when empty,
//! or are inlined in the outer object. A table holds those facts for every kind that kube-apiserver serves by default; it
//! is generated from the Go types. Custom resources have no protobuf.
//!
//! # Reading
//! [`from_slice`] reads a body; [`Envelope`] reads its kind first, and takes [`Limits`]. [`Deserializer`] reads a message
//! without an envelope, such as an item of a list. The result equals that of the Go decoder and its JSON encoder.
//!
//! With the feature `k8s-openapi`, [`Deserializer::read`] reads the common kinds of that crate in place, without serde: with
//! the same results and errors, in less time.
//!
//! [`Trim`] leaves parts of an object out while it is read, or of a copy of its bytes. [`Fields`] is for readers of a few
//! fields.
//!
//! # Writing
//! [`to_vec`] writes an object in its envelope, [`encode()`] a message alone, [`encode_list`] a list of messages. The bytes
//! equal those of the Go encoder for the same object, if its quantities have their canonical form, and the JSON texts in it
//! (`managedFields`, defaults of a schema) that of serde_json.
//!
//! # Watches
//! [`watch`] has the frames of a watch.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod decode;
#[cfg(feature = "k8s-openapi")]
mod direct;
mod encode;
mod envelope;
mod error;
mod fields;
mod limits;
mod table;
mod time;
mod trim;
pub mod watch;

pub use decode::{Deserializer, is_read_in_place};
pub use encode::{List, encode, encode_list, envelope, to_vec};
pub use envelope::{Envelope, PREFIX, from_slice};
pub use error::{Cause, Error};
pub use fields::{Fields, Wire};
pub use limits::Limits;
pub use table::Message;
pub use trim::{Step, Trim};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

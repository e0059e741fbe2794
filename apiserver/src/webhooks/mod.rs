//! Calls of webhooks: where they listen, the connection to them, and the conversion of objects by them.
//!
//! Admission asks a [`Backend`] with reviews of its own ([`admission`](crate::admission)); [`ConversionWebhook`] converts
//! custom resources from one version to another.

mod authorities;
mod backend;
mod backends;
mod conversion;
pub(crate) mod document;
mod metadata;
mod network;
mod redirect;
mod verifier;

pub(crate) use authorities::certificates;
pub(crate) use backend::Backend;
pub(crate) use backends::Backends;
pub(crate) use conversion::ConversionWebhook;
pub(crate) use network::Network;

//! The configuration: the ConfigMap `ipblock-operator-config`, read all or nothing.
//!
//! Its keys are flat texts, those of the original and some more; [`keys`] lists them. One wrong line makes
//! the whole map wrong: an allowlist that lost a line silently would let an address be banned. A [`Config`] is
//! always right; only a takeover reads its first one as leniently as the original does ([`parse_first`]). The caller
//! keeps the last configuration when a new one is wrong.

pub(crate) mod allowlist;
mod channel;
mod channels;
mod engines;
mod error;
mod gateways;
mod guard;
pub mod keys;
mod notify;
mod options;
mod parse;
mod settings;
mod sources;
mod triggers;

pub use channel::{ChannelConfig, Text, Vendor};
#[cfg(test)]
pub(crate) use channels::RawChannel;
pub use error::{Errors, KeyError};
pub use options::Options;
pub use parse::{parse, parse_first, unprotected};
pub use settings::{CONFIG_MAP, Changes, Config, EngineConfig};

//! Triggers: HTTP servers whose alerts become IPBlock objects.
//!
//! ```text
//! request ─ method ─ credentials ─ body ≤ 1 MiB ─ JSON ─ ≤ 4000 bans  ┐
//!                                                                      │ each firing alert
//!   canonical address ─ its lock ─ debounce ─ object by name ──────────┘
//!                                             ├ none: create, with finalizer and intent
//!                                             ├ expired, failed, skipped: set `trigger`, unless unblocked a moment ago
//!                                             ├ active, in its second half: a longer `duration`
//!                                             └ anything else: nothing, its run goes on
//!                       each resolved alert, where configured: the end of the ban (see `firing`)
//! ```
//!
//! The answer is 2xx only when every object is written, and 503 when the API server could not be
//! reached, so that the sender repeats the request; an alert counts as seen (debounce) only when it is written.
//!
//! # When something fails
//! A listener that cannot bind is reported by [`Triggers::apply`] and tried again at the next one; the
//! others run. While a secret file cannot be read, requests are refused (503). Nothing is queued here:
//! the sender repeats a request that was not answered with 2xx.

mod address;
mod alertmanager;
mod alerts;
mod blocks;
mod credentials;
mod debounce;
mod definition;
mod definition_error;
mod firing;
mod generic;
mod graced;
mod grafana;
mod intake;
mod kind;
#[cfg(all(test, feature = "dev"))]
mod kube_tests;
mod labels;
mod listen;
mod mapping;
mod metrics;
mod payload;
mod pulled;
mod receive;
pub(crate) mod repeat;
mod server;
#[cfg(test)]
mod tests;
mod tls;
#[cfg(test)]
pub(crate) mod tls_tests;
mod tried;
mod unfinished;

#[cfg(test)]
pub(crate) use blocks::in_memory;
pub use blocks::{Blocks, BlocksError, KubeBlocks};
pub use credentials::{Credentials, GRAFANA_HMAC_HEADER};
pub(crate) use credentials::{Refusal, bearer, is_one_of, secrets};
pub(crate) use definition::listening_at;
pub use definition::{AtResolved, Definition, RawTrigger};
pub use definition_error::DefinitionError;
pub use intake::Settings;
pub use kind::Kind;
pub use labels::Labels;
pub(crate) use listen::{is_named, no_ipv6};
pub use mapping::{Defaults, Mapping, MappingError, Pointers, RawMapping};
pub use metrics::Metrics;
pub use payload::{Form, Payload};
pub(crate) use pulled::{PulledIntake, single_target};
pub use repeat::Repeat;
pub use server::{ApplyError, Dependencies, Triggers};
pub use tls::Tls;
pub(crate) use tls::{TlsFault, TlsFields};
pub use tried::{Line, Tried};

//! Sources: lists of addresses that the operator pulls, and that become IPBlock objects, or BlockLists.
//!
//! ```text
//!          every interval                          the rules of alerts
//! feed ─────── GET, ETag ──▶ entries ─┐   ┌ not banned, or not for long enough: ban
//! CrowdSec ─── stream ─────▶ decisions┴▶ Sink
//!                                         └ banned by this source and not listed any more: lift
//! ```
//!
//! There are two sinks: `sink` makes one IPBlock an entry, `lists` keeps BlockLists of up to 5,000 entries.
//!
//! Only the leader pulls. Each source has a task of its own, so one that hangs does not hold up another.
//!
//! # When something fails
//! A pull that fails changes nothing: the bans that stand run to their end, and the next pull is later each time, up to
//! ten minutes. A list that is empty, or that has more wrong lines than right ones, counts as a failure, so that an error
//! page lifts nothing. A list that lost most of its entries lifts none of them until the brake of its source is released.
//! Entries that could not be written are written at the next pull. After a restart the first list is
//! compared with the blocks of the source, so that entries that left it meanwhile are lifted.

mod brake;
mod crowdsec;
mod definition;
mod elements;
mod entry;
mod feed;
mod known;
mod lists;
mod metrics;
mod objects;
mod pace;
mod placing;
mod puller;
mod sink;
mod sources;
#[cfg(test)]
mod tests;
mod written;

pub use definition::{Flavour, RawSource, Source, SourceError};
pub use metrics::Metrics;
pub use objects::Objects;
pub use sources::{Connect, Sources};

//! The queue between a reflector and the store: changes in order, bounded.
//!
//! Two types implement one trait. [`RealFifo`] keeps the server's order across all objects and replaces the whole state
//! in one delta, so that the store equals one server version after each batch; informers use it by default.
//! [`DeltaFifo`] collects the changes of each object under its key, as older client-go did.
//!
//! Neither blocks: producers and consumers wait on [`Fifo::writable`] and [`Fifo::readable`]. A producer checks
//! [`Fifo::has_room`] before it reads more from the server, so a store that falls behind slows the watch and costs no
//! memory.

mod delta;
mod delta_fifo;
mod known;
mod queue;
mod real_fifo;
mod snapshot;
#[cfg(test)]
mod tests;

/// The bookmark with which a [`DeltaFifo`] passes on that the server's history began again.
pub(crate) const NEW_EPOCH: &str = "0";

pub use delta::{Batch, Deletion, Delta};
pub use delta_fifo::DeltaFifo;
pub use known::KnownObjects;
pub use queue::Fifo;
pub use real_fifo::RealFifo;
pub use snapshot::Snapshot;
// A type of another crate in signatures of this one.
pub use tokio::sync::Notify;

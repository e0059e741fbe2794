//! The audit log: at most one JSON line a transition of a block, in a file or on the standard output.
//!
//! ```text
//! reconcile ─ Log::record ─▶ queue (bounded) ─▶ writer ─▶ file, opened again when it was moved
//! ```
//!
//! A line is made of the same transition as an Event, at the same place. [`Log::record`] never waits: when the writer
//! cannot follow, a line is dropped and counted.
//!
//! # When something fails
//! A write that fails is tried again every second with what is left of it, so that no line is torn or repeated in one
//! file. Meanwhile lines wait in the queue; those past its end are dropped, counted, and reported once the writer
//! works again. The size of the file is not bounded here: a tool that rotates logs moves it away, and the next line
//! goes to a new file.

mod line;
mod log;
mod metrics;
mod sink;
#[cfg(test)]
mod tests;

pub use line::{Action, Line};
pub use log::Log;
pub use metrics::Metrics;
pub use sink::Destination;
#[cfg(test)]
pub(crate) use tests::documented;

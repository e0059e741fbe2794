//! The shared parts of every Rust peer: flags, keys, time, memory, and the printed line.
//!
//! The Go peers have the same in `go/measure.go`; keys, orders and delays are equal byte for byte.

pub mod control;
pub mod crowd;
pub mod flags;
pub mod fleet;
pub mod heap;
pub mod informer;
mod jemalloc;
pub mod keys;
pub mod late;
pub mod latency;
pub mod limit;
pub mod reconcile;
pub mod report;
pub mod restart;
pub mod starve;
pub mod usage;

pub use flags::Flags;
pub use report::{Outcome, Report, Stop};

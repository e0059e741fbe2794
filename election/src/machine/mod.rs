//! The elector as a state machine, without I/O and without a clock.
//!
//! [`Machine::step`] takes an [`Event`] and the time, and returns the [`Action`]s that follow from them. The
//! [`Elector`](crate::Elector) performs them: it sends the requests, reads the watch, sets a timer for
//! [`Machine::wake_at`], moves the fence, and reports what happens as the next event.
//!
//! | role | waits for | next |
//! |---|---|---|
//! | `Idle` | `Contend` | `Acquiring` |
//! | `Standby` | the end of the lease, news of it, or the next poll | `Acquiring` |
//! | `Acquiring` | the answer to a read or a write | `Leading`, `Standby` |
//! | `Leading` | the next renewal, or news that another client wrote the lease | `Renewing` |
//! | `Renewing` | the answer to a read or a write, until the renew deadline | `Leading`, `Lost` |
//! | `Releasing` | the writes under the lease, then the answers to a read and a write | `Idle` |
//! | `Lost` | `Contend` | `Acquiring` |
//!
//! One try to take or renew the lease is client-go's `tryAcquireOrRenew`:
//!
//! 1. a lease that is ours is written without a read;
//! 2. any other lease, and ours if that write failed, is read;
//! 3. the lease of another that is not over is left alone;
//! 4. any other lease is created or updated.
//!
//! `Stop` leads from every role to `Releasing`, or to `Idle` if the lease is certainly not ours. All transitions are in
//! one `match`, `Machine::next` in `step.rs`; what they do stands in `contend.rs`, `lead.rs` and `release.rs`.

mod contend;
mod event;
mod feed;
mod lead;
mod release;
mod role;
mod step;
mod view;

#[cfg(test)]
pub(crate) use event::FailureKind;
pub(crate) use event::{Action, Event, Failure, Now, Report};
pub use role::Lost;
pub(crate) use role::Role;
pub(crate) use step::Machine;

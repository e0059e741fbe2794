//! The rules of the queue, without lock or wakers.
//!
//! An operation finds the slot of its key, calls the limiter and the tenant's function, which may panic, and
//! then applies events to the item: see [the table of transitions](crate::item_state). An add of an item that
//! is pending merges with it: the higher priority counts, and a ready item moves to the end of it.
//!
//! Times are nanoseconds since the queue was built. [`State::advance`] applies all timers and tokens up to
//! `now`, in order, before an operation, so the outcome does not depend on when operations happen.

mod adds;
mod data;
mod effects;
mod records;
mod resting;
mod runs;
mod shutdown;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use adds::AddRequest;
pub(crate) use data::{Flight, Rules, Shutdown, State};
pub(crate) use effects::Effects;
pub(crate) use resting::Resting;
pub(crate) use runs::{Outcome, Taken};

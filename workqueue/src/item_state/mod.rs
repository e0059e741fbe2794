//! The state machine of an item: its states, its events, and [one table of transitions](transition()).
//!
//! An item is *pending* (to be handed out, now or later), *in flight* (with a worker), both, or neither.
//!
//! | state | the item | its place |
//! |---|---|---|
//! | `Idle` | is nothing but a slot, which is new or about to be freed | `Leaving`: the slots to be freed |
//! | `Recorded` | is kept for its failures | `Records`: the list of failure records |
//! | `Ready` | is to be handed out | `Ready`: the list of its priority |
//! | `Delayed` | is ready at a time | `Waiting`: the number of waiting items; it has a timer |
//! | `BackingOff` | enters the token queue at a time | as above |
//! | `AwaitingToken` | is ready when it gets a token | `TokenQueue` |
//! | `InFlight` | is with a worker | `Worker` |
//! | `InFlight+Ready` | is ready when its run ends ("dirty") | `WorkerAgain`: the number of such items |
//! | `InFlight+…` | is with a worker and waits, as above | that of the waiting item |
//!
//! A rate limiter can bound the wait for a token. A *bounded* `BackingOff` or `AwaitingToken` has a second time,
//! at which the item is ready also without a token; in the token queue a timer stands for it.
//!
//! An item is in the place of its state, and has the timer that its state names. So the effects of a
//! transition follow from its two states, and [`Transition`] lists them for the lists and timers of the queue.
//! Priority, reasons and failures are data of the slot, not of the state.
//!
//! # Transitions
//!
//! `=`: the item stays as it is. `–`: impossible. `or`: as the times of the two states and the failures of the
//! key decide. An add with a delay merges with a waiting item: of several times the earlier counts. A requeue
//! at the end of a run is an add before `Settled`.
//!
//! | | `Add` | `AddLater` | `TimerFired` | `TokenGranted` | `HandedOut` | `Settled` | `Cancelled` | `Forgotten` |
//! |---|---|---|---|---|---|---|---|---|
//! | `Idle` | Ready | Delayed or BackingOff | – | – | – | – | = | = |
//! | `Recorded` | Ready | Delayed or BackingOff | – | – | – | – | = | Idle |
//! | `Ready` | = | = | – | – | InFlight | – | Idle or Recorded | = |
//! | `Delayed` | Ready | Delayed or BackingOff or = | Ready | – | – | – | Idle or Recorded | = |
//! | `BackingOff` | Ready | Delayed or BackingOff or = | AwaitingToken | – | – | – | Idle or Recorded | = |
//! | `AwaitingToken` | Ready | AwaitingToken or = | – or Ready | Ready | – | – | Idle or Recorded | = |
//! | `InFlight` | InFlight+Ready | InFlight+Delayed or InFlight+BackingOff | – | – | – | Idle or Recorded | = | = |
//! | `InFlight+Ready` | = | = | – | – | – | Ready | InFlight | = |
//! | `InFlight+Delayed` | InFlight+Ready | InFlight+Delayed or InFlight+BackingOff or = | InFlight+Ready | – | – | Delayed | InFlight | = |
//! | `InFlight+BackingOff` | InFlight+Ready | InFlight+Delayed or InFlight+BackingOff or = | InFlight+AwaitingToken | – | – | BackingOff | InFlight | = |
//! | `InFlight+AwaitingToken` | InFlight+Ready | InFlight+AwaitingToken or = | – or InFlight+Ready | InFlight+Ready | – | AwaitingToken | InFlight | = |
//!
//! `transitions.txt` lists the effects of every pair. Tests hold the table and the list against the code.
//!
//! # Cost
//!
//! The functions are inlined, so that at a call with a constant event only the arms of that event are left.
//! Without it, an add of an item that is ready already costs a fifth more processor time.

#[cfg(test)]
pub(crate) mod samples;
mod states;
#[cfg(test)]
mod tests;
mod transition;
mod wait;

pub(crate) use states::{ItemState, Pending, Place};
pub(crate) use transition::{Event, Facts, Transition, transition};
pub(crate) use wait::Wait;

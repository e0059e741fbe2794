//! The part that a user writes: a [`Reconciler`], which reconciles one key and returns an [`Outcome`]. [`object`] makes
//! one of a function of an object, [`function`] of a function of a request.
//!
//! The effect of each result on the queue (controller-runtime: `Controller.reconcileHandler`):
//!
//! | result | failures of the key | the key | `result` label |
//! |---|---|---|---|
//! | `Err` | one more | again after its back-off | `error` |
//! | `Err`, [rate-limited](Error::rate_limited) | one more | again after its back-off, at least after `retry_after` | `error` |
//! | `Err`, not an [outage](Error::outage), after [`max_retries`](crate::controller::Builder::max_retries) | forgotten | not again until something changes | `error` |
//! | `Err`, terminal, or [`Outcome::terminal`] | forgotten | not again until something changes | `error` |
//! | [`Outcome::requeue_after`] a delay | forgotten | again after the delay | `requeue_after` |
//! | [`Outcome::retry`] | one more | again after its back-off | `requeue` |
//! | [`Outcome::done`], or a delay of zero | forgotten | not again until something changes | `success` |
//! | a panic | one more | again after its back-off | `error` |
//! | the time-out | one more | again after its back-off | `error` |
//!
//! The back-off of a key is 5 ms · 2ⁿ after `n` failures in a row, up to 1000 s after errors of its own and up to 60 s
//! after [outages](Error::outage) ([`Builder::back_off`](crate::controller::Builder::back_off)). The end of an outage of
//! the API server ends it.
//!
//! A key that is requeued keeps its priority, unless [`Outcome::with_priority`] or [`Error::with_priority`] set
//! another.
//!
//! Two rows differ from controller-runtime: there a terminal error never clears the key's failure record, and nothing
//! honours `Retry-After`.

mod error;
mod object;
mod outcome;
mod reconciler;
mod request;

pub use error::{Class, Error, RateLimited, Terminal};
pub(crate) use error::{OUTAGE, RATE_LIMITED, ServerOutage};
pub use object::{ForObject, object, object_in};
pub(crate) use outcome::Next;
pub use outcome::{Outcome, Result};
pub use reconciler::{Function, Reconciler, function};
pub use request::{Request, RequestKey};

//! Leader election by a Lease, compatible with client-go: the two contend for the same lease.
//!
//! One replica leads. It renews the lease every [`Options::retry_period`]. Without success for
//! [`Options::renew_deadline`] it stops leading, which leaves LeaseDuration − RenewDeadline for its requests to arrive
//! and for its workers to stop, before another may take the lease.
//!
//! The others watch the lease. They take it at once when it is released, and when they have seen no change for
//! [`Options::lease_duration`], which ends a timer. The watch only makes them faster. After a retry period without an
//! event (with client-go's jitter, [`JITTER`]), they read the lease; so without the permission to watch, or behind a
//! watch that is stuck, they are as fast as client-go. A candidate reads a lease before it takes it.
//!
//! Failures:
//! * *the API server does not answer*: the leader continues until the renew deadline, then stops; there is no leader
//!   until the server is back, because the others cannot take the lease either;
//! * *the process is paused or the machine suspended*: leases are judged on a clock that counts suspend, and
//!   the [`Fence`] of the clients is closed at the renew deadline, before the process notices anything. The
//!   fence is checked once more when the body of a request is sent to the connection, so a request that was prepared
//!   before a pause is not sent after it. Only a client of [`connect`](reeve_client::connect) makes this second check:
//!   any other kube client checks when a call begins, and may retry inside for as long as the call may take. With
//!   such a client a warning is logged once for each fence, when the first write is answered;
//! * *another took the lease*: the leader watches it, too, and stops at that event, or at its next renewal;
//! * *the lease was deleted or emptied* (client-go empties the lease of its successor when it was paused and releases
//!   its lease at the end): the leader takes it back at that event. After a deletion the other candidates wait for the
//!   duration of the lease they saw; an empty lease can be taken at once, and a deleted one by a candidate that starts
//!   after the deletion;
//! * *writes are in flight when the lease is released*: the release waits until they are answered, or until
//!   LeaseDuration − RenewDeadline after they were given up;
//! * *clocks differ*: no time in the lease is ever compared with a clock here. Only a clock that *runs* slower than
//!   another, by more than RenewDeadline to LeaseDuration (10 to 15 by default), would break the guarantee;
//! * *the process dies*: another leads after the lease duration. A restarted Pod with the same identity takes
//!   its own lease back at once. It releases it no earlier than LeaseDuration − RenewDeadline later, because writes of the
//!   process before the restart may still arrive;
//! * *another process has the same identity* and takes the lease as its own: the leader sees a foreign write and stops
//!   ([`identity`]). An elector
//!   that [expects a duplicate](Elector::duplicate_identity) does not take the lease back while the other renews it.
//!
//! As in Kubernetes itself there is no fencing on the server. A request that was sent before the renew deadline and
//! is in flight for longer than LeaseDuration − RenewDeadline may arrive under the next leader; so may a request of
//! another program that empties or deletes the lease, for as long as the leader is cut off. Where that is not acceptable, write with a resourceVersion.
//!
//! Needs `get`, `create`, `update` and, to be fast, `watch` on `leases` in `coordination.k8s.io`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod elector;
mod fence;
mod journal;
mod machine;
mod options;
mod record;
mod signals;
mod status;
#[cfg(test)]
mod tests;
mod watch;

pub use elector::Elector;
pub use fence::{Fence, Working};
pub use journal::{ElectionFamilies, ElectionMetrics};
pub use machine::Lost;
pub use options::{Error, JITTER, Options, identity};
pub use reeve_clock::Clock;
pub use signals::RunError;
pub use status::{FailedRequest, SharedStatus, State, Status};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

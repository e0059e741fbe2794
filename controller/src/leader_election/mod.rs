//! Leader election by a Lease, compatible with client-go: the two contend for the same lease.
//!
//! One replica leads. It renews the lease every [`Options::retry_period`]; when it has not succeeded for
//! [`Options::renew_deadline`] it stops leading, which leaves LeaseDuration − RenewDeadline for what it sent to
//! arrive and for its workers to stop, before another may take the lease.
//!
//! The others watch the lease. They take it the moment it is released, and the moment they have seen no change for
//! [`Options::lease_duration`]: a timer ends exactly then. The watch only makes them faster. Whenever it has shown
//! nothing for a retry period (with client-go's jitter, [`JITTER`]), the lease is read; so without the right to watch,
//! or behind a watch that is stuck, they are as fast as client-go. Nobody takes a lease without reading it first.
//!
//! What happens when things go wrong:
//! * *the API server does not answer*: the leader goes on until the renew deadline, then stops; nobody leads
//!   until the server is back, for the others cannot take the lease either;
//! * *the process is paused or the machine suspended*: leases are judged on a clock that counts suspend, and
//!   the fence of the clients ([`Context::check_fence`](crate::Context::check_fence)) is closed at the renew deadline, before the process has noticed anything. The
//!   fence is asked once more when the body of a request goes out to the connection, so what was prepared before a
//!   pause is not sent after it. That second question is put by a client of [`connect`](crate::client::connect) only:
//!   any other kube client is asked when a call begins, and may retry inside for as long as the call may take. A
//!   manager with such a client says so in its log, once for each lease, when the first write is answered;
//! * *another took the lease*: the leader watches it, too, and stops when it sees that, or at its next renewal;
//! * *somebody deleted the lease, or emptied it* (client-go does that to its successor when it was paused and is to
//!   release its lease at the end): the leader takes it back when it sees that. Whoever saw it held waits out its
//!   duration after a deletion; what is empty may be taken at once;
//! * *writes are on their way when the lease is to be released*: it is released when they were answered, or
//!   LeaseDuration − RenewDeadline after they were given up;
//! * *clocks differ*: no time in the lease is ever compared with a clock here. Only a clock that *runs* slower than
//!   another's, by more than RenewDeadline to LeaseDuration (10 to 15 by default), would do harm;
//! * *the process dies*: another leads after the lease duration. A restarted Pod with the same identity takes
//!   its own lease back at once;
//! * *another process has the same identity* and takes the lease as its own: the leader sees that it was not the one
//!   who wrote it, and stops ([`identity`]). It does not take the lease from the other, if it goes on.
//!
//! A manager has one lease ([`Builder::leader_election`](crate::manager::Builder::leader_election)), or a controller
//! has one of its own ([`Builder::lease`](crate::controller::Builder::lease)), so that replicas share the work. Its
//! client asks the fence of that lease; when the controller is stopped the lease is released, and another replica
//! leads that controller. Losing the manager's lease is an error of the manager: the process should exit, and come back
//! as a standby. A controller that loses its own becomes a standby again, and the others go on: what its workers are at
//! is dropped at once, and when that has ended it contends again. Its caches stay warm. When it leads again it is told of
//! every object, as at the first time.
//!
//! As in Kubernetes itself there is no fencing on the server. A request that was sent before the renew deadline and
//! is on its way for longer than LeaseDuration − RenewDeadline may arrive under the next leader; and so may one of
//! another program that empties the lease by hand. Where that must not be, write with a resourceVersion.
//!
//! Needs `get`, `create`, `update` and, to be fast, `watch` on `leases` in `coordination.k8s.io`.

mod elector;
mod fence;
#[cfg(test)]
mod model;
mod options;
mod own;
mod record;
mod standby;
#[cfg(test)]
mod tests;

pub(crate) use elector::{Elector, Lost, Marks};
pub use fence::TOLERANCE;
pub(crate) use fence::{Fence, Gated, Passage, add_checks, remove_checks};
pub use options::{Error, JITTER, Options, identity};
pub(crate) use own::{Own, Term};

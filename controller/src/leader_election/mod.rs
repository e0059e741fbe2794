//! Leader election of a manager and of its controllers: [`reeve_election`], with its health checks and metrics.
//!
//! A manager has one lease ([`Builder::leader_election`](crate::manager::Builder::leader_election)), or a controller
//! has one of its own ([`Builder::lease`](crate::controller::Builder::lease)), so that replicas share the work. Its
//! client checks the fence of that lease; when the controller is stopped the lease is released, and another replica
//! leads that controller. The loss of the manager's lease is an error of the manager: the process should exit, and come
//! back as a standby. A controller that loses its own becomes a standby again, and the others continue: its workers'
//! runs are dropped at once, and after their end it contends again. Its caches stay warm. When it leads again it gets
//! every object, as at the first time.

mod checks;
mod own;

pub use checks::TOLERANCE;
pub(crate) use checks::{add_checks, remove_checks};
pub(crate) use own::{Own, Term};
pub(crate) use reeve_election::{ElectionMetrics, Elector, Fence, Lost, SharedStatus};
pub use reeve_election::{Error, JITTER, Options, identity};

//! The parts of a manager that set engines need.

use std::convert::Infallible;
use std::sync::Arc;

use reeve_controller::Runnable;

use super::registry::Sets;

impl Sets {
    /// What runs beside the engines: the ends of entries, and the end of all engines with the manager.
    #[must_use]
    pub fn runnables(self: &Arc<Self>) -> [Runnable; 2] {
        let (ends, ending) = (Arc::clone(self), Arc::clone(self));
        let ends = Runnable::new("ends in sets", move |stop| async move {
            ends.expire(stop).await;
            Ok::<_, Infallible>(())
        });
        let ending = Runnable::new("set engines", move |stop| async move {
            stop.cancelled().await;
            ending.stop().await;
            Ok::<_, Infallible>(())
        });
        [ends.without_leader_election(), ending.as_server()]
    }
}

//! The wait for a load balancer that refuses changes: only for one that the cloud sets up or deletes, and with a warning
//! when it takes long.

use std::time::Duration;

use crate::context::RequestContext;
use crate::controller::{LoadBalancers, POLL};
use crate::model::{LoadBalancer, State};

/// The time that a cloud may take to set a load balancer up that it shows as inactive meanwhile.
const SETTING_UP: Duration = Duration::from_secs(60);
/// The time after which a wait is reported.
const LONG: Duration = Duration::from_secs(300);
/// The interval of looks, and of reports, after that.
const SLOW_POLL: Duration = Duration::from_secs(60);

/// What to do with a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    /// It accepts changes, or the cloud has to say why not.
    Ready,
    /// It changes its state by itself.
    Wait,
    /// The same, and it takes too long.
    Overdue,
}

/// `complete`: it served once, or people made it. `waited`: the time of this wait so far.
fn readiness(state: State, complete: bool, waited: Duration) -> Readiness {
    match state {
        State::Active | State::Locked => Readiness::Ready,
        State::Inactive if complete || waited >= SETTING_UP => Readiness::Ready,
        State::Inactive => Readiness::Wait,
        State::Pending | State::Deleting if waited >= LONG => Readiness::Overdue,
        State::Pending | State::Deleting => Readiness::Wait,
    }
}

// === impl LoadBalancers ===

impl LoadBalancers {
    /// The time until `balancer` should be looked at again; `None` if changes should be made now.
    pub(crate) fn waits_for(
        &self,
        request: &RequestContext,
        balancer: &LoadBalancer,
    ) -> Option<Duration> {
        let complete = request.hash().is_some() || request.note.reused.contains(&balancer.id);
        let waited = self.recall.waited(&request.key, &balancer.id);
        match readiness(balancer.state, complete, waited) {
            Readiness::Ready => {
                self.recall.waited_for(&request.key, &balancer.id);
                None
            }
            Readiness::Wait => Some(POLL),
            Readiness::Overdue => {
                let (id, state) = (&balancer.id, balancer.state);
                let seconds = waited.as_secs();
                tracing::warn!(service = %request.key, %id, %state, seconds, "load balancer is still not ready for changes");
                let text = format!(
                    "Load balancer [{id}] has been {state} for {seconds} s; changes wait for the cloud"
                );
                request.warning("LoadBalancerNotReady", "Wait", text);
                Some(SLOW_POLL)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_load_balancer_that_is_set_up_or_deleted_is_waited_for_and_not_in_silence() {
        use Readiness::{Overdue, Ready, Wait};
        let seconds = Duration::from_secs;
        for (state, complete, waited, expected) in [
            (State::Active, false, seconds(0), Ready),
            (State::Locked, false, seconds(0), Ready),
            (State::Locked, true, seconds(0), Ready),
            (State::Inactive, true, seconds(0), Ready),
            (State::Inactive, false, seconds(0), Wait),
            (State::Inactive, false, seconds(60), Ready),
            (State::Pending, false, seconds(299), Wait),
            (State::Pending, true, seconds(300), Overdue),
            (State::Deleting, true, seconds(0), Wait),
            (State::Deleting, true, seconds(3600), Overdue),
        ] {
            let case = format!("{state}, complete: {complete}, after {waited:?}");
            assert_eq!(readiness(state, complete, waited), expected, "{case}");
        }
    }
}

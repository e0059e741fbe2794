//! The health checks of a lease.

use std::time::Duration;

use reeve_election::Fence;

use crate::health::Health;

/// The time after the end of its lease from which on a leader counts as stuck (client-go's components pass it to
/// `NewLeaderHealthzAdaptor`).
pub const TOLERANCE: Duration = Duration::from_secs(20);

/// Adds the checks of one lease. `/readyz` fails while this process counts itself as the leader and may not write;
/// `/healthz` does [`TOLERANCE`] after the lease ended: the elector should have noticed, so its runtime must be stuck.
pub(crate) fn add_checks(health: &Health, lease: &str, fence: &Fence) {
    let name = check_name(lease);
    for (checks, tolerance) in [(health.ready(), Duration::ZERO), (health.live(), TOLERANCE)] {
        let fence = fence.clone();
        checks.add(name.as_str(), move || {
            if fence.is_overdue(tolerance) {
                return Err("leading without a valid lease".to_owned());
            }
            Ok(())
        });
    }
}

/// Removes the checks of [`add_checks`].
pub(crate) fn remove_checks(health: &Health, lease: &str) {
    for checks in [health.ready(), health.live()] {
        checks.remove(&check_name(lease));
    }
}

fn check_name(lease: &str) -> String {
    format!("leader-election-{lease}")
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use reeve_client::Client;
    use reeve_election::{Elector, Options};

    use super::*;
    use crate::fake::{Fake, clock};

    /// client-go: `TestLeaderElectionHealthChecker`.
    #[tokio::test(start_paused = true)]
    async fn a_leader_whose_lease_is_over_is_not_ready_and_then_not_alive() {
        let (fake, clock) = (Fake::default(), clock());
        let health = Health::new();
        let options = Options::new("ns", "lock").identity("one");
        let mut one = Elector::new(Client::new(fake.client()), options, clock).unwrap();
        add_checks(&health, "lock", one.fence());
        let answers = |live: bool, ready: bool| {
            let code = |path| {
                let answer = health.respond(path, None).now_or_never();
                answer.unwrap().status().is_success()
            };
            assert_eq!((code("/healthz"), code("/readyz")), (live, ready));
        };
        answers(true, true);
        one.acquire().await;
        for (advance, live, ready) in [
            (9, true, true),
            (1, true, false),
            (24, true, false),
            (1, false, false),
        ] {
            tokio::time::advance(Duration::from_secs(advance)).await;
            answers(live, ready);
        }
        drop(one);
        answers(true, true);
    }
}

//! The layer around the cloud in production: it paces and counts calls, and refuses changes once this process may not act
//! any more.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use reeve_controller::client::Gate;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::provider::layer::{Call, Layer};
use crate::provider::{Answer, Error, Kind, Provider, Turns};

/// The code of the error of a change by a process that does not lead.
pub(crate) const NOT_LEADER: &str = "NotLeader";

/// The wait after a throttled call without a time.
const THROTTLED: Duration = Duration::from_secs(1);

/// The turns at the cloud: paced, and for changes only while the lease is held.
#[derive(Debug)]
struct Turnstile {
    /// Open while this process may act; none without leader election.
    gate: Option<Arc<dyn Gate>>,
    pace: Pace,
}

/// Counts calls, and takes the turns of a provider that does not take them itself.
pub(crate) struct Guard {
    turns: Arc<Turnstile>,
    /// Whether the provider takes a turn for each of its requests.
    by_request: bool,
    metrics: Metrics,
}

// === impl Turnstile ===

impl Turnstile {
    fn check(&self, changes: bool) -> Result<(), Error> {
        if changes && self.gate.as_ref().is_some_and(|gate| !gate.is_open()) {
            let message = "the change is not sent: this process does not hold the lease";
            return Err(Error::new(Kind::Unavailable, NOT_LEADER, message));
        }
        Ok(())
    }
}

impl Turns for Turnstile {
    fn take(&self, changes: bool) -> Answer<'_, ()> {
        async move {
            self.pace.slot().await;
            // After the wait, during which the lease may have been lost.
            self.check(changes)
        }
        .boxed()
    }

    fn accepted(&self) {
        self.pace.accepted();
    }

    fn throttled(&self, wait: Option<Duration>) {
        self.pace.throttled(wait.unwrap_or(THROTTLED));
    }
}

// === impl Guard ===

impl Guard {
    /// The layer around `provider`, which gets the turns.
    pub(crate) fn new(
        provider: &dyn Provider,
        gate: Option<Arc<dyn Gate>>,
        metrics: Metrics,
        pace: Pace,
    ) -> Self {
        let turns = Arc::new(Turnstile { gate, pace });
        let by_request = provider.take_turns(Arc::<Turnstile>::clone(&turns));
        Self {
            turns,
            by_request,
            metrics,
        }
    }
}

impl Layer for Guard {
    type Started = Instant;

    fn before<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Instant, Error>> {
        async move {
            if self.by_request {
                self.turns.check(call.mutates)?;
            } else {
                self.turns.take(call.mutates).await?;
            }
            Ok(Instant::now())
        }
        .boxed()
    }

    fn after<'a>(
        &'a self,
        call: &'a Call<'a>,
        started: Instant,
        answer: Result<(), &'a Error>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let throttled = answer.err().filter(|error| error.kind == Kind::Throttled);
        match throttled {
            _ if self.by_request => {}
            Some(error) => self.turns.throttled(error.retry_after),
            None => self.turns.accepted(),
        }
        let error = answer.err().map(|error| error.kind);
        self.metrics.called(call.name, started.elapsed(), error);
        std::future::ready(Ok(())).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::layer::Layered;
    use crate::provider::memory::Cloud;

    #[derive(Debug)]
    struct Fixed(bool);

    impl Gate for Fixed {
        fn is_open(&self) -> bool {
            self.0
        }

        fn sent(&self) {}

        fn ended(&self, _: bool) {}

        fn unasked(&self) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_without_the_lease_sends_reads_and_no_changes() {
        for (open, sent) in [(true, 2), (false, 1)] {
            let cloud = Cloud::default();
            let metrics = Metrics::register(&reeve_controller::Metrics::new());
            let pace = Pace::new(Duration::from_millis(1));
            let guard = Guard::new(&cloud, Some(Arc::new(Fixed(open))), metrics, pace);
            let provider = Layered::new(Arc::new(cloud.clone()), guard);
            let id = "lb-1".into();
            assert_eq!(provider.describe(&id).await, Ok(None));
            let deleted = provider.delete(&id).await.map_err(|error| error.code);
            let refused = Err(NOT_LEADER.to_owned());
            assert_eq!(deleted, if open { Ok(()) } else { refused });
            assert_eq!(cloud.calls().len(), sent);
        }
    }
}

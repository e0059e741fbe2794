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

/// A call on its way.
pub(crate) struct Started {
    at: Instant,
    /// Of a change under a lease.
    flight: Option<Flight>,
}

/// A change on its way. The lease is not given back before it is answered, or has had the time to arrive after it was
/// given up.
struct Flight {
    gate: Arc<dyn Gate>,
    settled: bool,
}

// === impl Flight ===

impl Flight {
    fn begin(gate: &Arc<dyn Gate>) -> Self {
        gate.sent();
        Self {
            gate: Arc::clone(gate),
            settled: false,
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.gate.ended(self.settled);
    }
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
    type Started = Started;

    fn before<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Started, Error>> {
        async move {
            if self.by_request {
                self.turns.check(call.mutates)?;
            } else {
                self.turns.take(call.mutates).await?;
            }
            let gate = self.turns.gate.as_ref().filter(|_| call.mutates);
            Ok(Started {
                at: Instant::now(),
                flight: gate.map(Flight::begin),
            })
        }
        .boxed()
    }

    fn after<'a>(
        &'a self,
        call: &'a Call<'a>,
        started: Started,
        answer: Result<(), &'a Error>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let throttled = answer.err().filter(|error| error.kind == Kind::Throttled);
        match throttled {
            _ if self.by_request => {}
            Some(error) => self.turns.throttled(error.retry_after),
            None => self.turns.accepted(),
        }
        let error = answer.err().map(|error| error.kind);
        self.metrics.called(call.name, started.at.elapsed(), error);
        if let Some(mut flight) = started.flight {
            flight.settled = error != Some(Kind::Unavailable);
        }
        std::future::ready(Ok(())).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;
    use tokio::time::timeout;

    use super::*;
    use crate::provider::layer::Layered;
    use crate::provider::memory::Cloud;

    /// A gate that counts what is sent.
    #[derive(Debug, Default)]
    struct Counting {
        closed: bool,
        sent: AtomicUsize,
        ended: Mutex<Vec<bool>>,
    }

    impl Gate for Counting {
        fn is_open(&self) -> bool {
            !self.closed
        }

        fn sent(&self) {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }

        fn ended(&self, settled: bool) {
            self.ended.lock().push(settled);
        }

        fn unasked(&self) {}
    }

    fn guarded(cloud: &Cloud, gate: &Arc<Counting>) -> Layered<Guard> {
        let metrics = Metrics::register(&reeve_controller::Metrics::new());
        let pace = Pace::new(Duration::from_millis(1));
        let gate = Arc::<Counting>::clone(gate);
        let guard = Guard::new(cloud, Some(gate), metrics, pace);
        Layered::new(Arc::new(cloud.clone()), guard)
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_without_the_lease_sends_reads_and_no_changes() {
        for (closed, sent) in [(false, 2), (true, 1)] {
            let cloud = Cloud::default();
            let gate = Arc::new(Counting {
                closed,
                ..Counting::default()
            });
            let provider = guarded(&cloud, &gate);
            let id = "lb-1".into();
            assert_eq!(provider.describe(&id).await, Ok(None));
            let deleted = provider.delete(&id).await.map_err(|error| error.code);
            let refused = Err(NOT_LEADER.to_owned());
            assert_eq!(deleted, if closed { refused } else { Ok(()) });
            assert_eq!(cloud.calls().len(), sent);
            let under_way = gate.sent.load(Ordering::Relaxed);
            assert_eq!(under_way, usize::from(!closed), "reads need no lease");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_kept_for_changes_that_may_still_arrive() {
        let (cloud, gate) = (Cloud::default(), Arc::<Counting>::default());
        let provider = guarded(&cloud, &gate);
        let id = "lb-1".into();
        provider.delete(&id).await.unwrap();
        // Refused is answered.
        provider.set_name(&id, "web").await.unwrap_err();
        let away = Error::new(Kind::Unavailable, "ServiceUnavailable", "later");
        cloud.refuse("delete", Some(away));
        provider.delete(&id).await.unwrap_err();
        // A reconcile that is given up drops its call.
        let given_up = timeout(Duration::from_millis(10), provider.set_name(&id, "web"));
        given_up.await.unwrap_err();
        assert_eq!(*gate.ended.lock(), [true, true, false, false]);
        assert_eq!(gate.sent.load(Ordering::Relaxed), 4);
    }
}

//! The layer around the cloud in production: it paces and counts calls, and refuses changes once this process may not act
//! any more.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use reeve_controller::Client;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::provider::layer::{Call, Layer};
use crate::provider::{Error, Kind};

/// The code of the error of a change by a process that does not lead.
pub(crate) const NOT_LEADER: &str = "NotLeader";

/// The wait after a throttled call without a time.
const THROTTLED: Duration = Duration::from_secs(1);

/// Paces and counts calls, and lets changes pass while the lease is held.
pub(crate) struct Guard {
    /// A client of the leader.
    client: Client,
    metrics: Metrics,
    pace: Pace,
}

// === impl Guard ===

impl Guard {
    pub(crate) fn new(client: Client, metrics: Metrics, pace: Pace) -> Self {
        Self {
            client,
            metrics,
            pace,
        }
    }
}

impl Layer for Guard {
    type Started = Instant;

    fn before<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Instant, Error>> {
        async move {
            self.pace.slot().await;
            if call.mutates {
                // Last, since the lease may be lost during the wait.
                let step = || format!("{} in the cloud", call.name);
                self.client.check_gate(step).map_err(|error| {
                    Error::new(Kind::Unavailable, NOT_LEADER, error.to_string())
                })?;
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
        match answer.err().filter(|error| error.kind == Kind::Throttled) {
            Some(error) => self.pace.throttled(error.retry_after.unwrap_or(THROTTLED)),
            None => self.pace.accepted(),
        }
        let error = answer.err().map(|error| error.kind);
        self.metrics.called(call.name, started.elapsed(), error);
        std::future::ready(Ok(())).boxed()
    }
}

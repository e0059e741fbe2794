//! The layer around the cloud in production: it counts calls, and refuses changes once this process may not act any more.

use futures::FutureExt;
use futures::future::BoxFuture;
use reeve_controller::Client;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::provider::layer::{Call, Layer};
use crate::provider::{Error, Kind};

/// The code of the error of a change by a process that does not lead.
pub(crate) const NOT_LEADER: &str = "NotLeader";

/// Counts calls, and lets changes pass while the lease is held.
pub(crate) struct Guard {
    /// A client of the leader.
    client: Client,
    metrics: Metrics,
}

// === impl Guard ===

impl Guard {
    pub(crate) fn new(client: Client, metrics: Metrics) -> Self {
        Self { client, metrics }
    }
}

impl Layer for Guard {
    type Started = Instant;

    fn before<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Instant, Error>> {
        let open = if call.mutates {
            self.client
                .check_gate(|| format!("{} in the cloud", call.name))
        } else {
            Ok(())
        };
        let checked =
            open.map_err(|error| Error::new(Kind::Unavailable, NOT_LEADER, error.to_string()));
        std::future::ready(checked.map(|()| Instant::now())).boxed()
    }

    fn after<'a>(
        &'a self,
        call: &'a Call<'a>,
        started: Instant,
        answer: Result<(), &'a Error>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let error = answer.err().map(|error| error.kind);
        self.metrics.called(call.name, started.elapsed(), error);
        std::future::ready(Ok(())).boxed()
    }
}

//! One source: pulled again and again, and its entries put into the sink.

use std::sync::Arc;
use std::time::Duration;

use super::crowdsec::Stream;
use super::definition::{Flavour, Source};
use super::entry::{Fault, Pulled};
use super::feed::Feed;
use super::metrics::Metrics;
use super::sink::{Kept, Sink};
use super::sources::Connect;
use crate::outbound::Outbound;
use crate::secret::Secret;
use crate::time::Time;

/// The longest wait after a failure, and that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 60);

/// The first wait after a failure.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// A source between two pulls.
pub(super) struct Puller {
    source: Source,
    connect: Arc<dyn Connect>,
    /// `None`: after a failure, so that authorities that changed are read again.
    outbound: Option<Arc<dyn Outbound>>,
    sink: Arc<dyn Sink>,
    time: Time,
    metrics: Metrics,
    state: State,
    /// The blocks of the source have to be compared with its list.
    compare: bool,
    failures: u32,
}

enum State {
    Stream(Stream),
    Feed(Feed),
}

// === impl Puller ===

impl Puller {
    pub(super) fn new(
        source: Source,
        connect: Arc<dyn Connect>,
        sink: Arc<dyn Sink>,
        time: Time,
        metrics: Metrics,
    ) -> Self {
        let state = match source.flavour {
            Flavour::CrowdSec { .. } => State::Stream(Stream::default()),
            Flavour::Feed { .. } => State::Feed(Feed::default()),
        };
        Self {
            source,
            connect,
            outbound: None,
            sink,
            time,
            metrics,
            state,
            compare: true,
            failures: 0,
        }
    }

    /// Pulls until the future is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let wait = self.turn().await;
            tokio::time::sleep(self.time.random().jitter(wait, 0.1)).await;
        }
    }

    /// One pull. Returns the time until the next.
    pub(super) async fn turn(&mut self) -> Duration {
        let name = self.source.name.clone();
        let source = name.as_str();
        let pulled = match self.pull().await {
            Ok(pulled) => pulled,
            Err(fault) => {
                self.metrics.pulled(source, "failed");
                self.outbound = None;
                tracing::warn!(source, why = %fault, "cannot pull a source; its bans stand as they are");
                return self.failed(fault.after);
            }
        };
        self.metrics
            .lists(source, pulled.entries.len(), pulled.left_out);
        self.compare |= pulled.changed;
        if pulled.changed && pulled.left_out > 0 {
            let left_out = pulled.left_out;
            tracing::warn!(
                source,
                left_out,
                "entries of a source are left out: wrong, not configured, or too many"
            );
        }
        if let Err(why) = self.put(&pulled).await {
            self.metrics.pulled(source, "unwritten");
            tracing::warn!(source, %why, "cannot write all entries of a source; trying again");
            if let State::Stream(stream) = &mut self.state {
                stream.restart();
            }
            return self.failed(None);
        }
        let outcome = if pulled.changed {
            "changed"
        } else {
            "unchanged"
        };
        self.metrics.pulled(source, outcome);
        if pulled.changed {
            let entries = pulled.entries.len();
            tracing::info!(source, entries, "source pulled");
        }
        self.failures = 0;
        self.source.interval
    }

    async fn pull(&mut self) -> Result<Pulled, Fault> {
        let secret = match &self.source.secret {
            None => None,
            Some(file) => {
                let file = file.clone();
                // Read again for each pull: a rotated one counts at once.
                let read = tokio::task::spawn_blocking(move || match file.text() {
                    Ok(text) => Ok(Secret::new(text)),
                    Err(error) => Err(Fault::new(format!("cannot read {file}: {error}"))),
                });
                let read = read.await.map_err(|error| Fault::new(error.to_string()))?;
                Some(read?)
            }
        };
        let (secret, now) = (secret.as_ref(), self.time.now());
        let outbound = match &self.outbound {
            Some(outbound) => Arc::clone(outbound),
            None => self.connect.connect(&self.source).map_err(Fault::new)?,
        };
        self.outbound = Some(Arc::clone(&outbound));
        match &mut self.state {
            State::Stream(stream) => stream.pull(&self.source, secret, &outbound, now).await,
            State::Feed(feed) => feed.pull(&self.source, secret, &outbound).await,
        }
    }

    async fn put(&mut self, pulled: &Pulled) -> Result<(), String> {
        let put = self.sink.put(&self.source, &pulled.entries, self.compare);
        let held = match put.await? {
            Kept::Lifted => 0,
            Kept::Held(held) => held,
        };
        self.metrics.held(&self.source.name, held);
        self.compare = held > 0;
        Ok(())
    }

    fn failed(&mut self, after: Option<Duration>) -> Duration {
        let doubled = FIRST_WAIT * 2_u32.pow(self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        after.unwrap_or(doubled).min(LONGEST_WAIT).max(FIRST_WAIT)
    }
}

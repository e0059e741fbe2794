//! Takes the lease, keeps it, and gives it up.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use prometheus_client::metrics::gauge::Gauge;
use reeve_clock::Clock;
use reeve_informer::ObjectKey;
use tokio::time::{Instant, sleep, timeout};

use super::record::{Decision, Observed, Record, decide};
use super::{Fence, JITTER, Options};
use crate::client::{self, Client};

/// One candidate for one lease.
#[derive(Debug)]
pub(crate) struct Elector {
    client: Client,
    options: Options,
    clock: Clock,
    fence: Fence,
    metric: Gauge,
    key: ObjectKey,
    observed: Option<Observed>,
    /// The lease as last read or written: what the next update is based on.
    lease: Option<Lease>,
    /// Log each holder once.
    reported: String,
}

/// Why leading ended.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Lost {
    #[error("the lease was not renewed for {deadline:?}: {cause}")]
    Deadline { deadline: Duration, cause: String },
    #[error("the lease was taken by {holder}")]
    Taken { holder: String },
}

/// What one try came to.
#[derive(Debug)]
enum Try {
    Ours,
    Held { holder: String, remaining: Duration },
}

// === impl Elector ===

impl Elector {
    pub(crate) fn new(
        client: Client,
        options: Options,
        clock: Clock,
        fence: Fence,
        metric: Gauge,
    ) -> Self {
        let key = ObjectKey::namespaced(options.namespace.as_str(), options.name.as_str());
        // One slow answer must leave time for another try (controller-runtime: max(1 s, RenewDeadline / 2)).
        let deadline = (options.renew_deadline / 2).max(Duration::from_secs(1));
        metric.set(0);
        Self {
            client: client.with_deadline(deadline),
            options,
            clock,
            fence,
            metric,
            key,
            observed: None,
            lease: None,
            reported: String::new(),
        }
    }

    /// Returns when the lease is ours. Cancel-safe: dropped, nothing is held for longer than the lease.
    pub(crate) async fn acquire(&mut self) {
        tracing::info!(lease = %self.key, identity = %self.options.identity, "waiting for the lease");
        loop {
            let pause = self
                .clock
                .random()
                .jitter(self.options.retry_period, JITTER);
            let pause = match self.attempt().await {
                Ok(Try::Ours) => break,
                Ok(Try::Held { holder, remaining }) => {
                    self.report(&holder);
                    // Not later than the moment it may be taken.
                    pause.min(remaining + Duration::from_millis(1))
                }
                Err(error) => {
                    tracing::warn!(lease = %self.key, %error, "the lease could not be taken");
                    pause
                }
            };
            sleep(pause).await;
        }
        self.metric.set(1);
        tracing::info!(lease = %self.key, identity = %self.options.identity, "leading");
    }

    /// Renews until that fails for the renew deadline, or another holds the lease.
    pub(crate) async fn keep(&mut self) -> Lost {
        let mut renewed = (Instant::now(), self.clock.since_boot());
        let lost = loop {
            sleep(self.options.retry_period).await;
            match self.renew(renewed).await {
                Ok(at) => renewed = at,
                Err(lost) => break lost,
            }
        };
        self.stopped();
        tracing::error!(lease = %self.key, cause = %lost, "leading ended");
        lost
    }

    /// Tries to renew until the deadline counted from the last renewal, on both clocks: monotonic time stands
    /// still in a suspend. Returns when the renewal was asked for.
    async fn renew(
        &mut self,
        (last, boot): (Instant, Duration),
    ) -> Result<(Instant, Duration), Lost> {
        let deadline = self.options.renew_deadline;
        let mut cause = "no answer in time".to_owned();
        loop {
            let asked = (Instant::now(), self.clock.since_boot());
            let left = deadline
                .saturating_sub(last.elapsed())
                .min(deadline.saturating_sub(asked.1.saturating_sub(boot)));
            if left.is_zero() {
                return Err(Lost::Deadline { deadline, cause });
            }
            match timeout(left, self.attempt()).await {
                Err(_) => continue,
                Ok(Ok(Try::Ours)) => return Ok(asked),
                Ok(Ok(Try::Held { holder, .. })) => return Err(Lost::Taken { holder }),
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.key, %error, "the lease could not be renewed");
                    cause = error.to_string();
                }
            }
            sleep(self.options.retry_period.min(left)).await;
        }
    }

    /// Gives the lease up, if it is ours: read, then written with nobody in it (client-go: `release`). Tries for
    /// the renew deadline; after that the lease ends by itself.
    pub(crate) async fn release(&mut self) {
        self.stopped();
        if !self.options.release_on_stop {
            return;
        }
        let limit = self.options.renew_deadline;
        match timeout(limit, self.try_release()).await {
            Ok(true) => tracing::info!(lease = %self.key, "the lease is released"),
            Ok(false) => {}
            Err(_) => tracing::warn!(lease = %self.key, "the lease could not be released in time"),
        }
    }

    async fn try_release(&mut self) -> bool {
        loop {
            let result = async {
                let mut lease: Lease = self.client.get(&self.key).await?;
                let record = Record::of(&lease);
                if record.holder != self.options.identity {
                    return Ok(false);
                }
                record.released(self.clock.now()).apply(&mut lease);
                self.client.update(&lease).await.map(|_| true)
            };
            match result.await {
                Ok(released) => return released,
                Err(client::Error::Api { status, .. }) if status.code == 404 => return false,
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(lease = %self.key, %error, "the lease could not be released");
                    sleep(self.options.retry_period).await;
                }
            }
        }
    }

    fn stopped(&self) {
        self.fence.close();
        self.metric.set(0);
    }

    fn report(&mut self, holder: &str) {
        if self.reported != holder {
            tracing::info!(lease = %self.key, holder, "another leads");
            holder.clone_into(&mut self.reported);
        }
    }

    /// One try to take or renew. The leader writes without reading first; only if that fails it reads (client-go:
    /// the fast path).
    async fn attempt(&mut self) -> Result<Try, client::Error> {
        if let (Some(lease), Some(observed)) = (self.lease.clone(), &self.observed)
            && observed.record.holder == self.options.identity
            && !observed.remaining(self.clock.since_boot()).is_zero()
        {
            match self.write(lease).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => {
                    tracing::debug!(lease = %self.key, %error, "renewing without reading failed");
                }
            }
        }
        match client::optional(self.client.get::<Lease>(&self.key).await)? {
            None => {
                self.observed = None;
                self.write(Lease::default()).await
            }
            Some(lease) => {
                let now = self.clock.since_boot();
                Observed::note(&mut self.observed, Record::of(&lease), now);
                self.write(lease).await
            }
        }
    }

    /// Writes what is decided over `lease`.
    async fn write(&mut self, mut lease: Lease) -> Result<Try, client::Error> {
        let asked = self.clock.since_boot();
        let decision = decide(
            self.observed.as_ref(),
            &self.options.identity,
            self.options.lease_duration,
            self.clock.now(),
            asked,
        );
        let (record, written) = match decision {
            Decision::Held { holder, remaining } => return Ok(Try::Held { holder, remaining }),
            Decision::Create(record) => {
                lease.metadata.name = Some(self.key.name.to_string());
                lease.metadata.namespace = self.key.namespace.as_ref().map(ToString::to_string);
                record.apply(&mut lease);
                (record, self.client.create(&lease).await?)
            }
            Decision::Update(record) => {
                record.apply(&mut lease);
                (record, self.client.update(&lease).await?)
            }
        };
        self.lease = Some(written);
        // The others count from when they see the write, which is not before it was asked for.
        self.fence.open_until(asked + self.options.lease_duration);
        self.observed = Some(Observed { record, at: asked });
        Ok(Try::Ours)
    }
}

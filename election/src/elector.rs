//! The elector: takes the lease, renews it, and releases it.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use reeve_client::{self as client, Client, ObjectKey};
use reeve_clock::Clock;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::fence::Fence;
use crate::options::{Error, JITTER, Options};
use crate::record::{Decision, Observed, Record, decide};
use crate::standby::{News, Pace, Watch};

/// Maximum number of its own writes that a candidate remembers.
const OWN_RENEW_TIMES: usize = 64;

/// One candidate for one lease.
#[derive(Debug)]
pub struct Elector {
    client: Client,
    /// Deadline of one request.
    deadline: Duration,
    options: Options,
    clock: Clock,
    fence: Fence,
    marks: Marks,
    key: ObjectKey,
    observed: Option<Observed>,
    /// The lease as last read or written: the base of the next update.
    lease: Option<Lease>,
    /// Start of the last successful renewal, on the clock that counts suspend.
    renewed: Duration,
    /// The last write of the lease has no definite answer: it may have taken effect.
    uncertain: bool,
    /// The last read of the lease showed a change.
    read_news: bool,
    /// The `renewTime`, in microseconds, of the last acknowledged write and of the writes tried since. While this process
    /// leads, a lease in its name with another `renewTime` belongs to another process of the same identity: an earlier
    /// write of this process cannot arrive any more, because its resourceVersion is older.
    own_renew_times: VecDeque<i64>,
    /// The lease was taken, and not lost since.
    leads: bool,
    /// Another process has the same identity.
    identity_conflict: bool,
    /// The last logged holder, to log each holder once.
    reported: String,
    /// Deadline of the release, once it is set.
    release_by: Arc<OnceLock<Instant>>,
}

/// The metrics of an elector.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// `leader_election_master_status`.
    pub leads: Gauge,
    /// `leader_election_slowpath_total`: renewals that had to read first.
    pub slow_path: Counter,
}

/// Reason for which leading ended.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// It was not renewed in time.
    #[error("the lease was not renewed for {deadline:?}: {cause}")]
    Deadline {
        /// The renew deadline.
        deadline: Duration,
        /// Result of the last try to renew it.
        cause: String,
    },
    /// Another candidate took it.
    #[error("the lease was taken by {holder}")]
    Taken {
        /// The holder.
        holder: String,
    },
    /// Another process has the same identity.
    #[error(
        "another process holds the lease as {identity}, too; identities must differ between processes"
    )]
    Twin {
        /// The identity of both.
        identity: String,
    },
}

/// Result of one try.
#[derive(Debug)]
enum Try {
    Ours,
    Held {
        holder: String,
    },
    /// Held in our name, by a write of another process.
    Twin,
}

// === impl Elector ===

impl Elector {
    /// A candidate for the lease of `options`, with a fence of its own.
    ///
    /// # Errors
    /// When the options are inconsistent: [`Options::validate`].
    pub fn new(client: Client, options: Options, clock: Clock) -> Result<Self, Error> {
        options.validate()?;
        let key = ObjectKey::namespaced(options.namespace.as_str(), options.name.as_str());
        // One slow answer must leave time for another try (controller-runtime: max(1 s, RenewDeadline / 2)).
        let deadline = (options.renew_deadline / 2).max(Duration::from_secs(1));
        let fence = Fence::closed(clock.clone());
        Ok(Self {
            client: client.with_deadline(deadline),
            deadline,
            options,
            clock,
            fence,
            marks: Marks::default(),
            key,
            observed: None,
            lease: None,
            renewed: Duration::ZERO,
            uncertain: false,
            read_news: false,
            own_renew_times: VecDeque::new(),
            leads: false,
            identity_conflict: false,
            reported: String::new(),
            release_by: Arc::default(),
        })
    }

    /// Opens and closes `fence` instead of one of its own: for clients that exist already.
    #[must_use]
    pub fn with_fence(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }

    /// Reports its state in `marks`, which a registry of metrics may hold.
    #[must_use]
    pub fn with_marks(mut self, marks: Marks) -> Self {
        marks.leads.set(0);
        self.marks = marks;
        self
    }

    /// The fence: the [gate](Fence::gate) of clients that may write only while this process leads.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// With `wary`, a lease in its own name that it did not write counts as another's: a duplicate identity was found.
    #[must_use]
    pub fn wary(mut self, wary: bool) -> Self {
        self.identity_conflict = wary;
        self
    }

    /// Limits a release to the time in `by`, if that is set when the release begins.
    #[must_use]
    pub fn releasing_by(mut self, by: Arc<OnceLock<Instant>>) -> Self {
        self.release_by = by;
        self
    }

    /// Contends for the lease, runs `work` under it, and releases it when `work` has ended or `stop` is cancelled. A stop
    /// or the loss of the lease drops `work`. Returns the result of `work`, `None` if it did not end.
    ///
    /// # Errors
    /// When the lease is lost. The process should exit, and start again as a standby.
    pub async fn run<T>(
        self,
        stop: CancellationToken,
        work: impl Future<Output = T>,
    ) -> Result<Option<T>, Lost> {
        let (leading, mut leads) = watch::channel(false);
        let ended = CancellationToken::new();
        let mut lead = std::pin::pin!(self.lead(ended.clone(), leading));
        let worked = async {
            leads.wait_for(|leads| *leads).await.ok()?;
            Some(work.await)
        };
        // The work is dropped with this statement, before the lease is released.
        let result = tokio::select! {
            biased;
            lost = &mut lead => return lost.map(|()| None),
            () = stop.cancelled() => None,
            result = worked => result,
        };
        ended.cancel();
        lead.await.map(|()| result)
    }

    /// Contends for the lease and keeps it until `stop`; then releases it. `leading` shows whether the lease is ours.
    ///
    /// # Errors
    /// When the lease is lost.
    pub async fn lead(
        mut self,
        stop: CancellationToken,
        leading: watch::Sender<bool>,
    ) -> Result<(), Lost> {
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                // A write in flight may have taken the lease.
                if self.uncertain {
                    self.release().await;
                }
                return Ok(());
            }
            () = self.acquire() => {}
        }
        leading.send_replace(true);
        let lost = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            lost = self.keep() => Some(lost),
        };
        leading.send_replace(false);
        match lost {
            Some(lost) => Err(lost),
            None => {
                self.release().await;
                Ok(())
            }
        }
    }

    /// Returns when the lease is ours. Cancel-safe: after a drop nothing is held for longer than the lease.
    pub async fn acquire(&mut self) {
        tracing::info!(lease = %self.key, identity = %self.options.identity, "waiting for the lease");
        let mut watch = Watch::new(self.options.retry_period, self.deadline);
        let mut pace = Pace::new(self.options.retry_period);
        loop {
            match self.attempt().await {
                Ok(Try::Ours) => break,
                Ok(Try::Held { holder }) => self.report(&holder),
                Ok(Try::Twin) => {}
                Err(error) if error.is_conflict() || error.is_already_exists() => {
                    tracing::debug!(lease = %self.key, %error, "another candidate wrote the lease first");
                }
                Err(error) => {
                    tracing::warn!(lease = %self.key, %error, "could not take the lease");
                }
            }
            if std::mem::take(&mut self.read_news) {
                // An open watch should have shown the change.
                watch.close();
            }
            self.stand_by(&mut watch, &mut pace).await;
        }
        self.leads = true;
        self.marks.leads.set(1);
        tracing::info!(lease = %self.key, identity = %self.options.identity, "leading");
    }

    /// Returns when the lease should be tried again: it was released, it has expired, or there was no news of it for a
    /// retry period.
    async fn stand_by(&mut self, watch: &mut Watch, pace: &mut Pace) {
        let mut poll = self.next_poll();
        let mut eager = false;
        loop {
            let now = Instant::now();
            if eager {
                match pace.take(now) {
                    Ok(()) => return,
                    Err(at) => poll = poll.min(at),
                }
                eager = false;
            }
            let held = self.held_for();
            // An expired lease that could not be taken waits for the next poll.
            let over = held
                .filter(|left| !left.is_zero())
                .map_or(poll, |left| now + left + Duration::from_millis(1));
            watch.open(&self.client, &self.key);
            let reopens = watch.reopens().unwrap_or(poll);
            tokio::select! {
                biased;
                news = watch.next() => match news {
                    News::Now(lease) => {
                        if self.record(*lease) {
                            poll = self.next_poll();
                            eager = self.held_for().is_none();
                        }
                    }
                    News::Gone => {
                        self.lease = None;
                        eager = self.held_for().is_none_or(|left| left.is_zero());
                    }
                    News::Ended(None) => {}
                    News::Ended(Some(error)) => {
                        tracing::debug!(lease = %self.key, error, "could not watch the lease; reading it instead");
                    }
                },
                () = sleep_until(over.min(poll)) => return,
                () = sleep_until(reopens), if reopens < poll => {}
            }
        }
    }

    /// Records the lease of a watch event; false if that is not new.
    fn record(&mut self, lease: Lease) -> bool {
        if self.is_known(&lease) {
            return false;
        }
        let record = Record::of(&lease);
        if !record.holder.is_empty() && record.holder != self.options.identity {
            self.report(&record.holder.clone());
        }
        self.lease = Some(lease);
        Observed::update(&mut self.observed, record, self.clock.since_boot())
    }

    /// Time for which the lease of another must still be respected; `None` when no other process holds it.
    fn held_for(&self) -> Option<Duration> {
        let observed = self.observed.as_ref()?;
        let another = self.is_anothers(&observed.record);
        another.then(|| observed.remaining(self.clock.since_boot()))
    }

    fn is_anothers(&self, record: &Record) -> bool {
        let twins = self.identity_conflict && !self.is_written_here(record);
        !record.holder.is_empty() && (record.holder != self.options.identity || twins)
    }

    fn next_poll(&self) -> Instant {
        let random = self.clock.random();
        Instant::now() + random.jitter(self.options.retry_period, JITTER)
    }

    /// Renews until that fails for the renew deadline, or another process holds the lease.
    pub async fn keep(&mut self) -> Lost {
        let mut watch = Watch::new(self.options.retry_period, self.deadline);
        let mut pace = Pace::new(self.options.retry_period);
        let lost = loop {
            self.await_renewal(&mut watch, &mut pace).await;
            if let Err(lost) = self.renew().await {
                break lost;
            }
        };
        self.leads = false;
        self.stop_leading();
        tracing::error!(lease = %self.key, cause = %lost, "leading ended");
        lost
    }

    /// Returns when the lease must be renewed: after a retry period, or when another client wrote or deleted it.
    async fn await_renewal(&mut self, watch: &mut Watch, pace: &mut Pace) {
        let due = Instant::now() + self.options.retry_period;
        loop {
            watch.open(&self.client, &self.key);
            let changed = tokio::select! {
                biased;
                () = sleep_until(due) => return,
                news = watch.next() => match news {
                    News::Now(lease) => !self.is_known(&lease) && !self.is_ours(&lease),
                    News::Gone => true,
                    News::Ended(_) => false,
                },
            };
            if changed && pace.take(Instant::now()).is_ok() {
                return;
            }
        }
    }

    /// Whether `lease` is no newer than the last one read or written.
    fn is_known(&self, lease: &Lease) -> bool {
        let version = |lease: &Lease| lease.metadata.resource_version.clone().unwrap_or_default();
        self.lease.as_ref().is_some_and(|known| {
            reeve_client::compare(&version(lease), &version(known))
                .is_some_and(std::cmp::Ordering::is_le)
        })
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        let record = Record::of(lease);
        record.holder == self.options.identity && self.is_written_here(&record)
    }

    /// Whether this process tried to write `record`, which is in its name.
    fn is_written_here(&self, record: &Record) -> bool {
        let renewed = record.renewed.map(Timestamp::as_microsecond);
        renewed.is_some_and(|renewed| self.own_renew_times.contains(&renewed))
    }

    /// Tries to renew until the deadline, counted from the start of the last successful renewal.
    async fn renew(&mut self) -> Result<(), Lost> {
        let deadline = self.options.renew_deadline;
        let mut cause = "no answer in time".to_owned();
        loop {
            let passed = self.clock.since_boot().saturating_sub(self.renewed);
            let left = deadline.saturating_sub(passed);
            if left.is_zero() {
                return Err(Lost::Deadline { deadline, cause });
            }
            match timeout(left, self.attempt()).await {
                Err(_) => continue,
                Ok(Ok(Try::Ours)) => return Ok(()),
                Ok(Ok(Try::Held { holder })) => return Err(Lost::Taken { holder }),
                Ok(Ok(Try::Twin)) => {
                    let identity = self.options.identity.clone();
                    return Err(Lost::Twin { identity });
                }
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.key, %error, "could not renew the lease");
                    cause = error.to_string();
                }
            }
            let passed = self.clock.since_boot().saturating_sub(self.renewed);
            sleep(
                self.options
                    .retry_period
                    .min(deadline.saturating_sub(passed)),
            )
            .await;
        }
    }

    /// Releases the lease, if it is ours: reads it, then writes it with an empty holder (client-go: `release`), once no
    /// worker runs under it and no write of ours can arrive any more. Tries for the renew deadline, but for less than the
    /// time until [`Elector::releasing_by`]; after that the lease expires.
    pub async fn release(&mut self) {
        self.stop_leading();
        if !self.options.release_on_stop {
            return;
        }
        let renew = self.options.renew_deadline;
        let margin = self.options.lease_duration - renew;
        let limit = self.release_by.get().map_or(renew, |by| {
            let left = by.saturating_duration_since(Instant::now());
            // The release must end by itself, before it is dropped.
            renew.min(left - left / 20)
        });
        let fence = self.fence.clone();
        if fence.lands_in(margin).is_some_and(|left| left > limit) {
            tracing::warn!(lease = %self.key, "could not release the lease: a write in flight may arrive after the stop");
            return;
        }
        let released = async {
            fence.landed(margin).await;
            self.try_release().await
        };
        match timeout(limit, released).await {
            Ok(true) => tracing::info!(lease = %self.key, "released the lease"),
            Ok(false) => {}
            Err(_) if fence.lands_in(margin).is_none() => tracing::warn!(
                lease = %self.key,
                "could not release the lease: a worker still runs under it; the lease expires by itself"
            ),
            Err(_) => tracing::warn!(lease = %self.key, "could not release the lease in time"),
        }
    }

    async fn try_release(&mut self) -> bool {
        loop {
            let result = async {
                let mut lease: Lease = self.client.get(&self.key).await?;
                let record = Record::of(&lease);
                if !self.is_ours(&lease) {
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
                    tracing::warn!(lease = %self.key, %error, "could not release the lease");
                    sleep(self.options.retry_period).await;
                }
            }
        }
    }

    fn stop_leading(&self) {
        self.fence.close();
        self.marks.leads.set(0);
    }

    fn report(&mut self, holder: &str) {
        if self.reported != holder {
            tracing::info!(lease = %self.key, holder, "another candidate leads");
            holder.clone_into(&mut self.reported);
        }
    }

    /// One try to take or renew. The leader writes without reading first; it reads only if that fails (client-go:
    /// the fast path).
    async fn attempt(&mut self) -> Result<Try, client::Error> {
        if let (Some(lease), Some(observed)) = (self.lease.clone(), &self.observed)
            && observed.record.holder == self.options.identity
            && !self.is_anothers(&observed.record)
            && !observed.remaining(self.clock.since_boot()).is_zero()
        {
            match self.write(Some(lease)).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => {
                    self.marks.slow_path.inc();
                    tracing::debug!(lease = %self.key, %error, "renewing without reading failed");
                }
            }
        }
        let lease = client::optional(self.client.get::<Lease>(&self.key).await)?;
        if let Some(lease) = &lease {
            let now = self.clock.since_boot();
            let record = Record::of(lease);
            let twin = self.leads
                && record.holder == self.options.identity
                && !self.is_written_here(&record);
            self.read_news = Observed::update(&mut self.observed, record, now);
            if twin {
                return Ok(Try::Twin);
            }
        }
        self.lease.clone_from(&lease);
        self.write(lease).await
    }

    /// Writes the decision over `lease`, or creates it.
    async fn write(&mut self, lease: Option<Lease>) -> Result<Try, client::Error> {
        let sent_at = self.clock.since_boot();
        if self.identity_conflict && self.held_for().is_some_and(|left| !left.is_zero()) {
            let holder = self.options.identity.clone();
            return Ok(Try::Held { holder });
        }
        let decision = decide(
            lease.is_some(),
            self.observed.as_ref(),
            &self.options.identity,
            self.options.lease_duration,
            self.clock.now(),
            sent_at,
        );
        let mut lease = lease.unwrap_or_default();
        let (record, create) = match decision {
            Decision::Held { holder } => return Ok(Try::Held { holder }),
            Decision::Create(record) => (record, true),
            Decision::Update(record) => (record, false),
        };
        self.read_news = false;
        self.own_renew_times
            .extend(record.renewed.map(Timestamp::as_microsecond));
        if !self.leads && self.own_renew_times.len() > OWN_RENEW_TIMES {
            self.own_renew_times.pop_front();
        }
        record.apply(&mut lease);
        if !self.options.labels.is_empty() {
            let labels = lease.metadata.labels.get_or_insert_default();
            labels.extend(self.options.labels.clone());
        }
        self.uncertain = true;
        let result = if create {
            lease.metadata.name = Some(self.key.name.to_string());
            lease.metadata.namespace = self.key.namespace.as_ref().map(ToString::to_string);
            self.client.create(&lease).await
        } else {
            self.client.update(&lease).await
        };
        self.uncertain = result.as_ref().is_err_and(client::Error::is_ambiguous);
        let written = result?;
        self.own_renew_times
            .drain(..self.own_renew_times.len().saturating_sub(1));
        self.fence.renewed(
            sent_at,
            self.options.renew_deadline,
            self.options.lease_duration,
        );
        self.renewed = sent_at;
        self.observed = Some(Observed {
            record: Record::of(&written),
            at: sent_at,
        });
        self.lease = Some(written);
        Ok(Try::Ours)
    }
}

impl Drop for Elector {
    fn drop(&mut self) {
        self.stop_leading();
    }
}

//! Takes the lease, keeps it, and gives it up.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use reeve_clock::Clock;
use reeve_informer::ObjectKey;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::record::{Decision, Observed, Record, decide};
use super::standby::{News, Pace, Watch};
use super::{Fence, JITTER, Options};
use crate::client::{self, Client};

/// How many of its own writes a candidate remembers.
const TRIED: usize = 64;

/// One candidate for one lease.
#[derive(Debug)]
pub(crate) struct Elector {
    client: Client,
    /// How long one request may take.
    deadline: Duration,
    options: Options,
    clock: Clock,
    fence: Fence,
    marks: Marks,
    key: ObjectKey,
    observed: Option<Observed>,
    /// The lease as last read or written: what the next update is based on.
    lease: Option<Lease>,
    /// When the last renewal was asked for, on the clock that counts suspend.
    renewed: Duration,
    /// A write that would make the lease ours has no answer yet.
    unsettled: bool,
    /// The last read of the lease told something new.
    read_news: bool,
    /// The `renewTime`, in microseconds, of the last write that was acknowledged and of those that were tried since. Once
    /// it leads, a lease in its name with another is that of a twin: a write from before cannot arrive any more, for it
    /// has an older resourceVersion.
    tried: VecDeque<i64>,
    /// It was taken, and not lost since.
    leads: bool,
    /// Another process has the same identity.
    wary: bool,
    /// Log each holder once.
    reported: String,
    /// Until when the lease may be released, once that is known.
    release_by: Arc<OnceLock<Instant>>,
}

/// What an elector shows in metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// `leader_election_master_status`.
    pub(crate) leads: Gauge,
    /// `leader_election_slowpath_total`: renewals that had to read first.
    pub(crate) slow_path: Counter,
}

/// Why leading ended.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Lost {
    #[error("the lease was not renewed for {deadline:?}: {cause}")]
    Deadline { deadline: Duration, cause: String },
    #[error("the lease was taken by {holder}")]
    Taken { holder: String },
    #[error(
        "another process holds the lease as {identity}, too; identities must differ between processes"
    )]
    Twin { identity: String },
}

/// What one try came to.
#[derive(Debug)]
enum Try {
    Ours,
    Held {
        holder: String,
    },
    /// Held in our name, by a write that was none of ours.
    Twin,
}

// === impl Elector ===

impl Elector {
    pub(crate) fn new(
        client: Client,
        options: Options,
        clock: Clock,
        fence: Fence,
        marks: Marks,
    ) -> Self {
        let key = ObjectKey::namespaced(options.namespace.as_str(), options.name.as_str());
        // One slow answer must leave time for another try (controller-runtime: max(1 s, RenewDeadline / 2)).
        let deadline = (options.renew_deadline / 2).max(Duration::from_secs(1));
        marks.leads.set(0);
        Self {
            client: client.with_deadline(deadline),
            deadline,
            options,
            clock,
            fence,
            marks,
            key,
            observed: None,
            lease: None,
            renewed: Duration::ZERO,
            unsettled: false,
            read_news: false,
            tried: VecDeque::new(),
            leads: false,
            wary: false,
            reported: String::new(),
            release_by: Arc::default(),
        }
    }

    /// Takes a lease in its own name that it did not write for that of another, if `wary`: a twin was met.
    pub(crate) fn wary(mut self, wary: bool) -> Self {
        self.wary = wary;
        self
    }

    /// Gives the lease up by the time that `by` says when it is to stop, or not at all.
    pub(crate) fn releasing_by(mut self, by: Arc<OnceLock<Instant>>) -> Self {
        self.release_by = by;
        self
    }

    /// Contends for the lease and keeps it until `stop`; then gives it up. `leading` tells whether it is ours.
    ///
    /// # Errors
    /// When the lease is lost.
    pub(crate) async fn lead(
        mut self,
        stop: CancellationToken,
        leading: watch::Sender<bool>,
    ) -> Result<(), Lost> {
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                // A write that was on its way may have made it ours.
                if self.unsettled {
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

    /// Returns when the lease is ours. Cancel-safe: dropped, nothing is held for longer than the lease.
    pub(crate) async fn acquire(&mut self) {
        tracing::info!(lease = %self.key, identity = %self.options.identity, "waiting for the lease");
        let mut watch = Watch::new(self.options.retry_period, self.deadline);
        let mut pace = Pace::new(self.options.retry_period);
        loop {
            match self.attempt().await {
                Ok(Try::Ours) => break,
                Ok(Try::Held { holder }) => self.report(&holder),
                Ok(Try::Twin) => {}
                Err(error) if error.is_conflict() || error.is_already_exists() => {
                    tracing::debug!(lease = %self.key, %error, "another was faster");
                }
                Err(error) => {
                    tracing::warn!(lease = %self.key, %error, "the lease could not be taken");
                }
            }
            if std::mem::take(&mut self.read_news) {
                // What is open should have told that.
                watch.close();
            }
            self.stand_by(&mut watch, &mut pace).await;
        }
        self.leads = true;
        self.marks.leads.set(1);
        tracing::info!(lease = %self.key, identity = %self.options.identity, "leading");
    }

    /// Returns when the lease is worth another try: it was released, it is over, or there was no news of it for a
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
            // What is over and could not be taken waits for the next poll.
            let over = held
                .filter(|left| !left.is_zero())
                .map_or(poll, |left| now + left + Duration::from_millis(1));
            watch.open(&self.client, &self.key);
            let reopens = watch.reopens().unwrap_or(poll);
            tokio::select! {
                biased;
                news = watch.next() => match news {
                    News::Now(lease) => {
                        if self.note(*lease) {
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
                        tracing::debug!(lease = %self.key, error, "the lease cannot be watched; it is read instead");
                    }
                },
                () = sleep_until(over.min(poll)) => return,
                () = sleep_until(reopens), if reopens < poll => {}
            }
        }
    }

    /// Takes note of the lease as a watch shows it; false if that is no news.
    fn note(&mut self, lease: Lease) -> bool {
        if self.is_known(&lease) {
            return false;
        }
        let record = Record::of(&lease);
        if !record.holder.is_empty() && record.holder != self.options.identity {
            self.report(&record.holder.clone());
        }
        self.lease = Some(lease);
        Observed::note(&mut self.observed, record, self.clock.since_boot())
    }

    /// How much longer another's lease must be respected; `None` when nobody else holds it.
    fn held_for(&self) -> Option<Duration> {
        let observed = self.observed.as_ref()?;
        let another = self.is_anothers(&observed.record);
        another.then(|| observed.remaining(self.clock.since_boot()))
    }

    fn is_anothers(&self, record: &Record) -> bool {
        let twins = self.wary && !self.is_written_here(record);
        !record.holder.is_empty() && (record.holder != self.options.identity || twins)
    }

    fn next_poll(&self) -> Instant {
        let random = self.clock.random();
        Instant::now() + random.jitter(self.options.retry_period, JITTER)
    }

    /// Renews until that fails for the renew deadline, or another holds the lease.
    pub(crate) async fn keep(&mut self) -> Lost {
        let mut watch = Watch::new(self.options.retry_period, self.deadline);
        let mut pace = Pace::new(self.options.retry_period);
        let lost = loop {
            self.rest(&mut watch, &mut pace).await;
            if let Err(lost) = self.renew().await {
                break lost;
            }
        };
        self.leads = false;
        self.stopped();
        tracing::error!(lease = %self.key, cause = %lost, "leading ended");
        lost
    }

    /// Returns when the lease is to be renewed: after a retry period, or when somebody else wrote or deleted it.
    async fn rest(&mut self, watch: &mut Watch, pace: &mut Pace) {
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

    /// Whether `lease` is no newer than what was read or written last.
    fn is_known(&self, lease: &Lease) -> bool {
        let version = |lease: &Lease| lease.metadata.resource_version.clone().unwrap_or_default();
        self.lease.as_ref().is_some_and(|known| {
            reeve_informer::compare(&version(lease), &version(known))
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
        renewed.is_some_and(|renewed| self.tried.contains(&renewed))
    }

    /// Tries to renew until the deadline, counted from when the last renewal was asked for.
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
                    tracing::warn!(lease = %self.key, %error, "the lease could not be renewed");
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

    /// Gives the lease up, if it is ours: read, then written with nobody in it (client-go: `release`), when nothing works
    /// under it and no write of ours can arrive any more. Tries for the renew deadline, and a little less than a stop allows; after that the
    /// lease ends by itself.
    pub(crate) async fn release(&mut self) {
        self.stopped();
        if !self.options.release_on_stop {
            return;
        }
        let renew = self.options.renew_deadline;
        let margin = self.options.lease_duration - renew;
        let limit = self.release_by.get().map_or(renew, |by| {
            let left = by.saturating_duration_since(Instant::now());
            // It ends by itself, and not by being dropped.
            renew.min(left - left / 20)
        });
        let fence = self.fence.clone();
        if fence.lands_in(margin).is_some_and(|left| left > limit) {
            tracing::warn!(lease = %self.key, "the lease is not released: what was sent may arrive after the stop");
            return;
        }
        let released = async {
            fence.landed(margin).await;
            self.try_release().await
        };
        match timeout(limit, released).await {
            Ok(true) => tracing::info!(lease = %self.key, "the lease is released"),
            Ok(false) => {}
            Err(_) if fence.lands_in(margin).is_none() => tracing::warn!(
                lease = %self.key,
                "the lease is not released: something still works under it; it ends by itself"
            ),
            Err(_) => tracing::warn!(lease = %self.key, "the lease could not be released in time"),
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
                    tracing::warn!(lease = %self.key, %error, "the lease could not be released");
                    sleep(self.options.retry_period).await;
                }
            }
        }
    }

    fn stopped(&self) {
        self.fence.close();
        self.marks.leads.set(0);
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
            self.read_news = Observed::note(&mut self.observed, record, now);
            if twin {
                return Ok(Try::Twin);
            }
        }
        self.lease.clone_from(&lease);
        self.write(lease).await
    }

    /// Writes what is decided over `lease`, or creates it.
    async fn write(&mut self, lease: Option<Lease>) -> Result<Try, client::Error> {
        let asked = self.clock.since_boot();
        if self.wary && self.held_for().is_some_and(|left| !left.is_zero()) {
            let holder = self.options.identity.clone();
            return Ok(Try::Held { holder });
        }
        let decision = decide(
            lease.is_some(),
            self.observed.as_ref(),
            &self.options.identity,
            self.options.lease_duration,
            self.clock.now(),
            asked,
        );
        let mut lease = lease.unwrap_or_default();
        let (record, create) = match decision {
            Decision::Held { holder } => return Ok(Try::Held { holder }),
            Decision::Create(record) => (record, true),
            Decision::Update(record) => (record, false),
        };
        self.read_news = false;
        self.tried
            .extend(record.renewed.map(Timestamp::as_microsecond));
        if !self.leads && self.tried.len() > TRIED {
            self.tried.pop_front();
        }
        record.apply(&mut lease);
        if !self.options.labels.is_empty() {
            let labels = lease.metadata.labels.get_or_insert_default();
            labels.extend(self.options.labels.clone());
        }
        self.unsettled = true;
        let result = if create {
            lease.metadata.name = Some(self.key.name.to_string());
            lease.metadata.namespace = self.key.namespace.as_ref().map(ToString::to_string);
            self.client.create(&lease).await
        } else {
            self.client.update(&lease).await
        };
        self.unsettled = result.as_ref().is_err_and(client::Error::is_ambiguous);
        let written = result?;
        self.tried.drain(..self.tried.len().saturating_sub(1));
        self.fence.renewed(
            asked,
            self.options.renew_deadline,
            self.options.lease_duration,
        );
        self.renewed = asked;
        self.observed = Some(Observed {
            record: Record::of(&written),
            at: asked,
        });
        self.lease = Some(written);
        Ok(Try::Ours)
    }
}

impl Drop for Elector {
    fn drop(&mut self) {
        self.stopped();
    }
}

//! The elector: performs what its state machine decides.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use reeve_client::{self as client, Client, ObjectKey};
use reeve_clock::Clock;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::fence::Fence;
use crate::journal::{ElectionMetrics, Journal};
use crate::machine::{Action, Event, Failure, Lost, Machine, Now, Role};
use crate::options::{Error, Options};
use crate::status::SharedStatus;

/// One candidate for one lease.
#[derive(Debug)]
pub struct Elector {
    client: Client,
    /// Deadline of one request.
    deadline: Duration,
    options: Options,
    clock: Clock,
    fence: Fence,
    key: ObjectKey,
    journal: Journal,
    machine: Machine,
    channels: Channels,
    /// Deadline of the release, once it is set.
    release_by: Arc<OnceLock<Instant>>,
}

/// The request in flight and the open watch.
#[derive(Default)]
struct Channels {
    request: Option<BoxFuture<'static, Event>>,
    watch: Option<BoxStream<'static, Event>>,
}

// === impl Elector ===

impl Elector {
    /// A candidate for the lease of `options`, with a fence of its own. The namespace and the interceptors of `client` do not
    /// count for the lease.
    ///
    /// # Errors
    /// When the options are inconsistent: [`Options::validate`]; and for a client whose writes are not stored
    /// ([`Client::dry_run`]), with which every candidate would lead.
    pub fn new(client: Client, options: Options, clock: Clock) -> Result<Self, Error> {
        let fence = Fence::closed(clock.clone());
        Self::with_fence(client, options, clock, fence)
    }

    /// A candidate that opens and closes `fence`, for clients that exist already. `client` itself must not be
    /// [gated](Fence::gate) by it: the write that opens it would never be sent.
    ///
    /// # Errors
    /// As of [`Elector::new`].
    pub fn with_fence(
        client: Client,
        options: Options,
        clock: Clock,
        fence: Fence,
    ) -> Result<Self, Error> {
        options.validate()?;
        if client.is_dry_run() {
            return Err(Error::DryRun);
        }
        let options = options.identified(&clock);
        let key = ObjectKey::namespaced(options.namespace.as_str(), options.name.as_str());
        // One slow answer must leave time for another try (controller-runtime: max(1 s, RenewDeadline / 2)).
        let deadline = (options.renew_deadline / 2).max(Duration::from_secs(1));
        let journal = Journal {
            key: key.clone(),
            identity: options.holder().unwrap_or_default().to_owned(),
            metrics: ElectionMetrics::default(),
            status: SharedStatus::new(&options, &clock),
            holder: String::new(),
        };
        Ok(Self {
            client: Client::unbound(&client).with_deadline(deadline),
            deadline,
            machine: Machine::new(options.clone(), clock.random().clone()),
            options,
            clock,
            fence,
            key,
            journal,
            channels: Channels::default(),
            release_by: Arc::default(),
        })
    }

    /// Reports its state in `metrics`, which a registry may hold.
    #[must_use]
    pub fn with_metrics(mut self, metrics: ElectionMetrics) -> Self {
        metrics.leads.set(0);
        self.journal.metrics = metrics;
        self
    }

    /// Reports its state in `status`, in place of one of its own: electors that follow one another may share it.
    #[must_use]
    pub fn with_status(mut self, status: SharedStatus) -> Self {
        self.journal.status = status;
        self
    }

    /// The state of this candidate, readable while it runs.
    #[must_use]
    pub fn status(&self) -> &SharedStatus {
        &self.journal.status
    }

    /// The fence: the [gate](Fence::gate) of clients that may write only while this process leads.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// With `found`, another process of the same identity was found ([`Lost::DuplicateIdentity`]): a lease in this
    /// identity that this elector did not write counts as another's.
    #[must_use]
    pub fn duplicate_identity(mut self, found: bool) -> Self {
        self.machine.set_duplicate_identity(found);
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
        let led = async {
            self.acquire().await;
            leading.send_replace(true);
            self.keep().await
        };
        let lost = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            lost = led => Some(lost),
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

    /// Returns when the lease is ours. Cancel-safe: a later call continues, and an elector that is dropped holds the lease
    /// for no longer than its duration.
    pub async fn acquire(&mut self) {
        // A later call finds an elector that leads.
        if !matches!(self.machine.role(), Role::Leading(..) | Role::Renewing(..)) {
            self.journal.contends();
        }
        self.step(Event::Contend);
        self.drive(|role| matches!(role, Role::Leading(..)).then_some(()))
            .await;
    }

    /// Renews until that fails for the renew deadline, or another process holds the lease. Contends for the lease first if
    /// it does not yet. Cancel-safe: a later call continues.
    pub async fn keep(&mut self) -> Lost {
        if let Role::Idle | Role::Releasing(..) = self.machine.role() {
            self.acquire().await;
        }
        self.drive(|role| match role {
            Role::Lost(lost) => Some(lost.clone()),
            _ => None,
        })
        .await
    }

    /// Releases the lease, if it is ours: reads it, then writes it with an empty holder (client-go: `release`), once no
    /// worker runs under it and no write of ours can arrive any more. Tries for the renew deadline, but for less than the
    /// time until [`Elector::releasing_by`]; after that the lease expires.
    pub async fn release(&mut self) {
        self.close_fence();
        let renew = self.options.renew_deadline;
        let limit = self.release_by.get().map_or(renew, |by| {
            let left = by.saturating_duration_since(Instant::now());
            // The release must end by itself, before it is dropped.
            renew.min(left - left / 20)
        });
        let lands_in = self.fence.lands_in(self.options.margin());
        self.step(Event::Stop { limit, lands_in });
        self.drive(|role| matches!(role, Role::Idle).then_some(()))
            .await;
    }

    /// Runs the machine until `end` returns the result for its role.
    async fn drive<T>(&mut self, end: impl Fn(&Role) -> Option<T>) -> T {
        loop {
            if let Some(result) = end(self.machine.role()) {
                return result;
            }
            let event = self.next_event().await;
            self.step(event);
        }
    }

    /// The next event that the machine waits for. Cancel-safe.
    async fn next_event(&mut self) -> Event {
        let margin = self.options.margin();
        let wake_at = self.machine.wake_at();
        let left = wake_at.map(|at| at.saturating_sub(self.clock.since_boot()));
        let Channels { request, watch } = &mut self.channels;
        tokio::select! {
            biased;
            event = answer(request) => event,
            () = timer(left) => Event::Timer,
            () = self.fence.landed(margin), if self.machine.awaits_landing() => Event::Landed,
            event = news(watch), if self.machine.awaits_news() => event,
        }
    }

    fn step(&mut self, event: Event) {
        let now = Now {
            boot: self.clock.since_boot(),
            date: self.clock.now(),
        };
        for action in self.machine.step(event, now) {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Read => {
                let (client, key) = (self.client.clone(), self.key.clone());
                let read = async move { client::optional(client.get::<Lease>(&key).await) };
                let event = read.map(|answer| {
                    Event::Read(
                        answer
                            .map(|lease| lease.map(Box::new))
                            .map_err(Failure::from),
                    )
                });
                self.channels.request = Some(event.boxed());
            }
            Action::Create(lease) => {
                let client = self.client.clone();
                let created = async move { written(client.create(&*lease).await) };
                self.channels.request = Some(created.boxed());
            }
            Action::Update(lease) => {
                let client = self.client.clone();
                let updated = async move { written(client.update(&*lease).await) };
                self.channels.request = Some(updated.boxed());
            }
            Action::OpenWatch => {
                let watch = crate::watch::watch(&self.client, &self.key, self.deadline);
                self.channels.watch = Some(watch);
            }
            Action::CloseWatch => self.channels.watch = None,
            Action::Abandon => self.channels = Channels::default(),
            Action::RenewFence { sent_at } => {
                let options = &self.options;
                self.fence
                    .renewed(sent_at, options.renew_deadline, options.lease_duration);
                self.journal.renewed();
            }
            Action::CloseFence => self.close_fence(),
            Action::Report(report) => self.journal.report(report),
        }
    }

    fn close_fence(&self) {
        self.fence.close();
        self.journal.stops_leading();
    }
}

/// The answer of the request in flight.
async fn answer(request: &mut Option<BoxFuture<'static, Event>>) -> Event {
    let event = match request {
        Some(request) => request.await,
        None => std::future::pending().await,
    };
    *request = None;
    event
}

/// The next event of the open watch.
async fn news(watch: &mut Option<BoxStream<'static, Event>>) -> Event {
    let event = match watch {
        Some(watch) => watch.next().await.unwrap_or(Event::WatchEnded(None)),
        None => std::future::pending().await,
    };
    if let Event::WatchEnded(_) = event {
        *watch = None;
    }
    event
}

async fn timer(left: Option<Duration>) {
    match left {
        Some(left) => sleep(left).await,
        None => std::future::pending().await,
    }
}

fn written(answer: Result<Lease, client::Error>) -> Event {
    Event::Written(answer.map(Box::new).map_err(Failure::from))
}

impl Drop for Elector {
    fn drop(&mut self) {
        self.close_fence();
    }
}

// === impl Channels ===

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels")
            .field("request", &self.request.is_some())
            .field("watch", &self.watch.is_some())
            .finish()
    }
}

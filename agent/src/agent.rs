//! The agent: follows the list, keeps the kernel at it, and reports its state with each request.
//!
//! # Failures
//! - **No answer, or one that is no list**: the sets stay, the kernel goes on ending bans, and the request is repeated with
//!   back-off up to 30 s.
//! - **The kernel refuses a change**: nothing of the transaction is in force; the next look tries again.
//! - **The table was removed or damaged**: the next look makes it again, with the list.
//! - **The agent stops or dies**: the table stays. Bans end at their time, new ones wait for the next start.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use reeve_clock::Clock;
use reeve_serve::health::Health;
use tokio::time::{Instant, MissedTickBehavior, sleep};
use tokio_util::sync::CancellationToken;

use crate::enforcer::{Enforcer, Outcome};
use crate::interval::Family;
use crate::list::{Answer, Ask, Received, Report};
use crate::metrics::Metrics;
use crate::netlink;
use crate::nft::{Counter, Kernel};
use crate::source::{Error, Source};

/// Two requests begin at least this far apart.
const PACE: Duration = Duration::from_secs(1);
/// As long after an answer "not changed" that came at once: the server does not wait for changes.
const POLL: Duration = Duration::from_secs(5);
/// The longest back-off after failures.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
/// How many newly refused entries are logged at once.
const LOGGED: usize = 10;

/// The agent. [`Agent::run`] it.
pub struct Agent<K, S> {
    enforcer: Arc<Mutex<Enforcer<K>>>,
    source: Arc<S>,
    clock: Clock,
    metrics: Metrics,
    health: Health,
    check: Duration,
    /// Failures in a row.
    failures: u32,
    /// When the last request began.
    asked: Instant,
    /// Whether the next request is for all entries.
    from_scratch: bool,
    error: Option<String>,
    held: usize,
    /// What the next request reports; none before the kernel has a list.
    report: Arc<Mutex<Option<Report>>>,
    counting: bool,
}

/// What a blocking call returns.
enum Done {
    Changed(Box<Outcome>),
    Looked(Option<Box<Outcome>>, Option<[Counter; 2]>),
}

// === impl Agent ===

impl<K: Kernel, S: Source> Agent<K, S> {
    /// An agent that looks at the table every `check`. The check `enforcing` of `health` succeeds while the kernel is as
    /// the list has it.
    pub fn new(
        enforcer: Enforcer<K>,
        source: S,
        clock: Clock,
        metrics: Metrics,
        check: Duration,
    ) -> Self {
        let health = Health::new();
        let state = Err("no list has been received yet".to_owned());
        health.ready().add("enforcing", move || state.clone());
        Self {
            enforcer: Arc::new(Mutex::new(enforcer)),
            source: Arc::new(source),
            clock,
            metrics,
            health,
            check,
            failures: 0,
            asked: Instant::now(),
            from_scratch: false,
            error: None,
            held: 0,
            report: Arc::default(),
            counting: false,
        }
    }

    /// The health checks, to be served.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Runs until `stop`. The table stays.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut check = tokio::time::interval(self.check);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut request = self.request(Duration::ZERO);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                (began, addresses, received) = &mut request => {
                    self.asked = began;
                    let pause = self.received(addresses, received).await;
                    request = self.request(pause);
                }
                _ = check.tick() => self.look().await,
            }
        }
    }

    /// The next request, after a pause.
    #[allow(clippy::type_complexity, reason = "it is awaited in one place")]
    fn request(
        &mut self,
        pause: Duration,
    ) -> BoxFuture<'static, (Instant, Vec<IpAddr>, Result<Received, Error>)> {
        let ask = if std::mem::take(&mut self.from_scratch) {
            Ask::default()
        } else {
            self.enforcer.lock().ask()
        };
        let source = Arc::clone(&self.source);
        let report = Arc::clone(&self.report);
        Box::pin(async move {
            sleep(pause).await;
            let began = Instant::now();
            let addresses = source.addresses().await;
            let report = report.lock().clone();
            (began, addresses, source.fetch(ask, report).await)
        })
    }

    /// Handles an answer. Returns the pause before the next request.
    async fn received(
        &mut self,
        addresses: Vec<IpAddr>,
        received: Result<Received, Error>,
    ) -> Duration {
        let took = self.asked.elapsed();
        let unchanged = received
            .as_ref()
            .is_ok_and(|received| received.answer == Answer::Unchanged);
        let taken = {
            let mut enforcer = self.enforcer.lock();
            enforcer.set_operator(addresses);
            received.and_then(|received| Ok(enforcer.take(received)?))
        };
        match taken {
            Ok(changed) => {
                if self.failures > 0 {
                    tracing::info!(failures = self.failures, "the operator answers again");
                }
                self.failures = 0;
                self.metrics.answered();
                if changed {
                    let done = self
                        .blocking(|enforcer| {
                            let outcome = enforcer.converge(false)?;
                            Ok(Done::Changed(Box::new(outcome)))
                        })
                        .await;
                    self.done(done);
                }
                let pace = if unchanged { POLL } else { PACE };
                pace.saturating_sub(took)
            }
            Err(error) => {
                self.metrics.error(error.kind());
                self.failures += 1;
                // The first of a row, and then fewer and fewer.
                if self.failures.is_power_of_two() {
                    tracing::warn!(
                        %error,
                        failures = self.failures,
                        "could not read the list; the bans in the kernel stay"
                    );
                }
                if let Error::List(_) = error {
                    self.from_scratch = true;
                }
                let doubled = PACE * 2_u32.pow(self.failures.min(6) - 1);
                self.clock
                    .random()
                    .jitter(doubled.min(LONGEST_BACKOFF), 0.3)
            }
        }
    }

    /// Looks at the table.
    async fn look(&mut self) {
        let done = self
            .blocking(|enforcer| {
                let (outcome, counters) = enforcer.look()?;
                Ok(Done::Looked(outcome.map(Box::new), counters))
            })
            .await;
        self.done(done);
    }

    /// Calls `work` on a thread that may block.
    async fn blocking(
        &self,
        work: impl FnOnce(&mut Enforcer<K>) -> Result<Done, netlink::Error> + Send + 'static,
    ) -> Result<Done, String> {
        let enforcer = Arc::clone(&self.enforcer);
        let metrics = self.metrics.clone();
        let call = tokio::task::spawn_blocking(move || {
            work(&mut enforcer.lock()).map_err(|error| {
                metrics.error(error.kind());
                error.to_string()
            })
        });
        match call.await {
            Ok(result) => result,
            Err(panic) => {
                self.metrics.error("panic");
                Err(panic.to_string())
            }
        }
    }

    fn done(&mut self, done: Result<Done, String>) {
        let error = match done {
            Ok(Done::Changed(outcome)) => {
                self.note(*outcome);
                None
            }
            Ok(Done::Looked(outcome, counters)) => {
                // The outcome's counters were read later.
                self.count(counters);
                if let Some(outcome) = outcome {
                    self.note(*outcome);
                }
                None
            }
            Err(error) => Some(error),
        };
        if error != self.error {
            match &error {
                Some(error) => tracing::error!(error, "could not bring the kernel to the list"),
                None => tracing::info!("the kernel is as the list has it again"),
            }
        }
        self.error = error;
        let ready = {
            let mut report = self.report.lock();
            if let Some(report) = &mut *report {
                report.error.clone_from(&self.error);
            }
            match (&self.error, &*report) {
                (Some(error), _) => Err(error.clone()),
                (None, None) => Err("no list has been received yet".to_owned()),
                (None, Some(_)) => Ok(()),
            }
        };
        self.health.ready().add("enforcing", move || ready.clone());
    }

    fn count(&mut self, counters: Option<[Counter; 2]>) {
        let Some(counters) = counters else { return };
        if std::mem::replace(&mut self.counting, true) {
            self.metrics.count(counters);
        } else {
            self.metrics.start_counters(counters);
        }
    }

    /// Logs and counts what was found and done.
    fn note(&mut self, outcome: Outcome) {
        self.count(outcome.counters);
        if outcome.restored.is_some() {
            // The counters of the new table begin at zero.
            self.metrics.start_counters([Counter::default(); 2]);
            self.counting = true;
        }
        let version = self.enforcer.lock().version().map(str::to_owned);
        *self.report.lock() = version.map(|version| Report {
            version,
            count: outcome.elements.iter().sum(),
            error: None,
        });
        for (family, count) in Family::ALL.into_iter().zip(outcome.elements) {
            self.metrics.set_entries(family, count);
        }
        if outcome.changed > 0 || outcome.restored.is_some() {
            self.metrics.applied.inc();
        }
        if let Some(why) = outcome.restored {
            self.metrics.table_restored.inc();
            tracing::warn!(why, "made or repaired the table");
        }
        if outcome.drift > 0 {
            self.metrics
                .drift_repaired
                .inc_by(u64::try_from(outcome.drift).unwrap_or(u64::MAX));
            tracing::warn!(
                elements = outcome.drift,
                "the sets were not as the list has them, and are repaired"
            );
        }
        if outcome.held > 0 && self.held == 0 {
            tracing::warn!(
                elements = outcome.held,
                "the list lifts most bans at once; they stay until an answer after the pause confirms it"
            );
        }
        self.held = outcome.held;
        self.metrics
            .held
            .set(outcome.held.try_into().unwrap_or(i64::MAX));
        for reason in crate::guard::Refusal::ALL {
            let count = outcome.refused.get(&reason).copied().unwrap_or_default();
            self.metrics.refuse(reason, count);
        }
        for (target, reason) in outcome.newly_refused.iter().take(LOGGED) {
            tracing::warn!(%target, reason = reason.name(), "this node does not ban an entry of the list");
        }
        if let Some(more) = outcome.newly_refused.len().checked_sub(LOGGED + 1) {
            tracing::warn!(
                entries = more + 1,
                "this node does not ban more entries of the list"
            );
        }
        tracing::debug!(
            v4 = outcome.elements[0],
            v6 = outcome.elements[1],
            changed = outcome.changed,
            "compared the sets with the list"
        );
    }
}

impl<K, S> std::fmt::Debug for Agent<K, S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Agent").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

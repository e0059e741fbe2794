//! The guard of a process: the limiter behind a lock, and the blocks that wait.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use reeve_controller::source::Sender;
use reeve_controller::{Request, Runnable};
use tokio::time::Instant;

use super::brake::{self, Lifts};
use super::limiter::{Ask, Held, Limiter, Scope};
use super::metrics::Metrics;
use super::settings::Settings;
use crate::config::Config;
use crate::decide::{Coverage, fingerprint};

/// How often the blocks that wait for a cap of bans a minute are called.
const TICK: Duration = Duration::from_secs(1);

/// The guard rails at work. Clones share them.
#[derive(Clone, Debug)]
pub struct Guard {
    state: Arc<Mutex<State>>,
    metrics: Metrics,
}

/// What the guard remembers.
#[derive(Debug, Default)]
struct State {
    limiter: Limiter,
    waiting: HashMap<Arc<str>, Waiting>,
    /// How many wait for a cap of active blocks, for a cap of bans a minute, and for the brake.
    counts: HashMap<&'static str, usize>,
    /// The blocks that wait for the end of another one, in the order of their first question.
    queues: HashMap<Scope, VecDeque<Arc<str>>>,
    /// Those that wait for a cap of bans a minute, with the cap.
    rates: HashMap<Scope, (usize, VecDeque<Arc<str>>)>,
    /// The content of the configuration in force, and the annotation that releases brakes.
    content: String,
    released: Option<String>,
    /// The coverage has the bans that stand.
    seeded: bool,
    lifts: Option<Lifts>,
}

/// A block that waits.
#[derive(Debug)]
struct Waiting {
    kind: &'static str,
    scope: Scope,
    /// It is in the queue of its scope.
    queued: bool,
    /// Nothing stands for it: this process has lifted what may have stood.
    clean: bool,
}

/// A new ban that has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The reason of the condition and the Event.
    pub reason: &'static str,
    /// What holds it, and what to change.
    pub message: String,
    /// When to ask again.
    pub retry_in: Duration,
    /// An earlier process may have made the ban, and ended before the status had it: it is lifted while it waits.
    pub may_stand: bool,
}

// === impl State ===

impl State {
    /// The queue of what holds a ban; the brake has none.
    fn queue(&mut self, held: &Held) -> Option<&mut VecDeque<Arc<str>>> {
        match held {
            Held::Active { scope, .. } => Some(self.queues.entry(scope.clone()).or_default()),
            Held::Rate { scope, most, .. } => {
                let (cap, queue) = self.rates.entry(scope.clone()).or_default();
                *cap = *most;
                Some(queue)
            }
            Held::Braked { .. } => None,
        }
    }
}

// === impl Guard ===

impl Guard {
    /// Holds nothing yet.
    #[must_use]
    pub fn new(metrics: Metrics) -> Self {
        Self {
            state: Arc::default(),
            metrics,
        }
    }

    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Counts the new ban of block `key`, if it may be made now; its claim must be in `coverage` before that is unlocked.
    ///
    /// # Errors
    /// Why it has to wait, and for how long.
    pub fn admit(
        &self,
        key: &str,
        ask: Ask<'_>,
        settings: &Settings,
        coverage: &Coverage,
        now: Timestamp,
    ) -> Result<(), Hold> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let engaged = state.limiter.braked().is_some();
        let active = |scope: &Scope| coverage.count(scope);
        let time = || now.as_second().to_string();
        let answer = state
            .limiter
            .admit(ask, settings, active, Instant::now(), time);
        let Err(held) = answer else {
            self.forget_in(state, key);
            return Ok(());
        };
        if !engaged && state.limiter.braked().is_some() {
            tracing::warn!("{held}");
            self.metrics.brake("bans", true);
        }
        let position = self.wait(state, key, &held);
        let clean = state.waiting.get(key).is_some_and(|it| it.clean);
        Err(Hold {
            may_stand: !clean,
            reason: held.reason(),
            message: held.to_string(),
            retry_in: held.retry_in(position),
        })
    }

    /// Adds a block to those that wait. Its place among them.
    fn wait(&self, state: &mut State, key: &str, held: &Held) -> usize {
        let (kind, scope) = (held.kind(), held.scope());
        let count = state.waiting.len();
        let known = state.waiting.get_mut(key);
        let known = known.filter(|waiting| waiting.kind == kind && waiting.scope == *scope);
        match known {
            Some(waiting) => {
                let called = !std::mem::replace(&mut waiting.queued, true);
                if let (true, Some(queue)) = (called, state.queue(held)) {
                    queue.push_back(key.into());
                }
                // Those that found no room spread out.
                usize::try_from(fingerprint(key)).unwrap_or(0) % count.max(1)
            }
            None => {
                let clean = state.waiting.get(key).is_some_and(|it| it.clean);
                self.forget_in(state, key);
                let key: Arc<str> = key.into();
                if let Some(queue) = state.queue(held) {
                    queue.push_back(Arc::clone(&key));
                }
                let waiting = Waiting {
                    kind,
                    scope: scope.clone(),
                    queued: true,
                    clean,
                };
                state.waiting.insert(key, waiting);
                self.metrics.limited(held);
                let counted = state.counts.entry(kind).or_default();
                *counted += 1;
                self.metrics.waiting(kind, *counted);
                count
            }
        }
    }

    /// What may have stood for a block that waits is lifted.
    pub fn cleaned(&self, key: &str) {
        if let Some(waiting) = self.state.lock().waiting.get_mut(key) {
            waiting.clean = true;
        }
    }

    /// A block does not wait any more: it is banned, refused or gone.
    pub fn forget(&self, key: &str) {
        self.forget_in(&mut self.state.lock(), key);
    }

    fn forget_in(&self, state: &mut State, key: &str) {
        let Some(waiting) = state.waiting.remove(key) else {
            return;
        };
        if state.waiting.is_empty() {
            state.queues.clear();
            state.rates.clear();
        }
        let counted = state.counts.entry(waiting.kind).or_default();
        *counted = counted.saturating_sub(1);
        self.metrics.waiting(waiting.kind, *counted);
    }

    /// The blocks to ask again after the end of a ban that counted in `scopes`: the first of each scope.
    pub fn freed(&self, scopes: &[Scope]) -> Vec<Arc<str>> {
        let mut state = self.state.lock();
        let State {
            waiting, queues, ..
        } = &mut *state;
        let mut called = Vec::new();
        for scope in scopes {
            let Some(queue) = queues.get_mut(scope) else {
                continue;
            };
            while let Some(key) = queue.pop_front() {
                if let Some(waiting) = waiting.get_mut(&key) {
                    waiting.queued = false;
                    called.push(key);
                    break;
                }
            }
        }
        called
    }

    /// The blocks to ask again because a minute has passed since other bans: as many of each scope as there is room for.
    #[must_use]
    pub fn due(&self) -> Vec<Arc<str>> {
        let mut state = self.state.lock();
        let State {
            waiting,
            rates,
            limiter,
            ..
        } = &mut *state;
        let (mut called, now) = (Vec::new(), Instant::now());
        for (scope, (most, queue)) in rates {
            let mut room = limiter.room(scope, *most, now);
            while room > 0
                && let Some(key) = queue.pop_front()
            {
                if let Some(waiting) = waiting.get_mut(&key) {
                    waiting.queued = false;
                    called.push(key);
                    room -= 1;
                }
            }
        }
        called
    }

    /// Requests the blocks that have room, each second, while this process leads.
    pub(crate) fn runnable(&self, again: Sender<Request>) -> Runnable {
        let guard = self.clone();
        Runnable::new("bans that wait", move |stop| async move {
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok::<_, std::convert::Infallible>(()),
                    () = tokio::time::sleep(TICK) => {}
                }
                for key in guard.due() {
                    let Some((namespace, name)) = key.split_once('/') else {
                        continue;
                    };
                    // One that finds no room in the channel asks again by itself.
                    let _ = again.try_send(Request::namespaced(namespace, name));
                }
            }
        })
    }

    /// Counts a ban that was made `ago`, before this process led.
    pub fn recall(&self, ask: Ask<'_>, settings: &Settings, ago: Duration) {
        if ago < super::window::MINUTE
            && let Some(at) = Instant::now().checked_sub(ago)
        {
            self.state.lock().limiter.count(ask, settings, at);
        }
    }

    /// A block waited for the brake before this process led.
    pub fn recall_brake(&self, settings: &Settings, now: Timestamp) {
        if settings.brake.bans_per_minute.is_some() {
            let id = format!("bans-{}", now.as_second());
            self.state.lock().limiter.brake(id);
            self.metrics.brake("bans", true);
        }
    }

    /// The coverage has the bans that stand: judges what the configuration would lift.
    pub fn seeded(&self, coverage: &Coverage, config: Option<&Config>) {
        self.state.lock().seeded = true;
        if let Some(config) = config {
            self.judge(coverage, config);
        }
    }

    /// A configuration with this content and annotation is about to be in force. Returns whether blocks that were held may
    /// go on.
    pub fn configured(
        &self,
        coverage: &Coverage,
        config: &Config,
        before: Option<&Config>,
        content: String,
        released: Option<String>,
    ) -> bool {
        let mut freed = false;
        let rejudge = {
            let mut state = self.state.lock();
            if before.is_some_and(|before| before.guard.brake != config.guard.brake) {
                freed |= state.limiter.reset();
            }
            if let Some(id) = state.limiter.braked().map(str::to_owned)
                && brake::releases(released.as_deref(), &id)
            {
                freed |= state.limiter.release(&id, Instant::now());
            }
            let changed = state.content != content
                || state.released != released
                || state.lifts.is_some()
                || before.is_none_or(|before| before.policy != config.policy);
            (state.content, state.released) = (content, released);
            state.seeded && changed
        };
        if freed {
            self.metrics.brake("bans", false);
        }
        rejudge && self.judge(coverage, config) || freed
    }

    /// Whether the brake on lifts is released with this.
    fn judge(&self, coverage: &Coverage, config: &Config) -> bool {
        let mut state = self.state.lock();
        let (policy, settings) = (&config.policy, &config.guard);
        let engaged = state.lifts.as_ref();
        let lifts = brake::judge(coverage, policy, settings, &state.content, engaged);
        let lifts = lifts.filter(|lifts| !brake::releases(state.released.as_deref(), &lifts.id));
        self.metrics.brake("lifts", lifts.is_some());
        let released = state.lifts.is_some() && lifts.is_none();
        state.lifts = lifts;
        released
    }

    /// The lifts that the brake holds.
    #[must_use]
    pub fn lifts(&self) -> Option<Lifts> {
        self.state.lock().lifts.clone()
    }

    /// What releases the brake on bans; `None`: it is not engaged.
    #[must_use]
    pub fn braked(&self) -> Option<String> {
        self.state.lock().limiter.braked().map(str::to_owned)
    }
}

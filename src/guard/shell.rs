//! The guard of a process: the limiter behind a lock, and the blocks that wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use reeve_controller::source::Sender;
use reeve_controller::{Request, Runnable};
use tokio::sync::watch;
use tokio::time::Instant;

use super::brake::{Lifts, Part};
use super::held::{Ask, Held, Hold, Scope};
use super::limiter::Limiter;
use super::metrics::Metrics;
use super::queue::{All, Queue, Waiting};
use super::resolved::Resolved;
use super::settings::{Brake, Settings};
use crate::config::Config;
use crate::decide::{Coverage, fingerprint};

/// How often the blocks that wait for a cap of bans a minute are called.
const TICK: Duration = Duration::from_secs(1);

/// The guard rails at work. Clones share them.
#[derive(Clone, Debug)]
pub struct Guard {
    state: Arc<Mutex<State>>,
    /// Whether the brake on lifts is engaged.
    holds: Arc<watch::Sender<bool>>,
    metrics: Metrics,
}

/// What the guard remembers.
#[derive(Debug, Default)]
struct State {
    limiter: Limiter,
    waiting: All,
    /// How many wait for a cap of active blocks, for a cap of bans a minute, and for the brake.
    counts: HashMap<&'static str, usize>,
    /// The blocks that wait for a cap, by its kind and scope.
    queues: HashMap<(&'static str, Scope), Queue>,
    /// The content of the configuration in force, and the annotation that releases brakes.
    content: String,
    released: Option<String>,
    /// The coverage has the bans that stand.
    seeded: bool,
    lifts: Option<Lifts>,
    /// The entries of lists that stand, as they were counted last.
    listed: Part,
    /// The brake on lifts is released as soon as the configuration is in force that releases it.
    releasing: bool,
    /// The bans that a brake on lifts held for an earlier process.
    recalled: usize,
    /// The brakes on lifts by resolved alerts.
    resolved: Resolved,
    /// What was read before there was a configuration.
    early: Early,
}

/// What blocks show about an earlier process, until the settings are known that it counts for.
#[derive(Debug, Default)]
struct Early {
    /// The bans of the last minute: namespace, source and time.
    bans: Vec<(String, String, Instant)>,
    /// What releases the brake that bans wait for.
    braked: Option<String>,
    /// The bans that stand were not judged yet.
    unjudged: bool,
    /// The last configuration that came before the blocks were read: it judges them.
    config: Option<Arc<Config>>,
}

// === impl State ===

impl State {
    /// The queue of what holds a ban; the brake has none.
    fn queue(&mut self, held: &Held) -> Option<&mut Queue> {
        let most = match held {
            Held::Active { most, .. } | Held::Rate { most, .. } => *most,
            Held::Braked { .. } => return None,
        };
        let of = (held.kind(), held.scope().clone());
        let queue = self.queues.entry(of).or_default();
        queue.most = most;
        Some(queue)
    }
}

// === impl Guard ===

impl Guard {
    /// Holds nothing yet.
    #[must_use]
    pub fn new(metrics: Metrics) -> Self {
        Self {
            state: Arc::default(),
            holds: Arc::default(),
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
            self.leave(state, key, true);
            state.resolved.claimed(key, true);
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

    /// Adds a block to those that wait. Its place among those of its cap.
    fn wait(&self, state: &mut State, key: &str, held: &Held) -> usize {
        let (kind, scope) = (held.kind(), held.scope());
        let known = state.waiting.get_mut(key);
        let known = known.filter(|waiting| waiting.kind == kind && waiting.scope == *scope);
        match known {
            Some(waiting) => {
                let called = !std::mem::replace(&mut waiting.queued, true);
                let braked = state.counts.get(kind).copied().unwrap_or(0);
                let Some(queue) = state.queue(held) else {
                    return usize::try_from(fingerprint(key)).unwrap_or(0) % braked.max(1);
                };
                if called {
                    queue.push_first(key.into());
                }
                // Those that found no room spread out.
                usize::try_from(fingerprint(key)).unwrap_or(0) % queue.len().max(1)
            }
            None => {
                let clean = state.waiting.get(key).is_some_and(|it| it.clean);
                self.forget_in(state, key);
                let key: Arc<str> = key.into();
                let queue = state.queue(held);
                let position = queue.map_or(0, |queue| {
                    queue.push(Arc::clone(&key));
                    queue.len() - 1
                });
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
                position
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

    /// A block does not wait for a ban any more. What a brake on lifts holds stays held.
    pub fn leave_queue(&self, key: &str) {
        self.unqueue(&mut self.state.lock(), key, false);
    }

    fn forget_in(&self, state: &mut State, key: &str) {
        self.leave(state, key, false);
    }

    /// `admitted`: it uses the room that it was called for.
    fn leave(&self, state: &mut State, key: &str, admitted: bool) {
        if state.resolved.forget(key) {
            self.metrics.brake("alerts", state.resolved.is_engaged());
        }
        self.unqueue(state, key, admitted);
    }

    fn unqueue(&self, state: &mut State, key: &str, admitted: bool) {
        let Some(waiting) = state.waiting.remove(key) else {
            return;
        };
        let of = (waiting.kind, waiting.scope);
        if let Some(queue) = state.queues.get_mut(&of) {
            queue.leave(&state.waiting, key, (of.0, &of.1), admitted);
            if queue.is_empty() {
                state.queues.remove(&of);
            }
        }
        let kind = of.0;
        let counted = state.counts.entry(kind).or_default();
        *counted = counted.saturating_sub(1);
        self.metrics.waiting(kind, *counted);
    }

    /// The blocks to ask again after the end of the ban of block `key`, which counted in `scopes`: the first of each scope.
    pub fn freed(&self, key: &str, scopes: &[Scope]) -> Vec<Arc<str>> {
        let mut state = self.state.lock();
        state.resolved.claimed(key, false);
        let State {
            waiting, queues, ..
        } = &mut *state;
        let (mut called, now) = (Vec::new(), Instant::now());
        for scope in scopes {
            let of = ("active", scope.clone());
            let Some(queue) = queues.get_mut(&of) else {
                continue;
            };
            queue.pending(waiting, now);
            called.extend(queue.call(waiting, (of.0, scope), now));
        }
        called
    }

    /// The blocks to ask again because a minute has passed since other bans, as many of each scope as there is room for; and
    /// because a block that was called after the end of a ban did not use the room.
    #[must_use]
    pub fn due(&self) -> Vec<Arc<str>> {
        let mut state = self.state.lock();
        let State {
            waiting,
            queues,
            limiter,
            ..
        } = &mut *state;
        let (mut called, now) = (Vec::new(), Instant::now());
        for ((kind, scope), queue) in queues.iter_mut() {
            // Those that were called have not been counted yet.
            let pending = queue.pending(waiting, now);
            let unused = queue.take_unused();
            let room = if *kind == "rate" {
                limiter.room(scope, queue.most, now).saturating_sub(pending)
            } else {
                unused
            };
            let next = (0..room).map_while(|_| queue.call(waiting, (*kind, scope), now));
            called.extend(next);
        }
        queues.retain(|_, queue| !queue.is_empty());
        called
    }

    /// The call of a block found no room: it is the first to be called again.
    pub(crate) fn uncalled(&self, key: &Arc<str>) {
        let mut state = self.state.lock();
        let State {
            waiting, queues, ..
        } = &mut *state;
        if let Some(waiting) = waiting.get_mut(key).filter(|it| !it.queued) {
            waiting.queued = true;
            let queue = queues.entry((waiting.kind, waiting.scope.clone()));
            queue.or_default().put_back(Arc::clone(key));
        }
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
                guard.pass_on(&again);
            }
        })
    }

    /// Requests the blocks that have room. Those that the channel does not take keep their turns.
    fn pass_on(&self, again: &Sender<Request>) {
        let due = self.due();
        let full = due.iter().position(|key| {
            key.split_once('/').is_some_and(|(namespace, name)| {
                let request = Request::namespaced(namespace, name);
                again.try_send(request).is_err()
            })
        });
        for key in due[full.unwrap_or(due.len())..].iter().rev() {
            self.uncalled(key);
        }
    }

    /// Counts the lift of block `key`, whose alerts of `trigger` are resolved, if it may be lifted now. `trigger` comes with the
    /// number of its claims. Without a trigger only what a brake holds already has to wait.
    ///
    /// # Errors
    /// Why its ban stays until its end.
    pub fn admit_lift(
        &self,
        key: &str,
        trigger: Option<(&str, usize)>,
        brake: Brake,
        coverage: &Coverage,
        now: Timestamp,
    ) -> Result<(), String> {
        if coverage.claim(key).is_none() {
            // The block is an old copy: its ban was lifted, and to hold the lift would ban it again.
            return Ok(());
        }
        let (trigger, standing) = trigger.unzip();
        let standing = standing.unwrap_or_default();
        let mut state = self.state.lock();
        let time = || now.as_second().to_string();
        let resolved = &mut state.resolved;
        let admitted = resolved.admit(key, trigger, standing, brake, Instant::now(), time);
        if admitted.is_err() {
            self.metrics.brake("alerts", true);
        }
        admitted
    }

    /// What the brakes on lifts by resolved alerts hold, in words.
    #[must_use]
    pub fn resolved(&self) -> Vec<String> {
        let held = self.resolved_of_triggers();
        held.into_iter().map(|(_, why)| why).collect()
    }

    /// The same, each with its trigger.
    pub(crate) fn resolved_of_triggers(&self) -> Vec<(String, String)> {
        self.state.lock().resolved.held()
    }

    /// What releases the brake on bans; `None`: it is not engaged.
    #[must_use]
    pub fn braked(&self) -> Option<String> {
        self.state.lock().limiter.braked().map(str::to_owned)
    }
}

mod lifts;
mod recalled;
#[cfg(test)]
mod tests;

//! What blocks show about an earlier process: bans of the last minute, and brakes that were engaged.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{Guard, State};
use crate::guard::{Ask, Settings, brake, resolved, window};

// === impl Guard ===

impl Guard {
    /// Counts a ban that was made `ago`, before this process led; without settings as soon as there are any.
    pub fn recall(&self, ask: Ask<'_>, settings: Option<&Settings>, ago: Duration) {
        if ago < window::MINUTE
            && let Some(at) = Instant::now().checked_sub(ago)
        {
            let mut state = self.state.lock();
            match settings {
                Some(settings) => state.limiter.count(ask, settings, at),
                None => {
                    let (namespace, source) = (ask.namespace.to_owned(), ask.source.to_owned());
                    state.early.bans.push((namespace, source, at));
                }
            }
        }
    }

    /// A block waited for the brake on bans before this process led. `message` has what releases it.
    pub fn recall_brake(&self, settings: Option<&Settings>, message: &str, now: Timestamp) {
        let named = message.split_whitespace().find_map(|word| {
            let word = word.trim_end_matches(',');
            word.starts_with("bans-").then(|| word.to_owned())
        });
        let id = named.unwrap_or_else(|| format!("bans-{}", now.as_second()));
        let mut state = self.state.lock();
        match settings {
            Some(settings) => self.engage(&mut state, settings, id),
            None => {
                state.early.braked.get_or_insert(id);
            }
        }
    }

    /// Engages the brake on bans of an earlier process, unless its release came meanwhile.
    pub(super) fn engage(&self, state: &mut State, settings: &Settings, id: String) {
        if settings.brake.bans_per_minute.is_none() {
            return;
        }
        if brake::releases(state.released.as_deref(), &id) {
            state.limiter.released(Instant::now());
        } else {
            state.limiter.brake(id);
            self.metrics.brake("bans", true);
        }
    }

    /// A brake on lifts held so many bans before this process led.
    pub fn recall_lifts(&self, held: usize) {
        self.state.lock().recalled += held;
    }

    /// Counts the lift of block `key`, whose alerts of `trigger` were resolved `ago`, before this process led.
    pub fn recall_lifted(&self, key: &str, trigger: &str, ago: Duration) {
        if ago < resolved::WINDOW {
            let now = Instant::now();
            let at = now.checked_sub(ago).unwrap_or(now);
            self.state.lock().resolved.recall_lifted(key, trigger, at);
        }
    }

    /// A brake on lifts by resolved alerts held block `key` before this process led. `message` has what releases it.
    pub fn recall_resolved(&self, key: &str, message: &str) {
        let mut state = self.state.lock();
        let State {
            resolved, released, ..
        } = &mut *state;
        resolved.recall(key, message, released.as_deref(), Instant::now());
        self.metrics.brake("alerts", resolved.is_engaged());
    }
}

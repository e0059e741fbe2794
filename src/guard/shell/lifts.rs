//! The brake on lifts: each configuration is judged before it is in force.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::Guard;
use crate::config::Config;
use crate::decide::Coverage;
use crate::guard::Ask;
use crate::guard::brake::{self, Lifts, Part};

// === impl Guard ===

impl Guard {
    /// The coverage has the bans that stand: judges what the configuration would lift. The run that read the blocks has
    /// `config`, and an edit may have come meanwhile.
    pub fn seeded(&self, coverage: &Coverage, config: Option<&Config>) {
        let latest = {
            let mut state = self.state.lock();
            state.seeded = true;
            state.early.config.take()
        };
        match latest.as_deref().or(config) {
            Some(config) => {
                self.judge(coverage, config);
            }
            None => self.state.lock().early.unjudged = true,
        }
    }

    /// A configuration with this content and annotation is about to be in force, which would lift these entries of `lists`. Returns whether blocks that were held may
    /// go on. What it releases is held until [`Guard::in_force`].
    pub fn configured(
        &self,
        coverage: &Coverage,
        lists: Part,
        config: &Arc<Config>,
        before: Option<&Config>,
        content: String,
        released: Option<String>,
    ) -> bool {
        let (mut freed, mut freed_lifts) = (false, false);
        let rejudge = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let (most, now) = (config.guard.brake.bans_per_minute, Instant::now());
            let former = before.and_then(|before| before.guard.brake.bans_per_minute);
            if former.is_some_and(|former| most.is_none_or(|most| most > former)) {
                freed |= state.limiter.reset();
            }
            if let Some(id) = state.limiter.braked().map(str::to_owned)
                && brake::releases(released.as_deref(), &id)
            {
                freed |= state.limiter.release(&id, now);
            }
            if state
                .resolved
                .release(released.as_deref(), config.guard.brake, now)
            {
                freed_lifts = true;
                let engaged = state.resolved.is_engaged();
                self.metrics.brake("alerts", engaged);
            }
            // Under the lock: a brake that engages next must not be shown as released.
            if freed {
                self.metrics.brake("bans", false);
            }
            let early = std::mem::take(&mut state.early);
            state.early.config = (!state.seeded).then(|| Arc::clone(config));
            let changed = early.unjudged
                || state.content != content
                || state.released != released
                || state.lifts.is_some()
                || before.is_none_or(|before| before.policy != config.policy);
            (state.content, state.released) = (content, released);
            for (namespace, source, at) in &early.bans {
                let ask = Ask {
                    namespace,
                    source,
                    full: None,
                };
                state.limiter.count(ask, &config.guard, *at);
            }
            if let Some(id) = early.braked {
                self.engage(state, &config.guard, id);
            }
            state.listed = lists;
            // A replica that does not lead follows lists, and no blocks.
            (state.seeded || lists.standing > 0) && changed
        };
        rejudge && self.judge(coverage, config) || freed || freed_lifts
    }

    /// The configuration of the last [`Guard::configured`] is in force: releases the brake on lifts if it does.
    pub fn in_force(&self) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.releasing) {
            state.lifts = None;
            self.metrics.brake("lifts", false);
            self.holds.send_replace(false);
        }
    }

    /// Whether the brake on lifts is to be released with this.
    fn judge(&self, coverage: &Coverage, config: &Config) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        let (policy, settings) = (&config.policy, &config.guard);
        let recalled = std::mem::take(&mut state.recalled);
        if recalled > 0 && state.lifts.is_none() {
            state.lifts = Some(Lifts {
                id: state.content.clone(),
                blocks: Part {
                    refused: recalled,
                    standing: coverage.len(),
                },
                lists: Part::default(),
            });
        }
        let engaged = state.lifts.as_ref();
        // Engines that follow the set of bans take every target.
        let place = config.place().ok().filter(|_| config.engines.is_empty());
        let content = &state.content;
        let lists = state.listed;
        let lifts = brake::judge(coverage, policy, settings, place, content, lists, engaged);
        let lifts = lifts.filter(|lifts| !brake::releases(state.released.as_deref(), &lifts.id));
        state.releasing = state.lifts.is_some() && lifts.is_none();
        if !state.releasing {
            self.metrics.brake("lifts", lifts.is_some());
            self.holds.send_replace(lifts.is_some());
            state.lifts = lifts;
        }
        state.releasing
    }

    /// The lifts that the brake holds.
    #[must_use]
    pub fn lifts(&self) -> Option<Lifts> {
        self.state.lock().lifts.clone()
    }

    /// Notified when the brake on lifts engages or ends.
    pub(crate) fn holds(&self) -> watch::Receiver<bool> {
        self.holds.subscribe()
    }
}

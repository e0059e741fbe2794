//! Adds, and their revocation.

use std::hash::Hash;
use std::time::Duration;

use super::{Effects, Shutdown, State};
use crate::cause::Cause;
use crate::item_state::{Event, ItemState, Pending, Place, Wait};
use crate::limiter::{Delay, Failure};
use crate::now::{NEVER, Now, nanoseconds};
use crate::reason::ReasonBits;

/// The request of an add.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AddRequest {
    pub(crate) after: Option<Duration>,
    pub(crate) rate_limited: bool,
    pub(crate) priority: i32,
    pub(crate) reasons: ReasonBits,
}

// === impl AddRequest ===

impl AddRequest {
    /// Whether it has a delay.
    fn is_delayed(&self) -> bool {
        self.rate_limited || self.after.is_some_and(|after| !after.is_zero())
    }

    /// What the item waits for; `None`: ready now.
    fn wait(&self, delay: Option<Delay>, now: &Now) -> Option<Wait> {
        if self.after.is_none() && delay.is_none() {
            return None;
        }
        let now = now.read();
        let later = |delay: Duration| now.saturating_add(nanoseconds(delay)).min(NEVER - 1);
        let after = self.after.map_or(NEVER, later);
        let at_most = delay.and_then(|delay| delay.at_most).map_or(NEVER, later);
        let join_at = delay.map_or(NEVER, |delay| later(delay.back_off));
        let ready_at = after.min(at_most);
        (ready_at > now).then(|| Wait::new(ready_at, join_at))
    }
}

// === impl State ===

impl<T: Hash + Eq + Clone + 'static> State<T> {
    /// Adds `key`, or merges the request with its slot.
    pub(crate) fn add(
        &mut self,
        hash: u32,
        key: T,
        request: &AddRequest,
        now: &Now,
        effects: &mut Effects<T>,
    ) {
        if self.shutdown != Shutdown::Running {
            self.refused += 1;
            effects.drop_later(Some(key));
            return;
        }
        // All calls that may panic come before any change: the limiter, the tenant.
        let mut delay = None;
        let mut tenant = None;
        if request.rate_limited || self.rules.fair_by.is_some() {
            let known = self.slots.find(hash, &key);
            if request.rate_limited {
                if let Some(index) = known {
                    self.expire(index, self.slots[index].state(), now);
                }
                let failures = known.map_or(0, |index| self.slots[index].failures);
                delay = Some(self.back_off(&key, failures, None));
            }
            if known.is_none_or(|index| self.is_leaving(index)) {
                tenant = self.rules.fair_by.as_ref().map(|fair_by| fair_by(&key));
            }
        }
        let (index, spare) = self.slots.find_or_insert(hash, key);
        effects.drop_later(spare);
        if let Some(tenant) = tenant {
            self.ready.enter(index, tenant);
        }
        let state = self.slots[index].state();
        self.expire(index, state, now);
        if request.rate_limited {
            self.count_failure(index, None);
        }
        self.merge_counted(index, state, request, delay, now, effects);
    }

    /// As [`State::merge_request`], and counts a request with a delay.
    pub(super) fn merge_counted(
        &mut self,
        index: u32,
        state: ItemState,
        request: &AddRequest,
        delay: Option<Delay>,
        now: &Now,
        effects: &mut Effects<T>,
    ) {
        if request.is_delayed() {
            effects.counts.retries += 1;
        }
        self.merge_request(index, state, request, delay, now, effects);
    }

    /// The delay of a failed item.
    pub(super) fn back_off(&self, key: &T, failures: u16, cause: Option<&Cause>) -> Delay {
        let delay = self.rules.limiter.when(&Failure {
            item: key,
            failures: u32::from(failures),
            cause,
            random: self.rules.clock.random(),
        });
        match cause.and_then(Cause::wait_at_least) {
            Some(least) => delay.at_least(least),
            None => delay,
        }
    }

    /// Merges a request into a slot: the higher priority, the earlier time.
    fn merge_request(
        &mut self,
        index: u32,
        state: ItemState,
        request: &AddRequest,
        delay: Option<Delay>,
        now: &Now,
        effects: &mut Effects<T>,
    ) {
        let mut wait = request.wait(delay, now);
        if self.rules.min_interval > 0
            && let Some(until) = self.resting.until(index)
            && until > now.read()
        {
            let rested = Wait::Delayed { until };
            wait = Some(wait.map_or(rested, |wait| wait.not_before(until)));
        }
        let slot = &mut self.slots[index];
        slot.reasons.merge(request.reasons);
        if state.pending().is_none() {
            slot.priority = request.priority;
        } else if request.priority > slot.priority {
            if state.place() == Place::Ready {
                self.ready.remove(self.slots.slab(), index);
                self.slots[index].priority = request.priority;
                self.ready.push(self.slots.slab(), index);
            } else {
                slot.priority = request.priority;
            }
        }
        let Some(wait) = wait else {
            self.apply_in(state, index, Event::Add, now, effects);
            return;
        };
        self.apply_in(state, index, Event::AddLater(wait), now, effects);
        if wait.joins_by(now.read()) {
            self.advance(now.read(), effects);
        }
    }

    /// Makes `key` ready after `delay` at the latest, if it waits and is not in flight. Returns whether that is so.
    pub(crate) fn hasten(
        &mut self,
        hash: u32,
        key: &T,
        delay: Duration,
        now: &Now,
        effects: &mut Effects<T>,
    ) -> bool {
        let Some(index) = self.slots.find(hash, key) else {
            return false;
        };
        let state = self.slots[index].state();
        let waits = matches!(
            state,
            ItemState::Pending(Pending::Waiting(_) | Pending::AwaitingToken(_))
        );
        if waits {
            // A pending item keeps the higher priority.
            let request = AddRequest {
                after: Some(delay),
                priority: i32::MIN,
                ..AddRequest::default()
            };
            self.merge_request(index, state, &request, None, now, effects);
        }
        waits
    }

    /// Revokes every add of `key` that was not handed out. Returns whether there was one.
    pub(crate) fn cancel(
        &mut self,
        hash: u32,
        key: &T,
        now: &Now,
        effects: &mut Effects<T>,
    ) -> bool {
        let Some(index) = self.slots.find(hash, key) else {
            return false;
        };
        let state = self.slots[index].state();
        if state.pending().is_none() {
            return false;
        }
        self.slots[index].reasons = ReasonBits::default();
        self.apply_in(state, index, Event::Cancelled, now, effects);
        true
    }
}

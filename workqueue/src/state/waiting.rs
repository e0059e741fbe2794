//! What happens by itself: timers come due, tokens come.

use std::hash::Hash;

use tokio::time::Instant;

use super::{Effects, Now, State, Wait, Wish, instant, nanoseconds};
use crate::slots::{Flags, NEVER, NONE, Place};
use crate::timers::Step;

/// How many timers are moved in one go, so that the lock is held shortly.
const SLICE: usize = 256;

impl<T: Hash + Eq + Clone + 'static> State<T> {
    /// Does the passing of time change anything?
    pub(crate) fn is_timed(&self) -> bool {
        !self.timers.is_empty() || !self.line.is_empty()
    }

    /// When something happens by itself next, or a moment before that.
    pub(crate) fn next_event(&mut self) -> Option<u64> {
        let timer = self.timers.next();
        let token = (!self.line.is_empty()).then_some(self.line_next);
        timer.into_iter().chain(token).min()
    }

    /// Applies what happened by itself up to `now`, in its order. Returns whether more is left,
    /// because it was too much for one go.
    pub(crate) fn advance(&mut self, now: u64, effects: &mut Effects<T>) -> bool {
        for _ in 0..SLICE {
            let token = if self.line.is_empty() {
                NEVER
            } else {
                self.line_next
            };
            // A token comes before a timer of the same time.
            let up_to = now.min(token.saturating_sub(1));
            match self.timers.step(up_to) {
                Step::Due(index) => self.timer_fired(index, effects),
                Step::Moved => {}
                Step::MovedFirst => self.look_ahead(),
                Step::Idle if token <= now => self.ask_for_token(token, effects),
                Step::Idle => return false,
            }
        }
        true
    }

    /// Reads what the next timers are about to need, so that its memory is near when they do.
    fn look_ahead(&self) {
        let (slots, due) = self.timers.ahead();
        for slot in slots {
            std::hint::black_box(if due { self.slots[slot].at } else { 0 });
        }
    }

    fn ask_for_token(&mut self, at: u64, effects: &mut Effects<T>) {
        let Some(first) = self.line.first() else {
            return;
        };
        match self.rules.limiter.release(self.instant(at)) {
            Ok(()) => {
                self.leave_wait(first);
                self.make_ready(first, &Now::at(self.rules.origin, at), effects);
            }
            Err(later) => {
                let later = nanoseconds(later.saturating_duration_since(self.rules.origin));
                self.line_next = later.max(at + 1);
            }
        }
    }

    fn timer_fired(&mut self, (index, at): (u32, u64), effects: &mut Effects<T>) {
        let mut wait = self.load_wait(index, at);
        self.slots[index].at = u64::from(NONE);
        if wait.ready_at.min(wait.quiet_at) <= at {
            self.leave_wait(index);
            self.make_ready(index, &Now::at(self.rules.origin, at), effects);
            return;
        }
        wait.join_at = NEVER;
        self.slots[index].place = Place::InLine;
        self.waiting -= 1;
        if self.line.is_empty() {
            self.line_next = at;
        }
        self.line.push_back(self.slots.slab(), index);
        self.store_wait(index, wait, at);
    }

    /// What a slot waits for. `timer_at` is when its timer is due.
    fn load_wait(&self, index: u32, timer_at: u64) -> Wait {
        let slot = &self.slots[index];
        if slot.is(Flags::WAITS_LONG)
            && let Some(wait) = self.waits.get(index)
        {
            return *wait;
        }
        let mut wait = Wait::NOTHING;
        if slot.is(Flags::JOINS) {
            wait.join_at = timer_at;
        } else {
            wait.ready_at = timer_at;
        }
        wait
    }

    fn store_wait(&mut self, index: u32, wait: Wait, now: u64) {
        let slot = &mut self.slots[index];
        slot.set(Flags::JOINS, wait.join_at != NEVER);
        if !wait.is_simple() {
            slot.set(Flags::WAITS_LONG, true);
            self.waits.insert(index, wait);
        } else if slot.is(Flags::WAITS_LONG) {
            slot.set(Flags::WAITS_LONG, false);
            self.waits.remove(index);
        }
        let next = wait.next();
        let timer = self.timer(index);
        if let Some(timer) = timer {
            if self.timers.at(timer) == next {
                return;
            }
            self.timers.remove(timer);
        }
        let timer = if next == NEVER {
            NONE
        } else {
            self.timers.insert(index, next, now)
        };
        self.slots[index].at = u64::from(timer);
    }

    /// The timer of a slot that waits or stands in line.
    fn timer(&self, index: u32) -> Option<u32> {
        let timer = u32::try_from(self.slots[index].at).unwrap_or(NONE);
        (timer != NONE).then_some(timer)
    }

    /// When the timer of a slot that waits or stands in line is due.
    pub(crate) fn due(&self, index: u32) -> u64 {
        self.timer(index)
            .map_or(NEVER, |timer| self.timers.at(timer))
    }

    /// Lets an unwanted slot wait.
    pub(super) fn begin_wait(
        &mut self,
        index: u32,
        wait: Wait,
        now: u64,
        effects: &mut Effects<T>,
    ) {
        self.waiting += 1;
        let slot = &mut self.slots[index];
        slot.place = Place::Waiting;
        slot.at = u64::from(NONE);
        self.store_wait(index, wait, now);
        if wait.join_at <= now {
            self.advance(now, effects);
        }
    }

    /// Lets a slot that waits or stands in line wait for `more` too.
    pub(super) fn wait_too(&mut self, index: u32, more: Wait, now: u64, effects: &mut Effects<T>) {
        let mut wait = self.load_wait(index, self.due(index)).merge(more);
        if self.slots[index].place == Place::InLine {
            wait.join_at = NEVER;
        }
        self.store_wait(index, wait, now);
        if more.join_at <= now {
            self.advance(now, effects);
        }
    }

    /// The slot, which waits or stands in line, does so no more.
    pub(super) fn leave_wait(&mut self, index: u32) {
        if let Some(timer) = self.timer(index) {
            self.timers.remove(timer);
        }
        if self.slots[index].place == Place::InLine {
            self.line.remove(self.slots.slab(), index);
        } else {
            self.waiting -= 1;
        }
        let slot = &mut self.slots[index];
        slot.place = Place::Unwanted;
        slot.set(Flags::JOINS, false);
        if slot.is(Flags::WAITS_LONG) {
            slot.set(Flags::WAITS_LONG, false);
            self.waits.remove(index);
        }
    }

    /// Drops everything that waits.
    pub(super) fn drop_waits(&mut self, now: &Now, effects: &mut Effects<T>) {
        let timed = self.timers.clear();
        for &index in &timed {
            self.slots[index].at = u64::from(NONE);
        }
        let in_line: Vec<u32> = self.line.iter(self.slots.as_slab()).collect();
        for index in timed.into_iter().chain(in_line) {
            // Some stand in line and have a timer.
            if self.waits_now(index) {
                self.leave_wait(index);
                self.end_wait(index, now, effects);
            }
        }
    }

    fn waits_now(&self, index: u32) -> bool {
        let slot = self.slots.as_slab().get(index);
        slot.is_some_and(|slot| matches!(slot.place, Place::Waiting | Place::InLine))
    }

    /// What is left of a slot that waited and is not to be handed out for it.
    pub(super) fn end_wait(&mut self, index: u32, now: &Now, effects: &mut Effects<T>) {
        let slot = &self.slots[index];
        if slot.is(Flags::DOUBLE) {
            let of = slot.hash;
            self.remove_double(of, effects);
            self.tidy(of, now, effects);
        } else {
            self.tidy(index, now, effects);
        }
    }

    pub(super) fn instant(&self, at: u64) -> Instant {
        instant(self.rules.origin, at)
    }

    /// The double of a slot, which waits in its stead: made if there is none yet.
    pub(super) fn double(&mut self, of: u32, key: T, effects: &mut Effects<T>) -> u32 {
        if let Some(&double) = self.doubles.get(of) {
            effects.drop_later(Some(key));
            return double;
        }
        let double = self.slots.insert_double(key, of);
        self.doubles.insert(of, double);
        let slot = &mut self.slots[of];
        slot.set(Flags::DOUBLED, true);
        if slot.is(Flags::RECORDED) {
            slot.set(Flags::RECORDED, false);
            self.records.remove(self.slots.slab(), of);
        }
        double
    }

    /// Forgets the double of a slot, which waits no more.
    pub(super) fn remove_double(&mut self, of: u32, effects: &mut Effects<T>) {
        if let Some(double) = self.doubles.remove(of) {
            self.slots[of].set(Flags::DOUBLED, false);
            effects.drop_later(Some(self.slots.remove(double)));
        }
    }

    /// What a double waited for has come: its slot is wanted now.
    pub(super) fn end_double(&mut self, double: u32, now: &Now, effects: &mut Effects<T>) {
        let slot = &self.slots[double];
        let of = slot.hash;
        let wish = Wish {
            priority: slot.priority,
            reasons: slot.reasons,
            ..Wish::default()
        };
        self.doubles.remove(of);
        self.slots[of].set(Flags::DOUBLED, false);
        let key = self.slots.remove(double);
        self.want(of, &wish, None, Some(key), now, effects);
    }
}

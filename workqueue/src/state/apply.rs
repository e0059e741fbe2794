//! Transitions of items: [the table](transition) decides, lists and timers follow.

use std::hash::Hash;

use super::{Effects, State};
use crate::item_state::{Event, Facts, ItemState, Place, Transition, transition};
use crate::now::Now;

// === impl State ===

impl<T: Hash + Eq + Clone + 'static> State<T> {
    /// The transition of an item.
    #[inline(always)]
    pub(super) fn transition(
        &self,
        index: u32,
        state: ItemState,
        event: Event,
        now: &Now,
    ) -> Option<Transition> {
        let facts = Facts {
            now,
            stamped: self.rules.stamped,
            failed: self.slots[index].failures > 0,
        };
        let transition = transition(state, event, facts);
        debug_assert!(transition.is_ok(), "{state:?}, {event:?}: {transition:?}");
        transition.ok().flatten()
    }

    /// Applies an event to an item.
    #[inline(always)]
    pub(super) fn apply(&mut self, index: u32, event: Event, now: &Now, effects: &mut Effects<T>) {
        self.apply_in(self.slots[index].state(), index, event, now, effects);
    }

    /// Applies an event to an item in `state`.
    #[inline(always)]
    pub(super) fn apply_in(
        &mut self,
        state: ItemState,
        index: u32,
        event: Event,
        now: &Now,
        effects: &mut Effects<T>,
    ) {
        let Some(transition) = self.transition(index, state, event, now) else {
            return;
        };
        if let Some((left, _)) = transition.moves {
            match left {
                Place::Records => self.records.remove(self.slots.slab(), index),
                Place::Ready => self.ready.remove(self.slots.slab(), index),
                Place::Waiting => self.waiting -= 1,
                Place::TokenQueue => self.token_queue.remove(self.slots.slab(), index),
                Place::WorkerAgain => self.dirty -= 1,
                Place::Leaving | Place::Worker => {}
            }
        }
        if transition.stops_timer
            && let Some(timer) = self.slots.take_timer(index)
        {
            self.timers.remove(timer);
        }
        self.slots.set_state(index, transition.to);
        if let Some(at) = transition.starts_timer {
            let timer = self.timers.insert(index, at, now.read());
            self.slots.set_timer(index, timer);
        }
        effects.counts.adds += u64::from(transition.becomes_ready);
        if let Some((_, entered)) = transition.moves {
            match entered {
                Place::Ready => self.ready.push(self.slots.slab(), index),
                Place::Waiting => self.waiting += 1,
                Place::TokenQueue => self.join_token_queue(index, now),
                Place::WorkerAgain => self.dirty += 1,
                Place::Worker => {}
                Place::Records => self.record(index, now, effects),
                Place::Leaving => self.release(index, effects),
            }
        }
    }
}

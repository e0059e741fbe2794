//! The slot of a key: 48 bytes for a key of two words, the state of the item included.
//!
//! A state has at most two times and a timer. The second time is rare, so its slot keeps it in place of the
//! timer, which moves to a side table of [`Slots`](crate::slots::Slots).

use crate::item_state::ItemState::{self, Idle, InFlight, Pending, Recorded};
use crate::item_state::Pending::{AwaitingToken, Ready, Waiting};
use crate::item_state::Wait::{BackingOff, Delayed};
use crate::list::{Linked, Links};
use crate::reason::ReasonBits;

#[derive(Debug)]
pub(crate) struct Slot<T> {
    pub(crate) key: T,
    /// The time of the state: since when, until when, or when at most.
    at: u64,
    /// Of a slot that waits for a time, which is in no list: its timer (`previous`); if it is bounded, when at most.
    pub(crate) links: Links,
    pub(crate) hash: u32,
    pub(crate) priority: i32,
    pub(crate) reasons: ReasonBits,
    /// Failures in a row, up to 65,535.
    pub(crate) failures: u16,
    kind: Kind,
    flags: Flags,
}

/// The state without its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Idle,
    Recorded,
    Ready,
    Delayed,
    BackingOff,
    AwaitingToken,
    InFlight,
    ReadyAgain,
    DelayedAgain,
    BackingOffAgain,
    AwaitingTokenAgain,
}

/// Flags of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// Its state is [bounded](ItemState::is_bounded).
    pub(crate) const BOUNDED: Self = Self(1);
    /// The cause of its last failure is in a side table.
    pub(crate) const EXPLAINED: Self = Self(2);
    /// Among the slots to be freed, unless it is added again before.
    pub(crate) const LEAVING: Self = Self(4);
}

// === impl Slot ===

impl<T> Slot<T> {
    pub(crate) fn new(key: T, hash: u32) -> Self {
        Self {
            key,
            at: 0,
            links: Links::default(),
            hash,
            priority: 0,
            reasons: ReasonBits::default(),
            failures: 0,
            kind: Kind::Idle,
            flags: Flags::default(),
        }
    }

    pub(crate) fn is(&self, flag: Flags) -> bool {
        self.flags.0 & flag.0 != 0
    }

    pub(crate) fn set(&mut self, flag: Flags, on: bool) {
        if on {
            self.flags.0 |= flag.0;
        } else {
            self.flags.0 &= !flag.0;
        }
    }

    /// The state of the item.
    #[inline(always)]
    pub(crate) fn state(&self) -> ItemState {
        let at = self.at;
        match self.kind {
            Kind::Idle => Idle,
            Kind::Recorded => Recorded { since: at },
            Kind::Ready => Pending(Ready { since: at }),
            Kind::Delayed => Pending(Waiting(Delayed { until: at })),
            Kind::BackingOff => Pending(Waiting(BackingOff {
                until: at,
                at_most: self.bound(),
            })),
            Kind::AwaitingToken => Pending(AwaitingToken(self.is_bounded().then_some(at))),
            Kind::InFlight => InFlight(None),
            Kind::ReadyAgain => InFlight(Some(Ready { since: at })),
            Kind::DelayedAgain => InFlight(Some(Waiting(Delayed { until: at }))),
            Kind::BackingOffAgain => InFlight(Some(Waiting(BackingOff {
                until: at,
                at_most: self.bound(),
            }))),
            Kind::AwaitingTokenAgain => {
                InFlight(Some(AwaitingToken(self.is_bounded().then_some(at))))
            }
        }
    }

    /// Sets the state of the item; [`Slots::set_state`](crate::slots::Slots::set_state) keeps its timer, too.
    #[inline(always)]
    pub(crate) fn set_state(&mut self, state: ItemState) {
        let (kind, at, bound) = match state {
            Idle => (Kind::Idle, 0, None),
            Recorded { since } => (Kind::Recorded, since, None),
            Pending(Ready { since }) => (Kind::Ready, since, None),
            Pending(Waiting(Delayed { until })) => (Kind::Delayed, until, None),
            Pending(Waiting(BackingOff { until, at_most })) => (Kind::BackingOff, until, at_most),
            Pending(AwaitingToken(at_most)) => (Kind::AwaitingToken, at_most.unwrap_or(0), None),
            InFlight(None) => (Kind::InFlight, 0, None),
            InFlight(Some(Ready { since })) => (Kind::ReadyAgain, since, None),
            InFlight(Some(Waiting(Delayed { until }))) => (Kind::DelayedAgain, until, None),
            InFlight(Some(Waiting(BackingOff { until, at_most }))) => {
                (Kind::BackingOffAgain, until, at_most)
            }
            InFlight(Some(AwaitingToken(at_most))) => {
                (Kind::AwaitingTokenAgain, at_most.unwrap_or(0), None)
            }
        };
        self.kind = kind;
        self.at = at;
        self.set(Flags::BOUNDED, state.is_bounded());
        if let Some(bound) = bound {
            self.set_bound(bound);
        }
    }

    #[inline(always)]
    pub(crate) fn is_bounded(&self) -> bool {
        self.is(Flags::BOUNDED)
    }

    /// The second time of a slot that backs off.
    #[inline(always)]
    fn bound(&self) -> Option<u64> {
        let Links { previous, next } = self.links;
        let bound = u64::from(previous) << 32 | u64::from(next);
        self.is_bounded().then_some(bound)
    }

    #[allow(clippy::cast_possible_truncation, reason = "both halves are kept")]
    fn set_bound(&mut self, bound: u64) {
        self.links = Links {
            previous: (bound >> 32) as u32,
            next: bound as u32,
        };
    }

    /// The time since when a ready item is ready.
    pub(crate) fn ready_since(&self) -> u64 {
        debug_assert_eq!(self.kind, Kind::Ready);
        self.at
    }

    /// Prefetches the slot.
    pub(crate) fn touch(&self) {
        std::hint::black_box(self.at);
    }
}

impl<T> Linked for Slot<T> {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::item_state::samples::states;
    use crate::slab::Slab;

    #[test]
    fn a_slot_is_48_bytes_for_a_shared_text() {
        assert_eq!(size_of::<Slot<Arc<str>>>(), 48);
        assert_eq!(
            Slab::<Slot<Arc<str>>>::bytes_each(),
            48,
            "vacancy costs nothing"
        );
    }

    #[test]
    fn a_slot_returns_the_state_that_it_was_set_to() {
        let mut slot = Slot::new((), 0);
        slot.set(Flags::LEAVING, true);
        for before in states() {
            for state in states() {
                slot.set_state(before);
                slot.set_state(state);
                assert_eq!(slot.state(), state, "after {before:?}");
                assert!(slot.is(Flags::LEAVING) && !slot.is(Flags::EXPLAINED));
            }
        }
    }
}

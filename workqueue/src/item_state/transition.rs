//! The table of transitions: one match of state and event.

use super::ItemState::{self, Idle, InFlight, Pending, Recorded};
use super::Pending::{AwaitingToken, Ready, Waiting};
use super::Place;
use super::Wait::{self, BackingOff, Delayed};
use crate::now::Now;

/// An event of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// An add without a delay.
    Add,
    /// An add with a delay.
    AddLater(Wait),
    /// Its timer was due, and is gone.
    TimerFired,
    /// It was the first in the token queue when there was a token.
    TokenGranted,
    /// A worker took it.
    HandedOut,
    /// Its run ended. An outcome that requeues the item is an add before this event.
    Settled,
    /// Every add that was not handed out is revoked.
    Cancelled,
    /// Its failures were cleared.
    Forgotten,
}

/// What a transition depends on besides state and event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// Read by the transitions that need the time.
    pub(crate) now: &'a Now,
    /// Whether an option needs the time since when an item is ready.
    pub(crate) stamped: bool,
    /// Whether the key has failures, for which its slot is kept.
    pub(crate) failed: bool,
}

/// A new state, and its effects on lists and timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) to: ItemState,
    /// The item leaves the first place and enters the second.
    pub(crate) moves: Option<(Place, Place)>,
    /// The timer is removed.
    pub(crate) stops_timer: bool,
    /// A timer is set for this time.
    pub(crate) starts_timer: Option<u64>,
    /// The item becomes ready, which metrics count.
    pub(crate) becomes_ready: bool,
}

/// Why an event cannot happen in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Impossible {
    NoTimer,
    NotInTokenQueue,
    NotReady,
    NotInFlight,
}

/// The state after `event`, and the effects.
///
/// # Errors
/// The event cannot happen in this state.
#[inline(always)]
pub(crate) fn transition(
    state: ItemState,
    event: Event,
    facts: Facts<'_>,
) -> Result<Option<Transition>, Impossible> {
    use Event::{
        Add, AddLater, Cancelled, Forgotten, HandedOut, Settled, TimerFired, TokenGranted,
    };
    let to = match (state, event) {
        // Ready at once, or when the run ends. An immediate add removes the timer.
        (Idle | Recorded { .. } | Pending(Waiting(_) | AwaitingToken(_)), Add) => {
            Pending(facts.ready())
        }
        (InFlight(None | Some(Waiting(_) | AwaitingToken(_))), Add) => {
            InFlight(Some(facts.ready()))
        }
        (Pending(Ready { .. }) | InFlight(Some(Ready { .. })), Add | AddLater(_)) => {
            return Ok(None);
        }

        // Of several times the earlier counts.
        (Idle | Recorded { .. }, AddLater(wait)) => Pending(Waiting(wait)),
        (Pending(Waiting(old)), AddLater(new)) => Pending(Waiting(old.merge(new))),
        (Pending(AwaitingToken(old)), AddLater(new)) => {
            Pending(AwaitingToken(earlier(old, new.ready_at())))
        }
        (InFlight(None), AddLater(wait)) => InFlight(Some(Waiting(wait))),
        (InFlight(Some(Waiting(old))), AddLater(new)) => InFlight(Some(Waiting(old.merge(new)))),
        (InFlight(Some(AwaitingToken(old))), AddLater(new)) => {
            InFlight(Some(AwaitingToken(earlier(old, new.ready_at()))))
        }

        // After its own back-off an item waits for a token.
        (Pending(Waiting(BackingOff { at_most, .. })), TimerFired) => {
            Pending(AwaitingToken(at_most))
        }
        (InFlight(Some(Waiting(BackingOff { at_most, .. }))), TimerFired) => {
            InFlight(Some(AwaitingToken(at_most)))
        }
        (Pending(Waiting(Delayed { .. }) | AwaitingToken(Some(_))), TimerFired)
        | (Pending(AwaitingToken(_)), TokenGranted) => Pending(facts.ready()),
        (InFlight(Some(Waiting(Delayed { .. }) | AwaitingToken(Some(_)))), TimerFired)
        | (InFlight(Some(AwaitingToken(_))), TokenGranted) => InFlight(Some(facts.ready())),

        (Pending(Ready { .. }), HandedOut) => InFlight(None),
        (InFlight(Some(pending)), Settled) => Pending(pending),
        (InFlight(None), Settled) | (Pending(_), Cancelled) => facts.not_pending(),
        (InFlight(Some(_)), Cancelled) => InFlight(None),
        (Recorded { .. }, Forgotten) => Idle,
        (Idle | Recorded { .. } | InFlight(None), Cancelled)
        | (Idle | Pending(_) | InFlight(_), Forgotten) => return Ok(None),

        (_, TimerFired) => return Err(Impossible::NoTimer),
        (_, TokenGranted) => return Err(Impossible::NotInTokenQueue),
        (_, HandedOut) => return Err(Impossible::NotReady),
        (_, Settled) => return Err(Impossible::NotInFlight),
    };
    Ok(Some(Transition::between(state, to, event)))
}

fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

// === impl Facts ===

impl Facts<'_> {
    #[inline(always)]
    fn ready(&self) -> super::Pending {
        Ready {
            since: if self.stamped { self.now.read() } else { 0 },
        }
    }

    /// The state of an item that is neither pending nor in flight.
    #[inline(always)]
    fn not_pending(&self) -> ItemState {
        if self.failed {
            Recorded {
                since: self.now.read(),
            }
        } else {
            Idle
        }
    }
}

// === impl Transition ===

impl Transition {
    /// The effects follow from the states: an item is where its state places it, and has the timer that its
    /// state names.
    #[inline(always)]
    fn between(from: ItemState, to: ItemState, event: Event) -> Self {
        let (left, entered) = (from.place(), to.place());
        let timer = match event {
            Event::TimerFired => None,
            _ => from.timer_at(),
        };
        let next_timer = to.timer_at();
        Self {
            to,
            moves: (left != entered).then_some((left, entered)),
            stops_timer: timer.is_some() && timer != next_timer,
            starts_timer: next_timer.filter(|_| timer != next_timer),
            becomes_ready: left != entered
                && matches!(entered, Place::Ready | Place::WorkerAgain)
                && left != Place::WorkerAgain,
        }
    }
}

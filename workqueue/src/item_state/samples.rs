//! States and events of every kind, and their names, for tests.

use super::Event::{self, Add, AddLater, Cancelled, Forgotten, HandedOut, Settled};
use super::Event::{TimerFired, TokenGranted};
use super::ItemState::{self, Idle, InFlight, Recorded};
use super::Pending::{self, AwaitingToken, Ready, Waiting};
use super::Wait::{BackingOff, Delayed};

const UNTIL: u64 = 10;
/// Needs more than 32 bits.
const AT_MOST: u64 = 1 << 40;

/// A state of each kind, bounded and not.
pub(crate) fn states() -> Vec<ItemState> {
    let backing_off = |at_most| {
        Waiting(BackingOff {
            until: UNTIL,
            at_most,
        })
    };
    let pending = [
        Ready { since: 3 },
        Waiting(Delayed { until: UNTIL }),
        backing_off(None),
        backing_off(Some(AT_MOST)),
        AwaitingToken(None),
        AwaitingToken(Some(AT_MOST)),
    ];
    let mut states = vec![Idle, Recorded { since: 4 }];
    states.extend(pending.map(ItemState::Pending));
    states.push(InFlight(None));
    states.extend(pending.map(|again| InFlight(Some(again))));
    states
}

/// An event of each kind; adds with a delay that is earlier or later than the times of [`states`], or equal to them.
pub(crate) fn events() -> Vec<Event> {
    let mut events = vec![Add];
    for until in [UNTIL - 5, UNTIL, UNTIL + 5] {
        events.push(AddLater(Delayed { until }));
        for at_most in [None, Some(UNTIL + 7), Some(AT_MOST)] {
            events.push(AddLater(BackingOff { until, at_most }));
        }
    }
    events.extend([
        TimerFired,
        TokenGranted,
        HandedOut,
        Settled,
        Cancelled,
        Forgotten,
    ]);
    events
}

/// The name of a state, without its times.
pub(crate) fn name(state: ItemState) -> &'static str {
    match state {
        Idle => "Idle",
        Recorded { .. } => "Recorded",
        ItemState::Pending(pending) => pending_name(pending),
        InFlight(None) => "InFlight",
        InFlight(Some(Ready { .. })) => "InFlight+Ready",
        InFlight(Some(Waiting(Delayed { .. }))) => "InFlight+Delayed",
        InFlight(Some(Waiting(BackingOff { .. }))) => "InFlight+BackingOff",
        InFlight(Some(AwaitingToken(_))) => "InFlight+AwaitingToken",
    }
}

fn pending_name(pending: Pending) -> &'static str {
    match pending {
        Ready { .. } => "Ready",
        Waiting(Delayed { .. }) => "Delayed",
        Waiting(BackingOff { .. }) => "BackingOff",
        AwaitingToken(_) => "AwaitingToken",
    }
}

/// The name of an event.
pub(crate) fn event_name(event: Event) -> &'static str {
    match event {
        Add => "Add",
        AddLater(_) => "AddLater",
        TimerFired => "TimerFired",
        TokenGranted => "TokenGranted",
        HandedOut => "HandedOut",
        Settled => "Settled",
        Cancelled => "Cancelled",
        Forgotten => "Forgotten",
    }
}

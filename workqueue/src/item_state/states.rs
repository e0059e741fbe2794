//! The states of an item, and what holds it in each.

use super::Wait;

/// State of an item. Times are nanoseconds of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemState {
    /// Nothing is left of the key: its slot is new, or about to be freed.
    Idle,
    /// Not pending; kept for its failures.
    Recorded { since: u64 },
    /// To be handed out, now or later.
    Pending(Pending),
    /// With a worker, and pending if it was added meanwhile.
    InFlight(Option<Pending>),
}

/// A hand-out to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Next of its priority, or when the current run ends. `since` is zero if no option needs it.
    Ready { since: u64 },
    /// Has a timer.
    Waiting(Wait),
    /// In the token queue: its own back-off has passed. Ready at this time also without a token.
    AwaitingToken(Option<u64>),
}

/// What holds an item, besides its slot and its timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The slots to be freed together.
    Leaving,
    /// The list of failure records.
    Records,
    /// The list of its priority.
    Ready,
    /// The number of waiting items.
    Waiting,
    /// The token queue.
    TokenQueue,
    /// Its worker.
    Worker,
    /// Its worker, and the number of items that are ready after their run.
    WorkerAgain,
}

// === impl ItemState ===

impl ItemState {
    /// The hand-out to come, if the item is pending.
    #[inline(always)]
    pub(crate) fn pending(self) -> Option<Pending> {
        match self {
            Self::Idle | Self::Recorded { .. } => None,
            Self::Pending(pending) => Some(pending),
            Self::InFlight(again) => again,
        }
    }

    pub(crate) fn is_in_flight(self) -> bool {
        matches!(self, Self::InFlight(_))
    }

    /// Whether it is ready when its current run ends.
    pub(crate) fn is_ready_again(self) -> bool {
        self.place() == Place::WorkerAgain
    }

    /// Whether it waits for a time before the token queue or the hand-out.
    pub(crate) fn is_waiting(self) -> bool {
        self.place() == Place::Waiting
    }

    /// Whether it is ready at a later time also without a token.
    #[inline(always)]
    pub(crate) fn is_bounded(self) -> bool {
        matches!(
            self.pending(),
            Some(
                Pending::Waiting(Wait::BackingOff {
                    at_most: Some(_),
                    ..
                }) | Pending::AwaitingToken(Some(_))
            )
        )
    }

    #[inline(always)]
    pub(crate) fn place(self) -> Place {
        match self {
            Self::Idle => Place::Leaving,
            Self::Recorded { .. } => Place::Records,
            Self::Pending(Pending::Ready { .. }) => Place::Ready,
            Self::InFlight(None) => Place::Worker,
            Self::InFlight(Some(Pending::Ready { .. })) => Place::WorkerAgain,
            Self::Pending(Pending::Waiting(_)) | Self::InFlight(Some(Pending::Waiting(_))) => {
                Place::Waiting
            }
            Self::Pending(Pending::AwaitingToken(_))
            | Self::InFlight(Some(Pending::AwaitingToken(_))) => Place::TokenQueue,
        }
    }

    /// The time of its timer.
    #[inline(always)]
    pub(crate) fn timer_at(self) -> Option<u64> {
        match self.pending()? {
            Pending::Ready { .. } => None,
            Pending::Waiting(wait) => Some(wait.until()),
            Pending::AwaitingToken(at_most) => at_most,
        }
    }
}

//! Snapshots of a queue, for debugging.

use std::hash::Hash;
use std::time::Duration;

use crate::cause::Cause;
use crate::queue::Queue;
use crate::reason::Reason;
use crate::state::{Shutdown, State};

/// Contents of a queue at one moment. See [`Queue::snapshot`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot<T> {
    /// The name of the queue.
    pub name: String,
    /// Number of ready items.
    pub ready: usize,
    /// Number of items that wait for a time.
    pub waiting: usize,
    /// Number of items that have waited for their time and wait for a token.
    pub awaiting_token: usize,
    /// Number of items in flight.
    pub in_flight: usize,
    /// Number of keys that have failed and not succeeded since: those that wait for their retry, are ready
    /// or in flight again, and the records.
    pub failing: usize,
    /// Number of keys that are kept only for their failures, some of which may have expired.
    pub records: usize,
    /// Number of adds that were refused because the queue was shut down.
    pub refused: u64,
    /// The queue is shutting down.
    pub shutting_down: bool,
    /// Items: those in flight, then ready ones by priority, then those that wait for a token, then some of
    /// those that wait for a time, soonest first. At most `limit`.
    pub items: Vec<SnapshotItem<T>>,
}

/// An item in a [`Snapshot`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SnapshotItem<T> {
    /// The item.
    pub item: T,
    /// Its state.
    pub status: ItemStatus,
    /// Its priority; 0 when it is not pending.
    pub priority: i32,
    /// Failures in a row.
    pub failures: u32,
    /// Cause of its last failure, if the worker set one and it did not succeed since.
    pub last_error: Option<Cause>,
    /// The reasons of its adds.
    pub reasons: Vec<Reason>,
}

/// State of an item of a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum ItemStatus {
    /// In flight.
    InFlight {
        /// Time since the hand-out. Serialised in seconds.
        #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
        running: Duration,
        /// Added again meanwhile: it runs again afterwards.
        again: bool,
    },
    /// To be handed out.
    Ready,
    /// Waits for a token.
    AwaitingToken,
    /// Waits for a time.
    Waiting {
        /// Time from now. Serialised in seconds.
        #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
        due_in: Duration,
    },
}

#[cfg(feature = "serde")]
fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

// === impl Queue ===

impl<T: Hash + Eq + Clone + Send + Sync + 'static> Queue<T> {
    /// The contents of the queue, with up to 1,000 items: see [`Queue::snapshot_of`].
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<T> {
        self.snapshot_of(1000)
    }

    /// The contents of the queue, with up to `limit` items. One operation under the lock whose cost grows
    /// with `limit` and the number of workers, not with the queue.
    #[must_use]
    pub fn snapshot_of(&self, limit: usize) -> Snapshot<T> {
        self.0.update(true, |core, now, _| {
            let state = &core.state;
            Snapshot {
                name: self.0.name.clone(),
                ready: state.ready.len(),
                waiting: state.waiting,
                awaiting_token: state.token_queue.len(),
                in_flight: state.flights.len(),
                failing: state.failing,
                records: state.records.len(),
                refused: state.refused,
                shutting_down: state.shutdown != Shutdown::Running,
                items: items(state, now.read(), limit),
            }
        })
    }
}

fn items<T: Hash + Eq + Clone + 'static>(
    state: &State<T>,
    now: u64,
    limit: usize,
) -> Vec<SnapshotItem<T>> {
    let slots = state.slots.as_slab();
    let in_flight = state.flights.iter().map(|flight| {
        let status = ItemStatus::InFlight {
            running: Duration::from_nanos(now.saturating_sub(flight.started)),
            again: state.slots[flight.slot].state().is_ready_again(),
        };
        (flight.slot, status)
    });
    let ready = state
        .ready
        .iter(slots)
        .map(|index| (index, ItemStatus::Ready));
    let awaiting_token = state
        .token_queue
        .iter(slots)
        .map(|index| (index, ItemStatus::AwaitingToken));
    let waiting = state.some_waiting(limit).into_iter().map(|(due, index)| {
        let due_in = Duration::from_nanos(due.saturating_sub(now));
        (index, ItemStatus::Waiting { due_in })
    });
    // An item that waits while in flight is listed as in flight.
    let later = awaiting_token
        .chain(waiting)
        .filter(|(index, _)| !state.slots[*index].state().is_in_flight());
    in_flight
        .chain(ready)
        .chain(later)
        .take(limit)
        .map(|(index, status)| item(state, index, status))
        .collect()
}

fn item<T: Hash + Eq + Clone + 'static>(
    state: &State<T>,
    index: u32,
    status: ItemStatus,
) -> SnapshotItem<T> {
    let slot = &state.slots[index];
    SnapshotItem {
        item: slot.key.clone(),
        status,
        priority: match state.slots[index].state().pending() {
            None => 0,
            Some(_) => slot.priority,
        },
        failures: u32::from(slot.failures),
        last_error: state.explained.get(index).cloned(),
        reasons: state.custom_reasons.decode(slot.reasons),
    }
}

//! What a queue holds at one moment, for people who wonder why nothing happens.

use std::hash::Hash;
use std::time::Duration;

use crate::cause::Cause;
use crate::queue::Queue;
use crate::reason::Reason;
use crate::slots::{Flags, Place};
use crate::state::{Shutdown, State};

/// What a queue holds at one moment. See [`Queue::snapshot`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot<T> {
    /// The name of the queue.
    pub name: String,
    /// How many items are ready to be handed out.
    pub ready: usize,
    /// How many items wait for a time.
    pub waiting: usize,
    /// How many items have waited for their time and wait for a token.
    pub in_line: usize,
    /// How many items are being worked on.
    pub in_flight: usize,
    /// How many keys are known only for their failures, some of which may have expired.
    pub records: usize,
    /// How many adds were refused because the queue was shut down.
    pub refused: u64,
    /// The queue is shutting down.
    pub shutting_down: bool,
    /// Items: those in flight, then ready ones by priority, then those in line, then some of those
    /// that wait, soonest first. At most as many as asked for. In a queue that keeps timers an item
    /// may be there twice.
    pub items: Vec<SnapshotItem<T>>,
}

/// An item in a [`Snapshot`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SnapshotItem<T> {
    /// The item.
    pub item: T,
    /// Where it stands.
    pub standing: Standing,
    /// The priority it is wanted with; 0 when it is not wanted.
    pub priority: i32,
    /// Failures in a row.
    pub failures: u32,
    /// Why its last failure was, if the worker said so and it did not succeed since.
    pub last_error: Option<Cause>,
    /// Why it is wanted.
    pub reasons: Vec<Reason>,
}

/// Where an item of a [`Snapshot`] stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Standing {
    /// Being worked on.
    InFlight {
        /// For how long. Serialised in seconds.
        #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
        running: Duration,
        /// Added again meanwhile: it runs again after.
        again: bool,
    },
    /// To be handed out.
    Ready,
    /// Waits for its turn to take a token.
    InLine,
    /// Waits for a time.
    Waiting {
        /// How long from now. Serialised in seconds.
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
    /// What the queue holds, with up to 1,000 items: see [`Queue::snapshot_of`].
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<T> {
        self.snapshot_of(1000)
    }

    /// What the queue holds, with up to `limit` items. One look under the lock whose cost grows
    /// with `limit` and the number of workers, not with the queue.
    #[must_use]
    pub fn snapshot_of(&self, limit: usize) -> Snapshot<T> {
        self.0.update(true, |core, now, _| {
            let state = &core.state;
            Snapshot {
                name: self.0.name.clone(),
                ready: state.ready.len(),
                waiting: state.waiting,
                in_line: state.line.len(),
                in_flight: state.flights.len(),
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
        let standing = Standing::InFlight {
            running: Duration::from_nanos(now.saturating_sub(flight.started)),
            again: slots[flight.slot].place == Place::Dirty,
        };
        (flight.slot, standing)
    });
    let ready = state
        .ready
        .iter(slots)
        .map(|index| (index, Standing::Ready));
    let in_line = state
        .line
        .iter(slots)
        .map(|index| (index, Standing::InLine));
    let (timed, _) = state.timers.some(limit);
    let mut waiting: Vec<u32> = timed
        .into_iter()
        .filter(|&index| slots[index].place == Place::Waiting)
        .collect();
    waiting.sort_by_key(|&index| state.due(index));
    let waiting = waiting.into_iter().map(|index| {
        let due_in = Duration::from_nanos(state.due(index).saturating_sub(now));
        (index, Standing::Waiting { due_in })
    });
    // What waits while it is in flight is there as in flight.
    let later = in_line
        .chain(waiting)
        .filter(|(index, _)| !slots[*index].in_flight());
    in_flight
        .chain(ready)
        .chain(later)
        .take(limit)
        .map(|(index, standing)| item(state, index, standing))
        .collect()
}

fn item<T: Hash + Eq + Clone + 'static>(
    state: &State<T>,
    index: u32,
    standing: Standing,
) -> SnapshotItem<T> {
    let slot = &state.slots[index];
    // A double waits for the key of another slot, which knows the failures.
    let known = if slot.is(Flags::DOUBLE) {
        slot.hash
    } else {
        index
    };
    SnapshotItem {
        item: slot.key.clone(),
        standing,
        priority: match slot.place {
            Place::Unwanted => 0,
            _ => slot.priority,
        },
        failures: u32::from(state.slots[known].failures),
        last_error: state.explained.get(known).cloned(),
        reasons: state.custom_reasons.decode(slot.reasons),
    }
}

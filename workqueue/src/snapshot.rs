//! What a queue holds at one moment, for people who wonder why nothing happens.

use std::time::Duration;

use crate::Reason;

/// What a queue holds at one moment. See [`Queue::snapshot`](crate::Queue::snapshot).
#[derive(Clone, Debug)]
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
    /// How many keys are known only for their failures.
    pub records: usize,
    /// How many adds were refused because the queue was shut down.
    pub refused: u64,
    /// The queue is shutting down.
    pub shutting_down: bool,
    /// Items: those in flight, then ready ones in the order of handing out, then those in line,
    /// then some of those that wait, soonest first. At most as many as asked for.
    pub items: Vec<SnapshotItem<T>>,
}

/// An item in a [`Snapshot`].
#[derive(Clone, Debug)]
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
    /// Why it is wanted.
    pub reasons: Vec<Reason>,
}

/// Where an item of a [`Snapshot`] stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// Being worked on.
    InFlight {
        /// For how long.
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
        /// How long from now.
        due_in: Duration,
    },
}

//! The store: objects, their one sequence of versions, and the recent history of each resource.
//!
//! An object is kept as its encoded JSON, and parsed for a reader that needs its values.
//!
//! Every write takes the next number of one strictly growing sequence, whatever its resource.
//! Objects are immutable and shared; a write replaces one. Each resource keeps a ring of its latest
//! events, and the ring serves three readers:
//!
//! * a watch reads it by a cursor, so no event can be lost between the store and a socket, and wakes for the events of its
//!   [namespace or object](scopes) alone;
//! * a read at an exact version undoes the events since;
//! * a watch that resumes detects whether an event it needs is gone.
//!
//! Readable history and kept history differ: a compaction refuses reads of the past, and keeps the events that
//! watches resume from, as a real server's watch caches do.
//!
//! The objects of a resource are in a [map](map) that is copied in constant time. Lists walk a copy without a lock, pages
//! of one list walk the same copy and so agree with each other, and snapshots and templates are copies of all maps.
//!
//! Writes are [put in order](sequencer) by their version. Nothing waits for a disk inside of the lock that readers take.

mod aging;
mod chore;
mod chores;
mod difference;
mod epoch;
mod facts;
mod history;
mod map;
mod object;
mod objects;
mod persist;
mod query;
mod read;
mod recent;
mod scan;
mod scopes;
mod sequencer;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod upkeep;
pub(crate) mod wanted;
mod write;

pub(crate) use chore::Chore;
pub(crate) use difference::{Difference, Objects};
pub(crate) use epoch::Decision;
pub use history::History;
pub(crate) use object::{Key, Object};
pub(crate) use objects::{Copy, Store};
pub(crate) use persist::Found;
pub use persist::PersistError;
pub(crate) use query::{HistoryError, Query};
pub(crate) use table::{Change, Event};
pub(crate) use write::{CommitError, Effect, Expected, Wanted};

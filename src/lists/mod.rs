//! Lists: many bans in one object, enforced by the set engines.
//!
//! ```text
//! BlockList ─ metadata watch ─▶ request ─ get ─▶ evaluate ─▶ Desired ─▶ set engines
//!                                                     └▶ counts ─▶ status (leader)
//! ```
//!
//! A list of 5,000 entries is half a megabyte, so the cache holds only the metadata of lists. One that has a new
//! generation is read with one request, its entries go into the [desired set](crate::sets::Desired), and the object is
//! dropped. Entries leave the set by themselves when they end: no request, no write.
//!
//! Each replica follows the lists, as each serves them. The leader writes the statuses, at most one for a list every five
//! seconds, and only when it changes.
//!
//! A list has no finalizer. Set engines are level-triggered: when the list is gone, so are its targets in the set that
//! they follow, and a target that an engine still has after a crash is found by its comparison.
//!
//! # The brake on lifts
//! Before an edit is in force, the entries that it would lift are counted, and [the brake](crate::guard::brake) judges them
//! with the bans of blocks. While it is engaged, entries that stand and are refused now are kept until their end, if their
//! list still has them. New entries follow the edit; so does an edit of a list.
//!
//! # When something fails
//! A list that cannot be read is tried again with growing delays, and until then the last entries stay. After a start
//! the set counts as read once every list was, so that no engine lifts what a list still holds. A server without the
//! kind has no lists.

mod evaluate;
mod follow;
mod lifts;
mod metrics;
mod reconciler;
mod status;

pub use metrics::Metrics;
pub(crate) use reconciler::{Dependencies, ListReconciler};

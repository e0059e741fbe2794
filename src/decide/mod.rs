//! What is to be done for a block: [`decide`], a pure function of the object, the [`World`] and the time.
//!
//! The order of the questions is the order of authority:
//!
//! 1. deleted: lift, let go;
//! 2. `spec.unblock`: lift, then set the flag back;
//! 3. a spec that cannot be followed: what stands keeps its recorded end, a new ban is refused;
//! 4. allowlisted, protected or too wide: lift, skip; a trigger never passes this;
//! 5. `spec.trigger` (or the annotation, or a ban whose outcome is unknown): ban again;
//! 6. active: lift when due, otherwise keep; asserted again when due, changed or moved;
//! 7. settled otherwise: nothing, and deleted when it was kept for long enough;
//! 8. a ban that did not come about within its own time: given up, and lifted in case it did;
//! 9. ban.
//!
//! # What a crash leaves behind
//! Before the engine is called the object carries the finalizer and an [`Intent`](crate::api::Intent); after it, the status.
//! Whatever happens between two of these writes, the next decision sees either an intent whose attempt is
//! above `status.banCount` (outcome unknown: ban again, engines are idempotent) or a flag that is still
//! set (lift again). A flag that lifts is set back only after the status says so; a flag that bans is set
//! back in the same write as the intent.

mod banning;
mod coverage;
mod decision;
mod facts;
mod hash;
mod lifting;
mod patch;
mod plan;
mod recorded;
mod settled;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod world;

pub use coverage::{Claim, Coverage};
pub use decision::decide;
pub use hash::effective_hash;
pub use lifting::lift_orphan;
pub use patch::Patch;
pub use plan::{Call, Cause, Operation, Plan};
pub use recorded::{recorded_claim, recorded_standings, targets, unfollowed, uninstalled};
pub use settled::{Announcement, Effect, Failure, Notice, Settled};
pub use world::{Assert, Neighbour, World};

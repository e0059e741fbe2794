//! What is to be done for a block: [`decide`], a pure function of the object, the [`World`] and the time.
//!
//! The rules, in the order of their authority:
//!
//! 1. deleted: lift, release;
//! 2. `spec.unblock`: lift, then set the flag back;
//! 3. a spec that cannot be followed: a standing ban keeps its recorded end, a new one is refused;
//! 4. allowlisted, protected or too wide: lift, skip; a trigger never passes this. While the brake on lifts holds, a
//!    standing ban stays until its end;
//! 5. `spec.trigger` (or the annotation, or a ban whose outcome is unknown): ban again;
//! 6. active: lift when due, otherwise keep, and while a brake holds the lifts of resolved alerts keep until its end; asserted again when due, changed or moved;
//! 7. settled otherwise: nothing, and deleted when it was kept for long enough;
//! 8. a ban that did not come about within its own time: given up, and lifted in case it did;
//! 9. ban; a source in shadow mode is only shown, and what a cap or the brake on bans holds waits within its own time.
//!
//! The decision is a [`Run`]: a machine that names one [`Step`] at a time. See [`run`] for the order of the steps.
//!
//! # What a crash leaves behind
//! Before the engine is called the object carries the finalizer and an [`Intent`](crate::api::Intent); after it, the
//! status. Whatever happens between two of these writes, the next decision finds either an intent whose attempt is
//! above `status.banCount` (outcome unknown: ban again, engines are idempotent) or a flag that is still
//! set (lift again). An intent keeps its attempt while a ban that was begun cannot be made, because there is no engine or
//! the spec cannot be followed. A flag that lifts is set back only after the status shows the lift; a flag that bans is set
//! back in the same write as the intent.
//!
//! # Words
//! | word | meaning |
//! |---|---|
//! | place | an engine and the gateway that it calls |
//! | standing | a target at a place: what may be enforced |
//! | intent | the annotation that records a standing before the engine is called |
//! | claim | the standing of a block in this process, see [`Coverage`] |
//! | neighbour | another block whose claim overlaps |

mod coverage;
mod decision;
mod draft;
mod facts;
mod lifts;
mod plan;
mod railed;
pub mod run;
#[cfg(test)]
mod runbook_tests;
mod settled;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub(crate) use coverage::fingerprint;
pub use coverage::{Assert, Claim, ClaimChange, Coverage, Neighbour};
pub use decision::decide;
pub(crate) use facts::inexpressible;
pub use facts::{
    Rails, World, effective_hash, recorded_claim, recorded_standings, targets, unfollowed,
};
pub use plan::{Announcement, Call, Cause, Effect, Failure, Notice, Operation, Patch, Report};
pub(crate) use plan::{LIFT_BRAKED, RESOLVED_BRAKED};
pub use run::{Outcome, Run, Step, Wake};
pub use settled::uninstalled;

//! The plans of lifts: what ends a ban, where it may stand, and what waits for a gateway that is not known.

use crate::api::{INTENT, Place, RELEASE_ANNOTATION};
use crate::duration;
use crate::target::Target;

use super::coverage::{Neighbour, kept_by};
use super::decision::Decision;
use super::facts::Request;
use super::plan::{Call, Cause, Others, Patch, Plan, Purpose};
use super::settled::GATEWAY_GONE_PATIENCE;

// === impl Decision ===

impl Decision<'_> {
    pub(super) fn lift(&self, cause: Cause) -> Plan {
        self.lift_for(|lifted| Purpose::Lift { cause, lifted })
    }

    /// A ban that did not come about within its own time. Whether its calls reached the gateway is not known.
    pub(super) fn give_up(&self, request: Request) -> Plan {
        if self.facts.is_resolved() {
            return self.lift(Cause::Expired);
        }
        let asked = request.duration.map_or_else(String::new, duration::display);
        let message = format!(
            "{} was not banned within its duration of {asked}; set spec.trigger to ban it now",
            self.facts.subject()
        );
        self.lift_for(|lifted| Purpose::GiveUp { message, lifted })
    }

    /// Nothing is banned until the spec or the engine changes; what stands is lifted.
    pub(super) fn reject(&self, reason: &'static str, message: String) -> Plan {
        self.lift_for(|lifted| Purpose::Reject {
            reason,
            message,
            lifted,
        })
    }

    pub(super) fn release(&self) -> Plan {
        if !self.facts.block.is_held() {
            return self.rest();
        }
        let build = |calls: Vec<Call>, forced| {
            let lifted = !calls.is_empty();
            let after = Patch {
                finalizer: Some(false),
                ..Patch::default()
            };
            let purpose = Purpose::Release { lifted, forced };
            Plan {
                others: self.others(),
                ..self.build(Patch::default(), calls, purpose, after)
            }
        };
        let facts = &self.facts;
        if facts.released() {
            let forced = facts.unplaced || !facts.unfollowed.is_empty() || !facts.held.is_empty();
            return build(Vec::new(), forced);
        }
        if let Some(waiting) = self.nowhere_to_lift() {
            return waiting;
        }
        build(self.lifting(), false)
    }

    /// Lifts what stands, for a purpose that is given whether something is lifted.
    ///
    /// After the status flags are set back, and an intent that would read as unfinished is removed.
    pub(super) fn lift_for(&self, purpose: impl FnOnce(bool) -> Purpose) -> Plan {
        if let Some(waiting) = self.nowhere_to_lift() {
            return waiting;
        }
        let calls = self.lifting();
        let purpose = purpose(!calls.is_empty());
        let facts = &self.facts;
        let spec = &facts.block.spec;
        let deferred = self.defers_trigger(&purpose);
        // A spec that is wrong keeps its trigger: it is acted upon when it is right.
        let answered = !matches!(purpose, Purpose::Reject { .. }) && !deferred;
        let unfinished = !facts.unfollowed.is_empty()
            || facts.intent.as_ref().is_some_and(|intent| {
                facts.attempted || intent.withdrawn || !intent.also.is_empty()
            });
        let after = Patch {
            clear_trigger: spec.trigger == Some(true) && answered,
            clear_unblock: spec.unblock == Some(true),
            // The intent alone records a ban that a trigger began.
            intent: (unfinished && !(deferred && self.is_begun())).then_some(None),
            finalizer: None,
        };
        Plan {
            others: self.others(),
            ..self.build(Patch::default(), calls, purpose, after)
        }
    }

    /// Waits instead of settling when the ban may stand at a gateway that only a configuration can name. To
    /// settle then would leave it at that gateway. Bans that stand elsewhere are lifted meanwhile.
    fn nowhere_to_lift(&self) -> Option<Plan> {
        if let Some(standing) = self.facts.unfollowed.first()
            && !self.facts.released()
        {
            let message = format!(
                "not lifted yet: annotation {INTENT} names {} at {}, which was never configured for this block; add the gateway to formerGateways, or release the block with the annotation {RELEASE_ANNOTATION}",
                standing.target, standing.place
            );
            return Some(self.wait("IntentIgnored", message, self.lifting()));
        }
        let why = self.world.place.err()?;
        let waiting = || self.wait("NoEngine", format!("not lifted yet: {why}"), Vec::new());
        self.facts.unplaced.then(waiting)
    }

    /// The calls that lift everything this block may enforce.
    pub(super) fn lifting(&self) -> Vec<Call> {
        // One time serves all gateways: each run calls all of them, so each was tried since the first failure.
        let since = self.facts.lift_failing_since();
        let patient = since
            .is_none_or(|since| self.now.duration_since(since) < GATEWAY_GONE_PATIENCE)
            && !self.facts.released();
        let configured = |place: &Place| self.world.place.ok() == Some(place);
        let held = self.facts.held.iter().enumerate();
        let mut calls: Vec<Call> = held
            .map(|(position, standing)| {
                let mut call = Call::lift(standing, self.world.neighbours, self.now);
                let needed = match self.world.place {
                    Ok(_) => configured(&standing.place),
                    Err(_) => position == 0,
                };
                call.required = needed || patient;
                call
            })
            .collect();
        // A gateway that is gone must not hold up the one that is there.
        calls.sort_by_key(|call| self.world.place.is_ok() && !configured(&call.standing.place));
        calls
    }

    /// What other blocks do about the address whose ban this block ends.
    fn others(&self) -> Others {
        let neighbours = self.world.neighbours;
        let first = self.facts.held.first();
        let keeper = first.and_then(|first| kept_by(neighbours, first, self.now));
        let subject = self.facts.subject().parse::<Target>();
        let reported = |other: &Neighbour| other.reported && subject == Ok(other.standing.target);
        Others {
            keeper: keeper.map(|keeper| keeper.key.clone()),
            reported: neighbours.iter().any(reported),
        }
    }
}

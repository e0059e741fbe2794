//! Lifts: what is called, and which of the calls have to succeed.

use jiff::Timestamp;

use crate::api::{INTENT, RELEASE_ANNOTATION, Standing};

use super::decision::Decision;
use super::facts::{Request, span};
use super::patch::Patch;
use super::plan::{Call, Cause, GATEWAY_GONE_PATIENCE, Operation, Plan, Purpose};
use super::world::{Neighbour, kept_by};

/// The call for a ban whose object is gone without having been let go: its finalizer was removed by another client, or
/// it was deleted before it was taken over.
#[must_use]
pub fn lift_orphan(standing: &Standing, neighbours: &[Neighbour], now: Timestamp) -> Call {
    relinquish(standing, kept_by(neighbours, standing, now), now)
}

impl Decision<'_> {
    pub(super) fn lift(&self, cause: Cause) -> Plan {
        if let Some(waiting) = self.nowhere_to_lift() {
            return waiting;
        }
        let (calls, lifted, kept_by) = self.lifting();
        let purpose = Purpose::Lift {
            cause,
            lifted,
            kept_by,
        };
        self.with_after(calls, purpose)
    }

    /// A ban that did not come about within its own time. Whether its calls reached the gateway is not known.
    pub(super) fn give_up(&self, request: Request) -> Plan {
        if let Some(waiting) = self.nowhere_to_lift() {
            return waiting;
        }
        let (calls, lifted, _) = self.lifting();
        let asked = request
            .duration
            .map_or_else(String::new, crate::duration::display);
        let message = format!(
            "{} was not banned within the {asked} that were asked for; set spec.trigger to ban it now",
            self.facts.subject()
        );
        self.with_after(calls, Purpose::GiveUp { message, lifted })
    }

    /// Nothing is banned until the spec or the engine changes; what stands is lifted.
    pub(super) fn reject(&self, reason: &'static str, message: String) -> Plan {
        if let Some(waiting) = self.nowhere_to_lift() {
            return waiting;
        }
        let (calls, lifted, _) = self.lifting();
        let purpose = Purpose::Reject {
            reason,
            message,
            lifted,
        };
        self.with_after(calls, purpose)
    }

    pub(super) fn release(&self) -> Plan {
        if !self.facts.block.is_held() {
            return self.build(
                Patch::default(),
                Vec::new(),
                Purpose::Rest,
                Patch::default(),
            );
        }
        let forced = self.facts.released();
        if !forced && let Some(waiting) = self.nowhere_to_lift() {
            return waiting;
        }
        let (calls, lifted, _) = if forced {
            (Vec::new(), false, None)
        } else {
            self.lifting()
        };
        let purpose = Purpose::Release {
            lifted,
            forced: forced
                && (self.facts.unplaced
                    || !self.facts.unfollowed.is_empty()
                    || !self.facts.held.is_empty()),
        };
        let after = Patch {
            finalizer: Some(false),
            ..Patch::default()
        };
        self.build(Patch::default(), calls, purpose, after)
    }

    /// Waits instead of settling when the ban may stand at a gateway that only a configuration can name. To
    /// settle then would leave it at that gateway. What stands elsewhere is lifted meanwhile.
    pub(super) fn nowhere_to_lift(&self) -> Option<Plan> {
        if let Some(standing) = self.facts.unfollowed.first()
            && !self.facts.released()
        {
            let message = format!(
                "not lifted yet: annotation {INTENT} names {} at {}, which was never configured for this block; add the gateway to formerGateways, or let it go with the annotation {RELEASE_ANNOTATION}",
                standing.target, standing.place
            );
            let (calls, ..) = self.lifting();
            return Some(self.wait("IntentIgnored", message, calls));
        }
        let why = self.world.place.err()?;
        let waiting = || self.wait("NoEngine", format!("not lifted yet: {why}"), Vec::new());
        self.facts.unplaced.then(waiting)
    }

    /// The calls that lift everything this block may enforce; whether there is something to lift; which block keeps
    /// the first of it banned.
    pub(super) fn lifting(&self) -> (Vec<Call>, bool, Option<String>) {
        // One time serves all gateways: each run calls all of them, so each was tried since the first failure.
        let patient = self
            .facts
            .lift_failing_since()
            .is_none_or(|since| self.now.duration_since(since) < GATEWAY_GONE_PATIENCE);
        let mut calls: Vec<Call> = self
            .facts
            .held
            .iter()
            .enumerate()
            .map(|(position, standing)| {
                let mut call = self.relinquish(standing);
                let needed = match self.world.place {
                    Ok(place) => standing.place == *place,
                    Err(_) => position == 0,
                };
                call.required = needed || (patient && !self.facts.released());
                call
            })
            .collect();
        // A gateway that is gone must not hold up the one that is there.
        let place = self.world.place.ok();
        calls.sort_by_key(|call| place.is_some_and(|place| call.standing.place != *place));
        let kept_by = self
            .facts
            .held
            .first()
            .and_then(|standing| self.world.kept_by_others(standing, self.now))
            .map(|(_, key)| key.to_owned());
        let lifted = !calls.is_empty();
        (calls, lifted, kept_by)
    }

    /// Lifts `standing`, unless another block wants the same: then it is asserted with what that one
    /// has left.
    pub(super) fn relinquish(&self, standing: &Standing) -> Call {
        relinquish(
            standing,
            self.world.kept_by_others(standing, self.now),
            self.now,
        )
    }
}

fn relinquish(
    standing: &Standing,
    kept: Option<(Option<Timestamp>, &str)>,
    now: Timestamp,
) -> Call {
    let operation = match kept {
        Some((until, _)) => Operation::Ban(until.map(|until| span(now, until))),
        None => Operation::Unban,
    };
    Call {
        standing: standing.clone(),
        operation,
        required: true,
    }
}

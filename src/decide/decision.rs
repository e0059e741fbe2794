//! The order of the questions, and the plans that call no engine.

use jiff::Timestamp;

use crate::api::{IPBlock, Phase, TRIGGER_ANNOTATION};

use super::facts::{Facts, Request, end};
use super::patch::Patch;
use super::plan::{Call, Cause, Plan, Purpose};
use super::world::{Assert, World};

/// What is to be done for `block` at `now`.
#[must_use]
pub fn decide(block: &IPBlock, world: &World<'_>, now: Timestamp) -> Plan {
    let decision = Decision {
        facts: Facts::read(block, world.place.ok()),
        world,
        now,
    };
    decision
        .plan()
        .collected_at(decision.facts.collected_at(world))
}

pub(super) struct Decision<'a> {
    pub(super) facts: Facts<'a>,
    pub(super) world: &'a World<'a>,
    pub(super) now: Timestamp,
}

// === impl Decision ===

impl Decision<'_> {
    fn plan(&self) -> Plan {
        let block = self.facts.block;
        if block.is_deleting() {
            return self.release();
        }
        if block.spec.unblock == Some(true) {
            return self.lift(Cause::Unblocked);
        }
        let request = match Request::read(block, self.world) {
            Ok(request) => request,
            Err((problem, target)) => return self.unfollowable(&problem, target),
        };
        if let Some(refusal) = self.world.policy.refusal(&request.target) {
            if let Some(waiting) = self.nowhere_to_lift() {
                return waiting;
            }
            let (calls, lifted, _) = self.lifting();
            let purpose = Purpose::Refuse {
                kind: refusal.kind,
                message: refusal.message,
                lifted,
            };
            return self.with_after(calls, purpose);
        }
        let active = self.facts.is(&Phase::Active);
        let triggered = self.facts.triggered();
        // What was asked for long ago does not become a ban out of the blue.
        let stale = !triggered
            && !self.facts.mended()
            && self.facts.window_passed(request.duration, self.now);
        if (triggered || (self.facts.attempted && !stale)) && !(active && self.world.place.is_err())
        {
            return self.ban(request);
        }
        match &self.facts.status.phase {
            Some(Phase::Active) => {
                let began = self.facts.began(self.now);
                let until = request.duration.map(|duration| end(began, duration));
                self.keep(request, began, until, None)
            }
            _ if stale && self.facts.attempted => self.give_up(request),
            Some(Phase::Expired) if !self.address_changed(request) => self.rest(),
            Some(Phase::Skipped) if stale => self.rest(),
            // The original never tries again; what it gave up on long ago is lifted for good, in case
            // its failure was none.
            Some(Phase::Failed) if stale && self.facts.foreign => self.lift(Cause::Expired),
            Some(Phase::Failed) if stale => self.rest(),
            _ if stale && !self.facts.is(&Phase::Expired) => self.give_up(request),
            _ => self.ban(request),
        }
    }

    /// An edited address, which only servers without CEL let through.
    fn address_changed(&self, request: Request) -> bool {
        self.facts
            .status
            .target
            .as_deref()
            .is_some_and(|banned| banned.parse() != Ok(request.target))
    }

    /// Nothing to do. The status learns the generation, the original's settled objects stay untouched.
    pub(super) fn rest(&self) -> Plan {
        let mut plan = self.build(
            Patch::default(),
            Vec::new(),
            Purpose::Rest,
            Patch::default(),
        );
        if self.facts.foreign {
            plan.handled_trigger = None;
        }
        plan
    }

    pub(super) fn waiting(&self, why: &str) -> Plan {
        self.wait("NoEngine", format!("not banned yet: {why}"), Vec::new())
    }

    pub(super) fn wait(&self, reason: &'static str, message: String, calls: Vec<Call>) -> Plan {
        let purpose = Purpose::Wait { reason, message };
        self.build(Patch::default(), calls, purpose, Patch::default())
    }

    /// Flags are set back and an intent that would read as unfinished is removed, after the status.
    pub(super) fn with_after(&self, calls: Vec<Call>, purpose: Purpose) -> Plan {
        let spec = &self.facts.block.spec;
        let rejected = matches!(purpose, Purpose::Reject { .. });
        let answered = !rejected && !self.defers_trigger(&purpose);
        let unfinished = !self.facts.unfollowed.is_empty()
            || self.facts.intent.as_ref().is_some_and(|intent| {
                self.facts.attempted || intent.withdrawn || !intent.also.is_empty()
            });
        let after = Patch {
            // A spec that is wrong keeps its trigger: it is acted upon when it is right.
            clear_trigger: spec.trigger == Some(true) && answered,
            clear_unblock: spec.unblock == Some(true),
            intent: unfinished.then_some(None),
            finalizer: None,
        };
        self.build(Patch::default(), calls, purpose, after)
    }

    pub(super) fn build(
        &self,
        before: Patch,
        calls: Vec<Call>,
        purpose: Purpose,
        after: Patch,
    ) -> Plan {
        let unhandled = matches!(
            purpose,
            Purpose::Reject { .. } | Purpose::Wait { .. } | Purpose::Release { .. }
        ) || self.defers_trigger(&purpose);
        let handled_trigger = self
            .facts
            .block
            .annotation(TRIGGER_ANNOTATION)
            .filter(|_| !unhandled)
            .map(str::to_owned);
        let assert_in = match self.world.assert {
            Assert::In(left) if calls.is_empty() => left,
            _ => self.world.resync,
        };
        Plan {
            before: before.some(),
            calls,
            after: after.some(),
            purpose,
            subject: self.facts.subject(),
            collect_in: None,
            base: self.facts.status.clone(),
            handled_trigger,
            assert_in,
            now: self.now,
            place: self.world.place.ok().cloned(),
            foreign: self.facts.foreign,
        }
    }

    /// Whether `purpose` lifts what is due before a trigger is answered, which has to wait for an engine.
    fn defers_trigger(&self, purpose: &Purpose) -> bool {
        let due = matches!(purpose, Purpose::Lift { cause, .. } if *cause == Cause::Expired);
        due && self.facts.triggered()
    }
}

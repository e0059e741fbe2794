//! The rules in their order, and the plans of bans.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::api::{
    ConditionStatus, Escalated, IPBlock, Intent, Phase, Standing, TRIGGER_ANNOTATION, condition,
};
use crate::duration;
use crate::target::Target;

use super::coverage::{Assert, kept_by, later};
use super::facts::{Facts, Problem as SpecProblem, Request, World, effective_hash, end, span};
use super::plan::{
    Call, Cause, Change, INVALID_SPEC, LIFT_BRAKED, Operation, Others, Patch, Plan, Problem,
    Purpose, RESOLVED_BRAKED,
};
use super::run::Run;

/// What is to be done for `block` at `now`.
#[must_use]
pub fn decide(block: &Arc<IPBlock>, world: &World<'_>, now: Timestamp) -> Run {
    let facts = Facts::read(block, world.place.ok(), world.untouched);
    // What no intent names may stand at a gateway at which no new ban is made yet. What one names does not.
    let facts = match (world.place, world.gateway, &facts.intent) {
        (Err(_), Some(gateway), None) => Facts::read(block, Some(gateway), world.untouched),
        _ => facts,
    };
    let decision = Decision { facts, world, now };
    let collected_at = decision.facts.collected_at(world);
    let plan = decision.plan().collected_at(collected_at);
    Run::new(plan, Arc::clone(block))
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
        let active = self.facts.is(&Phase::Active);
        let triggered = self.facts.triggered();
        // As skipped it would be banned within its time when nothing refuses it any more.
        if !triggered && !self.facts.attempted && self.stays_unblocked(request) {
            return self.rest();
        }
        if let Some(refusal) = self.world.policy.refusal(&request.target) {
            return self.unless_braked(request, |lifted| Purpose::Refuse {
                kind: refusal.kind,
                message: refusal.message,
                lifted,
            });
        }
        // An old request does not become a ban out of the blue.
        let stale = !triggered
            && !self.facts.mended()
            && self.facts.window_passed(request.duration, self.now);
        let begun = self.facts.attempted && !stale && !self.stays_refused();
        if (triggered || begun) && !(active && self.world.place.is_err()) {
            return self.ban(request);
        }
        match &self.facts.status.phase {
            Some(Phase::Active) => {
                if let Some(source) = self.world.rails.shadow {
                    return self.show(request, source);
                }
                self.keep_unresolved(request)
            }
            _ if stale && self.facts.attempted => self.give_up(request),
            Some(Phase::Expired) if !self.address_changed(request) => self.rest(),
            Some(Phase::Skipped) if stale => self.rest(),
            _ if self.stays_refused() => self.rest_refused(request),
            // The original never tries again. A ban that it gave up on long ago is lifted for good, in case the
            // gateway took it all the same.
            Some(Phase::Failed) if stale && self.facts.foreign => self.lift(Cause::Expired),
            Some(Phase::Failed) if stale => self.rest(),
            _ if stale && !self.facts.is(&Phase::Expired) => self.give_up(request),
            _ => self.ban(request),
        }
    }

    /// It was unblocked, and is about the same address as then.
    fn stays_unblocked(&self, request: Request) -> bool {
        self.facts.status.lifted_by_hand().is_some() && !self.address_changed(request)
    }

    /// It was refused, and what refused it is not known, for example before the first configuration. As pending it would
    /// be refused and reported once more when it is. Its intent may be left: it is removed after the report.
    fn stays_refused(&self) -> bool {
        let facts = &self.facts;
        let refused = facts.status.phase.as_ref().is_some_and(Phase::is_refused);
        refused && self.world.place.is_err() && !facts.mended() && !facts.foreign
    }

    /// An edited address, which only servers without CEL let through.
    fn address_changed(&self, request: Request) -> bool {
        let banned = self.facts.status.target.as_deref();
        banned.is_some_and(|banned| banned.parse() != Ok(request.target))
    }

    // --- Plans without a ban or a lift

    /// Nothing to do. The status takes the generation, the original's settled objects stay untouched.
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

    /// Nothing to do until there is a configuration. The intent may also be that of a ban that was begun since: it is
    /// given up when its time is over.
    fn rest_refused(&self, request: Request) -> Plan {
        let mut plan = self.rest();
        let given_up = self.facts.window_end(request.duration);
        let given_up = given_up.filter(|_| self.facts.attempted);
        plan.again_in = given_up.map(|at| span(self.now, at));
        plan
    }

    fn waiting(&self, why: &str) -> Plan {
        self.wait("NoEngine", format!("not banned yet: {why}"), Vec::new())
    }

    pub(super) fn wait(&self, reason: &'static str, message: String, calls: Vec<Call>) -> Plan {
        let purpose = Purpose::Wait { reason, message };
        self.build(Patch::default(), calls, purpose, Patch::default())
    }

    // --- Bans

    fn ban(&self, request: Request) -> Plan {
        if let Some(source) = self.world.rails.shadow {
            return self.show(request, source);
        }
        let place = match self.world.place {
            Ok(place) => place,
            Err(why) => {
                let mut plan = self.waiting(why);
                // What was begun may stand, and is lifted when its time is over.
                let begun = self.facts.attempted && !self.facts.triggered();
                let given_up = self.facts.window_end(request.duration);
                let given_up = given_up.filter(|at| begun && *at > self.now);
                plan.again_in = given_up.map(|at| span(self.now, at));
                return plan;
            }
        };
        if let Some(message) = self.world.inexpressible(&request.target, place) {
            return self.reject("Unsupported", message);
        }
        let facts = &self.facts;
        let attempt = facts.status.bans().saturating_add(1);
        let new = matches!(facts.status.phase, None | Some(Phase::Pending));
        let asked = match &facts.intent {
            Some(begun) if begun.attempt == attempt && !facts.triggered() => begun.asked,
            _ => (facts.triggered() || !new).then_some(self.now),
        };
        let mut intent = Intent::new(request.target, place.clone(), attempt);
        intent.asked = asked;
        intent.trigger = facts.asked_by_annotation().map(str::to_owned);
        let (step, length) = self.next_length(request);
        let escalated = self
            .world
            .rails
            .escalation
            .and(request.duration)
            .zip(length);
        let purpose = Purpose::Ban {
            standing: intent.standing.clone(),
            duration: length,
            escalated: escalated.map(|(asked, granted)| Escalated::new(step, asked, granted)),
        };
        match self.world.rails.hold {
            None => self.enforce(intent, length, purpose),
            Some(hold) => self.hold(request, hold, self.enforce(intent, length, purpose)),
        }
    }

    /// An active block: lift what is due, keep the rest.
    pub(super) fn keep(
        &self,
        request: Request,
        began: Timestamp,
        until: Option<Timestamp>,
        problem: Option<Problem>,
    ) -> Plan {
        // The engine was replaced by one that is not able to keep this ban.
        let place = self.world.place.ok();
        let unsupported = place.and_then(|place| self.world.inexpressible(&request.target, place));
        let withdrawn = self.facts.withdrawn();
        let stands = self.facts.held.first().or(withdrawn);
        let present = match (stands, unsupported.clone(), self.world.place) {
            (Some(present), ..) => present.clone(),
            (None, Some(message), _) => return self.reject("Unsupported", message),
            // No call has taken effect at the gateway since the earlier one was withdrawn.
            (None, None, place) => match (&self.facts.intent, place) {
                (Some(intent), _) => intent.standing.clone(),
                (None, Ok(place)) => Standing {
                    target: request.target,
                    place: place.clone(),
                },
                (None, Err(why)) => return self.waiting(why),
            },
        };
        if until.is_some_and(|until| until <= self.now) {
            return self.lift(Cause::Expired);
        }
        // Without an intent the ban would be asserted at a gateway that no record names.
        let unnamed = withdrawn.is_some() || self.facts.intent.is_none();
        if let (Err(why), true) = (self.world.place, unnamed) {
            let mut plan = self.waiting(why);
            plan.again_in = until.map(|until| span(self.now, until));
            return plan;
        }
        if present.target != request.target {
            return self.ban(request);
        }
        if let (Some(message), Some(why)) = (&unsupported, self.world.rails.keeps_refused) {
            // It stands at the earlier engine until its end.
            return self.wait(LIFT_BRAKED, format!("{message}; {why}"), Vec::new());
        }
        if let Some(message) = unsupported {
            return self.reject("Unsupported", message);
        }
        let facts = &self.facts;
        let status = &facts.status;
        let place = self.world.place.unwrap_or(&present.place);
        let attempt = match &facts.intent {
            // Its ban is made when there is an engine, or when the spec is mended.
            Some(begun) if self.is_begun() => begun.attempt,
            _ => status.bans(),
        };
        let mut intent = Intent::new(request.target, place.clone(), attempt);
        let standing = intent.standing.clone();
        let change = if facts.foreign {
            Change::Adopted
        } else if present != standing {
            Change::Moved
        } else if status.expires_at() != until {
            Change::Duration
        } else {
            Change::Nothing
        };
        let enforced = status.condition(condition::ENFORCED);
        let hash = effective_hash(&standing.target, &standing.place.engine);
        let asserted = enforced.is_some_and(|enforced| enforced.status == ConditionStatus::True)
            && status.last_spec_hash == Some(hash);
        let ready = status.condition(condition::READY);
        let known = ready.map_or("", |ready| ready.reason.as_str());
        let known_problem = match &problem {
            Some(problem) => problem.reason == known,
            None => ![INVALID_SPEC, LIFT_BRAKED, RESOLVED_BRAKED].contains(&known),
        };
        if facts.block.is_held()
            && facts.intent.is_some()
            && asserted
            && change == Change::Nothing
            && self.world.assert != Assert::Due
            && known_problem
        {
            return self.rest();
        }
        if let Some(present) = &facts.intent {
            intent.asked = present.asked;
            intent.trigger.clone_from(&present.trigger);
        }
        let left = until.map(|until| span(self.now, until));
        let longer = until.zip(status.expires_at());
        let longer = longer.filter(|(until, before)| {
            until > before && self.world.rails.escalates_active && change == Change::Duration
        });
        let escalated = longer
            .zip(self.world.rails.escalation)
            // A longer duration that is set by hand is no step.
            .filter(|((until, before), escalation)| {
                let next = escalation.longer(span(began, *before), self.world.max_duration);
                next == Some(span(began, *until))
            })
            .map(|((until, _), _)| {
                let step = status.escalation.as_ref().map_or(1, |last| last.step);
                let length = span(began, until);
                Escalated::new(step.saturating_add(1), length, length)
            });
        let purpose = Purpose::Keep {
            standing,
            began,
            until,
            change,
            problem,
            escalated,
        };
        self.enforce(intent, left, purpose)
    }

    /// Records `intent`, bans its target for `left`, and lifts what else may be enforced for this block.
    pub(super) fn enforce(
        &self,
        mut intent: Intent,
        left: Option<Duration>,
        purpose: Purpose,
    ) -> Plan {
        let facts = &self.facts;
        let bans = matches!(purpose, Purpose::Ban { .. });
        let others = facts.held.iter().filter(|held| **held != intent.standing);
        intent.also = others.cloned().collect();
        intent.unfollowed.clone_from(&facts.unfollowed);
        let mut calls = vec![self.ban_call(&intent.standing, left)];
        calls.extend(intent.also.iter().map(|standing| {
            let mut call = Call::lift(standing, self.world.neighbours, self.now);
            // At another gateway a failure must not hold up the ban; it stays in the intent.
            call.required = bans && standing.place == intent.standing.place;
            call
        }));
        let before = Patch {
            finalizer: (!facts.block.is_held()).then_some(true),
            intent: (facts.intent.as_ref() != Some(&intent)).then(|| Some(intent.clone())),
            clear_trigger: bans && facts.block.spec.trigger == Some(true),
            ..Patch::default()
        };
        let after = Patch {
            intent: (!intent.also.is_empty()).then_some(Some(intent)),
            ..Patch::default()
        };
        self.build(before, calls, purpose, after)
    }

    /// Bans `standing` for as long as this block or another one requires, whichever is longer.
    fn ban_call(&self, standing: &Standing, duration: Option<Duration>) -> Call {
        let own = duration.map(|duration| end(self.now, duration));
        let left = match kept_by(self.world.neighbours, standing, self.now) {
            Some(other) if later(other.until, own).is_gt() => {
                other.until.map(|until| span(self.now, until))
            }
            _ => duration,
        };
        Call {
            standing: standing.clone(),
            operation: Operation::Ban(left),
            required: true,
        }
    }

    /// A spec that cannot be followed. A standing ban keeps the end that was granted.
    fn unfollowable(&self, problem: &SpecProblem, target: Option<Target>) -> Plan {
        if let (true, Some(target)) = (self.facts.is(&Phase::Active), target)
            && self.world.policy.refusal(&target).is_none()
        {
            let began = self.facts.began(self.now);
            let until = self.facts.status.expires_at();
            // A limit that was lowered afterwards does not take back what was granted.
            let granted = matches!(problem, SpecProblem::OverLimit { .. })
                && self.granted_as_asked(began, until);
            let request = Request {
                target,
                duration: until.map(|until| span(began, until)),
            };
            let problem = (!granted).then(|| Problem {
                reason: INVALID_SPEC,
                message: problem.to_string(),
            });
            return self.keep(request, began, until, problem);
        }
        self.reject(INVALID_SPEC, problem.to_string())
    }

    fn granted_as_asked(&self, began: Timestamp, until: Option<Timestamp>) -> bool {
        let text = self.facts.block.spec.duration.as_deref();
        duration::parse_optional(text.unwrap_or_default())
            .map(|asked| self.facts.status.granted(asked))
            .is_ok_and(|granted| granted.map(|granted| end(began, granted)) == until)
    }

    // --- Plans

    pub(super) fn build(
        &self,
        before: Patch,
        calls: Vec<Call>,
        purpose: Purpose,
        after: Patch,
    ) -> Plan {
        let unhandled = matches!(
            purpose,
            Purpose::Reject { .. }
                | Purpose::Wait { .. }
                | Purpose::Hold { .. }
                | Purpose::Release { .. }
        ) || self.defers_trigger(&purpose);
        let trigger = self.facts.block.annotation(TRIGGER_ANNOTATION);
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
            again_in: None,
            base: self.facts.status.clone(),
            handled_trigger: trigger.filter(|_| !unhandled).map(str::to_owned),
            assert_in,
            now: self.now,
            place: self.world.place.ok().cloned(),
            named: self.facts.named(),
            foreign: self.facts.foreign,
            resolved: false,
            others: Others::default(),
            engines: Vec::new(),
        }
    }

    /// Whether `purpose` leaves a trigger, or the ban that it began, to a later run: a ban that stands is kept, or lifted
    /// because it is due, while there is no engine or the spec cannot be followed.
    pub(super) fn defers_trigger(&self, purpose: &Purpose) -> bool {
        let defers = match purpose {
            Purpose::Rest | Purpose::Keep { .. } => true,
            Purpose::Lift { cause, .. } => *cause == Cause::Expired,
            _ => false,
        };
        defers && (self.facts.triggered() || self.is_begun())
    }

    /// Whether a ban was begun whose outcome is not in the status, and its time is not over.
    pub(super) fn is_begun(&self) -> bool {
        let request = Request::read(self.facts.block, self.world);
        let over = |request: Request| self.facts.window_passed(request.duration, self.now);
        self.facts.attempted && !request.is_ok_and(over)
    }
}

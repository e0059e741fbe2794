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
//! Before the engine is called the object carries the finalizer and an [`Intent`]; after it, the status.
//! Whatever happens between two of these writes, the next decision sees either an intent whose attempt is
//! above `status.banCount` (outcome unknown: ban again, engines are idempotent) or a flag that is still
//! set (lift again). A flag that lifts is set back only after the status says so; a flag that bans is set
//! back in the same write as the intent.

mod coverage;
mod facts;
mod hash;
mod plan;
mod settled;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod world;

pub use coverage::{Claim, Coverage};
pub use hash::effective_hash;
pub use plan::{Call, Cause, Operation, Patch, Plan};
pub use settled::{Announcement, Effect, Failure, Notice, Settled};
pub use world::{Assert, Neighbour, World};

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::{
    ConditionStatus, INTENT, IPBlock, IPBlockStatus, Intent, Phase, Place, RELEASE_ANNOTATION,
    Standing, TRIGGER_ANNOTATION, condition,
};

use crate::target::Target;
use facts::{Facts, Problem, Request, end, span};
use plan::{Change, Purpose};
use settled::Draft;
use world::{kept_by, later};

/// How long after it is due a ban that cannot be lifted at an *earlier* gateway holds up its object. A
/// gateway that was replaced is often gone for good.
const GATEWAY_GONE_PATIENCE: SignedDuration = SignedDuration::from_mins(10);

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
        .collected_at(decision.facts.collected_at(world.retention))
}

/// What is to be called for a ban whose object is gone without having been let go: its finalizer was
/// removed by somebody else, or it was deleted before it was taken over.
#[must_use]
pub fn lift_orphan(standing: &Standing, neighbours: &[Neighbour], now: Timestamp) -> Call {
    relinquish(standing, kept_by(neighbours, standing, now), now)
}

/// What `block` stands for according to its own records, and until when (`Some((_, None))`: for ever):
/// what a process that begins to lead knows before it has looked at every block.
#[must_use]
pub fn recorded_claim(
    block: &IPBlock,
    place: Option<&Place>,
) -> Option<(Standing, Option<Timestamp>)> {
    let status = block.status.as_ref()?;
    if !status.is(&Phase::Active) {
        return None;
    }
    let intent: Option<Intent> = block.annotation(INTENT).and_then(|text| text.parse().ok());
    let standing = match intent.filter(Intent::is_followed) {
        Some(intent) => intent.standing,
        None => Standing {
            target: status
                .target
                .as_deref()
                .unwrap_or(&block.spec.ip)
                .parse()
                .ok()?,
            place: place?.clone(),
        },
    };
    let until = status.expires_at().or_else(|| {
        let text = block.spec.duration.as_deref().unwrap_or_default();
        let duration = crate::duration::parse_optional(text).ok()??;
        Some(end(status.blocked_at()?, duration))
    });
    Some((standing, until))
}

/// Everything that may be enforced for `block` according to its own records; `place` is the configured engine,
/// for objects that do not say. `None`: something may be enforced, and nothing says what or where.
#[must_use]
pub fn recorded_standings(block: &IPBlock, place: Option<&Place>) -> Option<Vec<Standing>> {
    let facts = Facts::read(block, place);
    let lost = facts.held.is_empty() && (facts.unplaced || facts.is(&Phase::Active));
    (!lost).then_some(facts.held)
}

/// What may be enforced for `block` at gateways that are not followed, unless its annotation lets it go.
#[must_use]
pub fn unfollowed(block: &IPBlock) -> Vec<Standing> {
    let facts = Facts::read(block, None);
    if facts.released() {
        return Vec::new();
    }
    facts.unfollowed
}

/// The status of a block whose ban was lifted because the operator goes: a later install must not ban again
/// what it finds.
#[must_use]
pub fn uninstalled(block: &IPBlock, now: Timestamp) -> IPBlockStatus {
    let mut draft = Draft {
        status: block.status.clone().unwrap_or_default(),
        announcements: Vec::new(),
        effect: Effect::None,
        at: now,
        subject: String::new(),
    };
    draft.status.observed_generation = block.metadata.generation;
    draft.uninstalled();
    draft.status
}

/// What `block` may be concerned with: every target its spec or its intent names, in order. Whoever works on
/// it holds their locks.
#[must_use]
pub fn targets(block: &IPBlock) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    targets.extend(block.spec.ip.parse::<Target>().ok());
    if let Some(intent) = block
        .annotation(INTENT)
        .and_then(|text| text.parse::<Intent>().ok())
    {
        targets.push(intent.standing.target);
        targets.extend(intent.also.iter().map(|standing| standing.target));
    }
    targets.sort_unstable();
    targets.dedup();
    targets
}

struct Decision<'a> {
    facts: Facts<'a>,
    world: &'a World<'a>,
    now: Timestamp,
}

// === impl Decision ===

impl Decision<'_> {
    fn plan(&self) -> Plan {
        let block = self.facts.block;
        if block.is_deleting() {
            return self.release();
        }
        if block.spec.unblock == Some(true) {
            return self.lift(Cause::Unblocked, None);
        }
        let request = match Request::read(block, self.world) {
            Ok(request) => request,
            Err((problem, target)) => return self.unfollowable(&problem, target),
        };
        if let Some(refusal) = self.world.policy.refusal(&request.target) {
            if let Some(waiting) = self.nowhere_to_lift() {
                return waiting;
            }
            let (calls, lifted, _) = self.lifting(None);
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
            Some(Phase::Failed) if stale && self.facts.foreign => self.lift(Cause::Expired, None),
            Some(Phase::Failed) if stale => self.rest(),
            _ if stale && !self.facts.is(&Phase::Expired) => self.give_up(request),
            _ => self.ban(request),
        }
    }

    /// A ban that did not come about within its own time. Whether its calls reached the gateway is not known.
    fn give_up(&self, request: Request) -> Plan {
        if let Some(waiting) = self.nowhere_to_lift() {
            return waiting;
        }
        let due = self.facts.due(request.duration);
        let (calls, lifted, _) = self.lifting(due);
        let asked = request
            .duration
            .map_or_else(String::new, crate::duration::display);
        let message = format!(
            "{} was not banned within the {asked} that were asked for; set spec.trigger to ban it now",
            self.facts.subject()
        );
        self.with_after(calls, Purpose::GiveUp { message, lifted })
    }

    /// An edited address, which only servers without CEL let through.
    fn address_changed(&self, request: Request) -> bool {
        self.facts
            .status
            .target
            .as_deref()
            .is_some_and(|banned| banned.parse() != Ok(request.target))
    }

    fn ban(&self, request: Request) -> Plan {
        let place = match self.world.place {
            Ok(place) => place,
            Err(why) => return self.waiting(why),
        };
        if let Some(message) = facts::inexpressible(&request.target, place) {
            return self.reject("Unsupported", message);
        }
        let standing = Standing {
            target: request.target,
            place: place.clone(),
        };
        let also = self.other_than(&standing);
        let attempt = self.facts.status.bans().saturating_add(1);
        let new = matches!(self.facts.status.phase, None | Some(Phase::Pending));
        let asked = match &self.facts.intent {
            Some(begun) if begun.attempt == attempt && !self.facts.triggered() => begun.asked,
            _ => (self.facts.triggered() || !new).then_some(self.now),
        };
        let intent = Intent {
            standing: standing.clone(),
            attempt,
            asked,
            also: also.clone(),
            unfollowed: self.facts.unfollowed.clone(),
        };
        let mut calls = vec![self.ban_call(&standing, request.duration)];
        calls.extend(also.iter().map(|standing| {
            let mut call = self.relinquish(standing);
            // At another gateway a failure must not hold up the new ban; it stays in the intent.
            call.required = standing.place == *place;
            call
        }));
        let before = Patch {
            finalizer: (!self.facts.block.is_held()).then_some(true),
            intent: (self.facts.intent.as_ref() != Some(&intent)).then(|| Some(intent.clone())),
            clear_trigger: self.facts.block.spec.trigger == Some(true),
            ..Patch::default()
        };
        let after = Patch {
            intent: (!also.is_empty()).then_some(Some(intent)),
            ..Patch::default()
        };
        let purpose = Purpose::Ban {
            standing,
            duration: request.duration,
        };
        self.build(before, calls, purpose, after)
    }

    /// An active block: lift what is due, keep the rest.
    fn keep(
        &self,
        request: Request,
        began: Timestamp,
        until: Option<Timestamp>,
        problem: Option<String>,
    ) -> Plan {
        // The engine was replaced by one that is not able to keep this ban.
        let place = self.world.place.ok();
        let unsupported = place.and_then(|place| facts::inexpressible(&request.target, place));
        let Some(present) = self.facts.held.first() else {
            if let Some(message) = unsupported {
                return self.reject("Unsupported", message);
            }
            // Banned by somebody's records, and nobody to ask.
            let why = self.world.place.err().unwrap_or("no engine is configured");
            return self.waiting(why);
        };
        if until.is_some_and(|until| until <= self.now) {
            return self.lift(Cause::Expired, until);
        }
        if present.target != request.target {
            return self.ban(request);
        }
        if let Some(message) = unsupported {
            return self.reject("Unsupported", message);
        }
        let standing = Standing {
            target: request.target,
            place: self.world.place.unwrap_or(&present.place).clone(),
        };
        let also = self.other_than(&standing);
        let intent = Intent {
            standing: standing.clone(),
            attempt: self.facts.status.bans(),
            asked: self.facts.intent.as_ref().and_then(|intent| intent.asked),
            also: also.clone(),
            unfollowed: self.facts.unfollowed.clone(),
        };
        let status = &self.facts.status;
        let change = if self.facts.foreign {
            Change::Adopted
        } else if *present != standing {
            Change::Moved
        } else if status.expires_at() != until {
            Change::Duration
        } else {
            Change::Nothing
        };
        let asserted = status
            .condition(condition::ENFORCED)
            .is_some_and(|enforced| enforced.status == ConditionStatus::True)
            && status.last_spec_hash.as_deref()
                == Some(&effective_hash(&standing.target, &standing.place.engine));
        let held = self.facts.block.is_held() && self.facts.intent.is_some();
        let known_problem = status
            .condition(condition::READY)
            .is_some_and(|ready| ready.reason == "InvalidSpec");
        if held
            && asserted
            && change == Change::Nothing
            && self.world.assert != Assert::Due
            && problem.is_some() == known_problem
        {
            return self.rest();
        }
        let before = Patch {
            finalizer: (!self.facts.block.is_held()).then_some(true),
            intent: (self.facts.intent.as_ref() != Some(&intent)).then(|| Some(intent.clone())),
            ..Patch::default()
        };
        let left = until.map(|until| span(self.now, until));
        let mut calls = vec![self.ban_call(&standing, left)];
        calls.extend(also.iter().map(|standing| {
            let mut call = self.relinquish(standing);
            call.required = false;
            call
        }));
        let after = Patch {
            intent: (!also.is_empty()).then_some(Some(intent)),
            ..Patch::default()
        };
        let purpose = Purpose::Keep {
            standing,
            began,
            until,
            change,
            problem,
        };
        self.build(before, calls, purpose, after)
    }

    /// A spec that cannot be followed. What stands keeps the end that was granted.
    fn unfollowable(&self, problem: &Problem, target: Option<Target>) -> Plan {
        let status = &self.facts.status;
        if let (true, Some(target)) = (self.facts.is(&Phase::Active), target) {
            let began = self.facts.began(self.now);
            let until = status.expires_at();
            let refusal = self.world.policy.refusal(&target);
            // A limit that was lowered afterwards does not take back what was granted.
            let granted =
                matches!(problem, Problem::OverLimit { .. }) && self.granted_as_asked(began, until);
            if refusal.is_none() {
                let request = Request {
                    target,
                    duration: until.map(|until| span(began, until)),
                };
                let problem = (!granted).then(|| problem.to_string());
                return self.keep(request, began, until, problem);
            }
        }
        self.reject("InvalidSpec", problem.to_string())
    }

    /// Nothing is banned until the spec or the engine changes; what stands is lifted.
    fn reject(&self, reason: &'static str, message: String) -> Plan {
        if let Some(waiting) = self.nowhere_to_lift() {
            return waiting;
        }
        let (calls, lifted, _) = self.lifting(None);
        let purpose = Purpose::Reject {
            reason,
            message,
            lifted,
        };
        self.with_after(calls, purpose)
    }

    fn granted_as_asked(&self, began: Timestamp, until: Option<Timestamp>) -> bool {
        let text = self
            .facts
            .block
            .spec
            .duration
            .as_deref()
            .unwrap_or_default();
        crate::duration::parse_optional(text)
            .is_ok_and(|asked| asked.map(|asked| end(began, asked)) == until)
    }

    fn lift(&self, cause: Cause, due: Option<Timestamp>) -> Plan {
        if let Some(waiting) = self.nowhere_to_lift() {
            return waiting;
        }
        let (calls, lifted, kept_by) = self.lifting(due);
        let purpose = Purpose::Lift {
            cause,
            lifted,
            kept_by,
        };
        self.with_after(calls, purpose)
    }

    fn release(&self) -> Plan {
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
        let due = self
            .facts
            .block
            .metadata
            .deletion_timestamp
            .as_ref()
            .map(|at| at.0);
        let (calls, lifted, _) = if forced {
            (Vec::new(), false, None)
        } else {
            self.lifting(due)
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

    fn waiting(&self, why: &str) -> Plan {
        self.wait("NoEngine", format!("not banned yet: {why}"), Vec::new())
    }

    /// Waits instead of settling when the ban may stand at a gateway that only a configuration can name. To
    /// settle then would leave it at the gateway for ever. What stands elsewhere is lifted meanwhile.
    fn nowhere_to_lift(&self) -> Option<Plan> {
        if let Some(standing) = self.facts.unfollowed.first()
            && !self.facts.released()
        {
            let message = format!(
                "not lifted yet: annotation {INTENT} names {} at {}, which was never configured for this block; add the gateway to formerGateways, or let it go with the annotation {RELEASE_ANNOTATION}",
                standing.target, standing.place
            );
            let (calls, ..) = self.lifting(None);
            return Some(self.wait("IntentIgnored", message, calls));
        }
        let why = self.world.place.err()?;
        let waiting = || self.wait("NoEngine", format!("not lifted yet: {why}"), Vec::new());
        self.facts.unplaced.then(waiting)
    }

    fn wait(&self, reason: &'static str, message: String, calls: Vec<Call>) -> Plan {
        let purpose = Purpose::Wait { reason, message };
        self.build(Patch::default(), calls, purpose, Patch::default())
    }

    /// Nothing to do. The status learns the generation, the original's settled objects stay untouched.
    fn rest(&self) -> Plan {
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

    /// The calls that lift everything this block may enforce; whether there is something to lift; who
    /// keeps the first of it banned.
    fn lifting(&self, due: Option<Timestamp>) -> (Vec<Call>, bool, Option<String>) {
        let patient = due.is_none_or(|due| self.now.duration_since(due) < GATEWAY_GONE_PATIENCE);
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

    /// Flags are set back and an intent that would read as unfinished is removed, after the status.
    fn with_after(&self, calls: Vec<Call>, purpose: Purpose) -> Plan {
        let spec = &self.facts.block.spec;
        let rejected = matches!(purpose, Purpose::Reject { .. });
        let unfinished = !self.facts.unfollowed.is_empty()
            || self
                .facts
                .intent
                .as_ref()
                .is_some_and(|intent| self.facts.attempted || !intent.also.is_empty());
        let after = Patch {
            // A spec that is wrong keeps its trigger: it is acted upon when it is right.
            clear_trigger: spec.trigger == Some(true) && !rejected,
            clear_unblock: spec.unblock == Some(true),
            intent: unfinished.then_some(None),
            finalizer: None,
        };
        self.build(Patch::default(), calls, purpose, after)
    }

    fn build(&self, before: Patch, calls: Vec<Call>, purpose: Purpose, after: Patch) -> Plan {
        let unhandled = matches!(
            purpose,
            Purpose::Reject { .. } | Purpose::Wait { .. } | Purpose::Release { .. }
        );
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
            foreign: self.facts.foreign,
        }
    }

    /// Bans `standing` for as long as this block or another one wants, whichever is longer.
    fn ban_call(&self, standing: &Standing, duration: Option<Duration>) -> Call {
        let own = duration.map(|duration| end(self.now, duration));
        let until = match self.world.kept_by_others(standing, self.now) {
            Some((others, _)) if later(others, own).is_gt() => {
                others.map(|until| span(self.now, until))
            }
            _ => duration,
        };
        Call {
            standing: standing.clone(),
            operation: Operation::Ban(until),
            required: true,
        }
    }

    /// Lifts `standing`, unless another block wants the same: then it is asserted with what that one
    /// has left.
    fn relinquish(&self, standing: &Standing) -> Call {
        relinquish(
            standing,
            self.world.kept_by_others(standing, self.now),
            self.now,
        )
    }

    /// What may be enforced for this block beside `standing`.
    fn other_than(&self, standing: &Standing) -> Vec<Standing> {
        self.facts
            .held
            .iter()
            .filter(|held| *held != standing)
            .cloned()
            .collect()
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

//! Bans: new ones, and those that stand and are kept.

use std::time::Duration;

use jiff::Timestamp;

use crate::api::{ConditionStatus, Intent, Phase, Standing, condition};
use crate::target::Target;

use super::decision::Decision;
use super::facts::{self, Problem, Request, end, span};
use super::hash::effective_hash;
use super::patch::Patch;
use super::plan::{Call, Cause, Change, Operation, Plan, Purpose};
use super::world::{Assert, later};

impl Decision<'_> {
    pub(super) fn ban(&self, request: Request) -> Plan {
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
            trigger: self.facts.asked_by_annotation().map(str::to_owned),
            also: also.clone(),
            unfollowed: self.facts.unfollowed.clone(),
            withdrawn: false,
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
    pub(super) fn keep(
        &self,
        request: Request,
        began: Timestamp,
        until: Option<Timestamp>,
        problem: Option<String>,
    ) -> Plan {
        // The engine was replaced by one that is not able to keep this ban.
        let place = self.world.place.ok();
        let unsupported = place.and_then(|place| facts::inexpressible(&request.target, place));
        let withdrawn = self.facts.withdrawn();
        let Some(present) = self.facts.held.first().or(withdrawn) else {
            if let Some(message) = unsupported {
                return self.reject("Unsupported", message);
            }
            // The records say that it is banned, and no engine can be asked.
            let why = self.world.place.err().unwrap_or("no engine is configured");
            return self.waiting(why);
        };
        if until.is_some_and(|until| until <= self.now) {
            return self.lift(Cause::Expired);
        }
        if let (Err(why), Some(_)) = (self.world.place, withdrawn) {
            return self.waiting(why);
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
            trigger: self.facts.intent.as_ref().and_then(|it| it.trigger.clone()),
            also: also.clone(),
            unfollowed: self.facts.unfollowed.clone(),
            withdrawn: false,
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
    pub(super) fn unfollowable(&self, problem: &Problem, target: Option<Target>) -> Plan {
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

    /// Bans `standing` for as long as this block or another one wants, whichever is longer.
    pub(super) fn ban_call(&self, standing: &Standing, duration: Option<Duration>) -> Call {
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

    /// What may be enforced for this block beside `standing`.
    pub(super) fn other_than(&self, standing: &Standing) -> Vec<Standing> {
        self.facts
            .held
            .iter()
            .filter(|held| *held != standing)
            .cloned()
            .collect()
    }
}

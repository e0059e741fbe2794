//! What follows from a plan that ran or failed: the status, the Events and notifications, the next wake.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::draft::Draft;
use super::facts::span;
use super::plan::{Call, Effect, Failure, Notice, Plan, Purpose, Report};
use crate::api::ConditionStatus::{False, True, Unknown};
use crate::api::condition::{ENFORCED, LIFT_HELD, LIFTED, READY};
use crate::api::{Condition, IPBlock, IPBlockStatus, Phase, ResultCode, Standing};

/// How long after its first failed lift an *earlier* gateway holds up the block. A gateway that was replaced is often
/// gone for good.
pub(super) const GATEWAY_GONE_PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// What to write and to report after a plan ran, or failed.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    /// The whole status to write; `None`: nothing changed.
    pub(super) status: Option<IPBlockStatus>,
    pub(super) report: Report,
    /// When to decide again; always some while the block is active.
    pub(super) wake: Option<Duration>,
}

// === impl Plan ===

impl Plan {
    /// What to write when every required call succeeded at `at`.
    ///
    /// `generation` is the object's after the `before` patch; `left_behind` are the standings of optional calls that
    /// failed.
    pub(super) fn settle(
        &self,
        at: Timestamp,
        generation: Option<i64>,
        left_behind: &[Standing],
    ) -> Settled {
        let mut draft = Draft::new(&self.base, &self.subject, at);
        draft.others = Some(&self.others);
        let waits = matches!(self.purpose, Purpose::Wait { .. });
        // The original's settled objects stay as they are: taking over writes only what it must. A block that waits is
        // not taken over yet.
        let untouched = match self.purpose {
            Purpose::Rest | Purpose::Wait { .. } => self.foreign,
            Purpose::Collect | Purpose::Release { .. } | Purpose::Orphan => true,
            _ => false,
        };
        if !untouched {
            draft.status.observed_generation = generation;
        }
        // A plan that waits for one gateway may have failed to lift at another one.
        if !waits || (left_behind.is_empty() && !self.calls.is_empty()) {
            draft.status.remove_condition(LIFTED);
        }
        if let Some(handled) = &self.handled_trigger {
            draft.status.last_handled_trigger = Some(handled.clone());
        }
        match &self.purpose {
            Purpose::Rest if !untouched => {
                // The block is as its spec requests, and `kubectl wait` ignores conditions of an earlier generation.
                for condition in &mut draft.status.conditions {
                    condition.observed_generation = generation;
                }
            }
            Purpose::Rest | Purpose::Collect | Purpose::Orphan => {}
            Purpose::Ban {
                standing,
                duration,
                escalated,
            } => {
                draft.status.engines.clone_from(&self.engines);
                draft.status.escalation.clone_from(escalated);
                draft.banned(standing, *duration);
            }
            Purpose::Hold {
                reason, message, ..
            } => draft.held(reason, message),
            Purpose::Keep {
                standing,
                began,
                until,
                change,
                problem,
                escalated,
            } => {
                draft.status.engines.clone_from(&self.engines);
                let message = draft.enforce(standing, *began, *until);
                if escalated.is_some() {
                    draft.status.escalation.clone_from(escalated);
                }
                draft.kept(message, *change, problem.as_ref());
            }
            Purpose::Lift { cause, lifted } => draft.lifted(*cause, *lifted),
            Purpose::Refuse {
                kind,
                message,
                lifted,
            } => draft.refused(*kind, message, *lifted),
            Purpose::Shadow { message, lifted } => {
                let asked = self.after.as_ref().is_some_and(|it| it.clear_trigger);
                draft.shadowed(message, *lifted, asked);
            }
            Purpose::Reject {
                reason,
                message,
                lifted,
            } => draft.rejected(reason, message, *lifted),
            Purpose::GiveUp { message, lifted } => draft.rejected("NotInTime", message, *lifted),
            Purpose::Wait { reason, message } => draft.waiting(reason, message, self.foreign),
            Purpose::Release { lifted, forced } => draft.released(*lifted, *forced),
        }
        if !left_behind.is_empty() {
            draft.left_behind(left_behind);
        }
        let news = draft.status != self.base;
        self.settled(draft, news)
    }

    /// What to write when the required call `call` failed at `at`. The queue retries with back-off.
    pub(super) fn fail(
        &self,
        call: &Call,
        failure: &Failure,
        generation: Option<i64>,
        at: Timestamp,
    ) -> Settled {
        let lifting = self.lifts();
        let bans = matches!(self.purpose, Purpose::Ban { .. });
        let (event, what, effect) = match (lifting, bans) {
            (true, _) => ("LiftFailed", "lifting the ban failed", Effect::LiftFailed),
            (_, true) => ("BanFailed", "banning failed", Effect::BanFailed),
            (_, false) => (
                "AssertFailed",
                "the ban could not be asserted",
                Effect::KeepFailed,
            ),
        };
        let Standing { target, place } = &call.standing;
        let cause = &failure.message;
        let configured = self.place.as_ref();
        let earlier = configured.is_some_and(|configured| configured != place);
        let message = if lifting && earlier {
            let until = self.gives_up_at(at);
            format!(
                "{what} at an earlier gateway ({place}, {target}), retrying until {until:.0}: {cause}"
            )
        } else {
            format!("{what} ({} {target}), retrying: {cause}", place.engine)
        };
        let mut draft = Draft::new(&self.base, &self.subject, at);
        draft.effect = effect;
        if bans && !draft.status.is(&Phase::Active) {
            draft.status.phase = Some(Phase::Pending);
        }
        draft.status.result = Some(ResultCode::Failed);
        draft.status.message = Some(message.clone());
        // A status of the original stays recognizable until its ban is lifted: a failed one may be enforced.
        if !(self.foreign && lifting) {
            draft.status.observed_generation = generation;
        }
        let own = self.claim().is_none_or(|(own, _)| own == call.standing);
        if own && !failure.engines.is_empty() {
            draft.status.engines.clone_from(&failure.engines);
        }
        draft.condition(READY, False, &failure.reason, &message);
        if lifting {
            draft.condition(LIFTED, False, &failure.reason, &message);
        } else {
            draft.status.remove_condition(LIFTED);
            let active = draft.status.is(&Phase::Active);
            let enforced = if active { Unknown } else { False };
            draft.condition(ENFORCED, enforced, &failure.reason, &message);
        }
        let problem = match &self.purpose {
            Purpose::Keep { problem, .. } => problem.as_ref(),
            _ => None,
        };
        let (reason, why) = problem.map_or(("", ""), |it| (it.reason, &*it.message));
        draft.lift_held(reason, why);
        // A fault that lasts is written and announced once, whatever its wording does.
        let ready = |status: &IPBlockStatus| {
            let ready = status.condition(READY);
            ready.map(|ready| (ready.status, ready.reason.clone()))
        };
        let known = draft.status.phase == self.base.phase
            && self.base.result == Some(ResultCode::Failed)
            && ready(&draft.status) == ready(&self.base)
            // A lift that begins to fail is written even if the ban could not be asserted for the same reason before.
            && lifting == self.base.condition(LIFTED).is_some();
        if !known {
            // The same for another reason is no other trouble: a gateway may fail in two ways in turn.
            let former = self.base.message.as_deref().unwrap_or_default();
            let notice = (!former.starts_with(what)).then_some(Notice::Trouble);
            draft.announce(true, event, message, notice);
        }
        let held = |status: &IPBlockStatus| {
            let held = status.condition(LIFT_HELD);
            held.map(|held| held.reason.clone())
        };
        let news = !known
            || draft.status.engines != self.base.engines
            || held(&draft.status) != held(&self.base);
        self.settled(draft, news)
    }

    /// The status to show while the first call takes long; `None` when it would show nothing new.
    pub(super) fn in_progress(
        &self,
        generation: Option<i64>,
        at: Timestamp,
    ) -> Option<IPBlockStatus> {
        let Purpose::Ban { standing, .. } = &self.purpose else {
            return None;
        };
        if self.base.is(&Phase::Active) || self.base.is(&Phase::Pending) {
            return None;
        }
        let message = format!("waiting for {} to ban {}", standing.place, standing.target);
        let mut draft = Draft::new(&self.base, &self.subject, at);
        draft.status.phase = Some(Phase::Pending);
        draft.status.message = Some(message.clone());
        draft.status.observed_generation = generation;
        draft.condition(READY, False, "InProgress", &message);
        draft.condition(ENFORCED, Unknown, "InProgress", &message);
        Some(draft.status)
    }

    /// Until when an earlier gateway at which the lift failed at `at` holds up the block.
    fn gives_up_at(&self, at: Timestamp) -> Timestamp {
        let failing = self.base.condition(LIFTED);
        let since = failing.and_then(Condition::since).unwrap_or(at);
        since
            .checked_add(GATEWAY_GONE_PATIENCE)
            .unwrap_or(Timestamp::MAX)
    }

    fn settled(&self, draft: Draft<'_>, news: bool) -> Settled {
        Settled {
            wake: self.wake(&draft.status, draft.at),
            status: news.then_some(draft.status),
            report: Report {
                effect: draft.effect,
                announcements: draft.announcements,
            },
        }
    }

    /// When to decide again, from the status: an active block always has a next time.
    fn wake(&self, status: &IPBlockStatus, at: Timestamp) -> Option<Duration> {
        // Without an engine the change of the configuration wakes the block, and this is the safety net. A ban that is
        // due cannot be lifted before that.
        if matches!(self.purpose, Purpose::Wait { .. }) {
            let sooner = self.again_in.map(|left| left.min(self.assert_in));
            return sooner.or(Some(self.assert_in));
        }
        if let Purpose::Hold { retry_in, .. } = &self.purpose {
            return Some(*retry_in);
        }
        if status.is(&Phase::Active) {
            let expiry = status.expires_at().map(|until| span(at, until));
            return Some(expiry.map_or(self.assert_in, |left| left.min(self.assert_in)));
        }
        self.again_in
    }
}

/// The status of a block whose ban was lifted because the operator is uninstalled: a later install must not ban again
/// what it finds.
#[must_use]
pub fn uninstalled(block: &IPBlock, now: Timestamp) -> IPBlockStatus {
    let base = block.status.clone().unwrap_or_default();
    let mut draft = Draft::new(&base, "", now);
    draft.status.observed_generation = block.metadata.generation;
    draft.status.remove_condition(LIFTED);
    let message = "the ban is lifted: the operator was uninstalled";
    draft.end(Phase::Expired, ResultCode::Unblocked, message, true);
    draft.conditions(True, False, "Uninstalled", message);
    draft.status
}

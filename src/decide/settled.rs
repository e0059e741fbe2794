//! What follows from a plan that ran or failed: the status, the Events and notifications, the next wake.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::facts::{effective_hash, end, span};
use super::plan::{
    Announcement, Call, Cause, Change, Effect, Failure, INVALID_SPEC, Notice, Plan, Problem,
    Purpose, Report,
};
use crate::api::ConditionStatus::{self, False, True, Unknown};
use crate::api::condition::{ALLOWLISTED, ENFORCED, LIFTED, READY, SHADOW};
use crate::api::{
    Condition, IPBlock, IPBlockStatus, Phase, ResultCode, Standing, UNBLOCKED, write_time,
};
use crate::policy::RefusalKind;

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

/// A status in the making.
struct Draft<'a> {
    base: &'a IPBlockStatus,
    /// The address, for messages.
    subject: &'a str,
    at: Timestamp,
    status: IPBlockStatus,
    announcements: Vec<Announcement>,
    effect: Effect,
    /// The end was reported with the status: what is lifted now was not banned since, or its intent could not be
    /// removed.
    ended: bool,
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
            Purpose::Lift {
                cause,
                lifted,
                kept_by,
            } => draft.lifted(*cause, *lifted, kept_by.as_deref()),
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
            draft.announce(true, event, message, Some(Notice::Trouble));
        }
        let news = !known || draft.status.engines != self.base.engines;
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
            return Some(self.assert_in);
        }
        if let Purpose::Hold { retry_in, .. } = &self.purpose {
            return Some(*retry_in);
        }
        if status.is(&Phase::Active) {
            let expiry = status.expires_at().map(|until| span(at, until));
            return Some(expiry.map_or(self.assert_in, |left| left.min(self.assert_in)));
        }
        self.collect_in
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

// === impl Draft ===

impl<'a> Draft<'a> {
    fn new(base: &'a IPBlockStatus, subject: &'a str, at: Timestamp) -> Self {
        Self {
            base,
            subject,
            at,
            status: base.clone(),
            announcements: Vec::new(),
            effect: Effect::None,
            ended: base.is_over() && base.observed_generation.is_some(),
        }
    }

    fn set(&mut self, phase: Phase, result: ResultCode, message: &str) {
        let over = self.status.is_over();
        self.status.phase = Some(phase);
        if !over && self.status.is_over() {
            // The retention counts from the time of this condition: an earlier reason not to be ready does not count.
            self.status.remove_condition(READY);
        }
        self.status.result = Some(result);
        self.status.message = Some(message.to_owned());
    }

    /// Nothing is enforced from now on; `lifted`: until now something was.
    fn end(&mut self, phase: Phase, result: ResultCode, message: &str, lifted: bool) {
        self.set(phase, result, message);
        self.status.expires_at = None;
        self.status.engines.clear();
        if lifted {
            self.status.unblocked_at = Some(write_time(self.at));
        }
    }

    fn condition(&mut self, kind: &str, status: ConditionStatus, reason: &str, message: &str) {
        let at = self.at;
        self.status.set_condition(kind, status, reason, message, at);
    }

    fn conditions(
        &mut self,
        ready: ConditionStatus,
        enforced: ConditionStatus,
        reason: &str,
        message: &str,
    ) {
        self.condition(READY, ready, reason, message);
        self.condition(ENFORCED, enforced, reason, message);
        for other in [ALLOWLISTED, SHADOW] {
            if self.status.condition(other).is_some() {
                self.condition(other, False, reason, "");
            }
        }
    }

    fn announce(
        &mut self,
        warning: bool,
        reason: &'static str,
        note: impl Into<String>,
        notice: Option<Notice>,
    ) {
        self.announcements.push(Announcement {
            warning,
            reason,
            note: note.into(),
            notice,
        });
    }

    fn enforce(
        &mut self,
        standing: &Standing,
        began: Timestamp,
        until: Option<Timestamp>,
    ) -> String {
        let Standing { target, place } = standing;
        let status = &mut self.status;
        status.blocked_at = Some(write_time(began));
        status.unblocked_at = None;
        status.expires_at = until.map(write_time);
        status.target = Some(target.to_string());
        status.engine = Some(place.engine.clone());
        status.last_spec_hash = Some(effective_hash(target, &place.engine));
        match &status.expires_at {
            Some(until) => format!("{target} is banned by {place} until {until}"),
            None => format!("{target} is banned by {place} without end"),
        }
    }

    fn banned(&mut self, standing: &Standing, duration: Option<Duration>) {
        // Cut to what is written, or the end would not be the start plus the duration.
        let began = Timestamp::from_millisecond(self.at.as_millisecond()).unwrap_or(self.at);
        let until = duration.map(|duration| end(began, duration));
        let message = self.enforce(standing, began, until);
        self.status.ban_count = Some(self.status.bans().saturating_add(1));
        self.set(Phase::Active, ResultCode::Success, &message);
        self.conditions(True, True, "Banned", &message);
        let again = self.status.escalation.as_ref();
        let note = match again.filter(|again| again.asked != again.granted) {
            Some(again) => format!(
                "{message}: {} instead of {}, because it is ban {} in a row",
                again.granted, again.asked, again.step
            ),
            None => message,
        };
        self.announce(false, "Banned", note, Some(Notice::Ban));
        self.effect = Effect::Banned;
    }

    fn kept(&mut self, message: String, change: Change, problem: Option<&Problem>) {
        self.effect = Effect::Kept;
        if change == Change::Adopted {
            self.status.ban_count = Some(self.status.bans().max(1));
        }
        let ready = self.base.condition(READY);
        let known = ready.map_or("", |ready| ready.reason.as_str());
        if let Some(Problem {
            reason,
            message: why,
        }) = problem
        {
            let (result, message) = if *reason == INVALID_SPEC {
                let message = format!("{message}; its spec is not followed: {why}");
                (ResultCode::Failed, message)
            } else {
                (ResultCode::Success, format!("{message}; {why}"))
            };
            self.set(Phase::Active, result, &message);
            self.conditions(False, True, reason, &message);
            if known != *reason {
                // The Event of the ConfigMap is for all blocks that a brake keeps.
                let notice = (*reason == INVALID_SPEC).then_some(Notice::Trouble);
                self.announce(true, reason, message, notice);
            }
            return;
        }
        let known_problem = known == INVALID_SPEC;
        self.set(Phase::Active, ResultCode::Success, &message);
        self.conditions(True, True, "Banned", &message);
        let failed_before = self.base.result == Some(ResultCode::Failed) && !known_problem;
        match change {
            Change::Adopted => {
                self.announce(false, "Adopted", format!("taken over: {message}"), None);
            }
            Change::Moved => self.announce(false, "Moved", message, None),
            Change::Duration => self.announce(false, "DurationChanged", message, None),
            Change::Nothing if failed_before => self.announce(false, "Asserted", message, None),
            Change::Nothing => {}
        }
    }

    fn lifted(&mut self, cause: Cause, lifted: bool, kept_by: Option<&str>) {
        if self.status.is(&Phase::Expired) && !lifted {
            return;
        }
        let target = self.subject;
        let mut message = match (cause, lifted) {
            (Cause::Expired, true) => format!("the ban of {target} is lifted: its time is over"),
            (Cause::Expired, false) => "not banned: its time is over".to_owned(),
            (_, true) => format!("the ban of {target} is lifted: spec.unblock was set"),
            (_, false) => "not banned: spec.unblock was set".to_owned(),
        };
        if let Some(other) = kept_by {
            message.push_str("; it stays banned by ");
            message.push_str(other);
        }
        let (reason, event) = match cause {
            Cause::Expired => ("Expired", "Expired"),
            _ => (UNBLOCKED, "Unbanned"),
        };
        self.end(Phase::Expired, ResultCode::Unblocked, &message, true);
        self.conditions(True, False, reason, &message);
        if lifted && !self.ended {
            let due = self.base.expires_at().filter(|_| cause == Cause::Expired);
            self.effect = Effect::Lifted(cause, due.map(|due| span(due, self.at)));
            // An address that another block keeps banned is not resolved.
            let notice = kept_by.is_none().then_some(Notice::Resolve);
            self.announce(false, event, message, notice);
        }
    }

    fn refused(&mut self, kind: RefusalKind, message: &str, lifted: bool) {
        let too_wide = kind == RefusalKind::TooWide;
        let (phase, result, ready) = if too_wide {
            (Phase::Failed, ResultCode::Failed, False)
        } else {
            (Phase::Skipped, ResultCode::Skipped, True)
        };
        let known = self.is_known(&phase, message);
        self.end(phase, result, message, lifted);
        self.conditions(ready, False, kind.as_str(), message);
        if !too_wide {
            self.condition(ALLOWLISTED, True, kind.as_str(), message);
        }
        let lifted = lifted && !self.ended;
        if !known || lifted {
            let notice = match (lifted, too_wide) {
                (true, _) => Some(Notice::Resolve),
                (_, true) => Some(Notice::Trouble),
                _ => None,
            };
            self.announce(too_wide, kind.as_str(), message, notice);
            self.effect = if lifted {
                Effect::Lifted(Cause::Refused, None)
            } else {
                Effect::Skipped(kind)
            };
        }
    }

    /// `asked`: by a trigger, which counts also when the message is known.
    fn shadowed(&mut self, message: &str, lifted: bool, asked: bool) {
        let known = self.is_known(&Phase::Skipped, message);
        self.end(Phase::Skipped, ResultCode::Skipped, message, lifted);
        self.conditions(True, False, "Shadow", message);
        self.condition(SHADOW, True, "Shadow", message);
        let lifted = lifted && !self.ended;
        if !known || lifted {
            self.announce(false, "Shadow", message, lifted.then_some(Notice::Resolve));
        }
        if lifted {
            self.effect = Effect::Lifted(Cause::Refused, None);
        } else if !known || asked {
            self.effect = Effect::Shadowed;
        }
    }

    /// One write and one Event, whichever of several caps it is that holds the ban from one question to the next.
    fn held(&mut self, reason: &'static str, message: &str) {
        let ready = self.status.condition(READY);
        let waits = ready.is_some_and(|ready| ready.reason == reason);
        let known = waits && self.status.is(&Phase::Pending);
        // A brake has one message at a time, with the text that releases it.
        let current = reason != "Braked" || self.status.message.as_deref() == Some(message);
        if known && current {
            return;
        }
        self.set(Phase::Pending, ResultCode::Other(String::new()), message);
        self.conditions(False, False, reason, message);
        if !known {
            self.announce(true, reason, message, None);
        }
    }

    fn rejected(&mut self, reason: &'static str, message: &str, lifted: bool) {
        let known = self.is_known(&Phase::Failed, message);
        self.end(Phase::Failed, ResultCode::Failed, message, lifted);
        self.conditions(False, False, reason, message);
        let lifted = lifted && !self.ended;
        if !known || lifted {
            let notice = if lifted {
                Notice::Resolve
            } else {
                Notice::Trouble
            };
            self.announce(true, reason, message, Some(notice));
            self.effect = if lifted {
                Effect::Lifted(Cause::Rejected, None)
            } else {
                Effect::Rejected
            };
        }
    }

    fn is_known(&self, phase: &Phase, message: &str) -> bool {
        self.status.is(phase) && self.status.message.as_deref() == Some(message)
    }

    fn waiting(&mut self, reason: &'static str, message: &str, foreign: bool) {
        let known = self.status.message.as_deref() == Some(message);
        // Phases under which a ban may stand are kept.
        let enforced =
            self.status.is(&Phase::Active) || (foreign && self.status.is(&Phase::Failed));
        self.status.message = Some(message.to_owned());
        self.condition(READY, False, reason, message);
        if !enforced {
            self.status.phase = Some(Phase::Pending);
            self.condition(ENFORCED, False, reason, message);
        }
        if !known {
            self.announce(true, reason, message, None);
        }
    }

    fn released(&mut self, lifted: bool, forced: bool) {
        let target = self.subject;
        if forced {
            let note = format!(
                "released without lifting the ban of {target}, as its annotation requests; the gateway may still enforce it"
            );
            self.announce(true, "Released", note, Some(Notice::Trouble));
        } else if lifted && !self.ended {
            let note = format!("the ban of {target} is lifted: the object was deleted");
            self.announce(false, "Unbanned", note, Some(Notice::Resolve));
            self.effect = Effect::Lifted(Cause::Deleted, None);
        }
    }

    fn left_behind(&mut self, standings: &[Standing]) {
        let places: Vec<String> = standings
            .iter()
            .map(|standing| format!("{} at {}", standing.target, standing.place))
            .collect();
        let note = format!("an earlier ban could not be lifted: {}", places.join(", "));
        let ready = self.base.condition(READY);
        let known = ready.is_some_and(|ready| ready.message.contains(&note));
        if let Some(ready) = self.status.condition(READY).cloned() {
            let message = format!("{}; {note}", ready.message);
            self.condition(READY, ready.status, &ready.reason, &message);
        }
        if !known {
            self.announce(true, "LeftBehind", note, None);
        }
    }
}

//! A status in the making, and what is announced with it.

use std::time::Duration;

use jiff::Timestamp;

use super::facts::{effective_hash, end, inexpressible, span};
use super::plan::{
    Announcement, Cause, Change, Effect, INVALID_SPEC, Notice, Others, Problem, holds_lift,
};
use crate::api::ConditionStatus::{self, False, True};
use crate::api::condition::{ALLOWLISTED, ENFORCED, LIFT_HELD, READY, SHADOW};
use crate::api::{IPBlockStatus, Phase, Place, ResultCode, Standing, UNBLOCKED, write_time};
use crate::engine::Kind;
use crate::policy::RefusalKind;

/// A status in the making.
pub(super) struct Draft<'a> {
    pub(super) base: &'a IPBlockStatus,
    /// The address, for messages.
    pub(super) subject: &'a str,
    pub(super) at: Timestamp,
    pub(super) status: IPBlockStatus,
    pub(super) announcements: Vec<Announcement>,
    pub(super) effect: Effect,
    /// The end was reported with the status: what is lifted now was not banned since, or its intent could not be
    /// removed.
    pub(super) ended: bool,
    /// A ban was reported that did not end since.
    reported: bool,
    /// What other blocks do about the address.
    pub(super) others: Option<&'a Others>,
}

// === impl Draft ===

impl<'a> Draft<'a> {
    pub(super) fn new(base: &'a IPBlockStatus, subject: &'a str, at: Timestamp) -> Self {
        Self {
            base,
            subject,
            at,
            status: base.clone(),
            announcements: Vec::new(),
            effect: Effect::None,
            ended: base.is_over() && base.observed_generation.is_some(),
            reported: base.shows_ban(),
            others: None,
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
    pub(super) fn end(&mut self, phase: Phase, result: ResultCode, message: &str, lifted: bool) {
        self.set(phase, result, message);
        self.status.expires_at = None;
        self.status.engines.clear();
        if lifted {
            self.status.unblocked_at = Some(write_time(self.at));
        }
    }

    pub(super) fn condition(
        &mut self,
        kind: &str,
        status: ConditionStatus,
        reason: &str,
        message: &str,
    ) {
        let at = self.at;
        self.status.set_condition(kind, status, reason, message, at);
    }

    pub(super) fn conditions(
        &mut self,
        ready: ConditionStatus,
        enforced: ConditionStatus,
        reason: &str,
        message: &str,
    ) {
        self.marked(ready, enforced, None, reason, message);
    }

    /// The conditions with one of `Allowlisted` and `Shadow`, or none. Each is set once, so that its transition time moves only with
    /// its status.
    fn marked(
        &mut self,
        ready: ConditionStatus,
        enforced: ConditionStatus,
        mark: Option<&str>,
        reason: &str,
        message: &str,
    ) {
        self.condition(READY, ready, reason, message);
        self.condition(ENFORCED, enforced, reason, message);
        self.lift_held(reason, message);
        for other in [ALLOWLISTED, SHADOW] {
            if mark == Some(other) {
                self.condition(other, True, reason, message);
            } else if self.status.condition(other).is_some() {
                self.condition(other, False, reason, "");
            }
        }
    }

    /// The mark by which a brake is found again after a restart: another fault takes the reason of `Ready`.
    pub(super) fn lift_held(&mut self, reason: &str, message: &str) {
        if holds_lift(reason) {
            self.condition(LIFT_HELD, True, reason, message);
        } else {
            self.status.remove_condition(LIFT_HELD);
        }
    }

    pub(super) fn announce(
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

    pub(super) fn enforce(
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
        let by = match inexpressible(target, place) {
            None => place.to_string(),
            // The set engines alone have it.
            Some(_) => Place::new(Kind::Sets.name(), "").to_string(),
        };
        match &status.expires_at {
            Some(until) => format!("{target} is banned by {by} until {until}"),
            None => format!("{target} is banned by {by} without end"),
        }
    }

    pub(super) fn banned(&mut self, standing: &Standing, duration: Option<Duration>) {
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

    pub(super) fn kept(&mut self, message: String, change: Change, problem: Option<&Problem>) {
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

    /// Whether a ban is over whose end was not reported. An active one has nothing to lift if its gateway is withdrawn. The
    /// original's may have nothing to lift because its engine cannot have it.
    fn is_over(&self, lifted: bool) -> bool {
        let own = self.base.observed_generation.is_some();
        (lifted && !self.ended) || (own && self.base.is(&Phase::Active))
    }

    /// The notification of an end, unless the ban was never reported, or a reported ban of another block stands.
    fn resolve(&self) -> Option<Notice> {
        let stays = self.others.is_some_and(|others| others.reported);
        (self.reported && !stays).then_some(Notice::Resolve)
    }

    /// The message of an end, with the block that keeps the address banned.
    fn kept_on(&self, message: &str) -> String {
        match self.others.and_then(|others| others.keeper.as_deref()) {
            Some(keeper) => format!("{message}; {} stays banned by {keeper}", self.subject),
            None => message.to_owned(),
        }
    }

    pub(super) fn lifted(&mut self, cause: Cause, lifted: bool) {
        if self.status.is(&Phase::Expired) && !lifted {
            return;
        }
        let target = self.subject;
        let message = match (cause, lifted) {
            (Cause::Expired, true) => format!("the ban of {target} is lifted: its time is over"),
            (Cause::Expired, false) => "not banned: its time is over".to_owned(),
            (_, true) => format!("the ban of {target} is lifted: spec.unblock was set"),
            (_, false) => "not banned: spec.unblock was set".to_owned(),
        };
        let message = self.kept_on(&message);
        let (reason, event) = match cause {
            Cause::Expired => ("Expired", "Expired"),
            _ => (UNBLOCKED, "Unbanned"),
        };
        self.end(Phase::Expired, ResultCode::Unblocked, &message, true);
        self.conditions(True, False, reason, &message);
        if self.is_over(lifted) {
            let due = self.base.expires_at().filter(|_| cause == Cause::Expired);
            self.effect = Effect::Lifted(cause, due.map(|due| span(due, self.at)));
            self.announce(false, event, message, self.resolve());
        }
    }

    pub(super) fn refused(&mut self, kind: RefusalKind, message: &str, lifted: bool) {
        let too_wide = kind == RefusalKind::TooWide;
        let (phase, result, ready) = if too_wide {
            (Phase::Failed, ResultCode::Failed, False)
        } else {
            (Phase::Skipped, ResultCode::Skipped, True)
        };
        let known = self.is_known(&phase, message);
        let over = self.is_over(lifted);
        self.end(phase, result, message, lifted || over);
        let mark = (!too_wide).then_some(ALLOWLISTED);
        self.marked(ready, False, mark, kind.as_str(), message);
        if !known || over {
            let resolve = self.resolve().filter(|_| over);
            let trouble = (too_wide && !known).then_some(Notice::Trouble);
            let note = self.kept_on(message);
            self.announce(too_wide, kind.as_str(), note, resolve.or(trouble));
            self.effect = if over {
                Effect::Lifted(Cause::Refused, None)
            } else {
                Effect::Skipped(kind)
            };
        }
    }

    /// `asked`: by a trigger, which counts also when the message is known.
    pub(super) fn shadowed(&mut self, message: &str, lifted: bool, asked: bool) {
        let known = self.is_known(&Phase::Skipped, message);
        let over = self.is_over(lifted);
        self.end(Phase::Skipped, ResultCode::Skipped, message, lifted || over);
        self.marked(True, False, Some(SHADOW), "Shadow", message);
        if !known || over {
            let resolve = self.resolve().filter(|_| over);
            self.announce(false, "Shadow", self.kept_on(message), resolve);
        }
        if over {
            self.effect = Effect::Lifted(Cause::Refused, None);
        } else if !known || asked {
            self.effect = Effect::Shadowed;
        }
    }

    /// One write and one Event, whichever of several caps it is that holds the ban from one question to the next.
    pub(super) fn held(&mut self, reason: &'static str, message: &str) {
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

    pub(super) fn rejected(&mut self, reason: &'static str, message: &str, lifted: bool) {
        let known = self.is_known(&Phase::Failed, message);
        let over = self.is_over(lifted);
        self.end(Phase::Failed, ResultCode::Failed, message, lifted || over);
        self.conditions(False, False, reason, message);
        if !known || over {
            let resolve = self.resolve().filter(|_| over);
            let trouble = (!known).then_some(Notice::Trouble);
            let note = self.kept_on(message);
            self.announce(true, reason, note, resolve.or(trouble));
            self.effect = if over {
                Effect::Lifted(Cause::Rejected, None)
            } else {
                Effect::Rejected
            };
        }
    }

    fn is_known(&self, phase: &Phase, message: &str) -> bool {
        self.status.is(phase) && self.status.message.as_deref() == Some(message)
    }

    pub(super) fn waiting(&mut self, reason: &'static str, message: &str, foreign: bool) {
        let known = self.status.message.as_deref() == Some(message);
        // Phases under which a ban may stand are kept.
        let enforced =
            self.status.is(&Phase::Active) || (foreign && self.status.is(&Phase::Failed));
        self.status.message = Some(message.to_owned());
        self.condition(READY, False, reason, message);
        if holds_lift(reason) {
            self.lift_held(reason, message);
        }
        if !enforced {
            self.status.phase = Some(Phase::Pending);
            self.condition(ENFORCED, False, reason, message);
        }
        if !known {
            self.announce(true, reason, message, None);
        }
    }

    pub(super) fn released(&mut self, lifted: bool, forced: bool) {
        let target = self.subject;
        if forced {
            let note = format!(
                "released without lifting the ban of {target}, as its annotation requests; the gateway may still enforce it"
            );
            self.announce(true, "Released", note, Some(Notice::Trouble));
        } else if self.is_over(lifted) {
            let note = format!("the ban of {target} is lifted: the object was deleted");
            self.announce(false, "Unbanned", self.kept_on(&note), self.resolve());
            self.effect = Effect::Lifted(Cause::Deleted, None);
        }
    }

    pub(super) fn left_behind(&mut self, standings: &[Standing]) {
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

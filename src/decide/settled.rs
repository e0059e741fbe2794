//! What follows from a plan that ran: the status, what is said, what is counted.

use std::time::Duration;

use jiff::Timestamp;

use super::facts::{end, is_over, span};
use super::hash::effective_hash;
use super::plan::{Cause, Change};
use crate::api::{
    ConditionStatus, IPBlockStatus, Phase, ResultCode, Standing, UNBLOCKED, condition, write_time,
};
use crate::policy::RefusalKind;

/// What to write and to say after a plan ran, or failed.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The whole status to write; `None`: nothing changed.
    pub status: Option<IPBlockStatus>,
    /// Events and notifications, to be sent after the status was written.
    pub announcements: Vec<Announcement>,
    /// When to look again; always some while the block is active.
    pub wake: Option<Duration>,
    /// What happened, for metrics.
    pub effect: Effect,
}

/// An Event, and perhaps a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Whether the Event is a warning.
    pub warning: bool,
    /// The Event's reason.
    pub reason: &'static str,
    /// The Event's note.
    pub note: String,
    /// Tells people outside of the cluster too.
    pub notice: Option<Notice>,
}

/// The kind of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// Banned.
    Ban,
    /// Lifted.
    Resolve,
    /// Something is wrong.
    Trouble,
}

/// What a plan did, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing new.
    None,
    /// A new ban.
    Banned,
    /// A standing ban was asserted, adopted, moved or prolonged.
    Kept,
    /// A ban was lifted; how late, when it was due.
    Lifted(Cause, Option<Duration>),
    /// A target was refused.
    Skipped(RefusalKind),
    /// The spec was refused.
    Rejected,
    /// A ban did not come about.
    BanFailed,
    /// A ban is not lifted.
    LiftFailed,
    /// A standing ban is not asserted.
    KeepFailed,
}

/// Why a call failed, in words that do not change from one attempt to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One word, stable while the fault lasts.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// A status in the making.
pub(super) struct Draft {
    pub(super) status: IPBlockStatus,
    pub(super) announcements: Vec<Announcement>,
    pub(super) effect: Effect,
    pub(super) at: Timestamp,
    /// The address, for messages.
    pub(super) subject: String,
}

// === impl Draft ===

impl Draft {
    fn set(&mut self, phase: Phase, result: ResultCode, message: String) {
        let over = is_over(&self.status);
        self.status.phase = Some(phase);
        if !over && is_over(&self.status) {
            // What is not ready for another reason now has come to its end now, which the retention counts from.
            self.status.remove_condition(condition::READY);
        }
        self.status.result = Some(result);
        self.status.message = Some(message);
    }

    fn conditions(
        &mut self,
        ready: ConditionStatus,
        enforced: ConditionStatus,
        reason: &str,
        message: &str,
    ) {
        let at = self.at;
        self.status
            .set_condition(condition::READY, ready, reason, message, at);
        self.status
            .set_condition(condition::ENFORCED, enforced, reason, message, at);
        if self.status.condition(condition::ALLOWLISTED).is_some() {
            self.status.set_condition(
                condition::ALLOWLISTED,
                ConditionStatus::False,
                reason,
                "",
                at,
            );
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
        self.status.blocked_at = Some(write_time(began));
        self.status.unblocked_at = None;
        self.status.expires_at = until.map(write_time);
        self.status.target = Some(standing.target.to_string());
        self.status.engine = Some(standing.place.engine.clone());
        self.status.last_spec_hash = Some(effective_hash(&standing.target, &standing.place.engine));
        match until {
            Some(until) => format!(
                "{} is banned by {} until {}",
                standing.target,
                standing.place,
                write_time(until)
            ),
            None => format!(
                "{} is banned by {} without end",
                standing.target, standing.place
            ),
        }
    }

    pub(super) fn banned(&mut self, standing: &Standing, duration: Option<Duration>) {
        // Cut to what is written, or the end would not be the start plus the duration.
        let began = Timestamp::from_millisecond(self.at.as_millisecond()).unwrap_or(self.at);
        let until = duration.map(|duration| end(began, duration));
        let message = self.enforce(standing, began, until);
        self.status.ban_count = Some(self.status.bans().saturating_add(1));
        self.set(Phase::Active, ResultCode::Success, message.clone());
        self.conditions(
            ConditionStatus::True,
            ConditionStatus::True,
            "Banned",
            &message,
        );
        self.announce(false, "Banned", message, Some(Notice::Ban));
        self.effect = Effect::Banned;
    }

    pub(super) fn kept(
        &mut self,
        base: &IPBlockStatus,
        standing: &Standing,
        began: Timestamp,
        until: Option<Timestamp>,
        change: Change,
        problem: Option<&str>,
    ) {
        let message = self.enforce(standing, began, until);
        if change == Change::Adopted {
            self.status.ban_count = Some(self.status.bans().max(1));
        }
        let problem_said = base
            .condition(condition::READY)
            .is_some_and(|ready| ready.reason == "InvalidSpec");
        if let Some(problem) = problem {
            let message = format!("{message}; its spec is not followed: {problem}");
            self.set(Phase::Active, ResultCode::Failed, message.clone());
            self.conditions(
                ConditionStatus::False,
                ConditionStatus::True,
                "InvalidSpec",
                &message,
            );
            if !problem_said {
                self.announce(true, "InvalidSpec", message, Some(Notice::Trouble));
            }
            self.effect = Effect::Kept;
            return;
        }
        let failed_before = base.result == Some(ResultCode::Failed) && !problem_said;
        self.set(Phase::Active, ResultCode::Success, message.clone());
        self.conditions(
            ConditionStatus::True,
            ConditionStatus::True,
            "Banned",
            &message,
        );
        match change {
            Change::Adopted => {
                self.announce(false, "Adopted", format!("taken over: {message}"), None);
            }
            Change::Moved => self.announce(false, "Moved", message, None),
            Change::Duration => self.announce(false, "DurationChanged", message, None),
            Change::Nothing if failed_before => self.announce(false, "Asserted", message, None),
            Change::Nothing => {}
        }
        self.effect = Effect::Kept;
    }

    fn end_ban(&mut self) {
        self.status.expires_at = None;
    }

    pub(super) fn lifted(
        &mut self,
        cause: Cause,
        lifted: bool,
        kept_by: Option<&str>,
        due: Option<Timestamp>,
    ) {
        let over = self.status.is(&Phase::Expired);
        if over && !lifted {
            return;
        }
        let target = &self.subject;
        let mut message = match (cause, lifted) {
            (Cause::Expired, _) => format!("the ban of {target} is lifted: its time is over"),
            (_, true) => format!("the ban of {target} is lifted: spec.unblock was set"),
            (_, false) => "not banned: spec.unblock was set".to_owned(),
        };
        if let Some(other) = kept_by {
            message.push_str("; it stays banned by ");
            message.push_str(other);
        }
        self.end_ban();
        self.status.unblocked_at = Some(write_time(self.at));
        let reason = if cause == Cause::Expired {
            "Expired"
        } else {
            UNBLOCKED
        };
        self.set(Phase::Expired, ResultCode::Unblocked, message.clone());
        let enforced = ConditionStatus::False;
        self.conditions(ConditionStatus::True, enforced, reason, &message);
        if lifted {
            let event = if cause == Cause::Expired {
                "Expired"
            } else {
                "Unbanned"
            };
            self.announce(false, event, message, Some(Notice::Resolve));
            let lateness = due
                .filter(|_| cause == Cause::Expired)
                .map(|due| span(due, self.at));
            self.effect = Effect::Lifted(cause, lateness);
        }
    }

    pub(super) fn uninstalled(&mut self) {
        let message = "the ban is lifted: the operator was uninstalled";
        self.end_ban();
        self.status.unblocked_at = Some(write_time(self.at));
        self.status.remove_condition(condition::LIFTED);
        self.set(Phase::Expired, ResultCode::Unblocked, message.to_owned());
        let (ready, enforced) = (ConditionStatus::True, ConditionStatus::False);
        self.conditions(ready, enforced, "Uninstalled", message);
    }

    pub(super) fn refused(&mut self, kind: RefusalKind, message: &str, lifted: bool) {
        let (phase, result) = if kind == RefusalKind::TooWide {
            (Phase::Failed, ResultCode::Failed)
        } else {
            (Phase::Skipped, ResultCode::Skipped)
        };
        let known = self.status.phase.as_ref() == Some(&phase)
            && self.status.message.as_deref() == Some(message);
        self.set(phase, result, message.to_owned());
        self.end_ban();
        if lifted {
            self.status.unblocked_at = Some(write_time(self.at));
        }
        let ready = if kind == RefusalKind::TooWide {
            ConditionStatus::False
        } else {
            ConditionStatus::True
        };
        self.conditions(ready, ConditionStatus::False, kind.as_str(), message);
        if kind != RefusalKind::TooWide {
            let at = self.at;
            self.status.set_condition(
                condition::ALLOWLISTED,
                ConditionStatus::True,
                kind.as_str(),
                message,
                at,
            );
        }
        if !known || lifted {
            let notice = if lifted {
                Some(Notice::Resolve)
            } else {
                (kind == RefusalKind::TooWide).then_some(Notice::Trouble)
            };
            self.announce(kind == RefusalKind::TooWide, kind.as_str(), message, notice);
            self.effect = if lifted {
                Effect::Lifted(Cause::Refused, None)
            } else {
                Effect::Skipped(kind)
            };
        }
    }

    pub(super) fn rejected(&mut self, reason: &'static str, message: &str, lifted: bool) {
        let known =
            self.status.is(&Phase::Failed) && self.status.message.as_deref() == Some(message);
        self.set(Phase::Failed, ResultCode::Failed, message.to_owned());
        self.end_ban();
        if lifted {
            self.status.unblocked_at = Some(write_time(self.at));
        }
        self.conditions(
            ConditionStatus::False,
            ConditionStatus::False,
            reason,
            message,
        );
        if !known || lifted {
            self.announce(true, reason, message, Some(Notice::Trouble));
            self.effect = if lifted {
                Effect::Lifted(Cause::Rejected, None)
            } else {
                Effect::Rejected
            };
        }
    }

    pub(super) fn waiting(&mut self, reason: &'static str, message: &str, foreign: bool) {
        let known = self.status.message.as_deref() == Some(message);
        // Phases that say that something may be enforced stay.
        let enforced =
            self.status.is(&Phase::Active) || (foreign && self.status.is(&Phase::Failed));
        if !enforced {
            self.status.phase = Some(Phase::Pending);
        }
        self.status.message = Some(message.to_owned());
        let at = self.at;
        self.status.set_condition(
            condition::READY,
            ConditionStatus::False,
            reason,
            message,
            at,
        );
        if !enforced {
            self.status.set_condition(
                condition::ENFORCED,
                ConditionStatus::False,
                reason,
                message,
                at,
            );
        }
        if !known {
            self.announce(true, reason, message, None);
        }
    }

    pub(super) fn released(&mut self, lifted: bool, forced: bool) {
        let target = &self.subject;
        if forced {
            self.announce(
                true,
                "Released",
                format!("let go without lifting the ban of {target}, as its annotation asks; the gateway may still enforce it"),
                Some(Notice::Trouble),
            );
        } else if lifted {
            self.announce(
                false,
                "Unbanned",
                format!("the ban of {target} is lifted: the object was deleted"),
                Some(Notice::Resolve),
            );
            self.effect = Effect::Lifted(Cause::Deleted, None);
        }
    }

    pub(super) fn left_behind(&mut self, base: &IPBlockStatus, standings: &[Standing]) {
        let places: Vec<String> = standings
            .iter()
            .map(|standing| format!("{} at {}", standing.target, standing.place))
            .collect();
        let note = format!("an earlier ban could not be lifted: {}", places.join(", "));
        let known = base
            .condition(condition::READY)
            .is_some_and(|ready| ready.message.contains(&note));
        if let Some(ready) = self.status.condition(condition::READY).cloned() {
            let message = format!("{}; {note}", ready.message);
            self.status.set_condition(
                condition::READY,
                ready.status,
                &ready.reason,
                &message,
                self.at,
            );
        }
        if !known {
            self.announce(true, "LeftBehind", note, None);
        }
    }
}

//! A decision, as steps that a thin shell runs, and what to write when they went well or badly.
//!
//! The shell runs a [`Plan`] in this order: the `before` patch, the calls one after another, the status,
//! the `after` patch. It asks [`Plan::settle`] or [`Plan::fail`] what to write, at the time the calls
//! ended. When to look again follows from the status that is written: there is no way to leave a block
//! active without the time of its next wake.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::{
    Condition, ConditionStatus, IPBlockStatus, Phase, Place, ResultCode, Standing, condition,
};
use crate::policy::RefusalKind;

use super::facts::{end, span};
use super::patch::Patch;
use super::settled::{Announcement, Draft, Effect, Failure, Notice, Settled};

/// How long after its first failed lift an *earlier* gateway holds up the block. A gateway that was replaced is often
/// gone for good.
pub(super) const GATEWAY_GONE_PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// What is to be done for one block.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) before: Option<Patch>,
    pub(super) calls: Vec<Call>,
    pub(super) after: Option<Patch>,
    pub(super) purpose: Purpose,
    /// The address, for messages.
    pub(super) subject: String,
    /// How long until the object is deleted, when it stays as it is.
    pub(super) collect_in: Option<Duration>,
    pub(super) base: IPBlockStatus,
    /// The trigger annotation this plan acts upon.
    pub(super) handled_trigger: Option<String>,
    /// How long until the ban is asserted again, once this plan has run.
    pub(super) assert_in: Duration,
    /// The clock at the decision.
    pub(super) now: Timestamp,
    /// The configured engine and gateway.
    pub(super) place: Option<Place>,
    /// The status was written by the original operator.
    pub(super) foreign: bool,
}

/// One call of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it is about, and where.
    pub standing: Standing,
    /// What is asked for.
    pub operation: Operation,
    /// When a call that is not required fails, the plan goes on.
    pub required: bool,
}

/// What is asked of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Ban for this long; `None`: for ever.
    Ban(Option<Duration>),
    /// Lift.
    Unban,
}

/// What a plan is for: it decides the status, the Events and the notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Nothing to do; the status at most learns the generation.
    Rest,
    /// A new ban, first or again.
    Ban {
        standing: Standing,
        duration: Option<Duration>,
    },
    /// A standing ban is kept: asserted, adopted, moved, its end changed.
    Keep {
        standing: Standing,
        began: Timestamp,
        until: Option<Timestamp>,
        change: Change,
        /// The spec cannot be followed, the ban stays as it was.
        problem: Option<String>,
    },
    /// The ban is lifted, or there is none to lift.
    Lift {
        cause: Cause,
        lifted: bool,
        kept_by: Option<String>,
    },
    /// Banning is not allowed.
    Refuse {
        kind: RefusalKind,
        message: String,
        lifted: bool,
    },
    /// The spec is wrong, or the engine is not able to follow it.
    Reject {
        /// The reason of the condition and the Event.
        reason: &'static str,
        message: String,
        lifted: bool,
    },
    /// The time of a ban that did not come about is over.
    GiveUp { message: String, lifted: bool },
    /// The object was kept for long enough after its end.
    Collect,
    /// Nothing says at which gateway to go on.
    Wait {
        /// The reason of the condition and the Event.
        reason: &'static str,
        message: String,
    },
    /// The object goes away.
    Release { lifted: bool, forced: bool },
}

/// What changes about a standing ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Adopted,
    Moved,
    Duration,
}

/// Why a ban is lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its time is over.
    Expired,
    /// `spec.unblock`.
    Unblocked,
    /// The object was deleted.
    Deleted,
    /// The target is allowlisted, protected or too wide now.
    Refused,
    /// The spec became wrong.
    Rejected,
}

// === impl Plan ===

impl Plan {
    /// This plan, of an object that is deleted at `at` if it stays as it is.
    pub(super) fn collected_at(mut self, at: Option<Timestamp>) -> Self {
        let stays = matches!(
            self.purpose,
            Purpose::Rest | Purpose::Refuse { .. } | Purpose::Reject { .. }
        );
        let acts = self.before.is_some() || self.after.is_some() || !self.calls.is_empty();
        if let Some(at) = at.filter(|_| stays && !acts) {
            let left = span(self.now, at);
            if left.is_zero() {
                self.purpose = Purpose::Collect;
            } else {
                self.collect_in = Some(left);
            }
        }
        self
    }

    /// Whether the object is to be deleted, in the version that was decided upon.
    #[must_use]
    pub fn collects(&self) -> bool {
        self.purpose == Purpose::Collect
    }

    /// The patch to write before the first call.
    #[must_use]
    pub fn before(&self) -> Option<&Patch> {
        self.before.as_ref()
    }

    /// The calls, in order.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// The patch to write after the status, given which of the calls failed.
    ///
    /// What could not be lifted at an earlier gateway stays in the intent while the ban stands.
    #[must_use]
    pub fn after(&self, left_behind: &[Standing]) -> Option<Patch> {
        let mut after = self.after.clone()?;
        if let Some(Some(intent)) = &mut after.intent {
            intent.also = left_behind.to_vec();
            let written = self.before.as_ref().and_then(|patch| patch.intent.as_ref());
            if written.is_some_and(|written| written.as_ref() == Some(intent)) {
                after.intent = None;
            }
        }
        after.some()
    }

    /// What this block may enforce once the calls begin, and until when (`Some(None)`: for ever);
    /// `None` when it will enforce nothing.
    #[must_use]
    pub fn claim(&self) -> Option<(Standing, Option<Timestamp>)> {
        match &self.purpose {
            Purpose::Ban { standing, duration } => Some((
                standing.clone(),
                duration.map(|duration| end(self.now, duration)),
            )),
            Purpose::Keep {
                standing, until, ..
            } => Some((standing.clone(), *until)),
            _ => None,
        }
    }

    /// Whether the calls lift: then each of them is made, whichever of them fails.
    #[must_use]
    pub fn lifts(&self) -> bool {
        !matches!(self.purpose, Purpose::Ban { .. } | Purpose::Keep { .. })
    }

    /// Whether the block keeps what it enforces and no call is made: nothing about claims changes.
    #[must_use]
    pub fn is_rest(&self) -> bool {
        self.purpose == Purpose::Rest
    }

    /// The status to show while the first call takes long; `None` when nothing new would be shown.
    #[must_use]
    pub fn in_progress(&self, generation: Option<i64>, at: Timestamp) -> Option<IPBlockStatus> {
        let Purpose::Ban { standing, .. } = &self.purpose else {
            return None;
        };
        if self.base.is(&Phase::Active) || self.base.is(&Phase::Pending) {
            return None;
        }
        let message = format!("waiting for {} to ban {}", standing.place, standing.target);
        let mut status = self.base.clone();
        status.phase = Some(Phase::Pending);
        status.message = Some(message.clone());
        status.observed_generation = generation;
        status.set_condition(
            condition::READY,
            ConditionStatus::False,
            "InProgress",
            &message,
            at,
        );
        status.set_condition(
            condition::ENFORCED,
            ConditionStatus::Unknown,
            "InProgress",
            &message,
            at,
        );
        Some(status)
    }

    /// Whether the ban comes to its end by itself, without anybody asking for that.
    #[must_use]
    pub fn ends(&self) -> bool {
        matches!(
            self.purpose,
            Purpose::GiveUp { .. }
                | Purpose::Refuse { .. }
                | Purpose::Lift {
                    cause: Cause::Expired,
                    ..
                }
        )
    }

    /// What to write when every required call succeeded at `at`.
    ///
    /// `generation` is the object's after the `before` patch; `left_behind` are the standings of calls
    /// that were not required and failed.
    #[must_use]
    pub fn settle(
        &self,
        at: Timestamp,
        generation: Option<i64>,
        left_behind: &[Standing],
    ) -> Settled {
        let mut draft = Draft {
            status: self.base.clone(),
            announcements: Vec::new(),
            effect: Effect::None,
            at,
            subject: self.subject.clone(),
        };
        // The original's settled objects stay as they are: taking over writes only what it must. What waits
        // is not taken over yet.
        let untouched = self.foreign
            && matches!(self.purpose, Purpose::Rest | Purpose::Wait { .. })
            || self.collects();
        if !untouched && !matches!(self.purpose, Purpose::Release { .. }) {
            draft.status.observed_generation = generation;
        }
        // A plan that waits for one gateway may have failed to lift at another one.
        let waits = matches!(self.purpose, Purpose::Wait { .. });
        if !waits || (left_behind.is_empty() && !self.calls.is_empty()) {
            draft.status.remove_condition(condition::LIFTED);
        }
        if let Some(handled) = &self.handled_trigger {
            draft.status.last_handled_trigger = Some(handled.clone());
        }
        match &self.purpose {
            Purpose::Rest | Purpose::Collect => {}
            Purpose::Ban { standing, duration } => draft.banned(standing, *duration),
            Purpose::Keep {
                standing,
                began,
                until,
                change,
                problem,
            } => {
                draft.kept(
                    &self.base,
                    standing,
                    *began,
                    *until,
                    *change,
                    problem.as_deref(),
                );
            }
            Purpose::Lift {
                cause,
                lifted,
                kept_by,
            } => {
                draft.lifted(*cause, *lifted, kept_by.as_deref(), self.base.expires_at());
            }
            Purpose::Refuse {
                kind,
                message,
                lifted,
            } => draft.refused(*kind, message, *lifted),
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
            draft.left_behind(&self.base, left_behind);
        }
        self.finish(draft)
    }

    /// What to write when the required call `call` failed at `at`. The caller retries with back-off.
    #[must_use]
    pub fn fail(
        &self,
        call: &Call,
        failure: &Failure,
        generation: Option<i64>,
        at: Timestamp,
    ) -> Settled {
        let mut status = self.base.clone();
        let lifting = self.lifts();
        let (event, what) = match (lifting, &self.purpose) {
            (true, _) => ("LiftFailed", "lifting the ban failed"),
            (false, Purpose::Ban { .. }) => ("BanFailed", "banning failed"),
            (false, _) => ("AssertFailed", "the ban could not be asserted"),
        };
        let Standing { target, place } = &call.standing;
        let cause = &failure.message;
        let message = if lifting && self.is_earlier(place) {
            let until = self.gives_up_at(at);
            format!(
                "{what} at an earlier gateway ({place}, {target}), retrying until {until:.0}: {cause}"
            )
        } else {
            format!("{what} ({} {target}), retrying: {cause}", place.engine)
        };
        if matches!(self.purpose, Purpose::Ban { .. }) && !status.is(&Phase::Active) {
            status.phase = Some(Phase::Pending);
        }
        status.result = Some(ResultCode::Failed);
        status.message = Some(message.clone());
        // A status of the original stays recognizable until its ban is lifted: a failed one may be enforced.
        if !(self.foreign && lifting) {
            status.observed_generation = generation;
        }
        status.set_condition(
            condition::READY,
            ConditionStatus::False,
            &failure.reason,
            &message,
            at,
        );
        if lifting {
            let (kind, reason) = (condition::LIFTED, &failure.reason);
            status.set_condition(kind, ConditionStatus::False, reason, &message, at);
        } else {
            status.remove_condition(condition::LIFTED);
            let enforced = if status.is(&Phase::Active) {
                ConditionStatus::Unknown
            } else {
                ConditionStatus::False
            };
            status.set_condition(condition::ENFORCED, enforced, &failure.reason, &message, at);
        }
        // A fault that lasts is written and told once, whatever its wording does.
        let reason = |status: &IPBlockStatus| {
            status
                .condition(condition::READY)
                .map(|ready| (ready.status, ready.reason.clone()))
        };
        let told = status.phase == self.base.phase
            && self.base.result == Some(ResultCode::Failed)
            && reason(&status) == reason(&self.base)
            // A lift that begins to fail is written even if the ban could not be asserted for the same reason before.
            && lifting == self.base.condition(condition::LIFTED).is_some();
        let effect = match (lifting, &self.purpose) {
            (true, _) => Effect::LiftFailed,
            (false, Purpose::Ban { .. }) => Effect::BanFailed,
            (false, _) => Effect::KeepFailed,
        };
        let announcements = if told {
            Vec::new()
        } else {
            vec![Announcement {
                warning: true,
                reason: event,
                note: message,
                notice: Some(Notice::Trouble),
            }]
        };
        let wake = self.wake(&status, at);
        Settled {
            status: (!told).then_some(status),
            announcements,
            wake,
            effect,
        }
    }

    /// Whether another gateway than this one is configured.
    fn is_earlier(&self, place: &Place) -> bool {
        self.place
            .as_ref()
            .is_some_and(|configured| configured != place)
    }

    /// Until when an earlier gateway at which the lift failed at `at` holds up the block.
    fn gives_up_at(&self, at: Timestamp) -> Timestamp {
        let failing = self.base.condition(condition::LIFTED);
        let since = failing.and_then(Condition::since).unwrap_or(at);
        since
            .checked_add(GATEWAY_GONE_PATIENCE)
            .unwrap_or(Timestamp::MAX)
    }

    fn finish(&self, draft: Draft) -> Settled {
        let wake = self.wake(&draft.status, draft.at);
        Settled {
            status: (draft.status != self.base).then_some(draft.status),
            announcements: draft.announcements,
            wake,
            effect: draft.effect,
        }
    }

    /// When to look again, from the status: an active block always has a next time.
    fn wake(&self, status: &IPBlockStatus, at: Timestamp) -> Option<Duration> {
        // Without an engine the configuration's change is what wakes it; this is the safety net. A ban that is
        // due cannot be lifted before that.
        if matches!(self.purpose, Purpose::Wait { .. }) {
            return Some(self.assert_in);
        }
        if status.is(&Phase::Active) {
            let expiry = status.expires_at().map(|until| span(at, until));
            return Some(expiry.map_or(self.assert_in, |left| left.min(self.assert_in)));
        }
        self.collect_in
    }
}

//! What a decision comes to: patches, engine calls, and the purpose that the status follows from.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::{
    EngineStatus, Escalated, FINALIZER, INTENT, IPBlock, IPBlockStatus, Intent, Place, Standing,
};
use crate::policy::RefusalKind;

use super::coverage::{Neighbour, kept_by};
use super::facts::{end, span};

/// What is to be done for one block. A [`Run`](super::Run) performs it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Written before the first call: finalizer, intent, a trigger that is acted upon.
    pub(super) before: Option<Patch>,
    pub(super) calls: Vec<Call>,
    /// Written after the status: flags, an intent that is done, the finalizer.
    pub(super) after: Option<Patch>,
    pub(super) purpose: Purpose,
    /// The address, for messages.
    pub(super) subject: String,
    /// How long until the block is decided about again, if it stays as it is: its object is deleted then, or a ban that was
    /// begun is given up.
    pub(super) again_in: Option<Duration>,
    /// The status at the decision.
    pub(super) base: IPBlockStatus,
    /// The trigger annotation that this plan acts upon.
    pub(super) handled_trigger: Option<String>,
    /// How long until the ban is asserted again, once this plan has run.
    pub(super) assert_in: Duration,
    /// The time of the decision.
    pub(super) now: Timestamp,
    /// The configured engine and gateway.
    pub(super) place: Option<Place>,
    /// The places that the records named before this plan.
    pub(super) named: Vec<Place>,
    /// The status was written by the original operator.
    pub(super) foreign: bool,
    /// Lifts a ban before the end that was granted, because its alerts are resolved.
    pub(super) resolved: bool,
    /// What other blocks do about an address whose ban ends.
    pub(super) others: Others,
    /// What the engines that follow the set of bans do about this one, once they have confirmed it.
    pub(super) engines: Vec<EngineStatus>,
}

/// What other blocks do about the address whose ban one block ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Others {
    /// The one that keeps it banned at the gateway of the lift, `namespace/name`.
    pub(super) keeper: Option<String>,
    /// The status of one shows a ban of the address, at whichever gateway. The end of that one is reported.
    pub(super) reported: bool,
}

/// A change of metadata and of the two flags in the spec, one merge patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Adds (`true`) or removes the finalizer.
    pub finalizer: Option<bool>,
    /// Sets or removes the intent.
    pub intent: Option<Option<Intent>>,
    /// Sets `spec.unblock` back.
    pub clear_unblock: bool,
    /// Sets `spec.trigger` back.
    pub clear_trigger: bool,
}

/// One call of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The target, and the gateway that is called.
    pub standing: Standing,
    /// What the engine does.
    pub operation: Operation,
    /// A call that is not required may fail: the run goes on without it.
    pub required: bool,
}

/// The operation of a [`Call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Ban for this long; `None`: indefinitely.
    Ban(Option<Duration>),
    /// Lift.
    Unban,
}

/// What a plan is for: it decides the status, the Events and the notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Nothing to do; the status at most takes the generation.
    Rest,
    /// A new ban, first or again.
    Ban {
        standing: Standing,
        duration: Option<Duration>,
        /// How it was lengthened.
        escalated: Option<Escalated>,
    },
    /// A new ban has to wait for a cap or a brake.
    Hold {
        /// The reason of the condition and the Event.
        reason: &'static str,
        message: String,
        /// When to ask again.
        retry_in: Duration,
    },
    /// A standing ban is kept: asserted, adopted, moved, its end changed.
    Keep {
        standing: Standing,
        began: Timestamp,
        until: Option<Timestamp>,
        change: Change,
        /// The spec or the policy is not followed, the ban stays as it was.
        problem: Option<Problem>,
        /// The ban was lengthened further.
        escalated: Option<Escalated>,
    },
    /// The ban is lifted, or there is none to lift.
    Lift { cause: Cause, lifted: bool },
    /// Banning is not allowed.
    Refuse {
        kind: RefusalKind,
        message: String,
        lifted: bool,
    },
    /// The source is in shadow mode.
    Shadow { message: String, lifted: bool },
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
    /// No record names the gateway to go on at.
    Wait {
        /// The reason of the condition and the Event.
        reason: &'static str,
        message: String,
    },
    /// The object is being deleted.
    Release { lifted: bool, forced: bool },
    /// The object is gone, and its ban stands.
    Orphan,
}

/// Why a standing ban is not what its spec or the policy asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// The reason of the condition and the Event.
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The reasons of [`Problem`]s.
pub(super) const INVALID_SPEC: &str = "InvalidSpec";
pub(crate) const LIFT_BRAKED: &str = "LiftBraked";
pub(crate) const RESOLVED_BRAKED: &str = "ResolvedBraked";

/// Whether a brake holds the lift of a block with this reason.
pub(crate) fn holds_lift(reason: &str) -> bool {
    [LIFT_BRAKED, RESOLVED_BRAKED].contains(&reason)
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

/// What happened, for logs, metrics, Events and notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// For metrics.
    pub effect: Effect,
    /// Events and notifications.
    pub announcements: Vec<Announcement>,
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
    /// The notification that leaves the cluster.
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
    /// A ban was not made because its source is in shadow mode.
    Shadowed,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// One word, stable while the fault lasts.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// The call may have taken effect: it was sent, and the gateway did not refuse it.
    pub may_have_happened: bool,
    /// What each engine does about the ban, if there are set engines: the others may enforce it.
    pub engines: Vec<EngineStatus>,
}

// === impl Plan ===

impl Plan {
    /// The plan for a ban whose object is gone.
    pub(super) fn orphan(call: Call, now: Timestamp) -> Self {
        Self {
            before: None,
            calls: vec![call],
            after: None,
            purpose: Purpose::Orphan,
            subject: String::new(),
            again_in: None,
            base: IPBlockStatus::default(),
            handled_trigger: None,
            assert_in: Duration::ZERO,
            now,
            place: None,
            named: Vec::new(),
            foreign: false,
            resolved: false,
            others: Others::default(),
            engines: Vec::new(),
        }
    }

    /// This plan, for an object that is deleted at `at` if it stays as it is.
    pub(super) fn collected_at(mut self, at: Option<Timestamp>) -> Self {
        let stays = matches!(
            self.purpose,
            Purpose::Rest
                | Purpose::Refuse { .. }
                | Purpose::Reject { .. }
                | Purpose::Shadow { .. }
        );
        let acts = self.before.is_some() || self.after.is_some() || !self.calls.is_empty();
        if let Some(at) = at.filter(|_| stays && !acts) {
            let left = span(self.now, at);
            if left.is_zero() {
                self.purpose = Purpose::Collect;
            } else {
                self.again_in = Some(left);
            }
        }
        self
    }

    /// The patch to write after the status, given the optional calls that failed.
    ///
    /// A ban that could not be lifted at an earlier gateway stays in the intent while the ban stands.
    pub(super) fn after(&self, left_behind: &[Standing]) -> Option<Patch> {
        let mut after = self.after.clone()?;
        if let Some(Some(intent)) = &mut after.intent {
            if intent.also == left_behind {
                // So it was recorded before the calls.
                after.intent = None;
            } else {
                intent.also = left_behind.to_vec();
            }
        }
        after.some()
    }

    /// What this block may enforce once the calls begin, and until when (`Some(None)`: indefinitely);
    /// `None` when it will enforce nothing.
    pub(super) fn claim(&self) -> Option<(Standing, Option<Timestamp>)> {
        match &self.purpose {
            Purpose::Ban {
                standing, duration, ..
            } => Some((
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
    pub(super) fn lifts(&self) -> bool {
        !matches!(self.purpose, Purpose::Ban { .. } | Purpose::Keep { .. })
    }

    /// Whether the ban comes to its end without a request for that.
    pub(super) fn ends(&self) -> bool {
        matches!(
            self.purpose,
            Purpose::GiveUp { .. }
                | Purpose::Refuse { .. }
                | Purpose::Shadow { .. }
                | Purpose::Lift {
                    cause: Cause::Expired,
                    ..
                }
        )
    }
}

// === impl Report ===

impl Report {
    pub(super) fn some(self) -> Option<Self> {
        (self.effect != Effect::None || !self.announcements.is_empty()).then_some(self)
    }
}

// === impl Call ===

impl Call {
    /// Lifts `standing`, unless another block requires the same: then it is asserted with the time that one has left.
    #[must_use]
    pub fn lift(standing: &Standing, neighbours: &[Neighbour], now: Timestamp) -> Self {
        let operation = match kept_by(neighbours, standing, now) {
            Some(other) => Operation::Ban(other.until.map(|until| span(now, until))),
            None => Operation::Unban,
        };
        Self {
            standing: standing.clone(),
            operation,
            required: true,
        }
    }
}

// === impl Patch ===

impl Patch {
    /// The JSON merge patch for `block`, bound to its version.
    #[must_use]
    pub fn to_merge_patch(&self, block: &IPBlock) -> Value {
        let mut metadata = Map::new();
        if let Some(version) = &block.metadata.resource_version {
            metadata.insert("resourceVersion".into(), json!(version));
        }
        if let Some(uid) = &block.metadata.uid {
            metadata.insert("uid".into(), json!(uid));
        }
        if let Some(hold) = self.finalizer {
            let present = block.metadata.finalizers.iter().flatten();
            let mut all: Vec<&str> = present
                .map(String::as_str)
                .filter(|finalizer| *finalizer != FINALIZER)
                .collect();
            all.extend(hold.then_some(FINALIZER));
            metadata.insert("finalizers".into(), json!(all));
        }
        if let Some(intent) = &self.intent {
            let text = intent.as_ref().map(ToString::to_string);
            metadata.insert("annotations".into(), json!({ INTENT: text }));
        }
        let mut patch = json!({ "metadata": metadata });
        for (flag, clear) in [
            ("unblock", self.clear_unblock),
            ("trigger", self.clear_trigger),
        ] {
            if clear {
                patch["spec"][flag] = json!(false);
            }
        }
        patch
    }

    pub(super) fn some(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }
}

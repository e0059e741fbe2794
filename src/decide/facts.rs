//! What an object says, read once and leniently.

use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

use crate::api::{
    Condition, FINALIZER, INTENT, IPBlock, IPBlockStatus, Intent, Phase, Place, RELEASE_ANNOTATION,
    RETENTION_ANNOTATION, Standing, TRIGGER_ANNOTATION, condition,
};
use crate::duration;
use crate::engine::Kind;
use crate::target::{self, Target, object_name};

use super::world::World;

/// A `blockedAt` this far ahead of the clock is not believed.
const FUTURE_TOLERANCE: SignedDuration = SignedDuration::from_secs(60);

/// The object of an address that was banned again and again is kept for this many times the retention at most.
const MOST_RETENTIONS: u32 = 8;

/// The object's side of a decision.
pub(super) struct Facts<'a> {
    pub(super) block: &'a IPBlock,
    pub(super) status: IPBlockStatus,
    pub(super) intent: Option<Intent>,
    /// The status was written by the original operator.
    pub(super) foreign: bool,
    /// A ban was begun whose outcome is not in the status.
    pub(super) attempted: bool,
    /// What may be enforced for this object, the wanted one first.
    pub(super) held: Vec<Standing>,
    /// Something may be enforced, and nothing says where.
    pub(super) unplaced: bool,
    /// What may be enforced at gateways that are not followed.
    pub(super) unfollowed: Vec<Standing>,
    /// There is an intent that cannot be read.
    garbled: bool,
}

/// What the spec asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) target: Target,
    pub(super) duration: Option<Duration>,
}

/// Why the spec cannot be followed until it changes.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("spec.ip: {0}")]
    Address(#[from] target::Error),
    #[error("spec.duration: {0}")]
    Duration(#[from] duration::Error),
    #[error(
        "spec.duration: {asked} is longer than the configured maxDuration of {most}; shorten it"
    )]
    OverLimit { asked: String, most: String },
}

// === impl Facts ===

impl<'a> Facts<'a> {
    pub(super) fn read(block: &'a IPBlock, place: Option<&Place>) -> Self {
        let status = block.status.clone().unwrap_or_default();
        let written = block.annotation(INTENT).map(str::parse::<Intent>);
        let garbled = matches!(written, Some(Err(_)));
        let intent: Option<Intent> = written.and_then(Result::ok);
        let foreign = status.phase.is_some() && status.observed_generation.is_none();
        let attempted = intent
            .as_ref()
            .is_some_and(|intent| intent.attempt > status.bans());
        let over = is_over(&status) && !attempted;
        let unfollowed = intent.as_ref().filter(|_| !over);
        let unfollowed = unfollowed.map_or_else(Vec::new, |intent| intent.unfollowed.clone());
        let intent = intent.filter(Intent::is_followed);
        let attempted = attempted && intent.is_some();
        let mut facts = Self {
            block,
            status,
            intent,
            foreign,
            attempted,
            held: Vec::new(),
            unplaced: false,
            unfollowed,
            garbled,
        };
        facts.held = facts.read_held(place);
        // What an engine cannot express never came to stand there.
        facts
            .held
            .retain(|standing| inexpressible(&standing.target, &standing.place).is_none());
        facts.unplaced = place.is_none() && facts.unrecorded().is_some();
        facts
    }

    fn read_held(&self, place: Option<&Place>) -> Vec<Standing> {
        if let Some(intent) = &self.intent {
            if is_over(&self.status) && !self.attempted {
                return Vec::new();
            }
            if intent.withdrawn {
                return Vec::new();
            }
            let mut held = vec![intent.standing.clone()];
            // The status is the operator's own, whatever a user makes of the intent.
            let banned = self
                .status
                .target
                .as_deref()
                .filter(|_| self.is(&Phase::Active));
            let recorded = banned.and_then(|target| {
                let (target, place) = (target.parse().ok()?, place?.clone());
                Some(Standing { target, place })
            });
            for standing in intent.also.iter().chain(&recorded) {
                if !held.contains(standing) {
                    held.push(standing.clone());
                }
            }
            return held;
        }
        match (self.unrecorded(), place) {
            (Some(target), Some(place)) => vec![Standing {
                target,
                place: place.clone(),
            }],
            _ => Vec::new(),
        }
    }

    /// What may be enforced without an intent that says where: the original's object, or somebody removed
    /// the annotation. The original reports a ban that stands already as failed, so its failed objects may
    /// be enforced too.
    fn unrecorded(&self) -> Option<Target> {
        let possible = self.is(&Phase::Active)
            || (self.foreign && self.is(&Phase::Failed))
            || (self.garbled && !is_over(&self.status));
        let recorded = self.status.target.as_deref().unwrap_or(&self.block.spec.ip);
        (possible && self.intent.is_none())
            .then(|| recorded.parse().ok())
            .flatten()
    }

    /// What counts as lifted because its gateway is withdrawn; the ban that is wanted is made elsewhere.
    pub(super) fn withdrawn(&self) -> Option<&Standing> {
        let intent = self.intent.as_ref().filter(|intent| intent.withdrawn);
        intent.map(|intent| &intent.standing)
    }

    pub(super) fn is(&self, phase: &Phase) -> bool {
        self.status.is(phase)
    }

    /// A trigger that was not acted upon yet: the flag, or the annotation.
    pub(super) fn triggered(&self) -> bool {
        let begun = self.intent.as_ref().filter(|_| self.attempted);
        let begun = begun.and_then(|intent| intent.trigger.as_deref());
        // A ban that was begun acts upon the annotation of its intent already, which is noted when it has succeeded.
        let annotated = self.asked_by_annotation();
        self.block.spec.trigger == Some(true) || (annotated.is_some() && annotated != begun)
    }

    /// The value of the trigger annotation, unless a ban has settled it.
    pub(super) fn asked_by_annotation(&self) -> Option<&str> {
        let value = self.block.annotation(TRIGGER_ANNOTATION);
        value.filter(|value| self.status.last_handled_trigger.as_deref() != Some(value))
    }

    /// A spec that was refused was edited since: the ban is asked for as of now.
    pub(super) fn mended(&self) -> bool {
        let refused = self.status.condition(condition::READY);
        self.is(&Phase::Failed)
            && refused.is_some_and(|ready| ready.reason == "InvalidSpec")
            && self.status.observed_generation != self.block.metadata.generation
    }

    /// The user let it go: what cannot be lifted is left behind.
    pub(super) fn released(&self) -> bool {
        self.block.annotation(RELEASE_ANNOTATION) == Some("true")
    }

    /// When the present ban began. What is missing or unreadable is now; what lies ahead of the clock
    /// by more than a minute too, or a clock that was set back would make bans longer.
    pub(super) fn began(&self, now: Timestamp) -> Timestamp {
        self.status
            .blocked_at()
            .filter(|began| began.duration_since(now) <= FUTURE_TOLERANCE)
            .unwrap_or(now)
    }

    /// Whether the time of a ban that did not come about is over: counted from when it was asked for.
    pub(super) fn window_passed(&self, duration: Option<Duration>, now: Timestamp) -> bool {
        self.due(duration).is_some_and(|due| due <= now)
    }

    /// When the time of a ban that did not come about is over.
    pub(super) fn due(&self, duration: Option<Duration>) -> Option<Timestamp> {
        Some(end(self.asked()?, duration?))
    }

    fn asked(&self) -> Option<Timestamp> {
        match &self.intent {
            Some(intent) if self.attempted && intent.attempt > 1 => intent.asked,
            Some(intent) if self.attempted => intent.asked.or(self.created()),
            _ => self.status.blocked_at().or(self.created()),
        }
    }

    /// When the lift that has not succeeded yet failed first; `None`: no lift is failing.
    pub(super) fn lift_failing_since(&self) -> Option<Timestamp> {
        self.status.condition(condition::LIFTED)?.since()
    }

    fn created(&self) -> Option<Timestamp> {
        let created = self.block.metadata.creation_timestamp.as_ref();
        created.map(|created| created.0)
    }

    /// When an object that came to its end is deleted; `None`: never, or not at its end.
    pub(super) fn collected_at(&self, world: &World<'_>) -> Option<Timestamp> {
        let finalizers = self.block.metadata.finalizers.as_deref();
        let free = finalizers.is_none_or(|all| all.iter().all(|one| one == FINALIZER));
        let settled = is_over(&self.status) && !self.attempted && self.unfollowed.is_empty();
        if !settled || !free || self.block.is_deleting() {
            return None;
        }
        let kept = match self.block.annotation(RETENTION_ANNOTATION) {
            // What cannot be read deletes nothing.
            Some(text) => duration::parse(text).ok()?,
            None if self.made_by_trigger() => {
                let bans = u32::try_from(self.status.bans()).unwrap_or(MOST_RETENTIONS);
                let retention = world.retention?;
                retention.saturating_mul(bans.clamp(1, MOST_RETENTIONS))
            }
            None => return None,
        };
        let ready = self.status.condition(condition::READY);
        let since = ready.and_then(Condition::since);
        let ended = [self.status.unblocked_at(), self.status.blocked_at(), since];
        let ended = ended.into_iter().flatten().max().or(self.created())?;
        let graced = self.status.lifted_by_hand();
        let graced = graced.map(|lifted| end(lifted, world.unblock_grace));
        // Without its object an alert within the grace would ban the address again.
        graced.max(Some(end(ended, kept)))
    }

    /// Triggers, those of the original too, name objects after their address. A copy of such an object that a tool
    /// applies from a repository would come back each time it is deleted.
    fn made_by_trigger(&self) -> bool {
        if self.block.is_kept_elsewhere() {
            return false;
        }
        let name = self.block.metadata.name.as_deref().unwrap_or_default();
        let canonical = || {
            self.block
                .spec
                .ip
                .parse::<Target>()
                .map(|it| it.object_name())
        };
        name == object_name(&self.block.spec.ip) || canonical().is_ok_and(|own| own == name)
    }

    /// The address as people know it: what is banned, or is asked to be.
    pub(super) fn subject(&self) -> String {
        let asked = || {
            self.block
                .spec
                .ip
                .parse::<Target>()
                .map(|it| it.to_string())
        };
        let banned = self.status.target.clone();
        banned.unwrap_or_else(|| asked().unwrap_or_else(|_| self.block.spec.ip.clone()))
    }
}

// === impl Request ===

impl Request {
    /// Reads the spec.
    pub(super) fn read(
        block: &IPBlock,
        world: &World<'_>,
    ) -> Result<Self, (Problem, Option<Target>)> {
        let target: Target = block
            .spec
            .ip
            .parse()
            .map_err(|error| (Problem::Address(error), None))?;
        let text = block.spec.duration.as_deref().unwrap_or_default();
        let duration = duration::parse_optional(text)
            .map_err(|error| (Problem::Duration(error), Some(target)))?;
        if let Some(most) = world.max_duration
            && duration.is_none_or(|asked| asked > most)
        {
            let problem = Problem::OverLimit {
                asked: duration.map_or_else(|| "a ban without end".into(), duration::display),
                most: duration::display(most),
            };
            return Err((problem, Some(target)));
        }
        Ok(Self { target, duration })
    }
}

pub(super) fn is_over(status: &IPBlockStatus) -> bool {
    let phase = &status.phase;
    matches!(phase, Some(Phase::Expired | Phase::Skipped | Phase::Failed))
}

/// Why the engine of `place` cannot ban `target`, whatever its gateway answers; `None`: it can.
pub(super) fn inexpressible(target: &Target, place: &Place) -> Option<String> {
    let kind: Kind = place.engine.parse().ok()?;
    kind.capabilities().refusal(target)
}

/// `start` plus `duration`, at most the last moment there is.
pub(super) fn end(start: Timestamp, duration: Duration) -> Timestamp {
    SignedDuration::try_from(duration)
        .ok()
        .and_then(|duration| start.checked_add(duration).ok())
        .unwrap_or(Timestamp::MAX)
}

/// How long from `now` to `until`; zero when past.
pub(super) fn span(now: Timestamp, until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(now)).unwrap_or(Duration::ZERO)
}

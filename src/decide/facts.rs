//! What a decision depends on: the world around a block, and the block's own records, read once and leniently.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use crate::api::{
    Condition, FINALIZER, INTENT, IPBlock, IPBlockStatus, Intent, Phase, Place, RELEASE_ANNOTATION,
    RESOLVED, RETENTION_ANNOTATION, Standing, TRIGGER_ANNOTATION, condition,
};
use crate::duration;
use crate::engine::Kind;
use crate::guard::{Escalation, Hold};
use crate::policy::Policy;
use crate::sets;
use crate::target::{self, Target, object_name};

use super::coverage::{Assert, Neighbour};

/// A `blockedAt` this far ahead of the clock is not believed.
const FUTURE_TOLERANCE: SignedDuration = SignedDuration::from_secs(60);

/// The object of an address that was banned again and again is kept for this many times the retention at most.
const MOST_RETENTIONS: u32 = 8;

/// Changes when the meaning of the fingerprint does; the original's has no prefix.
const HASH_VERSION: &str = "v1:";

/// The world around one block, read before deciding.
#[derive(Clone, Debug)]
pub struct World<'a> {
    /// Allowlist, protected ranges, widest range.
    pub policy: &'a Policy,
    /// The engine that is configured now, or why there is none.
    pub place: Result<&'a Place, &'a str>,
    /// The engine that is configured now: that of `place`, or one at which no new ban is made yet.
    pub gateway: Option<&'a Place>,
    /// What the engines can do that follow the set of bans, one entry an engine.
    pub followers: &'a [sets::Capabilities],
    /// The longest ban; `None`: no limit.
    pub max_duration: Option<Duration>,
    /// How long a block that a trigger made is kept after its ban ended, for each time it was banned; `None`: always.
    pub retention: Option<Duration>,
    /// How long a lift by `spec.unblock` counts against alerts: its block is kept at least for that.
    pub unblock_grace: Duration,
    /// Other blocks that claim an overlapping target, whatever their namespace.
    pub neighbours: &'a [Neighbour],
    /// Whether the ban has to be asserted again.
    pub assert: Assert,
    /// How often a standing ban is asserted again.
    pub resync: Duration,
    /// Gateways at which no call for this block has taken effect, whatever its records name.
    pub untouched: &'a [Place],
    /// What the guard rails say about this block.
    pub rails: Rails<'a>,
}

/// The guard rails around one block. The default has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rails<'a> {
    /// Why a new ban has to wait; `None`: it may be made.
    pub hold: Option<&'a Hold>,
    /// The source of the block, if it is in shadow mode: its bans are only shown.
    pub shadow: Option<&'a str>,
    /// How repeated bans grow.
    pub escalation: Option<&'a Escalation>,
    /// A longer duration of an active block is its next step.
    pub escalates_active: bool,
    /// Why bans that are refused now are not lifted before their end.
    pub keeps_refused: Option<&'a str>,
    /// Why a ban whose alerts are resolved is not lifted before its end.
    pub keeps_resolved: Option<&'a str>,
}

/// The object's side of a decision.
pub(super) struct Facts<'a> {
    pub(super) block: &'a IPBlock,
    pub(super) status: IPBlockStatus,
    pub(super) intent: Option<Intent>,
    /// The status was written by the original operator.
    pub(super) foreign: bool,
    /// A ban was begun whose outcome is not in the status.
    pub(super) attempted: bool,
    /// What may be enforced for this object, the standing of the intent first.
    pub(super) held: Vec<Standing>,
    /// Something may be enforced, and no record names its gateway.
    pub(super) unplaced: bool,
    /// What may be enforced at gateways that are not followed.
    pub(super) unfollowed: Vec<Standing>,
    /// There is an intent that cannot be read.
    garbled: bool,
}

/// The request of the spec.
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

// === impl World ===

impl World<'_> {
    /// Why neither the engine of `place` nor a set engine can ban `target`; `None`: one can.
    pub(super) fn inexpressible(&self, target: &Target, place: &Place) -> Option<String> {
        let followed = self.followers.iter().any(|engine| engine.takes(target));
        inexpressible(target, place).filter(|_| !followed)
    }
}

// === impl Facts ===

impl<'a> Facts<'a> {
    /// `untouched`: see [`World::untouched`].
    pub(super) fn read(block: &'a IPBlock, place: Option<&Place>, untouched: &[Place]) -> Self {
        let status = block.status.clone().unwrap_or_default();
        let written = block.annotation(INTENT).map(str::parse::<Intent>);
        let garbled = matches!(written, Some(Err(_)));
        let written: Option<Intent> = written.and_then(Result::ok);
        let foreign = status.phase.is_some() && status.observed_generation.is_none();
        let begun = written
            .as_ref()
            .is_some_and(|it| it.attempt > status.bans());
        let carried = written.as_ref().filter(|_| !status.is_over() || begun);
        let unfollowed = carried.map_or_else(Vec::new, |intent| intent.unfollowed.clone());
        let intent = written.filter(Intent::is_followed);
        let attempted = begun && intent.is_some();
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
        // A gateway that was dead while it was configured has nothing to lift.
        facts
            .held
            .retain(|standing| !untouched.contains(&standing.place));
        facts.unplaced = place.is_none() && facts.unrecorded().is_some();
        facts
    }

    fn read_held(&self, place: Option<&Place>) -> Vec<Standing> {
        let here = |target: Target| {
            let place = place?.clone();
            // Without an intent a target that the engine cannot express was never enforced there. An intent is written
            // for one only if a set engine takes it.
            let expressed = inexpressible(&target, &place).is_none();
            expressed.then_some(Standing { target, place })
        };
        let Some(intent) = &self.intent else {
            return self.unrecorded().and_then(here).into_iter().collect();
        };
        if intent.withdrawn || (self.status.is_over() && !self.attempted) {
            return Vec::new();
        }
        let mut held = vec![intent.standing.clone()];
        // The status is the operator's own, whatever a user makes of the intent.
        let banned = self.status.target.as_deref();
        let banned = banned.filter(|_| self.is(&Phase::Active));
        let recorded = banned.and_then(|target| here(target.parse().ok()?));
        for standing in intent.also.iter().chain(&recorded) {
            if !held.contains(standing) {
                held.push(standing.clone());
            }
        }
        held
    }

    /// What may be enforced without an intent that names the gateway: that of the original's object, or of an object
    /// whose annotation was removed. The original reports a ban that stands already as failed, so its failed objects
    /// may be enforced too.
    fn unrecorded(&self) -> Option<Target> {
        let possible = self.is(&Phase::Active)
            || (self.foreign && self.is(&Phase::Failed))
            || (self.garbled && !self.status.is_over());
        let recorded = self.status.target.as_deref();
        let recorded = recorded.unwrap_or(&self.block.spec.ip);
        (possible && self.intent.is_none())
            .then(|| recorded.parse().ok())
            .flatten()
    }

    /// The places that the intent names, or without one those at which something may be enforced.
    pub(super) fn named(&self) -> Vec<Place> {
        let standings: Vec<&Standing> = match &self.intent {
            Some(intent) => std::iter::once(&intent.standing)
                .chain(&intent.also)
                .collect(),
            None => self.held.iter().collect(),
        };
        let places = standings.into_iter();
        places.map(|standing| standing.place.clone()).collect()
    }

    /// The standing that counts as lifted because its gateway is withdrawn; its ban is made elsewhere.
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
        // A ban that was begun acts upon the annotation of its intent already, which the status takes when it succeeds.
        let annotated = self.asked_by_annotation();
        self.block.spec.trigger == Some(true) || (annotated.is_some() && annotated != begun)
    }

    /// The value of the trigger annotation, unless a ban has settled it.
    pub(super) fn asked_by_annotation(&self) -> Option<&str> {
        let value = self.block.annotation(TRIGGER_ANNOTATION);
        value.filter(|value| self.status.last_handled_trigger.as_deref() != Some(value))
    }

    /// A spec that was refused was edited since: the ban is requested as of now.
    pub(super) fn mended(&self) -> bool {
        let refused = self.status.condition(condition::READY);
        self.is(&Phase::Failed)
            && refused.is_some_and(|ready| ready.reason == "InvalidSpec")
            && self.status.observed_generation != self.block.metadata.generation
    }

    /// The user released it: a ban that cannot be lifted is left behind.
    pub(super) fn released(&self) -> bool {
        self.block.annotation(RELEASE_ANNOTATION) == Some("true")
    }

    /// When the present ban began. A time that is missing, unreadable or more than a minute ahead of the clock counts
    /// as now: a clock that was set back would make bans longer.
    pub(super) fn began(&self, now: Timestamp) -> Timestamp {
        self.status
            .blocked_at()
            .filter(|began| began.duration_since(now) <= FUTURE_TOLERANCE)
            .unwrap_or(now)
    }

    /// Whether the time of a ban that did not come about is over: counted from its request.
    pub(super) fn window_passed(&self, duration: Option<Duration>, now: Timestamp) -> bool {
        self.window_end(duration).is_some_and(|end| end <= now)
    }

    /// Until when a ban has to come about; `None`: whenever it does.
    pub(super) fn window_end(&self, duration: Option<Duration>) -> Option<Timestamp> {
        let due = self.asked().zip(duration);
        due.map(|(asked, duration)| end(asked, duration))
    }

    fn asked(&self) -> Option<Timestamp> {
        match &self.intent {
            Some(intent) if self.attempted && intent.attempt > 1 => intent.asked,
            Some(intent) if self.attempted => intent.asked.or(self.created()),
            _ => self.status.blocked_at().or(self.created()),
        }
    }

    /// The last alert of a ban was resolved after the ban was asked for: it is not wanted any more.
    pub(super) fn is_resolved(&self) -> bool {
        let resolved = self.block.annotation(RESOLVED).map(str::parse::<Timestamp>);
        let resolved = resolved.and_then(Result::ok).zip(self.asked());
        resolved.is_some_and(|(resolved, asked)| resolved >= asked)
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
        let settled = self.status.is_over() && !self.attempted && self.unfollowed.is_empty();
        if !settled || !free || self.block.is_deleting() {
            return None;
        }
        let kept = match self.block.annotation(RETENTION_ANNOTATION) {
            // An annotation that cannot be read deletes nothing.
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
        let ip = &self.block.spec.ip;
        let canonical = ip.parse::<Target>().map(|target| target.object_name());
        name == object_name(ip) || canonical.is_ok_and(|own| own == name)
    }

    /// The address for messages: the one that is banned, or that the spec names.
    pub(super) fn subject(&self) -> String {
        let ip = &self.block.spec.ip;
        let banned = self.status.target.clone();
        banned.unwrap_or_else(|| {
            ip.parse::<Target>()
                .map_or_else(|_| ip.clone(), |target| target.to_string())
        })
    }
}

// === impl Request ===

impl Request {
    /// Reads the spec.
    pub(super) fn read(
        block: &IPBlock,
        world: &World<'_>,
    ) -> Result<Self, (Problem, Option<Target>)> {
        let target = block.spec.ip.parse::<Target>();
        let target = target.map_err(|error| (Problem::Address(error), None))?;
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

/// What `block` claims according to its own records, and until when (`Some((_, None))`: without end): what a process
/// that begins to lead can read before it has decided about every block.
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
        // A ban at a withdrawn gateway counts as lifted.
        Some(intent) if intent.withdrawn => return None,
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
        let duration = duration::parse_optional(text).ok()??;
        Some(end(status.blocked_at()?, duration))
    });
    Some((standing, until))
}

/// Everything that may be enforced for `block` according to its own records; `place` is the configured engine,
/// for objects that name none. `None`: something may be enforced, and no record names it or its gateway.
#[must_use]
pub fn recorded_standings(block: &IPBlock, place: Option<&Place>) -> Option<Vec<Standing>> {
    let facts = Facts::read(block, place, &[]);
    let stands = facts.is(&Phase::Active) && facts.withdrawn().is_none();
    let lost = facts.held.is_empty() && (facts.unplaced || stands);
    (!lost).then_some(facts.held)
}

/// What may be enforced for `block` at gateways that are not followed, unless its annotation releases it.
#[must_use]
pub fn unfollowed(block: &IPBlock) -> Vec<Standing> {
    let facts = Facts::read(block, None, &[]);
    if facts.released() {
        return Vec::new();
    }
    facts.unfollowed
}

/// What `block` may be concerned with: every target that its spec or its intent names, in order. A run holds their
/// locks.
#[must_use]
pub fn targets(block: &IPBlock) -> Vec<Target> {
    let mut targets: Vec<Target> = block.spec.ip.parse().into_iter().collect();
    let intent = block.annotation(INTENT);
    if let Some(Ok(intent)) = intent.map(str::parse::<Intent>) {
        let standings = std::iter::once(&intent.standing).chain(&intent.also);
        targets.extend(standings.map(|standing| standing.target));
    }
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// Why the engine of `place` cannot ban `target`, whatever its gateway answers; `None`: it can.
pub(crate) fn inexpressible(target: &Target, place: &Place) -> Option<String> {
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

/// Fingerprint of the fields that make a ban what it is: canonical target and engine.
///
/// Reason, tags, source, the two flags and the duration are not in it: editing them never bans again.
#[must_use]
pub fn effective_hash(target: &Target, engine: &str) -> String {
    use std::fmt::Write as _;
    let mut digest = Sha256::new();
    digest.update(target.to_string());
    digest.update([0]);
    digest.update(engine);
    let mut text = HASH_VERSION.to_owned();
    for byte in digest.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_target_have_one_fingerprint_and_engines_differ() {
        let hash = |target: &str, engine| effective_hash(&target.parse().unwrap(), engine);
        assert_eq!(hash("192.0.2.7/32", "xdp"), hash("::ffff:192.0.2.7", "xdp"));
        assert_ne!(hash("192.0.2.7", "xdp"), hash("192.0.2.7", "iptables"));
        assert_ne!(hash("192.0.2.7", "xdp"), hash("192.0.2.0/24", "xdp"));
        assert!(hash("192.0.2.7", "xdp").starts_with("v1:"));
        assert_eq!(hash("192.0.2.7", "xdp").len(), 3 + 64);
    }
}

//! What an object's own records say, without deciding anything.

use jiff::Timestamp;

use crate::api::{INTENT, IPBlock, IPBlockStatus, Intent, Phase, Place, Standing};
use crate::target::Target;

use super::facts::{Facts, end};
use super::settled::{Draft, Effect};

/// What `block` stands for according to its own records, and until when (`Some((_, None))`: without end):
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
        // What stood there counts as lifted.
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
    let stands = facts.is(&Phase::Active) && facts.withdrawn().is_none();
    let lost = facts.held.is_empty() && (facts.unplaced || stands);
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

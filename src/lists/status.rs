//! The status of a list: from its entries and what each set engine has.

use jiff::Timestamp;

use super::evaluate::Counts;
use crate::api::{
    BlockListStatus, Condition, ConditionStatus, EngineShare, EntryRefusal, condition, write_time,
};
use crate::decide::LIFT_BRAKED;
use crate::sets::Share;

/// What is known about a list.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) generation: Option<i64>,
    /// Why nothing of it is enforced.
    pub(super) off: Option<&'a Off>,
    pub(super) counts: Counts,
    /// The first refused entries.
    pub(super) refusals: &'a [EntryRefusal],
    /// Targets that were accepted when the list was read.
    pub(super) accepted: usize,
    /// Targets whose end is not past.
    pub(super) standing: usize,
    pub(super) next_end: Option<Timestamp>,
    /// What each set engine has of them, in the order of the configuration.
    pub(super) shares: &'a [Share],
    /// Why the brake on lifts keeps entries that are refused now.
    pub(super) held: Option<&'a str>,
}

/// Why nothing of a list is enforced, though its entries may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Off {
    /// `spec.suspended`.
    Suspended,
    /// The source of the list is in shadow mode.
    Shadow(Box<str>),
}

/// The condition `Enforced`: status, reason, message.
type Verdict = (ConditionStatus, &'static str, String);

/// The status for these facts; the times of conditions stay as `before` has them while they hold.
pub(super) fn status(
    facts: &Facts<'_>,
    before: &BlockListStatus,
    now: Timestamp,
) -> BlockListStatus {
    let least = facts.shares.iter().map(|share| share.has).min();
    let mut status = BlockListStatus {
        observed_generation: facts.generation,
        entries: count(facts.counts.entries),
        enforced: count(least.unwrap_or_default()),
        ended: count(facts.counts.ended + facts.accepted - facts.standing.min(facts.accepted)),
        refused: count(facts.counts.refused),
        refusals: facts.refusals.to_vec(),
        engines: facts.shares.iter().map(|it| share(it, facts)).collect(),
        next_end: facts.next_end.map(write_time),
        conditions: before.conditions.clone(),
    };
    let (ready, message) = match facts.refusals.first() {
        None => ("Accepted", "every entry is accepted".to_owned()),
        Some(first) => (
            "PartlyRefused",
            format!(
                "{} of {} entries are refused and not enforced; the first: {}",
                facts.counts.refused, facts.counts.entries, first.message
            ),
        ),
    };
    let (enforced, reason, why) = enforced(facts);
    let yes = ConditionStatus::True;
    let conditions = &mut status.conditions;
    conditions.retain(|it| it.kind != condition::LIFT_HELD || facts.held.is_some());
    if let Some(why) = facts.held {
        let message = format!("{} entries are refused and kept: {why}", facts.counts.held);
        let held = (condition::LIFT_HELD, yes, LIFT_BRAKED, &*message);
        Condition::set(conditions, held, facts.generation, now);
    }
    for condition in [
        (condition::READY, yes, ready, message.as_str()),
        (condition::ENFORCED, enforced, reason, &why),
    ] {
        Condition::set(&mut status.conditions, condition, facts.generation, now);
    }
    status
}

/// The status of a list that was not read, because there is no configuration to check it against.
pub(super) fn unconfigured(
    before: &BlockListStatus,
    generation: Option<i64>,
    why: &str,
    now: Timestamp,
) -> BlockListStatus {
    let mut status = before.clone();
    status.observed_generation = generation;
    for kind in [condition::READY, condition::ENFORCED] {
        let condition = (kind, ConditionStatus::False, "NotConfigured", why);
        Condition::set(&mut status.conditions, condition, generation, now);
    }
    status
}

fn enforced(facts: &Facts<'_>) -> Verdict {
    let no = ConditionStatus::False;
    match facts.off {
        Some(Off::Suspended) => {
            let why = "spec.suspended is true: nothing of this list is enforced";
            return (no, "Suspended", why.into());
        }
        Some(Off::Shadow(source)) => {
            let accepted = facts.counts.entries - facts.counts.refused - facts.counts.ended;
            let why = format!(
                "would enforce {accepted} entries: the source {source} is in shadow mode; to enforce its lists, remove it from shadowSources"
            );
            return (no, "Shadow", why);
        }
        None => {}
    }
    if facts.shares.is_empty() {
        let why = "only set engines enforce lists, and none is configured; add one to the key engines of the ConfigMap, for example of type list";
        return (no, "EngineCannotExpress", why.into());
    }
    if facts.standing == 0 {
        let why = "no entry is left to enforce: all ended or are refused, or there is none";
        return (no, "NothingToEnforce", why.into());
    }
    let mut failing = facts.shares.iter().filter_map(|share| {
        let error = share.error.as_ref()?;
        Some(format!("set engine {}: {error}", share.name))
    });
    if let Some(first) = failing.next() {
        return (no, "SetEngineFailed", first);
    }
    let lacking: Vec<&Share> = facts
        .shares
        .iter()
        .filter(|share| share.has < facts.standing)
        .collect();
    let names = |shares: &[&Share]| {
        let names: Vec<&str> = shares.iter().map(|share| &*share.name).collect();
        names.join(", ")
    };
    if lacking.is_empty() {
        let all: Vec<&Share> = facts.shares.iter().collect();
        let why = format!("{} targets are enforced by {}", facts.standing, names(&all));
        return (ConditionStatus::True, "Enforced", why);
    }
    if facts.shares.iter().all(|share| share.has == 0) {
        let why = "no set engine has any of the targets; status.engines says why";
        return (no, "EngineCannotExpress", why.into());
    }
    let why = format!(
        "{} does not have all targets; status.engines says why",
        names(&lacking)
    );
    (ConditionStatus::True, "PartlyEnforced", why)
}

fn share(share: &Share, facts: &Facts<'_>) -> EngineShare {
    let mut parts = Vec::new();
    if let Some(error) = &share.error {
        parts.push(error.clone());
    } else {
        let left_out = facts.standing.saturating_sub(share.has);
        let beyond = left_out.saturating_sub(share.unsupported);
        if share.unsupported > 0 {
            parts.push(format!(
                "{} targets are left out: it does not support IPv6 or ranges",
                share.unsupported
            ));
        }
        if beyond > 0 {
            parts.push(format!("{beyond} targets are beyond its limit"));
        }
    }
    EngineShare {
        name: share.name.to_string(),
        enforced: count(share.has),
        message: (!parts.is_empty()).then(|| parts.join("; ")),
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_of(name: &str, has: usize, unsupported: usize, error: Option<&str>) -> Share {
        Share {
            name: name.into(),
            has,
            unsupported,
            error: error.map(str::to_owned),
        }
    }

    fn facts(shares: &[Share]) -> Facts<'_> {
        Facts {
            generation: Some(3),
            off: None,
            counts: Counts {
                entries: 12,
                ended: 1,
                refused: 1,
                ruled: 1,
                held: 0,
            },
            refusals: &[],
            accepted: 10,
            standing: 8,
            next_end: None,
            shares,
            held: None,
        }
    }

    fn verdict(facts: &Facts<'_>) -> (ConditionStatus, String) {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let status = status(facts, &BlockListStatus::default(), now);
        let condition = status.condition("Enforced").unwrap();
        (condition.status, condition.reason.clone())
    }

    #[test]
    fn the_condition_says_how_much_is_enforced_and_why_not_all() {
        use ConditionStatus::{False, True};
        let full = share_of("edge", 8, 0, None);
        let some = share_of("v4", 5, 3, None);
        let none = share_of("v4", 0, 8, None);
        let broken = share_of("node", 2, 0, Some("no answer in time"));
        for (shares, expected) in [
            (vec![], (False, "EngineCannotExpress")),
            (vec![full.clone()], (True, "Enforced")),
            (vec![full.clone(), some.clone()], (True, "PartlyEnforced")),
            (vec![full.clone(), none.clone()], (True, "PartlyEnforced")),
            (vec![none], (False, "EngineCannotExpress")),
            (vec![full.clone(), broken], (False, "SetEngineFailed")),
        ] {
            let (status, reason) = verdict(&facts(&shares));
            assert_eq!((status, reason.as_str()), expected, "{shares:?}");
        }
        let shares = [full];
        let ended = Facts {
            standing: 0,
            ..facts(&shares)
        };
        assert_eq!(verdict(&ended), (False, "NothingToEnforce".into()));
        let suspended = Facts {
            off: Some(&Off::Suspended),
            ..facts(&shares)
        };
        assert_eq!(verdict(&suspended), (False, "Suspended".into()));
        let shadow = Off::Shadow("feed".into());
        let shown = Facts {
            off: Some(&shadow),
            ..facts(&shares)
        };
        assert_eq!(verdict(&shown), (False, "Shadow".into()));
    }

    #[test]
    fn what_an_engine_leaves_out_is_counted_by_cause() {
        let shares = [share_of("v4", 4, 3, None)];
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let status = status(&facts(&shares), &BlockListStatus::default(), now);
        assert_eq!((status.enforced, status.ended), (4, 3));
        assert_eq!(
            status.engines[0].message.as_deref(),
            Some(
                "3 targets are left out: it does not support IPv6 or ranges; 1 targets are beyond its limit"
            )
        );
    }
}

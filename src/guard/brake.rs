//! The brake on lifts: an edit that would lift most of what stands is more often a mistake than intended.
//!
//! The policy is compared with the standing bans before it is in force, so that not one of them is lifted first. While the
//! brake holds, refused bans stay until their own end; new bans follow the policy. A release is bound to the content
//! that it was given for: a later edit is judged again.
//!
//! The bans of blocks and the entries of lists are two [parts](Part), each with the bounds of its own: 200 blocks beside a
//! million entries are not lost among them. What one part engages holds both, because it is one edit.

use std::collections::BTreeMap;
use std::fmt;

use sha2::{Digest, Sha256};

use super::settings::{Brake, Settings};

pub use super::held::RELEASE;
use crate::api::Place;
use crate::config::keys;
use crate::decide::{Coverage, inexpressible};
use crate::policy::Policy;

/// The bans that a policy would lift.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifts {
    /// What releases the brake.
    pub id: String,
    /// The bans of blocks.
    pub blocks: Part,
    /// The entries of lists.
    pub lists: Part,
}

/// Bans that are compared with the bounds of the brake together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Those that are refused now.
    pub refused: usize,
    /// All that stand.
    pub standing: usize,
}

/// What a configuration refuses as a text that one which refuses something else does not have. Other keys do not count:
/// an edit of them must not ask for another release.
#[must_use]
pub fn id(data: &BTreeMap<String, String>, settings: &Settings) -> String {
    use fmt::Write as _;
    let mut digest = Sha256::new();
    let refusing = keys::REFUSING.iter().map(|key| {
        let text = data.get(*key).map_or("", String::as_str);
        (*key, text)
    });
    let shadow = settings.shadow.iter().map(|source| ("shadow", &**source));
    for (key, text) in refusing.chain(shadow) {
        for part in [key, text] {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
    }
    let mut id = "lifts-".to_owned();
    for byte in digest.finalize().iter().take(4) {
        let _ = write!(id, "{byte:02x}");
    }
    id
}

/// Whether `annotation` releases the brake with this id.
#[must_use]
pub fn releases(annotation: Option<&str>, id: &str) -> bool {
    let mut ids = annotation.unwrap_or_default().split(',').map(str::trim);
    ids.any(|released| released == id)
}

/// The bans of `coverage` that `policy` and `settings` would lift, and those that an engine at `place` cannot express, with
/// the entries of `lists`, if they are too many to be lifted at once. No `place`: other engines take every ban. `engaged` is
/// the brake as it was: for the same content it stays while it holds anything, however few bans are left.
#[must_use]
pub fn judge(
    coverage: &Coverage,
    policy: &Policy,
    settings: &Settings,
    place: Option<&Place>,
    id: &str,
    lists: Part,
    engaged: Option<&Lifts>,
) -> Option<Lifts> {
    let brake = settings.brake;
    let standing = coverage.len();
    let engaged = engaged.filter(|lifts| lifts.id == id);
    let few = standing < brake.lift_least && lists.standing < brake.lift_least;
    if brake.lift_percent == 0 || (few && engaged.is_none()) {
        return None;
    }
    let refused = coverage.claims().filter(|(_, claim)| {
        settings.is_shadow(claim.source.as_deref())
            || policy.refusal(&claim.target).is_some()
            || place.is_some_and(|place| inexpressible(&claim.target, place).is_some())
    });
    let blocks = Part {
        refused: refused.count(),
        standing,
    };
    if let Some(engaged) = engaged.filter(|_| blocks.refused + lists.refused > 0) {
        return Some(engaged.clone());
    }
    (blocks.is_over(brake) || lists.is_over(brake)).then(|| Lifts {
        id: id.to_owned(),
        blocks,
        lists,
    })
}

// === impl Part ===

impl Part {
    fn is_over(self, brake: Brake) -> bool {
        let least = brake.lift_least.max(1);
        let bound = self.standing.saturating_mul(brake.lift_percent.into());
        self.refused >= least && self.refused.saturating_mul(100) >= bound
    }
}

// === impl Lifts ===

impl Lifts {
    /// What is held: `5 bans out of 5 and 120 entries of BlockLists out of 150`.
    #[must_use]
    pub fn held(&self) -> String {
        let parts = [(self.blocks, "bans"), (self.lists, "entries of BlockLists")];
        let parts = parts.into_iter().filter(|(part, _)| part.refused > 0);
        let parts: Vec<String> = parts
            .map(|(part, what)| format!("{} {what} out of {}", part.refused, part.standing))
            .collect();
        parts.join(" and ")
    }
}

impl fmt::Display for Lifts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "the brake holds the lift of {} that this configuration refuses (brake.liftPercent); they stay until their end. Check whitelist, protectedRanges, maxDuration and shadowSources; if they are right, set the annotation {RELEASE} of the ConfigMap to {}",
            self.held(),
            self.id
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Standing;
    use crate::policy::Allowed;
    use crate::prefix::Prefixes;
    use crate::target::Target;

    fn coverage(bans: u8) -> Coverage {
        let mut coverage = Coverage::default();
        for last in 0..bans {
            let key = format!("default/{last}");
            let standing = Standing {
                target: format!("192.0.2.{last}").parse().unwrap(),
                place: Place::new("xdp", "g:1"),
            };
            coverage.recall(&key, standing, None);
            coverage.attribute(&key, if last % 2 == 0 { "feed" } else { "grafana" });
        }
        coverage
    }

    fn allowing(range: &str) -> Policy {
        let allowlist: Prefixes<Allowed> =
            std::iter::once(range.parse::<Target>().unwrap()).collect();
        Policy {
            allowlist,
            ..Policy::default()
        }
    }

    /// Blocks alone, and no brake that is engaged.
    fn judged(coverage: &Coverage, policy: &Policy, settings: &Settings) -> Option<Lifts> {
        let none = Part::default();
        judge(coverage, policy, settings, None, "x", none, None)
    }

    #[test]
    fn a_policy_that_refuses_most_of_what_stands_is_braked_and_a_small_one_is_not() {
        let settings = Settings::default();
        let judge = |bans, range| judged(&coverage(bans), &allowing(range), &settings);
        let lifts = judge(200, "192.0.2.0/24").unwrap();
        assert_eq!((lifts.blocks.refused, lifts.blocks.standing), (200, 200));
        assert!(judge(200, "192.0.2.0/25").is_some(), "128 of 200");
        assert_eq!(judge(200, "192.0.2.0/26"), None, "64 of 200");
        assert_eq!(judge(99, "192.0.2.0/24"), None, "fewer than liftLeast");
        assert_eq!(judge(200, "203.0.113.0/24"), None);
    }

    #[test]
    fn a_source_that_is_only_shown_counts_as_refused() {
        let mut settings = Settings::default();
        settings.shadow.insert("feed".into());
        let policy = Policy::default();
        let lifts = judged(&coverage(200), &policy, &settings).unwrap();
        assert_eq!(lifts.blocks.refused, 100);
        settings.brake.lift_percent = 0;
        assert_eq!(judged(&coverage(200), &policy, &settings), None);
    }

    #[test]
    fn bans_that_the_new_engine_cannot_express_count_as_refused() {
        let mut six = Coverage::default();
        for last in 0..200 {
            let standing = Standing {
                target: format!("2001:db8::{last}").parse().unwrap(),
                place: Place::new("xdp", "g:1"),
            };
            six.recall(&format!("default/{last}"), standing, None);
        }
        let (settings, policy) = (Settings::default(), Policy::default());
        let judge = |engine: &str| {
            let place = Place::new(engine, "g:1");
            judge(
                &six,
                &policy,
                &settings,
                Some(&place),
                "x",
                Part::default(),
                None,
            )
        };
        assert_eq!(judge("xdp"), None);
        assert_eq!(
            judge("iptables").map(|lifts| lifts.blocks.refused),
            Some(200)
        );
    }

    #[test]
    fn an_engaged_brake_stays_for_the_same_content_however_few_bans_are_left() {
        let settings = Settings::default();
        let policy = allowing("192.0.2.0/25");
        let engaged = judged(&coverage(200), &policy, &settings);
        let few = coverage(3);
        let again = |policy, id| {
            judge(
                &few,
                policy,
                &settings,
                None,
                id,
                Part::default(),
                engaged.as_ref(),
            )
        };
        assert_eq!(again(&policy, "x"), engaged);
        assert_eq!(again(&policy, "y"), None, "another content");
        assert_eq!(again(&Policy::default(), "x"), None, "it holds nothing");
    }

    #[test]
    fn entries_of_lists_engage_the_brake_by_their_own_number_and_few_of_them_do_not() {
        let (settings, policy) = (Settings::default(), Policy::default());
        let judge = |bans, refused, standing, engaged: Option<&Lifts>| {
            let lists = Part { refused, standing };
            let coverage = coverage(bans);
            judge(&coverage, &policy, &settings, None, "x", lists, engaged)
        };
        let lifts = judge(0, 1_000_000, 1_000_000, None).unwrap();
        assert_eq!(lifts.lists.refused, 1_000_000);
        assert!(lifts.to_string().contains(
            "the lift of 1000000 entries of BlockLists out of 1000000 that this configuration"
        ));
        assert!(judge(200, 600, 1_000, None).is_some(), "whatever blocks do");
        assert_eq!(judge(0, 400, 1_000, None), None, "less than liftPercent");
        assert_eq!(judge(0, 99, 120, None), None, "fewer than liftLeast");
        assert_eq!(judge(0, 1, 1_000, Some(&lifts)), Some(lifts.clone()));
        assert_eq!(judge(0, 0, 1_000, Some(&lifts)), None, "it holds nothing");
    }

    #[test]
    fn blocks_are_not_lost_among_the_entries_of_lists() {
        let (settings, policy) = (Settings::default(), allowing("192.0.2.0/24"));
        let lists = Part {
            refused: 0,
            standing: 1_000_000,
        };
        let lifts = judge(&coverage(200), &policy, &settings, None, "x", lists, None);
        let held = lifts.unwrap().held();
        assert_eq!(held, "200 bans out of 200");
    }

    #[test]
    fn a_release_is_for_one_content_only() {
        let data = |text: &str| BTreeMap::from([("whitelist".to_owned(), text.to_owned())]);
        let id = |data: &BTreeMap<String, String>| id(data, &Settings::default());
        let (one, other) = (id(&data("192.0.2.0/24")), id(&data("0.0.0.0/0")));
        assert_ne!(one, other);
        let mut edited = data("192.0.2.0/24");
        edited.insert("notify".into(), "[]".into());
        assert_eq!(one, id(&edited), "it refuses the same");
        let mut settings = Settings::default();
        settings.shadow.insert("feed".into());
        assert_ne!(one, super::id(&edited, &settings));
        edited.insert("maxDuration".into(), "1h".into());
        assert_ne!(one, id(&edited), "entries of lists are refused by it");
        assert!(releases(Some(&one), &one) && releases(Some(&format!("x, {one}")), &one));
        assert!(!releases(Some(&one), &other) && !releases(None, &one));
    }
}

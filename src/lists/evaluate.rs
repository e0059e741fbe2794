//! What a list asks for: which entries are enforced, which ended, and which are refused.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::{BlockList, EntryRefusal, ListEntry};
use crate::config::Config;
use crate::duration;
use crate::policy::Policy;
use crate::sets::{Entry, TargetSet, Until};
use crate::target::Target;

/// Refused entries that the status shows.
const SHOWN: usize = 5;

/// The configuration that entries are checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'a> {
    pub(super) policy: &'a Policy,
    /// The longest ban.
    pub(super) most: Option<Duration>,
    /// The entries that stand while the brake on lifts is engaged: those that a rule of the configuration refuses now stay
    /// until the earlier of their ends.
    pub(super) kept: Option<&'a TargetSet>,
}

/// The entries of one list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Evaluated {
    /// What is to be enforced, each target once.
    pub(super) accepted: TargetSet,
    /// What became of the entries.
    pub(super) counts: Counts,
    /// The first refused entries.
    pub(super) refusals: Vec<EntryRefusal>,
}

/// How many entries of a list there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) entries: usize,
    /// The end is past.
    pub(super) ended: usize,
    /// Never enforced.
    pub(super) refused: usize,
    /// Those of `refused` that a rule of the configuration refuses.
    pub(super) ruled: usize,
    /// Refused by a rule of the configuration, and kept by the brake on lifts. They count as accepted.
    pub(super) held: usize,
}

/// Why an entry is refused.
struct Refused {
    reason: &'static str,
    message: String,
    /// Another configuration may accept it.
    ruled: bool,
}

/// Checks every entry of `list` at `now`.
pub(super) fn evaluate(list: &BlockList, rules: Rules<'_>, now: Timestamp) -> Evaluated {
    let since = list.changed_at().unwrap_or(now);
    let text = list.spec.default_duration.as_deref().unwrap_or_default();
    let default = duration::parse_optional(text).map_err(|error| error.to_string());
    let mut evaluated = Evaluated::default();
    let mut accepted = Vec::with_capacity(list.spec.entries.len());
    evaluated.counts.entries = list.spec.entries.len();
    for entry in &list.spec.entries {
        let checked = end(entry, &default, since)
            .and_then(|until| Ok((check(entry, until, rules, since)?, until)));
        match checked {
            Ok((_, Some(until))) if until <= now => evaluated.counts.ended += 1,
            Ok((target, until)) => accepted.push(Entry {
                target,
                until: Until::new(until),
            }),
            Err(refused) => match rules.held(entry, &refused) {
                Some(held) => {
                    let until = end(entry, &default, since).unwrap_or_default();
                    evaluated.counts.held += 1;
                    accepted.push(Entry {
                        until: held.until.min(Until::new(until)),
                        ..held
                    });
                }
                None => evaluated.refuse(entry, refused),
            },
        }
    }
    evaluated.accepted = accepted.into_iter().collect();
    evaluated
}

fn end(
    entry: &ListEntry,
    default: &Result<Option<Duration>, String>,
    since: Timestamp,
) -> Result<Option<Timestamp>, Refused> {
    match (
        entry.until.as_deref().filter(|text| !text.is_empty()),
        default,
    ) {
        (Some(text), _) => text.trim().parse().map(Some).map_err(|_| Refused {
            reason: "InvalidEnd",
            message: "until is not a time; write for example 2026-01-01T00:00:00Z".into(),
            ruled: false,
        }),
        (None, Ok(None)) => Ok(None),
        (None, Ok(Some(default))) => Ok(Some(later(since, *default))),
        (None, Err(error)) => Err(Refused {
            reason: "InvalidDuration",
            message: format!("defaultDuration: {error}"),
            ruled: false,
        }),
    }
}

fn check(
    entry: &ListEntry,
    until: Option<Timestamp>,
    rules: Rules<'_>,
    since: Timestamp,
) -> Result<Target, Refused> {
    let target: Target = entry.target.parse().map_err(|error| Refused {
        reason: "InvalidTarget",
        message: format!("{error}"),
        ruled: false,
    })?;
    if let Some(refusal) = rules.policy.refusal(&target) {
        return Err(Refused {
            reason: refusal.kind.as_str(),
            message: refusal.message,
            ruled: true,
        });
    }
    // From the last change of the spec on, so that an entry is not enforced out of the blue when its end comes nearer.
    if let Some(most) = rules.most
        && until.is_none_or(|until| until > later(since, most))
    {
        let most = duration::display(most);
        return Err(Refused {
            reason: "OverLimit",
            message: format!(
                "{target} would be banned for longer than {most} from the last change of the list; set an earlier until or a defaultDuration, or raise maxDuration in the configuration"
            ),
            ruled: true,
        });
    }
    Ok(target)
}

pub(super) fn later(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

// === impl Rules ===

impl<'a> Rules<'a> {
    /// Those of a configuration, without what the brake keeps.
    pub(super) fn of(config: &'a Config) -> Self {
        Self {
            policy: &config.policy,
            most: config.max_duration,
            kept: None,
        }
    }

    /// The entry as it stands, if the brake keeps it.
    fn held(&self, entry: &ListEntry, refused: &Refused) -> Option<Entry> {
        let kept = self.kept.filter(|_| refused.ruled)?;
        let target = entry.target.parse().ok()?;
        let until = kept.get(&target)?;
        Some(Entry { target, until })
    }
}

// === impl Evaluated ===

impl Evaluated {
    /// The source of the list is only shown now, and the brake keeps what stands: new entries are not enforced.
    pub(super) fn keep_only(&mut self, kept: &TargetSet) {
        let entries = self.accepted.iter();
        let entries = entries.filter(|entry| kept.get(&entry.target).is_some());
        self.accepted = entries.collect();
        self.counts.held = self.accepted.len();
    }

    fn refuse(&mut self, entry: &ListEntry, refused: Refused) {
        self.counts.refused += 1;
        self.counts.ruled += usize::from(refused.ruled);
        if self.refusals.len() < SHOWN {
            self.refusals.push(EntryRefusal {
                target: entry.target.chars().take(64).collect(),
                reason: refused.reason.into(),
                message: refused.message,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::BlockListSpec;
    use crate::policy::Protected;
    use crate::prefix::Prefixes;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// A list whose spec was changed at midnight.
    fn list(entries: &[(&str, &str)], default: &str) -> BlockList {
        let entries = entries.iter().map(|(target, until)| ListEntry {
            target: (*target).to_owned(),
            until: (!until.is_empty()).then(|| (*until).to_owned()),
            reason: None,
        });
        let spec = BlockListSpec {
            entries: entries.collect(),
            default_duration: Some(default.to_owned()),
            ..BlockListSpec::default()
        };
        let mut list = BlockList::new("feed", spec);
        let midnight = at("2026-01-01T00:00:00Z");
        list.metadata.creation_timestamp = Some(
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(midnight),
        );
        list
    }

    fn checked(list: &BlockList, most: Option<Duration>, now: &str) -> Evaluated {
        let policy = Policy {
            allowlist: ["198.51.100.0/24".parse::<Target>().unwrap()]
                .into_iter()
                .collect(),
            protected: Prefixes::from_iter([Protected {
                target: "192.0.2.1".parse().unwrap(),
                what: "the API server".into(),
            }]),
            ..Policy::default()
        };
        let rules = Rules {
            policy: &policy,
            most,
            kept: None,
        };
        evaluate(list, rules, at(now))
    }

    fn accepted(evaluated: &Evaluated) -> Vec<(String, Option<Timestamp>)> {
        let entries = evaluated.accepted.iter();
        entries
            .map(|it| (it.target.to_string(), it.until.at()))
            .collect()
    }

    #[test]
    fn an_entry_that_is_wrong_or_refused_does_not_cost_the_others() {
        let list = list(
            &[
                ("203.0.113.7", ""),
                ("example.com", ""),
                ("198.51.100.7", ""),
                ("192.0.2.0/24", ""),
                ("127.0.0.1", ""),
                ("10.0.0.0/8", ""),
                ("203.0.113.8", "tomorrow"),
                ("2001:db8::/48", "2026-01-01T01:00:00+08:00"),
                ("203.0.113.7/32", "2026-01-01T06:00:00Z"),
            ],
            "",
        );
        let evaluated = checked(&list, None, "2025-12-31T00:00:00Z");
        assert_eq!(
            accepted(&evaluated),
            [
                ("203.0.113.7".to_owned(), None),
                ("2001:db8::/48".to_owned(), Some(at("2025-12-31T17:00:00Z")))
            ],
            "of two entries for one target the later end counts"
        );
        let reasons = evaluated.refusals.iter().map(|it| it.reason.as_str());
        let expected = [
            "InvalidTarget",
            "Allowlisted",
            "Protected",
            "Protected",
            "RangeTooWide",
        ];
        assert_eq!(reasons.collect::<Vec<_>>(), expected, "the first five");
        let counts = Counts {
            entries: 9,
            ended: 0,
            refused: 6,
            ruled: 4,
            held: 0,
        };
        assert_eq!(evaluated.counts, counts);
    }

    #[test]
    fn entries_without_an_end_last_for_the_default_duration_from_the_change_of_the_spec() {
        let list = list(
            &[("203.0.113.7", ""), ("203.0.113.8", "2026-01-01T00:05:00Z")],
            "10m",
        );
        let ten = Some(at("2026-01-01T00:10:00Z"));
        let evaluated = checked(&list, None, "2026-01-01T00:05:00Z");
        assert_eq!(accepted(&evaluated), [("203.0.113.7".to_owned(), ten)]);
        assert_eq!(evaluated.counts.ended, 1, "its end is now");
        let evaluated = checked(&list, None, "2026-01-01T00:10:00Z");
        assert!(evaluated.accepted.is_empty() && evaluated.counts.ended == 2);
    }

    #[test]
    fn a_wrong_default_duration_refuses_the_entries_that_need_it_only() {
        let list = list(
            &[("203.0.113.7", ""), ("203.0.113.8", "2026-01-02T00:00:00Z")],
            "soon",
        );
        let evaluated = checked(&list, None, "2026-01-01T00:00:00Z");
        assert_eq!(evaluated.accepted.len(), 1);
        assert_eq!(evaluated.refusals[0].reason, "InvalidDuration");
    }

    #[test]
    fn a_ban_over_the_limit_is_refused_and_stays_so_while_its_end_comes_nearer() {
        let list = list(
            &[
                ("203.0.113.6", ""),
                ("203.0.113.7", "2026-01-03T00:00:00Z"),
                ("203.0.113.8", "2026-01-02T00:00:00Z"),
            ],
            "",
        );
        let day = Some(Duration::from_secs(86_400));
        for now in ["2026-01-01T00:00:00Z", "2026-01-01T23:00:00Z"] {
            let evaluated = checked(&list, day, now);
            assert_eq!(evaluated.accepted.len(), 1, "{now}");
            assert!(evaluated.refusals.iter().all(|it| it.reason == "OverLimit"));
        }
    }

    #[test]
    fn the_brake_keeps_the_entries_that_stand_until_the_earlier_end_and_no_others() {
        let list = list(
            &[
                ("198.51.100.7", "2026-01-03T00:00:00Z"),
                ("198.51.100.8", ""),
                ("198.51.100.9", ""),
                ("203.0.113.7", ""),
                ("nonsense", ""),
            ],
            "",
        );
        let kept: TargetSet = [
            ("198.51.100.7", Some(at("2026-01-02T00:00:00Z"))),
            ("198.51.100.8", None),
            ("203.0.113.9", None),
        ]
        .into_iter()
        .map(|(target, until)| Entry {
            target: target.parse().unwrap(),
            until: Until::new(until),
        })
        .collect();
        let policy = Policy {
            allowlist: ["198.51.100.0/24".parse::<Target>().unwrap()]
                .into_iter()
                .collect(),
            ..Policy::default()
        };
        let rules = Rules {
            policy: &policy,
            most: None,
            kept: Some(&kept),
        };
        let mut evaluated = evaluate(&list, rules, at("2026-01-01T00:00:00Z"));
        let second = Some(at("2026-01-02T00:00:00Z"));
        let expected = [
            ("198.51.100.7".to_owned(), second),
            ("198.51.100.8".to_owned(), None),
            ("203.0.113.7".to_owned(), None),
        ];
        assert_eq!(accepted(&evaluated), expected);
        let counts = evaluated.counts;
        assert_eq!((counts.held, counts.refused, counts.ruled), (2, 2, 1));
        evaluated.keep_only(&kept);
        assert_eq!(accepted(&evaluated), expected[..2]);
    }

    #[test]
    fn a_refused_entry_is_shown_within_the_length_of_a_target() {
        let long = "x".repeat(300);
        let evaluated = checked(&list(&[(&long, "")], ""), None, "2026-01-01T00:00:00Z");
        assert_eq!(evaluated.refusals[0].target.len(), 64);
        assert!(evaluated.refusals[0].message.len() < 200);
    }
}

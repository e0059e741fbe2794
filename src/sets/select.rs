//! Which part of the desired set an engine takes.

use super::kind::Capabilities;
use super::set::{Entry, TargetSet, Until};

/// The part of a set that an engine takes, and what is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// What the engine gets.
    pub set: TargetSet,
    /// Targets that it cannot express.
    pub unsupported: usize,
    /// Targets beyond its limit.
    pub overflow: usize,
}

/// Selects from `desired` what an engine with `capabilities` takes.
///
/// Beyond its limit the latest ends are kept: they are the newest bans, the ones of repeat offenders and those without
/// end, and a ban that is about to end leaves first. Of equal ends the lower targets are kept, so that the choice does
/// not change from one batch to the next. An engine that does not keep ends sees none, so that a moved end is no change.
#[must_use]
pub fn select(desired: &TargetSet, capabilities: &Capabilities) -> Selection {
    let all = capabilities.v6 && capabilities.ranges;
    let fits = capabilities.most.is_none_or(|most| desired.len() <= most);
    if all && fits && capabilities.ttl {
        return Selection {
            set: desired.clone(),
            ..Selection::default()
        };
    }
    let mut taken: Vec<Entry> = desired
        .iter()
        .filter(|entry| capabilities.takes(&entry.target))
        .collect();
    let unsupported = desired.len() - taken.len();
    let most = capabilities.most.unwrap_or(usize::MAX);
    let overflow = taken.len().saturating_sub(most);
    if overflow > 0 {
        if most > 0 {
            taken.select_nth_unstable_by(most - 1, |a, b| {
                b.until.cmp(&a.until).then(a.target.cmp(&b.target))
            });
        }
        taken.truncate(most);
    }
    if !capabilities.ttl {
        for entry in &mut taken {
            entry.until = Until::NEVER;
        }
    }
    Selection {
        set: taken.into_iter().collect(),
        unsupported,
        overflow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Capabilities = Capabilities {
        v6: true,
        ranges: true,
        ttl: true,
        most: None,
    };

    fn set(entries: &[(&str, &str)]) -> TargetSet {
        let entry = |(target, until): &(&str, &str)| Entry {
            target: target.parse().unwrap(),
            until: Until::new((!until.is_empty()).then(|| until.parse().unwrap())),
        };
        entries.iter().map(entry).collect()
    }

    fn desired() -> TargetSet {
        set(&[
            ("192.0.2.1", "2026-01-01T00:01:00Z"),
            ("192.0.2.2", ""),
            ("192.0.2.3", "2026-01-01T00:03:00Z"),
            ("198.51.100.0/24", "2026-01-01T00:03:00Z"),
            ("2001:db8::1", "2026-01-01T00:09:00Z"),
        ])
    }

    #[test]
    fn what_an_engine_cannot_express_is_counted_and_not_selected() {
        let capabilities = Capabilities {
            v6: false,
            ranges: false,
            ..ALL
        };
        let selection = select(&desired(), &capabilities);
        assert_eq!((selection.unsupported, selection.overflow), (2, 0));
        assert_eq!(selection.set.len(), 3);
    }

    #[test]
    fn beyond_the_limit_the_latest_ends_are_kept_and_the_choice_is_stable() {
        for (most, expected) in [
            (0, vec![]),
            (1, vec![("192.0.2.2", "")]),
            (
                3,
                vec![
                    ("192.0.2.2", ""),
                    ("192.0.2.3", "2026-01-01T00:03:00Z"),
                    ("2001:db8::1", "2026-01-01T00:09:00Z"),
                ],
            ),
        ] {
            let capabilities = Capabilities {
                most: Some(most),
                ..ALL
            };
            let selection = select(&desired(), &capabilities);
            assert_eq!(selection.set, set(&expected), "{most}");
            assert_eq!(selection.overflow, 5 - most);
        }
    }

    #[test]
    fn an_engine_without_ends_sees_no_change_when_an_end_moves() {
        let capabilities = Capabilities { ttl: false, ..ALL };
        let mut moved = desired();
        moved.insert("192.0.2.1".parse().unwrap(), Until::NEVER);
        let before = select(&desired(), &capabilities);
        assert_eq!(before, select(&moved, &capabilities));
        assert!(before.set.iter().all(|entry| entry.until == Until::NEVER));
    }
}

//! The entries that a configuration would lift, for the brake on lifts, and those that the brake keeps.

use std::time::Duration;

use jiff::Timestamp;

use super::evaluate::{Rules, later};
use super::reconciler::ListReconciler;
use crate::config::Config;
use crate::guard::brake::Part;
use crate::sets::{TargetSet, Until};

// === impl ListReconciler ===

impl ListReconciler {
    /// The entries of all lists that are in the desired set, and those of them that `config` would lift. Without a set
    /// engine no list is enforced, and nothing is lifted. Cancel-safe.
    pub(crate) async fn would_lift(&self, config: &Config) -> Part {
        let mut part = Part::default();
        if config.engines.is_empty() {
            return part;
        }
        let lists: Vec<_> = {
            let known = self.known.lock();
            let lists = known.lists.iter();
            lists
                .map(|(request, list)| (request.to_string(), list.since, list.source.clone()))
                .collect()
        };
        for (name, since, source) in lists {
            let entries = self.parts.sets.list(&name);
            part.standing += entries.len();
            part.refused += if config.guard.is_shadow(source.as_deref()) {
                entries.len()
            } else {
                refused(&entries, Rules::of(config), since)
            };
            // A million entries take a second.
            tokio::task::yield_now().await;
        }
        part
    }

    /// After the end of the brake: marks the lists of which it kept entries.
    pub(super) fn release(&self) {
        let mut known = self.known.lock();
        for list in known.lists.values_mut() {
            list.stale |= list.counts.held > 0;
        }
    }
}

/// How many of `entries` the rules refuse. `since` is the last change of their list.
fn refused(entries: &TargetSet, rules: Rules<'_>, since: Option<Timestamp>) -> usize {
    let latest = since.zip(rules.most).map(latest);
    let refused = entries.iter().filter(|entry| {
        latest.is_some_and(|latest| entry.until > latest)
            || rules.policy.refusal(&entry.target).is_some()
    });
    refused.count()
}

/// The latest end of an entry that the longest ban allows.
fn latest((since, most): (Timestamp, Duration)) -> Until {
    Until::new(Some(later(since, most)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::sets::Entry;
    use crate::target::Target;

    #[test]
    fn entries_are_refused_by_the_rules_and_by_the_longest_ban() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let entry = |target: &str, until: Option<&str>| Entry {
            target: target.parse().unwrap(),
            until: Until::new(until.map(at)),
        };
        let entries: TargetSet = [
            entry("192.0.2.7", Some("2026-01-01T12:00:00Z")),
            entry("198.51.100.7", Some("2026-01-02T00:00:00Z")),
            entry("198.51.100.8", Some("2026-01-03T00:00:00Z")),
            entry("198.51.100.9", None),
        ]
        .into_iter()
        .collect();
        let policy = Policy {
            allowlist: ["192.0.2.0/24".parse::<Target>().unwrap()]
                .into_iter()
                .collect(),
            ..Policy::default()
        };
        let day = Some(Duration::from_secs(86_400));
        let midnight = Some(at("2026-01-01T00:00:00Z"));
        for (most, since, expected) in [(None, midnight, 1), (day, midnight, 3), (day, None, 1)] {
            let rules = Rules {
                policy: &policy,
                most,
                kept: None,
            };
            assert_eq!(refused(&entries, rules, since), expected, "{most:?}");
        }
    }
}

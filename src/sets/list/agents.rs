//! The agents that follow a list, by what they report.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

/// A report counts for this long.
const KEPT: Duration = Duration::from_secs(300);

/// The most agents that are known at once.
const MOST: usize = 10_000;

/// The longest name of an agent, as that of a node.
const LONGEST_NAME: usize = 253;

/// The states of agents, as labels.
pub(crate) const STATES: [&str; 3] = ["current", "behind", "failed"];

/// The body of a report.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Report {
    /// The version that the agent enforces.
    pub(super) version: String,
    /// How many targets it enforces.
    #[serde(default)]
    pub(super) count: u64,
    /// Why it does not enforce a later version.
    #[serde(default)]
    pub(super) error: Option<String>,
}

/// The agents that reported lately.
#[derive(Debug, Default)]
pub(super) struct Agents(HashMap<String, (Instant, Report)>);

/// How many agents there are of each of the [`STATES`].
pub(super) type Counts = [usize; 3];

// === impl Agents ===

impl Agents {
    /// Keeps a report. Returns whether it was taken: a name must be one of a node, and there is room for so many.
    pub(super) fn report(&mut self, name: &str, report: Report, now: Instant) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
            return false;
        }
        if !self.0.contains_key(name) && self.0.len() >= MOST {
            self.drop_old(now);
            if self.0.len() >= MOST {
                return false;
            }
        }
        self.0.insert(name.to_owned(), (now, report));
        true
    }

    /// Counts the agents, of which those that enforce one of `versions` are current. Old reports are dropped.
    pub(super) fn count(&mut self, versions: &[String], now: Instant) -> Counts {
        self.drop_old(now);
        let mut counts = Counts::default();
        for (_, report) in self.0.values() {
            let state = if report.error.is_some() {
                2
            } else {
                usize::from(!versions.contains(&report.version))
            };
            counts[state] += 1;
        }
        counts
    }

    fn drop_old(&mut self, now: Instant) {
        self.0.retain(|_, (at, _)| now.duration_since(*at) < KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(version: &str, error: Option<&str>) -> Report {
        Report {
            version: version.into(),
            count: 1,
            error: error.map(str::to_owned),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn agents_are_current_behind_or_failed_and_forgotten_after_five_minutes() {
        let mut agents = Agents::default();
        let start = Instant::now();
        assert!(agents.report("node-1", report("b", None), start));
        assert!(agents.report("node-2", report("a", None), start));
        let later = start + KEPT / 2;
        assert!(agents.report("node-3", report("b", Some("no nft")), later));
        let versions = ["b".to_owned()];
        assert_eq!(agents.count(&versions, later), [1, 1, 1]);
        assert!(agents.report("node-2", report("b", None), later));
        assert_eq!(agents.count(&versions, later), [2, 0, 1]);
        assert_eq!(agents.count(&versions, start + KEPT), [1, 0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn names_and_their_number_are_bounded() {
        let mut agents = Agents::default();
        let now = Instant::now();
        for name in ["", "a/b", "a b", &"x".repeat(254)] {
            assert!(!agents.report(name, report("a", None), now), "{name:?}");
        }
        for number in 0..MOST {
            assert!(agents.report(&number.to_string(), report("a", None), now));
        }
        assert!(!agents.report("more", report("a", None), now));
        assert!(
            agents.report("7", report("b", None), now),
            "a known one reports on"
        );
        assert!(agents.report("more", report("a", None), now + KEPT));
    }
}

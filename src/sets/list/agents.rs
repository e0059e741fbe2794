//! The agents that follow a list, by what they report.
//!
//! A report comes with each poll, so an agent counts at the replica that it polls, and soon not at the one before. What
//! is kept of it has a fixed size, beside the name.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

/// A report counts for this long: the longest wait of a poll, and some time for the next one.
const KEPT: Duration = Duration::from_secs(90);

/// The agents are counted at most this often.
const COUNTED: Duration = Duration::from_secs(1);

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
    /// Why it does not enforce a later version.
    #[serde(default)]
    pub(super) error: Option<String>,
}

/// The agents that reported lately.
#[derive(Debug, Default)]
pub(super) struct Agents {
    known: HashMap<Box<str>, Agent>,
    counted: Option<Instant>,
}

/// What counts of the last report of an agent.
#[derive(Clone, Copy, Debug)]
struct Agent {
    at: Instant,
    /// `None`: not a version of a list.
    version: Option<u128>,
    failed: bool,
}

/// How many agents there are of each of the [`STATES`].
pub(super) type Counts = [usize; 3];

// === impl Agents ===

impl Agents {
    /// Keeps a report. Returns whether it was taken: a name must be one of a node, and there is room for so many.
    pub(super) fn report(&mut self, name: &str, report: &Report, now: Instant) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
            return false;
        }
        let agent = Agent {
            at: now,
            version: version(&report.version),
            failed: report.error.is_some(),
        };
        if let Some(known) = self.known.get_mut(name) {
            *known = agent;
            return true;
        }
        if self.known.len() >= MOST {
            self.drop_old(now);
            if self.known.len() >= MOST {
                return false;
            }
        }
        self.known.insert(name.into(), agent);
        true
    }

    /// Whether it is time to count them.
    pub(super) fn counts(&mut self, now: Instant) -> bool {
        let due = self
            .counted
            .is_none_or(|at| now.duration_since(at) >= COUNTED);
        if due {
            self.counted = Some(now);
        }
        due
    }

    /// Counts the agents, of which those that enforce one of `versions` are current. Old reports are dropped.
    pub(super) fn count(&mut self, versions: &[String], now: Instant) -> Counts {
        self.drop_old(now);
        let mut counts = Counts::default();
        let versions: Vec<Option<u128>> = versions.iter().map(|it| version(it)).collect();
        for agent in self.known.values() {
            let state = if agent.failed {
                2
            } else {
                usize::from(agent.version.is_none() || !versions.contains(&agent.version))
            };
            counts[state] += 1;
        }
        counts
    }

    fn drop_old(&mut self, now: Instant) {
        self.known
            .retain(|_, agent| now.duration_since(agent.at) < KEPT);
    }
}

/// The number that a version is written for.
fn version(text: &str) -> Option<u128> {
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(version: &str, error: Option<&str>) -> Report {
        Report {
            version: version.into(),
            error: error.map(str::to_owned),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn agents_are_current_behind_or_failed_and_forgotten_when_they_poll_no_more() {
        let mut agents = Agents::default();
        let start = Instant::now();
        assert!(agents.report("node-1", &report("b", None), start));
        assert!(agents.report("node-2", &report("a", None), start));
        let later = start + KEPT / 2;
        assert!(agents.report("node-3", &report("b", Some("no nft")), later));
        let versions = ["b".to_owned()];
        assert_eq!(agents.count(&versions, later), [1, 1, 1]);
        assert!(agents.report("node-2", &report("b", None), later));
        assert_eq!(agents.count(&versions, later), [2, 0, 1]);
        assert_eq!(agents.count(&versions, start + KEPT), [1, 0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn names_and_their_number_are_bounded() {
        let mut agents = Agents::default();
        let now = Instant::now();
        for name in ["", "a/b", "a b", &"x".repeat(254)] {
            assert!(!agents.report(name, &report("a", None), now), "{name:?}");
        }
        for number in 0..MOST {
            assert!(agents.report(&number.to_string(), &report("a", None), now));
        }
        assert!(!agents.report("more", &report("a", None), now));
        assert!(
            agents.report("7", &report("b", None), now),
            "a known one reports on"
        );
        assert!(agents.report("more", &report("a", None), now + KEPT));
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_agent_sends_does_not_grow_what_is_kept_and_they_are_counted_once_a_second() {
        let mut agents = Agents::default();
        let now = Instant::now();
        let long = "x".repeat(10_000);
        assert!(agents.report("node-1", &report(&long, Some(&long)), now));
        assert!(agents.report("node-2", &report(&long, None), now));
        assert!(std::mem::size_of::<Agent>() <= 64);
        assert_eq!(agents.count(&["b".to_owned()], now), [0, 1, 1]);
        assert!(agents.counts(now) && !agents.counts(now));
        assert!(agents.counts(now + COUNTED));
    }
}

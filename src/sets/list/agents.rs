//! The agents that follow a list, by what they report.
//!
//! A report comes with each poll, so an agent counts at the replica that it polls, and soon not at the one before. What
//! is kept of it has a fixed size, beside the name. An agent enforces a change some moments after the list has it, so
//! the version before counts as current for a while.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use super::history::Versions;

/// A report counts for this long: the longest wait of a poll, and some time for the next one.
const KEPT: Duration = Duration::from_secs(90);

/// A version that was replaced is current for this long: the time of an agent to read the next one and report it.
const GRACE: Duration = Duration::from_secs(10);

/// The most replaced versions that are known. Beyond them the earliest is forgotten.
const MOST_REPLACED: usize = 4096;

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
    /// What was replaced lately, the latest at the back.
    replaced: VecDeque<(Instant, Versions)>,
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

    /// `versions` are replaced by later ones.
    pub(super) fn replace(&mut self, versions: Versions, now: Instant) {
        self.replaced.push_back((now, versions));
        let is_old = |(at, _): &(Instant, Versions)| now.duration_since(*at) >= GRACE;
        while self.replaced.len() > MOST_REPLACED || self.replaced.front().is_some_and(is_old) {
            self.replaced.pop_front();
        }
    }

    /// Counts the agents, of which those that enforce one of `versions`, or one that was replaced lately, are current.
    /// Old reports are dropped.
    pub(super) fn count(&mut self, versions: Versions, now: Instant) -> Counts {
        self.drop_old(now);
        let lately = self.replaced.iter().rev();
        let lately = lately.take_while(|(at, _)| now.duration_since(*at) < GRACE);
        let mut current: HashSet<u128> = lately.flat_map(|(_, versions)| *versions).collect();
        current.extend(versions);
        let mut counts = Counts::default();
        for agent in self.known.values() {
            let state = if agent.failed {
                2
            } else {
                usize::from(!agent.version.is_some_and(|it| current.contains(&it)))
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
        let versions = [0xb; 3];
        assert_eq!(agents.count(versions, later), [1, 1, 1]);
        assert!(agents.report("node-2", &report("b", None), later));
        assert_eq!(agents.count(versions, later), [2, 0, 1]);
        assert_eq!(agents.count(versions, start + KEPT), [1, 0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_version_is_current_for_a_while_and_their_number_is_bounded() {
        let mut agents = Agents::default();
        let start = Instant::now();
        assert!(agents.report("node-1", &report("a", None), start));
        agents.replace([0xa, 1, 2], start);
        let last = start + GRACE - Duration::from_millis(1);
        assert_eq!(agents.count([0xb; 3], last), [1, 0, 0]);
        assert_eq!(agents.count([0xb; 3], start + GRACE), [0, 1, 0]);
        for number in 0..=MOST_REPLACED {
            agents.replace([number as u128 + 100; 3], start);
        }
        assert_eq!(agents.replaced.len(), MOST_REPLACED);
        assert!(agents.report("node-2", &report("65", None), start));
        assert!(agents.report("node-3", &report("64", None), start));
        assert_eq!(agents.count([0xb; 3], start), [1, 2, 0]);
        agents.replace([0xc; 3], start + GRACE);
        assert_eq!(agents.replaced.len(), 1);
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
    async fn what_an_agent_sends_does_not_grow_what_is_kept() {
        let mut agents = Agents::default();
        let now = Instant::now();
        let long = "x".repeat(10_000);
        assert!(agents.report("node-1", &report(&long, Some(&long)), now));
        assert!(agents.report("node-2", &report(&long, None), now));
        assert!(std::mem::size_of::<Agent>() <= 64);
        assert_eq!(agents.count([0xb; 3], now), [0, 1, 1]);
    }
}

//! Faults: what goes wrong with the next calls.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum Fault {
    /// The connection breaks before the call takes effect.
    LoseRequest,
    /// The call takes effect, and the connection breaks.
    LoseAnswer,
    /// The call does not take effect, and the caller waits until it gives up.
    HoldRequest,
    /// The call takes effect, and the caller waits until it gives up.
    HoldAnswer,
    /// The call is refused.
    Error {
        /// The status of the answer.
        status: u16,
        /// The code of the error body.
        code: String,
    },
    /// The call is refused with `Throttling.User`.
    Throttle,
    /// The call takes effect later.
    Delay {
        /// How much later.
        millis: u64,
    },
    /// `DeleteLoadBalancer` deletes the listeners, and fails. Other calls fail without an effect.
    Partial,
}

/// A fault, and the calls that it befalls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The action; any if absent.
    #[serde(default)]
    pub action: Option<String>,
    /// How many matching calls pass first. 4 befalls the fifth.
    #[serde(default)]
    pub skip: u32,
    /// How many calls it befalls after these; all if absent.
    #[serde(default)]
    pub times: Option<u32>,
    /// What goes wrong.
    #[serde(flatten)]
    pub fault: Fault,
}

/// The faults that wait for calls.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Rule>);

/// The most rules at once.
const MOST: usize = 100;

// === impl Faults ===

impl Faults {
    /// Adds a rule. `false` if there are too many.
    pub(super) fn add(&mut self, rule: Rule) -> bool {
        let fits = self.0.len() < MOST;
        if fits {
            self.0.push(rule);
        }
        fits
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn rules(&self) -> &[Rule] {
        &self.0
    }

    /// The fault of the next call of `action`. Every matching rule counts the call, and the first that is due befalls it.
    pub(super) fn next(&mut self, action: &str) -> Option<Fault> {
        let mut due = None;
        for rule in &mut self.0 {
            if rule.action.as_deref().is_some_and(|own| own != action) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if due.is_none() {
                due = Some(rule.fault.clone());
                rule.times = rule.times.map(|times| times.saturating_sub(1));
            }
        }
        self.0.retain(|rule| rule.times != Some(0));
        due
    }
}

// === impl Fault ===

impl Fault {
    /// How long the call waits before anything else.
    pub(super) fn delay(&self) -> Option<Duration> {
        match self {
            Self::Delay { millis } => Some(Duration::from_millis(*millis)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(action: Option<&str>, skip: u32, times: Option<u32>) -> Rule {
        Rule {
            action: action.map(str::to_owned),
            skip,
            times,
            fault: Fault::LoseAnswer,
        }
    }

    #[test]
    fn a_rule_befalls_the_nth_call_of_its_action() {
        let mut faults = Faults::default();
        assert!(faults.add(rule(Some("A"), 1, Some(1))));
        assert_eq!(faults.next("A"), None);
        assert_eq!(faults.next("B"), None);
        assert_eq!(faults.next("A"), Some(Fault::LoseAnswer));
        assert_eq!(faults.next("A"), None);
        assert!(faults.rules().is_empty());
    }

    #[test]
    fn a_rule_without_a_count_stays() {
        let mut faults = Faults::default();
        faults.add(rule(None, 0, None));
        assert!(faults.next("A").is_some());
        assert!(faults.next("B").is_some());
        faults.clear();
        assert!(faults.next("B").is_none());
    }

    #[test]
    fn rules_are_bounded() {
        let mut faults = Faults::default();
        let added = (0..=MOST)
            .filter(|_| faults.add(rule(None, 0, None)))
            .count();
        assert_eq!(added, MOST);
    }
}

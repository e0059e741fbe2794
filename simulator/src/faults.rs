//! Faults: which calls fail, and how.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The connection is closed without an answer, before anything is done.
    Reset,
    /// The call is carried out, then the connection is closed without an answer.
    LoseAnswer,
    /// No answer ever comes.
    Hang,
    /// An error status, nothing done.
    Status(u16),
    /// HTTP 200 with the API's own text of a failure, nothing done.
    Fail,
    /// The right answer, late.
    Slow(Duration),
}

/// The operation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// `/limit` or `/update`.
    Ban,
    /// `/unlimit` or `/remove`.
    Unban,
    /// `/limits` or `/status`.
    List,
}

/// A fault and the calls it hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What happens.
    pub fault: Fault,
    /// Only calls of this operation.
    pub operation: Option<Operation>,
    /// Only calls for this target, as sent.
    pub target: Option<String>,
    /// Only so many calls; `None` is all from now on.
    pub times: Option<u32>,
}

/// The rules in force. Cloning is cheap; clones share the rules.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    rules: Arc<Mutex<Vec<Rule>>>,
}

// === impl Rule ===

impl Rule {
    /// `fault` for every call.
    #[must_use]
    pub fn all(fault: Fault) -> Self {
        Self {
            fault,
            operation: None,
            target: None,
            times: None,
        }
    }

    /// Only calls of `operation`.
    #[must_use]
    pub fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Only calls for `target`, as sent.
    #[must_use]
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// Only the next `times` calls.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    fn hits(&self, operation: Operation, target: Option<&str>) -> bool {
        self.operation.is_none_or(|only| only == operation)
            && self
                .target
                .as_deref()
                .is_none_or(|only| Some(only) == target)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.times {
            Some(times) => write!(f, "the next {times} ")?,
            None => f.write_str("all ")?,
        }
        f.write_str(match self.operation {
            Some(Operation::Ban) => "bans",
            Some(Operation::Unban) => "unbans",
            Some(Operation::List) => "lists",
            None => "calls",
        })?;
        if let Some(target) = &self.target {
            write!(f, " of {target}")?;
        }
        match self.fault {
            Fault::Reset => f.write_str(" are cut off"),
            Fault::LoseAnswer => f.write_str(" are carried out, and their answers lost"),
            Fault::Hang => f.write_str(" hang"),
            Fault::Status(status) => write!(f, " are answered with {status}"),
            Fault::Fail => f.write_str(" fail"),
            Fault::Slow(delay) => write!(f, " take {} ms", delay.as_millis()),
        }
    }
}

// === impl Faults ===

impl Faults {
    /// Every call has `fault` from now on, instead of earlier rules.
    pub fn set(&self, fault: Fault) {
        *self.rules.lock() = vec![Rule::all(fault)];
    }

    /// Adds a rule; the first that hits decides.
    pub fn add(&self, rule: Rule) {
        self.rules.lock().push(rule);
    }

    /// No faults from now on. Calls that hang already go on hanging.
    pub fn clear(&self) {
        self.rules.lock().clear();
    }

    /// The fault of one call, which it uses up where the rule is counted.
    pub(crate) fn take(&self, operation: Operation, target: Option<&str>) -> Option<Fault> {
        let mut rules = self.rules.lock();
        let index = rules.iter().position(|rule| rule.hits(operation, target))?;
        let rule = &mut rules[index];
        let fault = rule.fault;
        if let Some(left) = &mut rule.times {
            *left = left.saturating_sub(1);
            if *left == 0 {
                rules.remove(index);
            }
        }
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_reads_as_a_sentence() {
        let rule = Rule::all(Fault::Status(500))
            .on(Operation::Ban)
            .target("192.0.2.7")
            .times(2);
        assert_eq!(
            rule.to_string(),
            "the next 2 bans of 192.0.2.7 are answered with 500"
        );
        assert_eq!(Rule::all(Fault::Hang).to_string(), "all calls hang");
    }

    #[test]
    fn a_rule_hits_what_it_names_as_often_as_it_says() {
        let faults = Faults::default();
        faults.add(
            Rule::all(Fault::Hang)
                .on(Operation::Ban)
                .target("192.0.2.7")
                .times(2),
        );
        faults.add(Rule::all(Fault::Fail).on(Operation::Unban));
        assert_eq!(faults.take(Operation::Ban, Some("192.0.2.8")), None);
        assert_eq!(
            faults.take(Operation::Ban, Some("192.0.2.7")),
            Some(Fault::Hang)
        );
        assert_eq!(
            faults.take(Operation::Ban, Some("192.0.2.7")),
            Some(Fault::Hang)
        );
        assert_eq!(faults.take(Operation::Ban, Some("192.0.2.7")), None);
        assert_eq!(
            faults.take(Operation::Unban, Some("192.0.2.7")),
            Some(Fault::Fail)
        );
        assert_eq!(faults.take(Operation::List, None), None);
        faults.clear();
        assert_eq!(faults.take(Operation::Unban, Some("192.0.2.7")), None);
    }
}

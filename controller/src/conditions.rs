//! Conditions of a status: set, merged and read (apimachinery: `meta.SetStatusCondition` and its neighbours).
//!
//! ```
//! use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
//! use reeve_controller::conditions::{self, Observation};
//!
//! let clock = reeve_clock::Clock::system();
//! let mut conditions: Vec<Condition> = Vec::new();
//! let ready = Observation::is_true("Ready", "Synced").generation(Some(3));
//! assert!(conditions::set(&mut conditions, ready.clone(), clock.now()));
//! assert!(conditions::is_true(&conditions, "Ready"));
//! // The same observation again changes nothing, so that a status is not written in a circle.
//! assert!(!conditions::set(&mut conditions, ready, clock.now()));
//! ```
//!
//! `lastTransitionTime` changes only when the status of a condition does. It has whole seconds, as `metav1.Time`.
//! kstatus, Argo CD and `kubectl wait --for=condition=Ready` read a condition `Ready` with an `observedGeneration`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// One condition as a reconcile observes it.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    kind: String,
    status: Status,
    reason: String,
    message: String,
    generation: Option<i64>,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// `True`.
    True,
    /// `False`.
    False,
    /// `Unknown`: the controller could not find out.
    Unknown,
}

// === impl Observation ===

impl Observation {
    /// A condition of this type, with a reason in CamelCase, without a message.
    pub fn new(kind: impl Into<String>, status: Status, reason: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            status,
            reason: reason.into(),
            message: String::new(),
            generation: None,
        }
    }

    /// A condition that is true.
    pub fn is_true(kind: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(kind, Status::True, reason)
    }

    /// A condition that is false.
    pub fn is_false(kind: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(kind, Status::False, reason)
    }

    /// Sets the message: a sentence for a person. A message without counters and times changes only when the cause does.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Sets `observedGeneration`: `metadata.generation` of the object that was reconciled.
    pub fn generation(mut self, generation: Option<i64>) -> Self {
        self.generation = generation;
        self
    }

    /// The condition to store, with the transition time of `before` if its status is the same.
    fn into_condition(self, before: Option<&Condition>, now: Timestamp) -> Condition {
        let status = self.status.as_str();
        let since = before
            .filter(|before| before.status == status)
            .map(|before| before.last_transition_time.clone());
        Condition {
            type_: self.kind,
            status: status.to_owned(),
            reason: self.reason,
            message: self.message,
            observed_generation: self.generation,
            last_transition_time: since.unwrap_or_else(|| Time(whole_seconds(now))),
        }
    }
}

// === impl Status ===

impl Status {
    /// The text of the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(is_true: bool) -> Self {
        if is_true { Self::True } else { Self::False }
    }
}

/// Sets one condition at `now` and leaves the others as they are. Returns whether anything changed.
pub fn set(conditions: &mut Vec<Condition>, observed: Observation, now: Timestamp) -> bool {
    let present = conditions
        .iter_mut()
        .find(|condition| condition.type_ == observed.kind);
    match present {
        Some(present) => {
            let next = observed.into_condition(Some(present), now);
            let changed = *present != next;
            *present = next;
            changed
        }
        None => {
            conditions.push(observed.into_condition(None, now));
            true
        }
    }
}

/// The conditions of a status that is computed from nothing, with the transition times of `before`. Types that are not
/// observed are left out.
pub fn merge(
    before: &[Condition],
    observed: impl IntoIterator<Item = Observation>,
    now: Timestamp,
) -> Vec<Condition> {
    observed
        .into_iter()
        .map(|observed| {
            let present = find(before, &observed.kind);
            observed.into_condition(present, now)
        })
        .collect()
}

/// The condition of this type.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether the condition of this type is there and true.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == Status::True.as_str())
}

/// Removes the condition of this type. Returns whether there was one.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let count = conditions.len();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.len() < count
}

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::new(1_700_000_000 + second, 500_000_000).unwrap()
    }

    fn since(conditions: &[Condition], kind: &str) -> i64 {
        find(conditions, kind)
            .unwrap()
            .last_transition_time
            .0
            .as_second()
            - 1_700_000_000
    }

    #[test]
    fn the_transition_time_changes_with_the_status_only() {
        let mut conditions = Vec::new();
        let failing = Observation::is_false("Ready", "Failing");
        assert!(set(&mut conditions, failing.clone(), at(1)));
        assert_eq!(conditions[0].last_transition_time.0.subsec_nanosecond(), 0);
        assert!(set(
            &mut conditions,
            failing.clone().message("again"),
            at(2)
        ));
        assert!(!set(&mut conditions, failing.message("again"), at(3)));
        assert_eq!(since(&conditions, "Ready"), 1);
        assert!(!is_true(&conditions, "Ready"));
        assert!(set(
            &mut conditions,
            Observation::is_true("Ready", "Synced"),
            at(4)
        ));
        assert_eq!(since(&conditions, "Ready"), 4);
        assert!(is_true(&conditions, "Ready"));
    }

    #[test]
    fn a_new_generation_alone_is_a_change_without_a_transition() {
        let mut conditions = Vec::new();
        let ready = Observation::is_true("Ready", "Synced");
        set(&mut conditions, ready.clone().generation(Some(1)), at(1));
        assert!(set(&mut conditions, ready.generation(Some(2)), at(2)));
        assert_eq!(since(&conditions, "Ready"), 1);
        assert_eq!(conditions[0].observed_generation, Some(2));
    }

    #[test]
    fn a_merge_keeps_the_times_and_leaves_out_what_is_not_observed() {
        let mut before = Vec::new();
        set(&mut before, Observation::is_true("Ready", "Synced"), at(1));
        set(&mut before, Observation::is_true("Old", "Old"), at(1));
        let unknown = Observation::new("Reachable", Status::Unknown, "NotTried");
        let merged = merge(
            &before,
            [unknown, Observation::is_true("Ready", "Other")],
            at(9),
        );
        assert_eq!(
            (since(&merged, "Reachable"), since(&merged, "Ready")),
            (9, 1)
        );
        assert!(find(&merged, "Old").is_none() && merged.len() == 2);
        assert_eq!(merged[0].status, "Unknown");
        assert!(remove(&mut before, "Old") && !remove(&mut before, "Old"));
    }
}

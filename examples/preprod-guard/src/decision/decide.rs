//! The order of the rules, and what their modes do.

use jiff::Timestamp;
use reeve_webhook::admission::Operation;

use super::{Finding, Rule, cluster, lookup};
use crate::config::{Config, Mode};
use crate::identity::Environment;
use crate::object::Facts;
use crate::state::State;
use crate::target::Target;

/// The decision about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The first match of an enforced rule. It denies the request.
    pub denial: Option<Finding>,
    /// The matches of rules that warn or monitor.
    pub noted: Vec<(Finding, Mode)>,
}

/// Decides about `target`. A caller of production is allowed without a look at the state.
///
/// The marks in the request are checked first and need no state. A request that they do not decide needs a complete state:
/// it is denied until the state is synced.
#[must_use]
pub fn decide(target: &Target, state: &State, config: &Config, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    if config.callers.environment(&target.user) == Environment::Production {
        return decision;
    }
    for finding in findings(target, state, config, now) {
        match config.mode(finding.rule) {
            Mode::Enforce if decision.denial.is_none() => decision.denial = Some(finding),
            Mode::Enforce => {}
            mode => decision.noted.push((finding, mode)),
        }
    }
    decision
}

fn findings(target: &Target, state: &State, config: &Config, now: Timestamp) -> Vec<Finding> {
    let subresource = target.subresource.as_deref();
    let parent = subresource.and_then(|_| state.get(&target.key));
    let facts: Vec<&Facts> = target.states.iter().chain(parent).collect();
    let word = target.word();
    let mut found = Vec::new();
    if facts
        .iter()
        .any(|facts| state.is_production(&target.key.namespace, facts, &config.mark))
    {
        found.push(Finding::new(
            Rule::Production,
            target,
            format_args!("production {word}"),
        ));
    }
    if cluster::is_cluster_wide(target) {
        found.push(Finding::new(
            Rule::Cluster,
            target,
            format_args!("{word}: it holds for the whole cluster"),
        ));
        return found;
    }
    if !state.synced {
        let what = format!("{word} yet: the caches of the guard are not synced; try again");
        found.push(Finding::new(Rule::Unresolved, target, what));
        return found;
    }
    if let (Some(subresource), None) = (subresource, parent) {
        let what = format!(
            "{subresource} of {word} {}: the guard does not see it; try again",
            target.key.name
        );
        found.push(Finding::new(Rule::Unresolved, target, what));
        return found;
    }
    // An eviction is a creation, after which the API server deletes the Pod without a further call.
    let deletes = subresource.is_none() && target.operation == Operation::Delete
        || subresource == Some("eviction");
    if deletes
        && facts
            .iter()
            .any(|facts| config.maximum_age.is_over(facts.created, now))
    {
        found.push(Finding::new(
            Rule::Age,
            target,
            format_args!("too old {word}"),
        ));
    }
    found.extend(lookup::findings(target, &facts, state, config));
    found
}

//! The order of the rules, and what their modes do.

use jiff::Timestamp;
use reeve_webhook::admission::Operation;

use super::{Finding, Rule, account, cluster, lookup};
use crate::config::{Config, Mode};
use crate::identity::Environment;
use crate::object::{Facts, Key};
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
/// Rules that read only the request, its parent and its Namespace do not need a complete state. The mark of an owner does, and
/// so does a rule that searches all objects: a request that such a rule holds for is denied until the state is synced, and
/// while its watches fail.
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
    let parent = target.parent.as_ref().or_else(|| state.get(&target.key));
    let parent = subresource.and(parent);
    // An Eviction or a Scale has no labels: those of its object count.
    let is_body = |facts: &&Facts| parent.is_some() && facts.labels.is_empty() && !facts.marked;
    let states = target.states.iter().filter(|facts| !is_body(facts));
    let facts: Vec<&Facts> = states.chain(parent).collect();
    let word = target.word();
    let mut found = Vec::new();
    let of_namespace = namespace(target, state);
    let is_production =
        |facts: &&Facts| state.is_production_in(of_namespace, &target.key, facts, config);
    if facts.iter().any(is_production) {
        let what = format!("production {word}");
        found.push(Finding::new(Rule::Production, target, what));
    }
    if cluster::is_cluster_wide(target) {
        let what = format!("{word}: it holds for the whole cluster");
        found.push(Finding::new(Rule::Cluster, target, what));
        return found;
    }
    found.extend(account::findings(target, parent, config));
    found.extend(lookup::priorities(target, config));
    if let (Some(subresource), None) = (subresource, parent) {
        let name = &target.key.name;
        let what = format!("{subresource} of {word} {name}: the guard does not see it; try again");
        found.push(Finding::new(Rule::Unresolved, target, what));
        return found;
    }
    if of_namespace.is_none() && !target.key.namespace.is_empty() {
        let name = &target.key.namespace;
        let what = format!("{word}: the guard does not see namespace {name}; try again");
        found.push(Finding::new(Rule::Unresolved, target, what));
        return found;
    }
    // An eviction is a creation, after which the API server deletes the Pod without a further call.
    let deletes = subresource.is_none() && target.operation == Operation::Delete
        || subresource == Some("eviction");
    let mut ages = facts.iter().map(|facts| facts.created);
    if deletes && ages.any(|created| config.maximum_age.is_over(created, now)) {
        let what = format!("too old {word}");
        found.push(Finding::new(Rule::Age, target, what));
    }
    if state.synced {
        found.extend(lookup::findings(target, &facts, state, config));
    } else if lookup::searches(target) || facts.iter().any(|facts| state.asks_owners(facts, config))
    {
        let what =
            format!("{word} yet: the caches of the guard are not synced or too old; try again");
        found.push(Finding::new(Rule::Unresolved, target, what));
    }
    found
}

/// The Namespace of the object: as the API server has it now if it was read, or else as the informers have it.
fn namespace<'a>(target: &'a Target, state: &'a State) -> Option<&'a Facts> {
    let known = || state.get(&Key::namespace(&target.key.namespace));
    target.namespace.as_ref().or_else(known)
}

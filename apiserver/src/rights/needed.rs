//! The rights that requests need.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::rules::{merged, yaml};
use crate::http::query::Parameters;
use crate::rbac::{Attributes, Policy, Rule, User, bootstrap_objects};
use crate::record::RequestRecord;

/// The rights that a number of requests need; see [the module](super).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Each right, with the first request that needs it.
    asked: BTreeMap<Attributes, String>,
}

// === impl Rights ===

impl Rights {
    /// The rights that these requests need, of whatever user.
    #[must_use]
    pub fn of<'a>(requests: impl IntoIterator<Item = &'a RequestRecord>) -> Self {
        let (free, anyone) = (
            bootstrap_policy(),
            User::new("", [crate::rbac::AUTHENTICATED]),
        );
        let mut rights = Self::default();
        for request in requests {
            let attributes = request.attributes();
            // A request with an unknown method is refused before its rights are checked.
            if attributes.verb.is_empty() || free.authorize(&anyone, &attributes).allowed {
                continue;
            }
            let query = Parameters::parse(&request.query);
            if attributes.verb == "watch" && query.flag("sendInitialEvents") {
                let list = Attributes {
                    verb: "list".to_owned(),
                    ..attributes.clone()
                };
                rights.add(list, request);
            }
            rights.add(attributes, request);
        }
        rights
    }

    fn add(&mut self, attributes: Attributes, request: &RequestRecord) {
        let example = format!("{} {}", attributes.verb, request.path);
        self.asked.entry(attributes).or_insert(example);
    }

    /// These rights, and others: those of another test run, for example.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        for (attributes, example) in others.asked {
            self.asked.entry(attributes).or_insert(example);
        }
        self
    }

    /// The fewest rules that allow the requests, in the order of a role; without names of objects. They do not say
    /// which of them are needed in one namespace only: [`Rights::compare`] does, for given roles.
    #[must_use]
    pub fn rules(&self) -> Vec<PolicyRule> {
        let parts: Vec<Rule> = self.asked.keys().map(|asked| part(asked, false)).collect();
        merged(&parts)
    }

    /// Each right with the first request that needs it.
    pub(super) fn asked(&self) -> impl Iterator<Item = (&Attributes, &str)> {
        let asked = self.asked.iter();
        asked.map(|(attributes, example)| (attributes, example.as_str()))
    }
}

impl fmt::Display for Rights {
    /// The rules as YAML, to be the `rules` of a role.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&yaml(&self.rules()))
    }
}

/// The policy of every cluster, without roles of its own.
fn bootstrap_policy() -> Policy {
    let objects = bootstrap_objects();
    let of = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    Policy::new([], of("ClusterRole"), [], of("ClusterRoleBinding"))
}

/// The smallest rule that allows the request, restricted to its name if `named`.
pub(super) fn part(asked: &Attributes, named: bool) -> Rule {
    let verbs = vec![asked.verb.clone()];
    if !asked.is_resource() {
        return Rule {
            verbs,
            non_resource_urls: vec![asked.path.clone()],
            ..Rule::default()
        };
    }
    let named = named && !asked.name.is_empty();
    Rule {
        verbs,
        api_groups: vec![asked.group.clone()],
        resources: vec![asked.combined_resource()],
        resource_names: named.then(|| asked.name.clone()).into_iter().collect(),
        ..Rule::default()
    }
}

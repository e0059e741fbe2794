//! Requests compared with roles: which rules are missing, and which were not used.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::manifest::{BoundRole, Granted, Manifest, ManifestError};
use super::needed::{Rights, part};
use super::rules::{merged, yaml};
use crate::rbac::{Attributes, Rule};

/// The API group of leases, which a program has in its own namespace.
const LEASES: &str = "coordination.k8s.io";

/// The result of [`Rights::compare`]. It displays as both lists, in YAML.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// The rules to add, by role: each one as narrow as the requests.
    pub missing: Vec<Part>,
    /// The parts of rules that allowed no request.
    pub unused: Vec<Part>,
}

/// Rules of one role.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Part {
    /// Such as `ClusterRole reader`, `Role shop/reader`, or `a new Role in shop`.
    pub role: String,
    /// The rules.
    pub rules: Vec<PolicyRule>,
    /// A request that needs the first of them, if they are missing.
    pub example: Option<String>,
}

// === impl Rights ===

impl Rights {
    /// Compares with the roles of a program.
    ///
    /// # Errors
    /// When bindings name several ServiceAccounts, or none, and [`Manifest::account`] chooses none.
    pub fn compare(&self, manifest: &Manifest) -> Result<Comparison, ManifestError> {
        let granted = manifest.granted()?;
        Ok(Comparison {
            missing: self.missing(&granted),
            unused: self.unused(&granted),
        })
    }

    /// Checks that the roles and bindings in `yaml` allow every request, and returns the parts of rules that were not
    /// used. [`Manifest`] says how the text is read.
    ///
    /// # Panics
    /// When they do not, with the rules to add; when `yaml` has no roles that can be compared.
    #[track_caller]
    pub fn check(&self, yaml: &str) -> Vec<Part> {
        let comparison = self.compared(yaml);
        assert!(
            comparison.missing.is_empty(),
            "the requests need more than the roles allow\n{comparison}"
        );
        comparison.unused
    }

    /// Checks that the roles and bindings in `yaml` allow every request, and nothing else.
    ///
    /// # Panics
    /// As [`Rights::check`], and when a part of a rule was not used.
    #[track_caller]
    pub fn check_exactly(&self, yaml: &str) {
        let comparison = self.compared(yaml);
        assert!(
            comparison.is_exact(),
            "the roles do not allow exactly what the requests need\n{comparison}"
        );
    }

    #[track_caller]
    fn compared(&self, yaml: &str) -> Comparison {
        let compared = Manifest::parse(yaml).and_then(|manifest| self.compare(&manifest));
        compared.unwrap_or_else(|error| panic!("{error}"))
    }

    fn missing(&self, granted: &Granted) -> Vec<Part> {
        let mut by_role: BTreeMap<String, Vec<(Rule, &str)>> = BTreeMap::new();
        for (asked, example) in self.asked().filter(|(asked, _)| !granted.allows(asked)) {
            let rule = part(asked, granted.restricts_names(asked));
            let role = self.role_for(asked, granted);
            by_role.entry(role).or_default().push((rule, example));
        }
        let parts = by_role.into_iter().map(|(role, needed)| {
            let parts: Vec<Rule> = needed.iter().map(|(part, _)| part.clone()).collect();
            let rules = merged(&parts);
            let mut of_first = needed
                .iter()
                .filter(|(part, _)| rules.first().is_some_and(|first| has(first, part)));
            Part {
                role,
                example: of_first.next().map(|(_, example)| (*example).to_owned()),
                rules,
            }
        });
        parts.collect()
    }

    /// The role to add a right to. A Role is preferred for what it has already, for leases, and for programs that
    /// request nothing in all namespaces.
    fn role_for(&self, asked: &Attributes, granted: &Granted) -> String {
        let in_cluster = is_in_cluster(asked);
        let fits = |role: &&BoundRole| role.applies_to(asked) && !(in_cluster && role.is_limited());
        let candidates: Vec<&BoundRole> = granted.roles.iter().filter(fits).collect();
        let first = |limited: bool, has_it: bool| {
            candidates.iter().find(|role| {
                role.is_limited() == limited
                    && (!has_it || role.rules.iter().any(|rule| rule.is_for(asked)))
            })
        };
        let narrow = asked.group == LEASES || !self.asked().any(|(other, _)| is_in_cluster(other));
        let found = first(true, true)
            .or_else(|| first(false, true))
            .or_else(|| first(narrow, false))
            .or_else(|| first(!narrow, false));
        match found {
            Some(role) => role.label.clone(),
            None if in_cluster || !narrow => {
                "a new ClusterRole, with a ClusterRoleBinding".to_owned()
            }
            None => format!("a new Role in {}, with a RoleBinding", asked.namespace),
        }
    }

    fn unused(&self, granted: &Granted) -> Vec<Part> {
        let mut parts = Vec::new();
        for role in &granted.roles {
            let here: Vec<&Attributes> = self
                .asked()
                .map(|(asked, _)| asked)
                .filter(|asked| role.applies_to(asked))
                .collect();
            let atoms = role.rules.iter().flat_map(Rule::atoms);
            let unused: Vec<Rule> = atoms
                .filter(|atom| !here.iter().any(|asked| atom.allows(asked)))
                .collect();
            if !unused.is_empty() {
                parts.push(Part {
                    role: role.label.clone(),
                    rules: merged(&unused),
                    example: None,
                });
            }
        }
        parts
    }
}

/// Whether only a ClusterRoleBinding can allow the request. The namespace of a Namespace object is its name.
fn is_in_cluster(asked: &Attributes) -> bool {
    asked.namespace.is_empty() || (asked.group.is_empty() && asked.resource == "namespaces")
}

// === impl Comparison ===

impl Comparison {
    /// Whether the roles allow what the requests need, and nothing else.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.missing.is_empty() && self.unused.is_empty()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for part in &self.missing {
            let _ = write!(text, "add to {part}");
        }
        for part in &self.unused {
            let _ = write!(text, "never used of {part}");
        }
        f.write_str(text.trim_end())
    }
}

impl fmt::Display for Part {
    /// The role, then its rules in YAML.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:", self.role)?;
        if let Some(example) = &self.example {
            writeln!(f, "  # for {example}")?;
        }
        f.write_str(&yaml(&self.rules))
    }
}

/// Whether `part` was merged into `rule`.
fn has(rule: &PolicyRule, part: &Rule) -> bool {
    let within = |all: &Option<Vec<String>>, one: &[String]| {
        let all = all.as_deref().unwrap_or_default();
        one.iter().all(|one| all.contains(one))
    };
    within(&rule.api_groups, &part.api_groups)
        && within(&rule.resources, &part.resources)
        && within(&rule.resource_names, &part.resource_names)
        && within(&rule.non_resource_urls, &part.non_resource_urls)
        && part.verbs.iter().all(|verb| rule.verbs.contains(verb))
}

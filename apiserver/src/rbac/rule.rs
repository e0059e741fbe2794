//! One rule of a role: what it allows, and what it covers.

use serde::Deserialize;

use super::Attributes;

/// One `PolicyRule` of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Verbs, or `*`.
    pub verbs: Vec<String>,
    /// API groups, or `*`.
    pub api_groups: Vec<String>,
    /// `resource`, `resource/subresource`, `*/subresource` or `*`.
    pub resources: Vec<String>,
    /// Names; empty allows all, requests without a name included.
    pub resource_names: Vec<String>,
    /// Paths without resources; a `*` at the end matches anything.
    #[serde(rename = "nonResourceURLs")]
    pub non_resource_urls: Vec<String>,
}

// === impl Rule ===

impl Rule {
    /// Every right there is.
    pub(crate) fn everything() -> [Self; 2] {
        let all = || vec!["*".to_owned()];
        [
            Self {
                verbs: all(),
                api_groups: all(),
                resources: all(),
                ..Self::default()
            },
            Self {
                verbs: all(),
                non_resource_urls: all(),
                ..Self::default()
            },
        ]
    }

    /// Whether the rule allows the request.
    #[must_use]
    pub fn allows(&self, attributes: &Attributes) -> bool {
        if !has(&self.verbs, &attributes.verb) {
            return false;
        }
        if !attributes.is_resource() {
            return self
                .non_resource_urls
                .iter()
                .any(|url| url_matches(url, &attributes.path));
        }
        self.is_for(attributes)
            && (self.resource_names.is_empty() || self.resource_names.contains(&attributes.name))
    }

    /// Whether the rule is for the resource of the request, with whatever verbs and names.
    pub(crate) fn is_for(&self, attributes: &Attributes) -> bool {
        let named = |resource: &String| {
            resource == "*"
                || *resource == attributes.combined_resource()
                || (!attributes.subresource.is_empty()
                    && resource
                        .strip_prefix("*/")
                        .is_some_and(|sub| sub == attributes.subresource))
        };
        has(&self.api_groups, &attributes.group) && self.resources.iter().any(named)
    }

    /// The rule split up to one verb, group, resource and name each.
    pub(crate) fn atoms(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut atoms = Vec::new();
        for verb in &self.verbs {
            for url in &self.non_resource_urls {
                atoms.push(Self {
                    verbs: one(verb),
                    non_resource_urls: one(url),
                    ..Self::default()
                });
            }
            for group in &self.api_groups {
                for resource in &self.resources {
                    let rule = Self {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.resource_names.is_empty() {
                        atoms.push(rule);
                        continue;
                    }
                    for name in &self.resource_names {
                        atoms.push(Self {
                            resource_names: one(name),
                            ..rule.clone()
                        });
                    }
                }
            }
        }
        atoms
    }

    /// Whether this rule allows all that the atom `other` allows.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let all = |own: &[String], others: &[String]| others.iter().all(|text| has(own, text));
        if !all(&self.verbs, &other.verbs) {
            return false;
        }
        if !other.non_resource_urls.is_empty() {
            let covered = |url: &String| {
                self.non_resource_urls
                    .iter()
                    .any(|own| own == url || url_matches(own, url))
            };
            return other.non_resource_urls.iter().all(covered);
        }
        let resource_covered = |resource: &String| {
            self.resources.iter().any(|own| {
                own == "*"
                    || own == resource
                    || own
                        .strip_prefix('*')
                        .is_some_and(|sub| !sub.is_empty() && resource.ends_with(sub))
            })
        };
        all(&self.api_groups, &other.api_groups)
            && other.resources.iter().all(resource_covered)
            && (self.resource_names.is_empty()
                || (!other.resource_names.is_empty()
                    && other
                        .resource_names
                        .iter()
                        .all(|name| self.resource_names.contains(name))))
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == "*" || one == wanted)
}

fn url_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => pattern == path,
    }
}

//! Rules and bindings, parsed once, and the walk over them.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use serde_json::Value;

use super::rule::Rule;
use super::{Attributes, Decision, MASTERS, SERVICE_ACCOUNTS, User};

/// All roles and bindings of a server at one moment.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    roles: BTreeMap<(String, String), Vec<Rule>>,
    cluster_roles: BTreeMap<String, Vec<Rule>>,
    role_bindings: BTreeMap<String, Vec<Binding>>,
    cluster_role_bindings: Vec<Binding>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    subjects: Option<Vec<Subject>>,
    role_ref: RoleRef,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    namespace: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

#[derive(Clone, Debug, Deserialize)]
struct RoleRef {
    kind: String,
    name: String,
}

/// Gets the binding that grants a rule, and the rule or why it was not found; returns whether to go on.
type Visitor<'a> = &'a mut dyn FnMut(&dyn Fn() -> String, Result<&Rule, String>) -> bool;

// === impl Policy ===

impl Policy {
    /// A policy of these stored objects. An invalid object is left out: it allows nothing.
    ///
    /// The rules of a ClusterRole with an `aggregationRule` are those of the roles it selects, as the controller
    /// manager would write them into it (see [`aggregated_rules`](Self::aggregated_rules)).
    pub fn new<'a>(
        roles: impl IntoIterator<Item = &'a Value>,
        cluster_roles: impl IntoIterator<Item = &'a Value>,
        role_bindings: impl IntoIterator<Item = &'a Value>,
        cluster_role_bindings: impl IntoIterator<Item = &'a Value>,
    ) -> Self {
        let mut policy = Self::default();
        for role in roles {
            let key = (
                text(role, "/metadata/namespace"),
                text(role, "/metadata/name"),
            );
            policy.roles.insert(key, rules_of(role));
        }
        let cluster_roles: Vec<&Value> = cluster_roles.into_iter().collect();
        for role in &cluster_roles {
            let rules =
                Self::aggregated_rules(role, &cluster_roles).unwrap_or_else(|| rules_of(role));
            policy
                .cluster_roles
                .insert(text(role, "/metadata/name"), rules);
        }
        for binding in role_bindings {
            if let Ok(binding) = Binding::deserialize(binding) {
                let namespace = binding.metadata.namespace.clone();
                policy
                    .role_bindings
                    .entry(namespace)
                    .or_default()
                    .push(binding);
            }
        }
        policy.cluster_role_bindings = cluster_role_bindings
            .into_iter()
            .filter_map(|binding| Binding::deserialize(binding).ok())
            .collect();
        policy
    }

    /// The `rules` that the controller manager writes into `role`: the rules of every other ClusterRole that its
    /// `aggregationRule` selects, in order of name, without repetitions. `None` when it has no such rule.
    #[must_use]
    pub fn aggregated_rules(role: &Value, cluster_roles: &[&Value]) -> Option<Vec<Rule>> {
        aggregate(role, cluster_roles)
    }

    /// Whether `user` may perform the request.
    #[must_use]
    pub fn authorize(&self, user: &User, attributes: &Attributes) -> Decision {
        if user.is_in(MASTERS) {
            return Decision {
                allowed: true,
                reason: String::new(),
            };
        }
        let mut errors = Vec::new();
        let mut allowed_by = None;
        self.visit(user, &attributes.namespace, &mut |source, rule| {
            match rule {
                Ok(rule) if rule.allows(attributes) => allowed_by = Some(source()),
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
            allowed_by.is_none()
        });
        match allowed_by {
            Some(source) => Decision {
                allowed: true,
                reason: format!("RBAC: allowed by {source}"),
            },
            None if errors.is_empty() => Decision::default(),
            None => Decision {
                allowed: false,
                reason: format!("RBAC: {}", joined(&errors)),
            },
        }
    }

    /// Every rule that applies to `user` in `namespace` (cluster-wide ones included), and the errors of bindings.
    #[must_use]
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let mut rules = Vec::new();
        let mut errors = Vec::new();
        self.visit(user, namespace, &mut |_, rule| {
            match rule {
                Ok(rule) => rules.push(rule.clone()),
                Err(error) => errors.push(error),
            }
            true
        });
        (rules, (!errors.is_empty()).then(|| joined(&errors)))
    }

    /// The rules of the role that a binding in `namespace` (empty: a ClusterRoleBinding) may refer to.
    #[must_use]
    pub fn rules_of_role(&self, kind: &str, namespace: &str, name: &str) -> Option<&[Rule]> {
        match kind {
            "Role" => self.roles.get(&(namespace.to_owned(), name.to_owned())),
            _ => self.cluster_roles.get(name),
        }
        .map(Vec::as_slice)
    }

    /// Whether the rules that `user` holds in `namespace` cover all of `rules` (kube: `confirmNoEscalation`).
    /// Returns the uncovered ones, split up to one verb, group, resource and name each.
    #[must_use]
    pub fn uncovered(&self, user: &User, namespace: &str, rules: &[Rule]) -> Vec<Rule> {
        if user.is_in(MASTERS) {
            return Vec::new();
        }
        let (held, _) = self.rules_for(user, namespace);
        let mut uncovered: Vec<Rule> = Vec::new();
        for rule in rules.iter().flat_map(Rule::atoms) {
            if !held.iter().any(|own| own.covers(&rule)) && !uncovered.contains(&rule) {
                uncovered.push(rule);
            }
        }
        uncovered
    }

    /// The roles that bindings give to `user`, each as kind and name, with the namespace of its binding; empty for a
    /// ClusterRoleBinding.
    pub(crate) fn roles_of(&self, user: &User) -> Vec<(&str, &str, &str)> {
        let everywhere = self
            .cluster_role_bindings
            .iter()
            .map(|binding| ("", binding));
        let somewhere = self.role_bindings.iter().flat_map(|(namespace, bindings)| {
            bindings
                .iter()
                .map(move |binding| (namespace.as_str(), binding))
        });
        everywhere
            .chain(somewhere)
            .filter(|(namespace, binding)| binding.subject_of(user, namespace).is_some())
            .map(|(namespace, binding)| {
                let role = &binding.role_ref;
                (role.kind.as_str(), role.name.as_str(), namespace)
            })
            .collect()
    }

    /// Calls `visitor` with each applicable rule until it returns `false`.
    fn visit(&self, user: &User, namespace: &str, visitor: Visitor<'_>) {
        for binding in &self.cluster_role_bindings {
            let Some(subject) = binding.subject_of(user, "") else {
                continue;
            };
            if !self.visit_binding(binding, subject, "ClusterRoleBinding", visitor) {
                return;
            }
        }
        if namespace.is_empty() {
            return;
        }
        for binding in self.role_bindings.get(namespace).into_iter().flatten() {
            let Some(subject) = binding.subject_of(user, namespace) else {
                continue;
            };
            if !self.visit_binding(binding, subject, "RoleBinding", visitor) {
                return;
            }
        }
    }

    fn visit_binding(
        &self,
        binding: &Binding,
        subject: &Subject,
        kind: &str,
        visitor: Visitor<'_>,
    ) -> bool {
        let source = || binding.describe(kind, subject);
        let role = &binding.role_ref;
        let Some(rules) = self.rules_of_role(&role.kind, &binding.metadata.namespace, &role.name)
        else {
            let resource = if role.kind == "Role" {
                "role"
            } else {
                "clusterrole"
            };
            let error = format!(
                "{resource}.rbac.authorization.k8s.io {:?} not found",
                role.name
            );
            return visitor(&source, Err(error));
        };
        rules.iter().all(|rule| visitor(&source, Ok(rule)))
    }
}

fn text(object: &Value, pointer: &str) -> String {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn rules_of(role: &Value) -> Vec<Rule> {
    let rules = role
        .get("rules")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    rules
        .filter_map(|rule| Rule::deserialize(rule).ok())
        .collect()
}

/// The rules that `role` aggregates, of each role once: those that select one another would be visited without end. `None` if
/// it aggregates none.
fn aggregate(role: &Value, cluster_roles: &[&Value]) -> Option<Vec<Rule>> {
    let mut left = selected(role, cluster_roles)?;
    let (mut seen, mut rules) = (HashSet::new(), Vec::new());
    while let Some(other) = left.pop() {
        if !seen.insert(text(other, "/metadata/name")) {
            continue;
        }
        if let Some(more) = selected(other, cluster_roles) {
            left.extend(more);
            continue;
        }
        for rule in rules_of(other) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    Some(rules)
}

/// The roles that `role` aggregates, the last by name first. `None` if it has no such rule.
fn selected<'a>(role: &Value, cluster_roles: &[&'a Value]) -> Option<Vec<&'a Value>> {
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors")?;
    let selectors = selectors.as_array()?;
    let own_name = text(role, "/metadata/name");
    let mut selected: Vec<&Value> = cluster_roles
        .iter()
        .copied()
        .filter(|other| text(other, "/metadata/name") != own_name)
        .filter(|other| selectors.iter().any(|selector| selects(selector, other)))
        .collect();
    selected.sort_by_key(|other| std::cmp::Reverse(text(other, "/metadata/name")));
    Some(selected)
}

/// In the format of utilerrors.Aggregate: a single one as it is, several in brackets, without repetitions.
fn joined(errors: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for error in errors {
        if !distinct.contains(&error.as_str()) {
            distinct.push(error);
        }
    }
    match distinct.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Matches a `LabelSelector` object with the labels of `object`.
fn selects(selector: &Value, object: &Value) -> bool {
    let label = |key: &str| {
        object
            .pointer("/metadata/labels")
            .and_then(|labels| labels.get(key))
            .and_then(Value::as_str)
    };
    let by_labels = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .all(|(key, value)| label(key) == value.as_str());
    let by_expressions = selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .all(|expression| {
            let found = label(&text(expression, "/key"));
            let listed = |value: &str| {
                expression
                    .get("values")
                    .and_then(Value::as_array)
                    .is_some_and(|values| values.iter().any(|one| one == value))
            };
            match text(expression, "/operator").as_str() {
                "In" => found.is_some_and(listed),
                "NotIn" => !found.is_some_and(listed),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        });
    by_labels && by_expressions
}

// === impl Binding ===

impl Binding {
    /// The first subject that matches `user`. Service accounts without a namespace are of the binding's own.
    fn subject_of(&self, user: &User, namespace: &str) -> Option<&Subject> {
        self.subjects
            .iter()
            .flatten()
            .find(|subject| match subject.kind.as_str() {
                "User" => user.name == subject.name,
                "Group" => user.is_in(&subject.name),
                "ServiceAccount" => {
                    let of = if subject.namespace.is_empty() {
                        namespace
                    } else {
                        &subject.namespace
                    };
                    !of.is_empty()
                        && user.name == format!("system:serviceaccount:{of}:{}", subject.name)
                }
                _ => false,
            })
    }

    fn describe(&self, kind: &str, subject: &Subject) -> String {
        let name = if self.metadata.namespace.is_empty() {
            self.metadata.name.clone()
        } else {
            format!("{}/{}", self.metadata.name, self.metadata.namespace)
        };
        let subject = match subject.kind.as_str() {
            "ServiceAccount" => {
                format!("ServiceAccount \"{}/{}\"", subject.name, subject.namespace)
            }
            kind => format!("{kind} {:?}", subject.name),
        };
        let RoleRef {
            kind: role_kind,
            name: role,
        } = &self.role_ref;
        format!("{kind} {name:?} of {role_kind} {role:?} to {subject}")
    }
}

/// The namespace and name of the service account `user`, if it is one.
#[must_use]
pub(crate) fn service_account_of(user: &str) -> Option<(&str, &str)> {
    let rest = user.strip_prefix("system:serviceaccount:")?;
    let (namespace, name) = rest.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// The groups of every service account of `namespace`.
pub(crate) fn service_account_groups(namespace: &str) -> [String; 2] {
    [
        SERVICE_ACCOUNTS.to_owned(),
        format!("{SERVICE_ACCOUNTS}:{namespace}"),
    ]
}

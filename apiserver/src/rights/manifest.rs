//! Roles and their bindings, read from YAML.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::rbac::{Attributes, Policy, Rule, User, bootstrap_objects};
use crate::yaml;

/// The API group of roles.
const GROUP: &str = "rbac.authorization.k8s.io/";
/// The ServiceAccount that all roles are given to when there are no bindings.
const UNBOUND: &str = "program";

/// The roles and bindings of a program, as it is installed; see [the module](super).
///
/// With bindings, a role counts where it is bound to the program's ServiceAccount. Without bindings, each ClusterRole
/// counts in the whole cluster, and each Role in its namespace.
#[derive(Clone, Debug)]
#[must_use]
pub struct Manifest {
    /// Roles, ClusterRoles, RoleBindings and ClusterRoleBindings.
    objects: Vec<Value>,
    namespace: String,
    account: Option<(String, String)>,
}

/// Why roles cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The text is not YAML.
    #[error("the manifest is not valid YAML: {0}")]
    Yaml(String),
    /// A role has a rule that is not valid.
    #[error("rule {number} of {role} is not valid: {cause}")]
    Rule {
        /// Kind and name.
        role: String,
        /// Its place in the role, from 1 on.
        number: usize,
        /// What is wrong.
        cause: String,
    },
    /// Bindings name several ServiceAccounts, or none.
    #[error("the bindings name {} ServiceAccounts ({}); choose one with `Manifest::account`", .0.len(), .0.join(", "))]
    Accounts(Vec<String>),
}

/// The rights of the program, after the roles.
pub(super) struct Granted {
    policy: Policy,
    user: User,
    pub(super) roles: Vec<BoundRole>,
}

/// A role of the manifest that is bound to the program.
pub(super) struct BoundRole {
    /// Such as `ClusterRole reader` and `Role shop/reader`.
    pub(super) label: String,
    pub(super) rules: Vec<Rule>,
    /// The namespaces that it applies to; empty for all.
    pub(super) namespaces: BTreeSet<String>,
}

// === impl Manifest ===

impl Manifest {
    /// Reads the roles and bindings of a YAML stream. Objects of other kinds are skipped. Several files are read as one
    /// with `concat!(include_str!("role.yaml"), "\n---\n", include_str!("rolebinding.yaml"))`.
    ///
    /// # Errors
    /// When the text is not YAML, or a role has an invalid rule.
    pub fn parse(yaml: &str) -> Result<Self, ManifestError> {
        let documents = yaml::read_all(yaml.as_bytes()).map_err(ManifestError::Yaml)?;
        let mut objects = Vec::new();
        for document in documents {
            match document.get("items").and_then(Value::as_array) {
                Some(items) => objects.extend(items.iter().cloned()),
                None => objects.push(document),
            }
        }
        objects.retain(|object| field(object, "/apiVersion").starts_with(GROUP));
        for object in &objects {
            let rules = object["rules"].as_array().into_iter().flatten();
            for (index, rule) in rules.enumerate() {
                Rule::deserialize(rule).map_err(|cause| ManifestError::Rule {
                    role: format!(
                        "{} {}",
                        field(object, "/kind"),
                        field(object, "/metadata/name")
                    ),
                    number: index + 1,
                    cause: cause.to_string(),
                })?;
            }
        }
        Ok(Self {
            objects,
            namespace: "default".to_owned(),
            account: None,
        })
    }

    /// Sets the namespace of objects that have none, as `kubectl apply --namespace` does. Default: `default`.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the ServiceAccount of the program. Default: the only one that bindings name.
    pub fn account(mut self, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        self.account = Some((namespace.into(), name.into()));
        self
    }

    /// The rights of the program.
    pub(super) fn granted(&self) -> Result<Granted, ManifestError> {
        let mut objects = self.objects.clone();
        for object in &mut objects {
            self.fill_in(object);
        }
        let bound = |object: &Value| !object["roleRef"].is_null();
        if !objects.iter().any(bound) {
            let bindings: Vec<Value> = objects.iter().map(|role| self.binding_of(role)).collect();
            objects.extend(bindings);
        }
        let (namespace, name) = match &self.account {
            Some(account) => account.clone(),
            None => only_account(&objects)?,
        };
        let user = User::service_account(&namespace, &name, "");
        let all: Vec<Value> = objects.iter().cloned().chain(bootstrap_objects()).collect();
        let of = |kind: &'static str| all.iter().filter(move |object| object["kind"] == kind);
        let policy = Policy::new(
            of("Role"),
            of("ClusterRole"),
            of("RoleBinding"),
            of("ClusterRoleBinding"),
        );
        let roles = bound_roles(&objects, &policy, &user);
        Ok(Granted {
            policy,
            user,
            roles,
        })
    }

    /// Sets the namespace of a namespaced object, and those of its subjects.
    fn fill_in(&self, object: &mut Value) {
        let set = |within: &mut Value| {
            if within["namespace"].is_null() {
                within["namespace"] = json!(self.namespace);
            }
        };
        if matches!(field(object, "/kind"), "Role" | "RoleBinding") {
            set(&mut object["metadata"]);
        }
        if let Some(subjects) = object.get_mut("subjects").and_then(Value::as_array_mut) {
            let accounts = subjects.iter_mut();
            accounts
                .filter(|subject| subject["kind"] == "ServiceAccount")
                .for_each(set);
        }
    }

    /// A binding of `role` to the program's account.
    fn binding_of(&self, role: &Value) -> Value {
        let kind = field(role, "/kind");
        let unbound = (self.namespace.clone(), UNBOUND.to_owned());
        let (namespace, name) = self.account.clone().unwrap_or(unbound);
        json!({
            "kind": format!("{kind}Binding"),
            "metadata": {"name": UNBOUND, "namespace": role["metadata"]["namespace"].as_str().unwrap_or_default()},
            "roleRef": {"kind": kind, "name": role["metadata"]["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        })
    }
}

/// The only ServiceAccount that bindings name, with its namespace; an account without rights when there are no objects.
fn only_account(objects: &[Value]) -> Result<(String, String), ManifestError> {
    let mut accounts = BTreeSet::new();
    for binding in objects {
        for subject in binding["subjects"].as_array().into_iter().flatten() {
            if subject["kind"] == "ServiceAccount" {
                let name = field(subject, "/name").to_owned();
                accounts.insert((field(subject, "/namespace").to_owned(), name));
            }
        }
    }
    if objects.is_empty() {
        accounts.insert(("default".to_owned(), UNBOUND.to_owned()));
    }
    match accounts.pop_first() {
        Some(account) if accounts.is_empty() => Ok(account),
        first => {
            let accounts = first.into_iter().chain(accounts);
            let names = accounts.map(|(namespace, name)| format!("{namespace}/{name}"));
            Err(ManifestError::Accounts(names.collect()))
        }
    }
}

/// The roles among `objects` that are bound to `user`, in their order.
fn bound_roles(objects: &[Value], policy: &Policy, user: &User) -> Vec<BoundRole> {
    let bound = policy.roles_of(user);
    let mut roles = Vec::new();
    for object in objects {
        let (kind, name) = (field(object, "/kind"), field(object, "/metadata/name"));
        let own = field(object, "/metadata/namespace");
        let label = match kind {
            "Role" => format!("Role {own}/{name}"),
            "ClusterRole" => format!("ClusterRole {name}"),
            _ => continue,
        };
        let here = |namespace: &str| kind == "ClusterRole" || namespace == own;
        let namespaces: BTreeSet<&str> = bound
            .iter()
            .filter(|(of, named, namespace)| *of == kind && *named == name && here(namespace))
            .map(|(_, _, namespace)| *namespace)
            .collect();
        let rules = policy.rules_of_role(kind, own, name).unwrap_or_default();
        if namespaces.is_empty() {
            continue;
        }
        let everywhere = namespaces.contains("");
        let limited = namespaces.iter().filter(|_| !everywhere);
        roles.push(BoundRole {
            label,
            rules: rules.to_vec(),
            namespaces: limited.map(|namespace| (*namespace).to_owned()).collect(),
        });
    }
    roles
}

/// A text within `object`; empty when there is none.
fn field<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

// === impl Granted ===

impl Granted {
    /// Whether the program may send the request.
    pub(super) fn allows(&self, asked: &Attributes) -> bool {
        self.policy.authorize(&self.user, asked).allowed
    }

    /// Whether a rule restricts this resource by name.
    pub(super) fn restricts_names(&self, asked: &Attributes) -> bool {
        let rules = self.roles.iter().flat_map(|role| &role.rules);
        rules
            .filter(|rule| !rule.resource_names.is_empty())
            .any(|rule| rule.is_for(asked))
    }
}

// === impl BoundRole ===

impl BoundRole {
    /// Whether the role applies to the namespace of the request.
    pub(super) fn applies_to(&self, asked: &Attributes) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(&asked.namespace)
    }

    /// Whether the role applies to some namespaces only.
    pub(super) fn is_limited(&self) -> bool {
        !self.namespaces.is_empty()
    }
}

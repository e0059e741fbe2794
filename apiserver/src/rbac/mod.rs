//! Authorization: a pure authorizer over Role, ClusterRole, RoleBinding and ClusterRoleBinding objects.
//!
//! A [`Policy`] is made from the stored objects (cheap enough to be made again after each change of them), and
//! answers [`Policy::authorize`] for one request's [`Attributes`]. Rules are those of kube-apiserver's RBAC
//! authorizer: rules only allow, nothing denies; members of `system:masters` may do everything.
//!
//! ```
//! use reeve_apiserver::rbac::{Attributes, Policy, User};
//! use serde_json::json;
//!
//! let role = json!({"metadata": {"name": "reader", "namespace": "shop"},
//!     "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}]});
//! let binding = json!({"metadata": {"name": "jane", "namespace": "shop"},
//!     "subjects": [{"kind": "User", "name": "jane"}], "roleRef": {"kind": "Role", "name": "reader"}});
//! let policy = Policy::new([&role], [], [&binding], []);
//! let jane = User::new("jane", ["system:authenticated"]);
//!
//! let get = Attributes::resource("get", "", "configmaps").in_namespace("shop").named("a");
//! assert!(policy.authorize(&jane, &get).allowed);
//! let delete = Attributes::resource("delete", "", "configmaps").in_namespace("shop").named("a");
//! assert!(!policy.authorize(&jane, &delete).allowed);
//! ```

mod bootstrap;
mod cache;
mod policy;
mod rule;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub use bootstrap::objects as bootstrap_objects;
pub(crate) use bootstrap::of_controllers;
pub(crate) use cache::PolicyCache;
pub use policy::Policy;
pub(crate) use policy::{service_account_groups, service_account_of};
pub use rule::Rule;

use crate::status::{GroupResource, Status};

/// The group whose members may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of requests without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user name of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of all service accounts; `system:serviceaccounts:NAMESPACE` is that of one namespace.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// The user that sends a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Name, such as `jane` or `system:serviceaccount:shop:builder`.
    pub name: String,
    /// Unique id; may be empty.
    pub uid: String,
    /// Groups, `system:authenticated` included.
    pub groups: Vec<String>,
    /// More attributes of the user, such as `authentication.kubernetes.io/pod-name`.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The attributes of a request that decide whether it is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `impersonate`, …;
    /// for other paths the HTTP method in lower case.
    pub verb: String,
    /// API group; empty for core.
    pub group: String,
    /// API version; not used for the decision.
    pub version: String,
    /// Plural resource; empty for a request that is not for a resource.
    pub resource: String,
    /// Subresource, such as `status`; empty for none.
    pub subresource: String,
    /// Namespace; empty for all or for cluster-scoped resources. For `namespaces/NAME` it is NAME, as in the real server.
    pub namespace: String,
    /// Name; empty for collections. A list or watch with `fieldSelector=metadata.name=x` has the name `x`.
    pub name: String,
    /// The path, of a request that is not for a resource.
    pub path: String,
}

/// The result of [`Policy::authorize`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether a rule allows it.
    pub allowed: bool,
    /// The binding that allowed it; or, without one, the errors of bindings. May be empty.
    pub reason: String,
}

// === impl User ===

impl User {
    /// A user without uid and extra.
    pub fn new(
        name: impl Into<String>,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            name: name.into(),
            groups: groups.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// A user that may do everything.
    #[must_use]
    pub fn admin() -> Self {
        Self::new("system:admin", [MASTERS, AUTHENTICATED])
    }

    /// The user of a request without credentials.
    #[must_use]
    pub fn anonymous() -> Self {
        Self::new(ANONYMOUS, [UNAUTHENTICATED])
    }

    /// The service account `name` of `namespace`.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let of_namespace = format!("{SERVICE_ACCOUNTS}:{namespace}");
        Self {
            uid: uid.to_owned(),
            ..Self::new(
                format!("system:serviceaccount:{namespace}:{name}"),
                [
                    SERVICE_ACCOUNTS.to_owned(),
                    of_namespace,
                    AUTHENTICATED.to_owned(),
                ],
            )
        }
    }

    /// Whether the user is in `group`.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// `authentication.k8s.io/v1 UserInfo`.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut value = json!({"username": self.name});
        if !self.uid.is_empty() {
            value["uid"] = json!(self.uid);
        }
        if !self.groups.is_empty() {
            value["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            value["extra"] = json!(self.extra);
        }
        value
    }
}

// === impl Attributes ===

impl Attributes {
    /// A request for a collection of a resource, in all namespaces.
    pub fn resource(
        verb: impl Into<String>,
        group: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Self {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            ..Self::default()
        }
    }

    /// A request for a path that is not a resource, such as `/metrics`.
    pub fn path(verb: impl Into<String>, path: impl Into<String>) -> Self {
        Self {
            verb: verb.into(),
            path: path.into(),
            ..Self::default()
        }
    }

    /// The same in one namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The same for one object.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The same for a subresource.
    #[must_use]
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = subresource.into();
        self
    }

    /// Whether this is for a resource, not for another path.
    #[must_use]
    pub fn is_resource(&self) -> bool {
        !self.resource.is_empty()
    }

    /// `resource` or `resource/subresource`, as in rules.
    #[must_use]
    pub fn combined_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// The 403 of a refused request, with Kubernetes' text.
    #[must_use]
    pub(crate) fn forbidden(&self, user: &User, decision: &Decision) -> Status {
        let mut why = self.refusal(user);
        if !decision.reason.is_empty() {
            why = format!("{why}: {}", decision.reason);
        }
        let resource = GroupResource {
            group: &self.group,
            resource: &self.resource,
        };
        Status::forbidden(resource, &self.name, why)
    }

    fn refusal(&self, user: &User) -> String {
        let (user, verb) = (&user.name, &self.verb);
        if !self.is_resource() {
            return format!("User {user:?} cannot {verb} path {:?}", self.path);
        }
        let resource = self.combined_resource();
        let scope = if self.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", self.namespace)
        };
        format!(
            "User {user:?} cannot {verb} resource {resource:?} in API group {:?} {scope}",
            self.group
        )
    }
}

#[cfg(test)]
mod tests;

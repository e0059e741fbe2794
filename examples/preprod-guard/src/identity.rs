//! The environment of a caller, by exact names.

use std::collections::BTreeSet;

use reeve_webhook::admission::UserInfo;
use serde::Deserialize;

/// The environment that a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// Every caller that is not listed.
    Production,
    /// A listed caller.
    PreRelease,
}

/// The callers of the pre-release environment. Names are compared whole: a part of a name never matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Callers {
    /// User names.
    pub users: BTreeSet<String>,
    /// Groups.
    pub groups: BTreeSet<String>,
    /// Namespaces whose ServiceAccounts are pre-release callers.
    pub service_account_namespaces: BTreeSet<String>,
}

/// The groups outside of `system:` that hold parts of a cluster: kubeadm's administrators.
const ADMINISTRATORS: [&str; 1] = ["kubeadm:cluster-admins"];

/// The user of a ServiceAccount, with the groups that the API server gives it.
#[must_use]
pub fn of_account(namespace: &str, name: &str) -> UserInfo {
    let mut user = UserInfo::default();
    user.username = format!("system:serviceaccount:{namespace}:{name}");
    user.groups = vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    user
}

// === impl Callers ===

impl Callers {
    /// The environment of `user`.
    #[must_use]
    pub fn environment(&self, user: &UserInfo) -> Environment {
        let account = user.username.strip_prefix("system:serviceaccount:");
        let namespace = account.and_then(|account| account.split_once(':'));
        let listed = self.users.contains(&user.username)
            || user.groups.iter().any(|group| self.groups.contains(group))
            || namespace
                .is_some_and(|(namespace, _)| self.service_account_namespaces.contains(namespace));
        if listed {
            Environment::PreRelease
        } else {
            Environment::Production
        }
    }

    /// The names that would include parts of the cluster itself, or the guard in its namespace `own`: with them a cluster
    /// or the guard cannot start, because the webhooks refuse its requests while no guard runs.
    #[must_use]
    pub fn dangerous(&self, own: &str) -> Vec<String> {
        let is_part = |namespace: &str| namespace == "kube-system" || namespace == own;
        let users = self.users.iter().filter(|user| {
            let account = user.strip_prefix("system:serviceaccount:");
            let namespace = account.and_then(|account| account.split_once(':'));
            user.starts_with("system:") && namespace.is_none_or(|(of, _)| is_part(of))
        });
        let groups = self.groups.iter().filter(|group| {
            let namespace = group.strip_prefix("system:serviceaccounts:");
            group.starts_with("system:") && namespace.is_none_or(is_part)
                || ADMINISTRATORS.contains(&group.as_str())
        });
        let namespaces = self.service_account_namespaces.iter();
        let namespaces = namespaces.filter(|namespace| is_part(namespace));
        users.chain(groups).chain(namespaces).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, groups: &str) -> UserInfo {
        let mut user = UserInfo::default();
        user.username = name.to_owned();
        user.groups = groups.split_whitespace().map(str::to_owned).collect();
        user
    }

    fn callers() -> Callers {
        Callers {
            users: ["hbox-pre".to_owned()].into(),
            groups: ["hbox:pre-release".to_owned()].into(),
            service_account_namespaces: ["hbox-pre".to_owned()].into(),
        }
    }

    #[test]
    fn a1_a_part_of_a_name_does_not_make_a_caller_pre_release() {
        for (name, groups, expected) in [
            ("hbox-pre", "", Environment::PreRelease),
            ("anna", "hbox:pre-release", Environment::PreRelease),
            (
                "system:serviceaccount:hbox-pre:ci",
                "",
                Environment::PreRelease,
            ),
            (
                "system:serviceaccount:hbox-pre2:ci",
                "",
                Environment::Production,
            ),
            (
                "system:node:spread-1",
                "system:nodes",
                Environment::Production,
            ),
            (
                "system:serviceaccount:kube-system:presto",
                "",
                Environment::Production,
            ),
            ("hbox-pre2", "express", Environment::Production),
        ] {
            assert_eq!(
                callers().environment(&user(name, groups)),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_list_that_includes_parts_of_the_cluster_or_the_guard_is_found() {
        assert!(callers().dangerous("guard").is_empty());
        let groups = [
            "system:nodes",
            "system:serviceaccounts",
            "system:serviceaccounts:guard",
            "system:bootstrappers",
            "system:bootstrappers:kubeadm:default-node-token",
            "kubeadm:cluster-admins",
        ];
        let users = [
            "system:apiserver",
            "system:serviceaccount:guard:guard",
            "system:serviceaccount:kube-system:namespace-controller",
        ];
        for group in groups {
            let mut callers = callers();
            callers.groups.insert(group.into());
            assert_eq!(callers.dangerous("guard"), [group]);
        }
        for user in users {
            let mut callers = callers();
            callers.users.insert(user.into());
            assert_eq!(callers.dangerous("guard"), [user]);
        }
        for namespace in ["kube-system", "guard"] {
            let mut callers = callers();
            callers.service_account_namespaces.insert(namespace.into());
            assert_eq!(callers.dangerous("guard"), [namespace]);
        }
    }
}

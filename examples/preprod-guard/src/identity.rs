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

/// Groups and namespaces that hold the parts of a cluster. Listing one stops the cluster.
const CLUSTER_GROUPS: [&str; 6] = [
    "system:authenticated",
    "system:unauthenticated",
    "system:masters",
    "system:nodes",
    "system:serviceaccounts",
    "system:serviceaccounts:kube-system",
];

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

    /// The names that would include parts of the cluster itself.
    #[must_use]
    pub fn dangerous(&self) -> Vec<String> {
        let users = self.users.iter().filter(|user| {
            let account = user.strip_prefix("system:serviceaccount:");
            user.starts_with("system:")
                && account.is_none_or(|rest| rest.starts_with("kube-system:"))
        });
        let groups = self.groups.iter();
        let groups = groups.filter(|group| CLUSTER_GROUPS.contains(&group.as_str()));
        let namespaces = self.service_account_namespaces.iter();
        let namespaces = namespaces.filter(|namespace| *namespace == "kube-system");
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
    fn a_list_that_includes_parts_of_the_cluster_is_found() {
        let mut callers = callers();
        assert!(callers.dangerous().is_empty());
        callers.users.insert("system:apiserver".into());
        callers.groups.insert("system:nodes".into());
        callers
            .service_account_namespaces
            .insert("kube-system".into());
        assert_eq!(
            callers.dangerous(),
            ["system:apiserver", "system:nodes", "kube-system"]
        );
    }
}

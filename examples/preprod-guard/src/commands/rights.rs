//! The rights of pre-release callers that pass by the webhooks, or are aimed at the guard.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube_core::params::ListParams;
use reeve_client::Client;
use serde_json::json;

use super::doctor::{Finding, bad, good};
use crate::config::Config;
use crate::identity::of_account;
use crate::install;
use crate::program::BoxError;

/// Verbs, group, resource, subresource.
type Right = (
    &'static [&'static str],
    &'static str,
    &'static str,
    &'static str,
);

const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Rights in the whole cluster: the API server calls no webhook for the first ones and for connections to nodes.
#[rustfmt::skip]
const EVERYWHERE: [Right; 15] = [
    (&["delete", "deletecollection", "update", "patch"], ADMISSION, "validatingwebhookconfigurations", ""),
    (&["create", "update", "patch"], ADMISSION, "mutatingwebhookconfigurations", ""),
    (&["create", "update", "patch"], ADMISSION, "mutatingadmissionpolicies", ""),
    (&["create", "update", "patch"], ADMISSION, "mutatingadmissionpolicybindings", ""),
    // A policy that refuses requests of production callers.
    (&["create", "update", "patch"], ADMISSION, "validatingadmissionpolicies", ""),
    (&["create", "update", "patch"], ADMISSION, "validatingadmissionpolicybindings", ""),
    (&["impersonate"], "", "users", ""),
    (&["impersonate"], "", "groups", ""),
    (&["impersonate"], "", "serviceaccounts", ""),
    (&["impersonate"], "authentication.k8s.io", "uids", ""),
    (&["get", "create"], "", "nodes", "proxy"),
    (&["escalate", "bind"], RBAC, "clusterroles", ""),
    (&["escalate", "bind"], RBAC, "roles", ""),
    (&["create"], "", "serviceaccounts", "token"),
    (&["get", "list", "watch"], "", "secrets", ""),
];

/// Rights in namespaces of production and of the cluster.
const IN_PRODUCTION: [Right; 2] = [
    (&["create"], "", "serviceaccounts", "token"),
    (&["get", "list", "watch"], "", "secrets", ""),
];

/// The right to use the ServiceAccounts of a namespace, which counts in each one that is not a pre-release one.
const IMPERSONATION: Right = (&["impersonate"], "", "serviceaccounts", "");

/// Rights in the namespace of the guard. The webhooks refuse their use, as long as they are called.
#[rustfmt::skip]
const IN_OWN: [Right; 11] = [
    (&["delete", "update", "patch"], "apps", "deployments", ""),
    (&["update", "patch"], "apps", "deployments", "scale"),
    (&["update", "patch", "delete"], "", "configmaps", ""),
    (&["update", "patch", "delete"], "", "secrets", ""),
    (&["update", "patch", "delete"], "", "services", ""),
    (&["create", "delete", "deletecollection", "update", "patch"], "", "pods", ""),
    (&["get", "create"], "", "pods", "exec"),
    (&["create", "update", "patch", "delete"], "", "events", ""),
    (&["create", "update", "patch", "delete"], "events.k8s.io", "events", ""),
    (&["create", "update", "patch"], RBAC, "rolebindings", ""),
    (&["update", "patch", "delete"], "", "namespaces", ""),
];

/// The most Namespaces whose rights are checked one by one. Those with the label of production are checked in any case.
const MOST_NAMESPACES: usize = 500;

/// A caller as the API server sees it.
struct Caller {
    label: String,
    user: String,
    groups: Vec<String>,
}

/// A place of rights: in all namespaces, or in one.
struct Place<'a> {
    namespace: &'a str,
    name: &'a str,
}

/// The checks of all callers.
pub(super) async fn rights(client: &Client, config: &Config) -> Result<Vec<Finding>, BoxError> {
    let namespaces = client
        .list::<Namespace>(None, &ListParams::default())
        .await?;
    let mut production = vec!["kube-system".to_owned(), config.namespace.clone()];
    let (mut all, mut unchecked) = (Vec::new(), 0);
    for namespace in namespaces.items {
        let labels = namespace.metadata.labels.unwrap_or_default();
        let name = namespace.metadata.name.unwrap_or_default();
        let is_production = labels.get(&config.mark.label) == Some(&config.mark.value);
        if is_production {
            production.push(name.clone());
        }
        let is_pre_release = config.callers.service_account_namespaces.contains(&name);
        match is_pre_release {
            true => {}
            false if all.len() < MOST_NAMESPACES => all.push(name),
            false => unchecked += usize::from(!is_production),
        }
    }
    production.sort_unstable();
    production.dedup();
    let mut findings = Vec::new();
    if unchecked > 0 {
        findings.push(bad(format!(
            "rights in {unchecked} namespaces are not checked: it checks {MOST_NAMESPACES}, and those with the label of production"
        )));
    }
    for caller in callers(client, config).await? {
        findings.push(of_caller(client, config, (&all, &production), &caller).await?);
    }
    for namespace in &all {
        findings.extend(of_default(client, config, namespace).await?);
    }
    Ok(findings)
}

/// Every listed user and group, and each ServiceAccount of the listed namespaces. A binding may name an account or any of its
/// groups.
async fn callers(client: &Client, config: &Config) -> Result<Vec<Caller>, BoxError> {
    let listed = &config.callers;
    let mut callers = Vec::new();
    for user in &listed.users {
        let account = user.strip_prefix("system:serviceaccount:");
        let account = account.and_then(|account| account.split_once(':'));
        let groups = account.map(|(namespace, name)| of_account(namespace, name).groups);
        callers.push(Caller {
            label: format!("user {user}"),
            user: user.clone(),
            groups: groups.unwrap_or_else(|| vec!["system:authenticated".to_owned()]),
        });
    }
    // The API server requires a user, too: one that has no rights of its own.
    let group = |label: String, groups: Vec<String>| Caller {
        label,
        user: "preprod-guard:doctor".to_owned(),
        groups,
    };
    for name in &listed.groups {
        let groups = vec![name.clone(), "system:authenticated".to_owned()];
        callers.push(group(format!("group {name}"), groups));
    }
    for namespace in &listed.service_account_namespaces {
        let groups = of_account(namespace, "").groups;
        let label = format!("group system:serviceaccounts:{namespace}");
        callers.push(group(label, groups));
        let accounts = client
            .list::<ServiceAccount>(Some(namespace), &ListParams::default())
            .await?;
        for account in accounts.items {
            let name = account.metadata.name.unwrap_or_default();
            let user = of_account(namespace, &name);
            callers.push(Caller {
                label: format!("service account {namespace}/{name}"),
                user: user.username,
                groups: user.groups,
            });
        }
    }
    Ok(callers)
}

async fn of_caller(
    client: &Client,
    config: &Config,
    (all, production): (&[String], &[String]),
    caller: &Caller,
) -> Result<Finding, BoxError> {
    let mut held = Vec::new();
    let everywhere = Place {
        namespace: "",
        name: "",
    };
    for right in EVERYWHERE {
        let more = may(client, caller, right, &everywhere).await?;
        if more.is_empty() && right.2 == "validatingwebhookconfigurations" {
            // A role may name the configurations.
            for name in install::names(config) {
                let place = Place {
                    namespace: "",
                    name: &name,
                };
                held.extend(may(client, caller, right, &place).await?);
            }
        }
        held.extend(more);
    }
    let in_all = all.iter().map(|namespace| (namespace, IMPERSONATION));
    let in_production = production
        .iter()
        .flat_map(|namespace| IN_PRODUCTION.map(|right| (namespace, right)));
    let wide = held.clone();
    for (namespace, right) in in_all.chain(in_production) {
        let path = format!(" {}", path(right.2, right.3));
        // A right in the whole cluster is one in each namespace.
        if wide.iter().all(|held| !held.ends_with(&path)) {
            let place = Place {
                namespace,
                name: "",
            };
            held.extend(may(client, caller, right, &place).await?);
        }
    }
    for right in IN_OWN {
        let name = if right.2 == "namespaces" {
            config.namespace.as_str()
        } else {
            ""
        };
        let namespace = config.namespace.as_str();
        held.extend(may(client, caller, right, &Place { namespace, name }).await?);
    }
    let label = &caller.label;
    if held.is_empty() {
        return Ok(good(format!("rights of {label}")));
    }
    let held = held.join(", ");
    Ok(bad(format!(
        "{label} passes by the webhooks: may {held}; remove these rights"
    )))
}

/// The account that Pods run as which name none. Pre-release callers may start such Pods in every namespace.
async fn of_default(
    client: &Client,
    config: &Config,
    namespace: &str,
) -> Result<Option<Finding>, BoxError> {
    if config.may_use_account(namespace, "default") {
        return Ok(None);
    }
    let user = of_account(namespace, "default");
    let caller = Caller {
        label: String::new(),
        user: user.username,
        groups: user.groups,
    };
    let right: Right = (&["delete", "patch", "create"], "", "pods", "");
    let place = Place {
        namespace,
        name: "",
    };
    let held = may(client, &caller, right, &place).await?;
    if held.is_empty() {
        return Ok(None);
    }
    let held = held.join(", ");
    Ok(Some(bad(format!(
        "service account {namespace}/default may {held}, and every Pod of {namespace} that names no account runs as it; remove these rights"
    ))))
}

fn path(resource: &str, subresource: &str) -> String {
    if subresource.is_empty() {
        return resource.to_owned();
    }
    format!("{resource}/{subresource}")
}

/// The verbs of a right that the caller has, each with its resource.
async fn may(
    client: &Client,
    caller: &Caller,
    (verbs, group, resource, subresource): Right,
    place: &Place<'_>,
) -> Result<Vec<String>, BoxError> {
    let mut held = Vec::new();
    for verb in verbs {
        let review: SubjectAccessReview = serde_json::from_value(json!({"metadata": {}, "spec": {
            "user": caller.user, "groups": caller.groups,
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                "namespace": place.namespace, "name": place.name,
            },
        }}))?;
        let answer = client.create(&review).await?;
        if answer.status.is_some_and(|status| status.allowed) {
            let mut text = format!("{verb} {}", path(resource, subresource));
            if !place.name.is_empty() {
                text = format!("{text} {}", place.name);
            }
            if !place.namespace.is_empty() {
                text = format!("{text} in {}", place.namespace);
            }
            held.push(text);
        }
    }
    Ok(held)
}

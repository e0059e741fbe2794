//! Identities that a pre-release caller could take over: tokens, and Pods that run as a ServiceAccount.

use reeve_webhook::admission::Operation;
use serde_json::Value;

use super::{Finding, Rule};
use crate::config::Config;
use crate::object::Facts;
use crate::target::Target;

/// The subresources through which a caller acts inside a Pod.
const INSIDE: [&str; 3] = ["exec", "attach", "ephemeralcontainers"];

/// The matches. They need no cache. `parent` is the object of a subresource.
pub(super) fn findings(target: &Target, parent: Option<&Facts>, config: &Config) -> Vec<Finding> {
    let what = match (target.kind(), target.subresource.as_deref()) {
        (("", "serviceaccounts"), Some("token")) => token(target, config),
        (("", "secrets"), None) => secret(target, config),
        (("", "pods"), Some(name)) if INSIDE.contains(&name) => {
            let account = parent.and_then(|pod| foreign_account(target, pod, config));
            account.map(|account| format!("{name} of pod with service account {account}"))
        }
        (_, None) => template(target, config),
        _ => None,
    };
    let what = what.map(|what| {
        let remedy = "it is not a pre-release identity; list it in `accounts`";
        Finding::new(Rule::Account, target, format!("{what}: {remedy}"))
    });
    what.into_iter().collect()
}

fn token(target: &Target, config: &Config) -> Option<String> {
    let (namespace, name) = (&target.key.namespace, &target.key.name);
    let is_allowed = config.may_use_account(namespace, name);
    (!is_allowed).then(|| format!("token of service account {name}"))
}

/// A Secret that the cluster fills with a token, or that is a credential of a node that joins.
fn secret(target: &Target, config: &Config) -> Option<String> {
    let secret = new_value(target)?;
    match secret["type"].as_str()? {
        "kubernetes.io/service-account-token" => {
            let annotations = &secret["metadata"]["annotations"];
            let name = &annotations["kubernetes.io/service-account.name"];
            let name = name.as_str().unwrap_or_default();
            let is_allowed = config.may_use_account(&target.key.namespace, name);
            (!is_allowed).then(|| format!("secret with a token of service account {name}"))
        }
        "bootstrap.kubernetes.io/token" => Some("secret with a token for nodes".to_owned()),
        _ => None,
    }
}

/// A Pod or a template that is new or changed. A controller makes the Pods of a template under its own name.
fn template(target: &Target, config: &Config) -> Option<String> {
    let new = new_value(target)?;
    if target.operation == Operation::Update
        && let [old, _] = target.values.as_slice()
        && ["/spec/template", "/spec/jobTemplate"]
            .iter()
            .all(|path| old.pointer(path) == new.pointer(path))
        && (target.kind() != ("", "pods") || old["spec"] == new["spec"])
    {
        return None;
    }
    let account = foreign_account(target, target.states.last()?, config)?;
    Some(format!("{} with service account {account}", target.word()))
}

/// The ServiceAccount of a Pod or a template that is not one for pre-release callers. `default` is one: each Pod that names
/// none runs as it.
fn foreign_account<'a>(target: &Target, facts: &'a Facts, config: &Config) -> Option<&'a str> {
    let mut accounts = facts.uses.iter().filter_map(|(resource, name)| {
        let is_account = *resource == "serviceaccounts" && name != "default";
        is_account.then_some(name.as_str())
    });
    accounts.find(|name| !config.may_use_account(&target.key.namespace, name))
}

fn new_value(target: &Target) -> Option<&Value> {
    let changes = matches!(target.operation, Operation::Create | Operation::Update);
    target.values.last().filter(|_| changes)
}

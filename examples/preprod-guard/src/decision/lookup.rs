//! The rules that look up other objects.

use std::collections::BTreeSet;

use reeve_webhook::admission::Operation;
use serde_json::Value;

use super::{Finding, Rule};
use crate::config::Config;
use crate::object::{Facts, Key, strings};
use crate::state::State;
use crate::target::Target;

/// The most objects that a message names.
const NAMED: usize = 3;

/// The matches of these rules. `facts` are the states of the request and of the object of a subresource.
pub(super) fn findings(
    target: &Target,
    facts: &[&Facts],
    state: &State,
    config: &Config,
) -> Vec<Finding> {
    let rules = [
        (
            Rule::Cascade,
            "it contains",
            contained(target, state, config),
        ),
        (Rule::Owner, "it owns", owned(facts, state, config)),
        (
            Rule::Reference,
            "it is used by",
            referring(target, state, config),
        ),
        (Rule::Shared, "it holds for", sharing(target, state, config)),
    ];
    let mut found: Vec<Finding> = rules
        .into_iter()
        .filter(|(_, _, objects)| !objects.is_empty())
        .map(|(rule, relation, objects)| {
            let (word, name) = (target.word(), &target.key.name);
            let what = format!("{word} {name}: {relation} {}", counted(&objects));
            Finding::new(rule, target, what)
        })
        .collect();
    found.extend(pods(target, state, config));
    found
}

/// Whether the rules search all objects for this request. Pods that are deleted or evicted own nothing in a usual cluster, so
/// they do not wait for the caches.
pub(super) fn searches(target: &Target) -> bool {
    let creates = target.operation == Operation::Create && target.subresource.is_none();
    match target.kind() {
        ("", "pods") => names_account(target),
        ("apps" | "batch", _) if creates => names_account(target),
        ("", "namespaces" | "nodes") | ("apiextensions.k8s.io", _) => !creates,
        _ => true,
    }
}

/// Whether the new state names a ServiceAccount other than the default one.
fn names_account(target: &Target) -> bool {
    let mut uses = target.states.iter().flat_map(|facts| &facts.uses);
    let changes = matches!(target.operation, Operation::Create | Operation::Update);
    changes && uses.any(|(resource, name)| *resource == "serviceaccounts" && name != "default")
}

/// `2 production objects (pods/web-0, pods/web-1)`.
fn counted(objects: &[&Key]) -> String {
    let named = objects.iter().take(NAMED);
    let mut names: Vec<String> = named
        .map(|key| format!("{}/{}", key.resource, key.name))
        .collect();
    if objects.len() > NAMED {
        names.push("…".to_owned());
    }
    let plural = if objects.len() == 1 { "" } else { "s" };
    format!(
        "{} production object{plural} ({})",
        objects.len(),
        names.join(", ")
    )
}

/// The production objects in a Namespace, of a CustomResourceDefinition, or on a Node.
fn contained<'a>(target: &Target, state: &'a State, config: &Config) -> Vec<&'a Key> {
    let name = target.key.name.as_str();
    let changes = target.operation != Operation::Create || target.subresource.is_some();
    match target.kind() {
        ("", "namespaces") if changes => {
            state.production(&config.mark, |key, _| key.namespace == name)
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") if changes => {
            // The name of a definition is its plural and its group.
            let (plural, group) = name.split_once('.').unwrap_or_default();
            state.production(&config.mark, |key, _| {
                key.resource == plural && key.group == group
            })
        }
        ("", "nodes") if changes => {
            state.production(&config.mark, |_, facts| facts.node.as_deref() == Some(name))
        }
        _ => Vec::new(),
    }
}

/// The production objects that the object owns, directly or through others.
fn owned<'a>(facts: &[&Facts], state: &'a State, config: &Config) -> Vec<&'a Key> {
    let uids = facts.iter().map(|facts| facts.uid.clone());
    let uids: BTreeSet<String> = uids.filter(|uid| !uid.is_empty()).collect();
    if uids.is_empty() {
        return Vec::new();
    }
    let family = state.family(uids);
    state.production(&config.mark, |_, facts| !facts.owners.is_disjoint(&family))
}

/// The production objects that use the object, or that it selects or scales.
fn referring<'a>(target: &Target, state: &'a State, config: &Config) -> Vec<&'a Key> {
    let Key {
        namespace, name, ..
    } = &target.key;
    let mut found = Vec::new();
    let kind = target.kind();
    if let ("", "configmaps" | "secrets" | "serviceaccounts" | "persistentvolumeclaims") = kind {
        found.extend(state.production(&config.mark, |key, facts| {
            let mut uses = facts.uses.iter();
            key.namespace == *namespace
                && uses.any(|(resource, used)| *resource == target.key.resource && used == name)
        }));
    }
    for value in &target.values {
        let spec = &value["spec"];
        if kind == ("", "persistentvolumes") {
            found.extend(claiming(&spec["claimRef"], state, config));
        }
        let selector = match kind {
            ("", "services") => Some(&spec["selector"]).filter(|selector| selector.is_object()),
            ("policy", "poddisruptionbudgets") => Some(&spec["selector"]["matchLabels"]),
            ("networking.k8s.io", "networkpolicies") => Some(&spec["podSelector"]["matchLabels"]),
            _ => None,
        };
        if let Some(selector) = selector {
            found.extend(selected(namespace, selector, state, config));
        }
        if kind == ("autoscaling", "horizontalpodautoscalers") {
            found.extend(scaled(namespace, &spec["scaleTargetRef"], state, config));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The production Pods with all `labels`. Expressions of a selector are ignored, so too many Pods may match but not too few.
fn selected<'a>(
    namespace: &str,
    labels: &Value,
    state: &'a State,
    config: &Config,
) -> Vec<&'a Key> {
    let labels = strings(labels);
    state.production(&config.mark, |key, facts| {
        let mut labels = labels.iter();
        key.resource == "pods"
            && key.namespace == namespace
            && labels.all(|(name, value)| facts.labels.get(name) == Some(value))
    })
}

/// The production claim of a volume, and the production Pods that use it.
fn claiming<'a>(claim: &Value, state: &'a State, config: &Config) -> Vec<&'a Key> {
    let (Some(namespace), Some(name)) = (claim["namespace"].as_str(), claim["name"].as_str())
    else {
        return Vec::new();
    };
    let used = ("persistentvolumeclaims", name.to_owned());
    state.production(&config.mark, |key, facts| {
        let is_claim = key.resource == used.0 && key.name == name;
        key.namespace == namespace && (is_claim || facts.uses.contains(&used))
    })
}

/// The production object that an autoscaler scales.
fn scaled<'a>(namespace: &str, of: &Value, state: &'a State, config: &Config) -> Vec<&'a Key> {
    let (Some(kind), Some(name)) = (of["kind"].as_str(), of["name"].as_str()) else {
        return Vec::new();
    };
    let resource = format!("{}s", kind.to_lowercase());
    state.production(&config.mark, |key, _| {
        key.namespace == namespace && key.resource == resource && key.name == name
    })
}

/// The production objects of the namespace that a quota, a range of limits or rights hold for.
fn sharing<'a>(target: &Target, state: &'a State, config: &Config) -> Vec<&'a Key> {
    let namespace = &target.key.namespace;
    match target.kind() {
        ("", "resourcequotas" | "limitranges")
        | ("rbac.authorization.k8s.io", "roles" | "rolebindings") => {
            state.production(&config.mark, |key, _| key.namespace == *namespace)
        }
        _ => Vec::new(),
    }
}

/// The rules about Pods that the request adds or changes.
fn pods(target: &Target, state: &State, config: &Config) -> Vec<Finding> {
    let (old, new) = match (target.operation, target.states.as_slice()) {
        (Operation::Create, [new]) => (Facts::default(), new),
        (Operation::Update, [old, new]) => (old.clone(), new),
        _ => return Vec::new(),
    };
    let mut found = Vec::new();
    let word = target.word();
    for class in new.priority_classes.difference(&old.priority_classes) {
        if !config.priority_classes.contains(class) {
            let what = format!("{word} with priority class {class}");
            found.push(Finding::new(Rule::Priority, target, what));
        }
    }
    for (resource, account) in new.uses.difference(&old.uses) {
        // Pods that name no account run as `default`, in both environments.
        if *resource != "serviceaccounts" || account == "default" {
            continue;
        }
        let users = state.production(&config.mark, |key, facts| {
            key.namespace == target.key.namespace
                && facts.uses.contains(&("serviceaccounts", account.clone()))
        });
        if !users.is_empty() {
            let what = format!(
                "{word} with service account {account}: it is used by {}",
                counted(&users)
            );
            found.push(Finding::new(Rule::Account, target, what));
        }
    }
    found
}

//! The rules that look up other objects.

use std::collections::BTreeSet;

use reeve_webhook::admission::Operation;
use serde_json::Value;

use super::selector::{has_all, selects};
use super::{Finding, Rule};
use crate::config::Config;
use crate::kinds;
use crate::object::{CLAIMS_OF_SET, Facts, Key};
use crate::state::State;
use crate::target::Target;

/// The most objects that a message names.
const MOST_NAMED_OBJECTS: usize = 3;

/// The label of an EndpointSlice with the name of its Service.
const SERVICE_OF_SLICE: &str = "kubernetes.io/service-name";

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
        (
            Rule::Reference,
            "its controller could adopt",
            adopted(target, state, config),
        ),
        (
            Rule::Reference,
            "it could be adopted by",
            adopting(target, state, config),
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
    if found.is_empty() && is_unwatched_definition(target, config) {
        let name = &target.key.name;
        let what = format!("crd {name}: the guard does not watch its objects; add it to `kinds`");
        found.push(Finding::new(Rule::Cascade, target, what));
    }
    found
}

/// Whether the rules search all objects for this request. Pods that are deleted or evicted own nothing in a usual cluster, so
/// they do not wait for the caches.
pub(super) fn searches(target: &Target) -> bool {
    let creates = target.operation == Operation::Create && target.subresource.is_none();
    match target.kind() {
        ("", "pods") => changes_object(target),
        ("", "namespaces" | "nodes") | ("apiextensions.k8s.io", _) => !creates,
        _ => true,
    }
}

/// Whether the request creates or updates the object itself.
fn changes_object(target: &Target) -> bool {
    let writes = matches!(target.operation, Operation::Create | Operation::Update);
    writes && target.subresource.is_none()
}

/// `2 production objects (pods/web-0, pods/web-1)`.
fn counted(objects: &[&Key]) -> String {
    let named = objects.iter().take(MOST_NAMED_OBJECTS);
    let mut names: Vec<String> = named
        .map(|key| format!("{}/{}", key.resource, key.name))
        .collect();
    if objects.len() > MOST_NAMED_OBJECTS {
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
        ("", "namespaces") if changes => state.production_in(name, config, |_, _| true),
        ("apiextensions.k8s.io", "customresourcedefinitions") if changes => {
            let (plural, group) = of_definition(name);
            state.production(config, |key, _| {
                key.resource == plural && key.group == group
            })
        }
        ("", "nodes") if changes => {
            state.production(config, |_, facts| facts.node.as_deref() == Some(name))
        }
        _ => Vec::new(),
    }
}

/// The plural and the group in the name of a CustomResourceDefinition.
fn of_definition(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or_default()
}

/// Whether the request changes or deletes a CustomResourceDefinition whose objects the state does not have.
fn is_unwatched_definition(target: &Target, config: &Config) -> bool {
    let (plural, group) = of_definition(&target.key.name);
    let mut kinds = config.kinds.iter();
    target.kind() == ("apiextensions.k8s.io", "customresourcedefinitions")
        && target.operation != Operation::Create
        && !kinds.any(|kind| kind.plural == plural && kind.group == group)
}

/// The production objects that the object owns, directly or through others.
fn owned<'a>(facts: &[&Facts], state: &'a State, config: &Config) -> Vec<&'a Key> {
    let uids = facts.iter().map(|facts| facts.uid.clone());
    let uids: BTreeSet<String> = uids.filter(|uid| !uid.is_empty()).collect();
    state.production_of(uids, config)
}

/// The production objects that use the object, or that it selects or scales.
fn referring<'a>(target: &Target, state: &'a State, config: &Config) -> Vec<&'a Key> {
    let namespace = target.key.namespace.as_str();
    let mut found = using(target, state, config);
    let kind = target.kind();
    for value in &target.values {
        let spec = &value["spec"];
        let pods = |selected: &dyn Fn(&Facts) -> bool| {
            state.production_in(namespace, config, |key, facts| {
                key.resource == "pods" && selected(facts)
            })
        };
        found.extend(match kind {
            ("", "persistentvolumes") => claiming(&spec["claimRef"], state, config),
            ("", "services") => {
                let selector = &spec["selector"];
                pods(&|facts| selector.is_object() && has_all(selector, &facts.labels))
            }
            ("policy", "poddisruptionbudgets") => {
                pods(&|facts| selects(&spec["selector"], &facts.labels))
            }
            ("networking.k8s.io", "networkpolicies") => {
                pods(&|facts| selects(&spec["podSelector"], &facts.labels))
            }
            ("autoscaling", "horizontalpodautoscalers") => {
                scaled(namespace, &spec["scaleTargetRef"], state, config)
            }
            ("discovery.k8s.io", "endpointslices") => {
                let service = value["metadata"]["labels"][SERVICE_OF_SLICE].as_str();
                named(namespace, "services", service, state, config)
            }
            ("", "endpoints") => {
                let service = Some(target.key.name.as_str());
                named(namespace, "services", service, state, config)
            }
            _ => Vec::new(),
        });
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The production objects that name the object.
fn using<'a>(target: &Target, state: &'a State, config: &Config) -> Vec<&'a Key> {
    let Key {
        namespace,
        name,
        resource,
        ..
    } = &target.key;
    let (
        "" | "resource.k8s.io",
        "configmaps"
        | "secrets"
        | "serviceaccounts"
        | "persistentvolumeclaims"
        | "services"
        | "resourceclaims",
    ) = target.kind()
    else {
        return Vec::new();
    };
    state.production_in(namespace, config, |_, facts| {
        let mut uses = facts.uses.iter();
        uses.any(|(kind, used)| {
            *kind == resource && used == name
                || *kind == CLAIMS_OF_SET
                    && resource == "persistentvolumeclaims"
                    && is_claim_of_set(name, used)
        })
    })
}

/// Whether a claim has the name that a StatefulSet makes of this start and the number of a Pod.
fn is_claim_of_set(name: &str, start: &str) -> bool {
    let number = name.strip_prefix(start).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
}

/// The production object with this name.
fn named<'a>(
    namespace: &str,
    resource: &str,
    name: Option<&str>,
    state: &'a State,
    config: &Config,
) -> Vec<&'a Key> {
    state.production_in(namespace, config, |key, _| {
        key.resource == resource && Some(key.name.as_str()) == name
    })
}

/// The production claim of a volume, and the production Pods that use it.
fn claiming<'a>(claim: &Value, state: &'a State, config: &Config) -> Vec<&'a Key> {
    let (Some(namespace), Some(name)) = (claim["namespace"].as_str(), claim["name"].as_str())
    else {
        return Vec::new();
    };
    let used = ("persistentvolumeclaims", name.to_owned());
    state.production_in(namespace, config, |key, facts| {
        let is_claim = key.resource == used.0 && key.name == name;
        is_claim || facts.uses.contains(&used)
    })
}

/// The production object that an autoscaler scales, and those that it owns.
fn scaled<'a>(namespace: &str, of: &Value, state: &'a State, config: &Config) -> Vec<&'a Key> {
    let (Some(kind), Some(name)) = (of["kind"].as_str(), of["name"].as_str()) else {
        return Vec::new();
    };
    let version = of["apiVersion"].as_str().unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let Some(resource) = kinds::plural(config, group, kind) else {
        return Vec::new();
    };
    let key = Key {
        group: group.to_owned(),
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let Some(facts) = state.get(&key) else {
        return Vec::new();
    };
    let mut found = named(namespace, &key.resource, Some(name), state, config);
    found.extend(owned(&[facts], state, config));
    found
}

/// The production objects without a controller that the selector of a workload selects: its controller adopts them, and may
/// delete them under its own name (kube-controller-manager: `ControllerRefManager`).
fn adopted<'a>(target: &Target, state: &'a State, config: &Config) -> Vec<&'a Key> {
    if !changes_object(target) {
        return Vec::new();
    }
    let Some(spec) = target.values.last().map(|value| &value["spec"]) else {
        return Vec::new();
    };
    let selector = match target.kind() {
        ("batch", "cronjobs") => &spec["jobTemplate"]["spec"]["selector"],
        ("apps" | "batch", _) | ("", "replicationcontrollers") => &spec["selector"],
        _ => return Vec::new(),
    };
    let is_map = target.kind() == ("", "replicationcontrollers");
    state.production_in(&target.key.namespace, config, |key, facts| {
        let selected = match is_map {
            true => selector.is_object() && has_all(selector, &facts.labels),
            false => selects(selector, &facts.labels),
        };
        let is_kind = match target.kind() {
            ("apps", "deployments") => matches!(key.resource.as_str(), "pods" | "replicasets"),
            _ => key.resource == "pods",
        };
        is_kind && !facts.controlled && selected
    })
}

/// The production workloads whose selectors select the object, which has no controller: one that adopts it deletes another
/// one of its objects, if it has too many then.
fn adopting<'a>(target: &Target, state: &'a State, config: &Config) -> Vec<&'a Key> {
    let owners: &[&str] = match target.kind() {
        ("", "pods") => &[
            "daemonsets",
            "jobs",
            "replicasets",
            "replicationcontrollers",
            "statefulsets",
        ],
        ("apps", "replicasets") => &["deployments"],
        _ => return Vec::new(),
    };
    let new = target.states.last().filter(|new| !new.controlled);
    let Some(new) = new.filter(|_| changes_object(target)) else {
        return Vec::new();
    };
    state.production_in(&target.key.namespace, config, |key, facts| {
        let Some(selector) = &facts.selector else {
            return false;
        };
        owners.contains(&key.resource.as_str())
            && match key.resource.as_str() {
                "replicationcontrollers" => has_all(selector, &new.labels),
                _ => selects(selector, &new.labels),
            }
    })
}

/// The production objects of the namespace that a quota, a range of limits or rights hold for.
fn sharing<'a>(target: &Target, state: &'a State, config: &Config) -> Vec<&'a Key> {
    match target.kind() {
        ("", "resourcequotas" | "limitranges")
        | ("rbac.authorization.k8s.io", "roles" | "rolebindings") => {
            state.production_in(&target.key.namespace, config, |_, _| true)
        }
        _ => Vec::new(),
    }
}

/// PriorityClasses that the request adds to Pods. They need no cache.
pub(super) fn priorities(target: &Target, config: &Config) -> Vec<Finding> {
    let (old, new) = match (target.operation, target.states.as_slice()) {
        (Operation::Create, [new]) => (None, new),
        (Operation::Update, [old, new]) => (Some(&old.priority_classes), new),
        _ => return Vec::new(),
    };
    let classes = new.priority_classes.iter();
    classes
        .filter(|class| {
            !old.is_some_and(|old| old.contains(*class))
                && !config.priority_classes.contains(*class)
        })
        .map(|class| {
            let what = format!("{} with priority class {class}", target.word());
            Finding::new(Rule::Priority, target, what)
        })
        .collect()
}

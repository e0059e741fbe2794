//! The manifests agree with the program.

use std::collections::BTreeSet;

use preprod_guard::config::Config;
use preprod_guard::kinds::{self, Watched};
use serde_json::Value;

const GUARD: &str = include_str!("../../manifests/guard.yaml");
const RIGHTS: &str = include_str!("../../manifests/rbac.yaml");

fn documents(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n");
    documents
        .map(|one| serde_saphyr::from_str(one).unwrap())
        .collect()
}

fn find(text: &str, kind: &str) -> Value {
    let mut all = documents(text).into_iter();
    all.find(|one| one["kind"] == kind).unwrap()
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().unwrap().iter();
    items.map(|one| one.as_str().unwrap().to_owned()).collect()
}

/// The rights as group, resource and verb, without those to single objects.
fn rights(role: &Value) -> BTreeSet<(String, String, String)> {
    let mut found = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        if !rule["resourceNames"].is_null() {
            continue;
        }
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    found.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    found
}

#[test]
fn the_role_has_the_rights_that_the_guarded_kinds_need_and_no_others() {
    let mut needed = BTreeSet::new();
    for kind in kinds::all(&Config::default()) {
        let verbs: &[&str] = match kind.watched {
            Watched::No if kind.subresources.is_empty() && kind.connections.is_empty() => &[],
            Watched::No => &["get"],
            _ => &["get", "list", "watch"],
        };
        for verb in verbs {
            let (group, plural) = (kind.resource.group.clone(), kind.resource.plural.clone());
            needed.insert((group, plural, (*verb).to_owned()));
        }
    }
    assert_eq!(rights(&find(RIGHTS, "ClusterRole")), needed);
    let role = rights(&find(RIGHTS, "Role"));
    let writes: Vec<String> = role
        .into_iter()
        .map(|(group, resource, verb)| format!("{verb} {resource}.{group}"))
        .collect();
    assert_eq!(
        writes,
        [
            "create events.",
            "list events.",
            "watch events.",
            "create secrets.",
            "create events.events.k8s.io",
            "patch events.events.k8s.io",
        ]
    );
}

#[test]
fn two_replicas_have_a_disruption_budget_and_their_configuration_is_valid() {
    let config = find(GUARD, "ConfigMap");
    let config = Config::parse(config["data"]["guard.yaml"].as_str().unwrap()).unwrap();
    let defaults = Config::default();
    assert_eq!(
        (&config.namespace, &config.service),
        (&defaults.namespace, &defaults.service)
    );
    let deployment = find(GUARD, "Deployment");
    assert_eq!(deployment["spec"]["replicas"], 2);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let budget = find(GUARD, "PodDisruptionBudget");
    assert_eq!(budget["spec"]["minAvailable"], 1);
    assert_eq!(&budget["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(&find(GUARD, "Service")["spec"]["selector"], labels);
    for object in documents(GUARD).into_iter().skip(1) {
        assert_eq!(object["metadata"]["namespace"], defaults.namespace.as_str());
    }
    let names = find(RIGHTS, "ClusterRole")["rules"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()["resourceNames"]
        .clone();
    assert_eq!(texts(&names), preprod_guard::install::names(&config));
}

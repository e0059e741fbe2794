//! Nodes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1;
use serde_json::{Map, Value, json};

use super::entry::Entry;
use super::strategy::{Context, Strategy};
use super::{check, immutable, network_rules};
use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::names;
use crate::resource::{Column, ResourceInfo, SelectableField};
use crate::table::cells::{NONE, aged, items, joined, plain, string, text, wide};

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[Entry::of::<v1::Node>("", "nodes", &Nodes)];

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Nodes.
#[derive(Debug)]
pub(super) struct Nodes;

// === impl Nodes ===

impl Strategy for Nodes {
    fn describe(&self, info: &mut ResourceInfo) {
        info.selectable_fields = vec![SelectableField::at("spec.unschedulable")];
    }

    /// A new Node is not ready. (apiserver: admission plugin TaintNodesByCondition.)
    fn prepare_create(&self, _: &Context<'_>, node: &mut Value) {
        const NOT_READY: &str = "node.kubernetes.io/not-ready";
        let spec = meta::map_at(meta::object_mut(node), "spec");
        let taints = meta::list_at(spec, "taints");
        if !taints.iter().any(|taint| taint["key"] == NOT_READY) {
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        }
    }

    fn default(&self, _: &ResourceInfo, node: &mut Value) {
        one_network(meta::map_at(meta::object_mut(node), "spec"));
        let capacity = node["status"]["capacity"].clone();
        if capacity.is_object() && node["status"]["allocatable"].is_null() {
            let status = meta::map_at(meta::object_mut(node), "status");
            status.insert("allocatable".to_owned(), capacity);
        }
    }

    fn keeps_status(&self) -> bool {
        true
    }

    fn validate(&self, _: &Context<'_>, node: &Value, old: Option<&Value>, errors: &mut Errors) {
        taints(&node["spec"], errors);
        for list in ["capacity", "allocatable"] {
            let amounts = node["status"][list].as_object();
            for (name, amount) in amounts.into_iter().flatten() {
                let path = Path::new("status").child(list).child(name);
                check::resource_amount(amount, &path, errors);
            }
        }
        networks(&node["spec"], errors);
        if let Some(old) = old {
            assigned_once(&node["spec"], &old["spec"], errors);
        }
    }

    fn columns(&self) -> Vec<Column> {
        nodes()
    }
}

/// Makes `podCIDR` and the first of `podCIDRs` the same. The first field decides, as old clients know no other.
fn one_network(spec: &mut Map<String, Value>) {
    let one = spec.get("podCIDR").map_or("", string).to_owned();
    let first = spec.get("podCIDRs").and_then(|all| all.get(0));
    let first = first.map(|first| string(first).to_owned());
    match first {
        Some(first) if one.is_empty() => spec.insert("podCIDR".to_owned(), first.into()),
        first if !one.is_empty() && first.as_ref() != Some(&one) => {
            spec.insert("podCIDRs".to_owned(), json!([one]))
        }
        _ => None,
    };
}

/// Checks the taints. kube-apiserver names them as if they were metadata.
fn taints(spec: &Value, errors: &mut Errors) {
    let mut known = BTreeSet::new();
    for (at, taint) in items(&spec["taints"]).iter().enumerate() {
        let path = Path::new("metadata").child("taints").index(at);
        let key = string(&taint["key"]);
        check::refuse(key, names::qualified_name, &path.child("key"), errors);
        let value = string(&taint["value"]);
        let problems = names::label_value(value);
        if !problems.is_empty() {
            let text = problems.join(";");
            errors.push(FieldError::invalid(&path.child("value"), value, text));
        }
        check::one_of(&taint["effect"], &path.child("effect"), EFFECTS, errors);
        if !known.insert((key, string(&taint["effect"]))) {
            let mut error = FieldError::duplicate(&path, taint.clone());
            "taints must be unique by key and effect pair".clone_into(&mut error.detail);
            errors.push(error);
        }
    }
}

/// Checks the networks of the Pods: one, or one of each family.
fn networks(spec: &Value, errors: &mut Errors) {
    let (all, path) = (
        items(&spec["podCIDRs"]),
        Path::new("spec").child("podCIDRs"),
    );
    let mut families = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let network = network_rules::network(string(one), &[], &path.index(at), errors);
        families.extend(network.map(|network| network.address.is_ipv4()));
    }
    if all.len() < 2 {
        return;
    }
    let is_pair = all.len() == 2 && families.len() == 2 && families[0] != families[1];
    if !is_pair {
        let text = "may specify no more than one CIDR for each IP family";
        errors.push(FieldError::invalid(&path, spec["podCIDRs"].clone(), text));
    }
}

/// Refuses changes of what is assigned once.
fn assigned_once(spec: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    for (field, name) in [("podCIDRs", "podCIDR"), ("providerID", "providerID")] {
        let was_set = !items(&old[field]).is_empty() || !string(&old[field]).is_empty();
        if was_set && !immutable::is_same(&spec[field], &old[field]) {
            let text = format!("node updates may not change {name} except from \"\" to valid");
            errors.push(FieldError::forbidden(&path.child(field), text));
        }
    }
    if string(&spec["externalID"]) != string(&old["externalID"]) {
        let text = "may not be updated";
        errors.push(FieldError::forbidden(&path.child("externalID"), text));
    }
}

fn nodes() -> Vec<Column> {
    fn address(node: &Value, kind: &str) -> Value {
        items(&node["status"]["addresses"])
            .iter()
            .find(|address| address["type"] == kind)
            .map_or_else(|| NONE.into(), |address| plain(&address["address"]))
    }
    fn info(node: &Value, field: &str) -> Value {
        match string(&node["status"]["nodeInfo"][field]) {
            "" => "<unknown>".into(),
            text => text.into(),
        }
    }
    vec![
        text("Status", |node, _| {
            let ready = items(&node["status"]["conditions"])
                .iter()
                .find(|condition| condition["type"] == "Ready");
            let mut status = match ready {
                Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
                Some(_) => "NotReady".to_owned(),
                None => "Unknown".to_owned(),
            };
            if node["spec"]["unschedulable"] == true {
                status.push_str(",SchedulingDisabled");
            }
            status.into()
        }),
        text("Roles", |node, _| {
            let labels = node["metadata"]["labels"].as_object();
            let roles = joined(labels.into_iter().flatten().filter_map(|(key, value)| {
                match key.strip_prefix("node-role.kubernetes.io/") {
                    Some(role) => Some(role).filter(|role| !role.is_empty()),
                    None if key == "kubernetes.io/role" => value.as_str(),
                    None => None,
                }
            }));
            if roles.is_empty() {
                NONE.into()
            } else {
                roles.into()
            }
        }),
        aged(),
        text("Version", |node, _| {
            plain(&node["status"]["nodeInfo"]["kubeletVersion"])
        }),
        wide("Internal-IP", |node, _| address(node, "InternalIP")),
        wide("External-IP", |node, _| address(node, "ExternalIP")),
        wide("OS-Image", |node, _| info(node, "osImage")),
        wide("Kernel-Version", |node, _| info(node, "kernelVersion")),
        wide("Container-Runtime", |node, _| {
            info(node, "containerRuntimeVersion")
        }),
    ]
}

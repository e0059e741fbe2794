//! Nodes.

use serde_json::{Value, json};

use super::strategy::{Context, Strategy};
use crate::meta;
use crate::resource::{Column, ResourceInfo, SelectableField};
use crate::table::cells::{NONE, aged, items, joined, plain, string, text, wide};

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
        let capacity = node["status"]["capacity"].clone();
        if capacity.is_object() && node["status"]["allocatable"].is_null() {
            let status = meta::map_at(meta::object_mut(node), "status");
            status.insert("allocatable".to_owned(), capacity);
        }
    }

    fn keeps_status(&self) -> bool {
        true
    }

    fn columns(&self) -> Vec<Column> {
        nodes()
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

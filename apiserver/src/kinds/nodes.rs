//! Nodes.

use serde_json::Value;

use super::strategy::Strategy;
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

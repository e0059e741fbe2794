//! The columns of the built-in kinds.

use jiff::Timestamp;
use serde_json::Value;

use super::{count, networking, number, pods, since};
use crate::builtin_schema;
use crate::resource::{Column, ColumnSource};
use crate::selector::LabelSelector;

pub(super) type Compute = fn(&Value, Timestamp) -> Value;

pub(super) const NONE: &str = "<none>";

/// The columns of a built-in kind; the age for a kind without its own.
pub(crate) fn columns(group: &str, kind: &str) -> Vec<Column> {
    let age = || text("Age", age);
    let template = || vec![wide("Containers", container_names), wide("Images", images)];
    match (group, kind) {
        ("", "Namespace") => vec![
            text("Status", |value, _| plain(&value["status"]["phase"])),
            age(),
        ],
        ("", "ConfigMap") => {
            let mut data = text("Data", config_map_size);
            let described = builtin_schema::description("io.k8s.api.core.v1.ConfigMap", "data");
            described.clone_into(&mut data.description);
            vec![data, age()]
        }
        ("", "Secret") => vec![
            text("Type", |value, _| plain(&value["type"])),
            text("Data", |value, _| size(&value["data"])),
            age(),
        ],
        ("", "Service") => networking::services(),
        ("", "ServiceAccount") => vec![age()],
        ("" | "events.k8s.io", "Event") => events(),
        ("", "Pod") => vec![
            text("Ready", pods::ready),
            text("Status", pods::status),
            text("Restarts", pods::restarts),
            age(),
            wide("IP", |pod, _| or_none(&pod["status"]["podIPs"][0]["ip"])),
            wide("Node", |pod, _| or_none(&pod["spec"]["nodeName"])),
            wide("Nominated Node", |pod, _| {
                or_none(&pod["status"]["nominatedNodeName"])
            }),
            wide("Readiness Gates", pods::readiness_gates),
        ],
        ("", "Node") => nodes(),
        ("", "Endpoints") => vec![text("Endpoints", networking::endpoints), age()],
        ("apps", "Deployment") => {
            let mut columns = vec![
                text("Ready", |value, _| ready(value, "readyReplicas")),
                text("Up-to-date", |value, _| {
                    number(count(&value["status"]["updatedReplicas"]))
                }),
                text("Available", |value, _| {
                    number(count(&value["status"]["availableReplicas"]))
                }),
                age(),
            ];
            columns.extend(template());
            columns.push(wide("Selector", selector));
            columns
        }
        ("apps", "ReplicaSet") => {
            let mut columns = vec![
                integer("Desired", |value, _| {
                    number(count(&value["spec"]["replicas"]))
                }),
                integer("Current", |value, _| {
                    number(count(&value["status"]["replicas"]))
                }),
                integer("Ready", |value, _| {
                    number(count(&value["status"]["readyReplicas"]))
                }),
                age(),
            ];
            columns.extend(template());
            columns.push(wide("Selector", selector));
            columns
        }
        ("apps", "StatefulSet") => {
            let mut columns = vec![
                text("Ready", |value, _| ready(value, "readyReplicas")),
                age(),
            ];
            columns.extend(template());
            columns
        }
        ("apps", "DaemonSet") => daemon_sets(),
        ("batch", "Job") => jobs(),
        ("networking.k8s.io", "Ingress") => networking::ingresses(),
        ("networking.k8s.io", "IngressClass") => vec![
            text("Controller", |value, _| plain(&value["spec"]["controller"])),
            text("Parameters", networking::parameters),
            age(),
        ],
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole")
        | ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let created: Compute = |value, _| plain(&value["metadata"]["creationTimestamp"]);
            vec![column("Created At", "date", 0, created)]
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => vec![
            text("Role", |value, _| {
                let reference = &value["roleRef"];
                format!(
                    "{}/{}",
                    string(&reference["kind"]),
                    string(&reference["name"])
                )
                .into()
            }),
            age(),
            wide("Users", |value, _| subjects(value, "User")),
            wide("Groups", |value, _| subjects(value, "Group")),
            wide("ServiceAccounts", |value, _| {
                subjects(value, "ServiceAccount")
            }),
        ],
        ("coordination.k8s.io", "Lease") => vec![
            text("Holder", |value, _| plain(&value["spec"]["holderIdentity"])),
            age(),
        ],
        _ => vec![age()],
    }
}

fn column(name: &str, kind: &str, priority: i64, compute: Compute) -> Column {
    Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: String::new(),
        description: String::new(),
        priority,
        source: ColumnSource::Computed(compute),
    }
}

pub(super) fn text(name: &str, compute: Compute) -> Column {
    column(name, "string", 0, compute)
}

fn integer(name: &str, compute: Compute) -> Column {
    column(name, "integer", 0, compute)
}

/// Shown only with `-o wide`.
pub(super) fn wide(name: &str, compute: Compute) -> Column {
    column(name, "string", 1, compute)
}

// === cells ===

pub(super) fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn plain(value: &Value) -> Value {
    string(value).into()
}

pub(super) fn or_none(value: &Value) -> Value {
    match string(value) {
        "" => NONE.into(),
        text => text.into(),
    }
}

pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join(",")
}

/// Time since a timestamp; `<unknown>` when there is none.
fn ago(time: &Value, now: Timestamp) -> String {
    string(time)
        .parse::<Timestamp>()
        .map_or_else(|_| "<unknown>".to_owned(), |time| since(time, now))
}

pub(super) fn age(value: &Value, now: Timestamp) -> Value {
    ago(&value["metadata"]["creationTimestamp"], now).into()
}

fn size(value: &Value) -> Value {
    number(
        value
            .as_object()
            .map_or(0, |map| i64::try_from(map.len()).unwrap_or(i64::MAX)),
    )
}

fn config_map_size(value: &Value, _: Timestamp) -> Value {
    number(count(&size(&value["data"])) + count(&size(&value["binaryData"])))
}

fn ready(value: &Value, field: &str) -> Value {
    format!(
        "{}/{}",
        count(&value["status"][field]),
        count(&value["spec"]["replicas"])
    )
    .into()
}

fn containers(value: &Value) -> &[Value] {
    items(&value["spec"]["template"]["spec"]["containers"])
}

fn container_names(value: &Value, _: Timestamp) -> Value {
    joined(
        containers(value)
            .iter()
            .map(|container| string(&container["name"])),
    )
    .into()
}

fn images(value: &Value, _: Timestamp) -> Value {
    joined(
        containers(value)
            .iter()
            .map(|container| string(&container["image"])),
    )
    .into()
}

/// The label selector of `spec.selector`.
fn selector(value: &Value, _: Timestamp) -> Value {
    match LabelSelector::from_value(&value["spec"]["selector"]) {
        Ok(selector) if selector.is_empty() => NONE.into(),
        Ok(selector) => selector.to_string().into(),
        Err(_) => "<error>".into(),
    }
}

/// Labels as `a=b,c=d`.
pub(super) fn labels(value: &Value) -> Value {
    match value.as_object() {
        Some(map) if !map.is_empty() => map
            .iter()
            .map(|(key, value)| format!("{key}={}", string(value)))
            .collect::<Vec<_>>()
            .join(",")
            .into(),
        _ => NONE.into(),
    }
}

fn events() -> Vec<Column> {
    let mut name = column("Name", "string", 1, |value, _| {
        plain(&value["metadata"]["name"])
    });
    name.format = "name".to_owned();
    vec![
        text("Last Seen", |event, now| {
            if event["series"].is_object() {
                return ago(&event["series"]["lastObservedTime"], now).into();
            }
            if event["lastTimestamp"].is_string() {
                return ago(&event["lastTimestamp"], now).into();
            }
            first_seen(event, now)
        }),
        text("Type", |event, _| plain(&event["type"])),
        text("Reason", |event, _| plain(&event["reason"])),
        text("Object", |event, _| {
            let object = &event["involvedObject"];
            let kind = string(&object["kind"]).to_lowercase();
            match string(&object["name"]) {
                "" => kind.into(),
                name => format!("{kind}/{name}").into(),
            }
        }),
        wide("Subobject", |event, _| {
            plain(&event["involvedObject"]["fieldPath"])
        }),
        wide("Source", |event, _| {
            let source = &event["source"];
            let (component, host) = match string(&source["component"]) {
                "" => (
                    string(&event["reportingComponent"]),
                    string(&event["reportingInstance"]),
                ),
                component => (component, string(&source["host"])),
            };
            if host.is_empty() {
                component.into()
            } else {
                format!("{component}, {host}").into()
            }
        }),
        text("Message", |event, _| {
            string(&event["message"]).trim().into()
        }),
        wide("First Seen", first_seen),
        wide("Count", |event, _| {
            if event["series"].is_object() {
                return number(count(&event["series"]["count"]));
            }
            number(count(&event["count"]).max(1))
        }),
        name,
    ]
}

fn first_seen(event: &Value, now: Timestamp) -> Value {
    if event["firstTimestamp"].is_string() {
        return ago(&event["firstTimestamp"], now).into();
    }
    ago(&event["eventTime"], now).into()
}

fn subjects(value: &Value, kind: &str) -> Value {
    let names: Vec<String> = items(&value["subjects"])
        .iter()
        .filter(|subject| subject["kind"] == kind)
        .map(|subject| match (kind, string(&subject["namespace"])) {
            ("ServiceAccount", namespace) => format!("{namespace}/{}", string(&subject["name"])),
            _ => string(&subject["name"]).to_owned(),
        })
        .collect();
    names.join(", ").into()
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
        text("Age", age),
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

fn daemon_sets() -> Vec<Column> {
    let mut columns = vec![
        integer("Desired", |value, _| {
            number(count(&value["status"]["desiredNumberScheduled"]))
        }),
        integer("Current", |value, _| {
            number(count(&value["status"]["currentNumberScheduled"]))
        }),
        integer("Ready", |value, _| {
            number(count(&value["status"]["numberReady"]))
        }),
        integer("Up-to-date", |value, _| {
            number(count(&value["status"]["updatedNumberScheduled"]))
        }),
        integer("Available", |value, _| {
            number(count(&value["status"]["numberAvailable"]))
        }),
        text("Node Selector", |value, _| {
            labels(&value["spec"]["template"]["spec"]["nodeSelector"])
        }),
        text("Age", age),
    ];
    columns.extend([
        wide("Containers", container_names),
        wide("Images", images),
        wide("Selector", selector),
    ]);
    columns
}

fn jobs() -> Vec<Column> {
    fn has(job: &Value, kind: &str) -> bool {
        items(&job["status"]["conditions"])
            .iter()
            .any(|condition| condition["type"] == kind && condition["status"] == "True")
    }
    vec![
        text("Status", |job, _| {
            let deleted = !job["metadata"]["deletionTimestamp"].is_null();
            let status = match job {
                _ if has(job, "Complete") => "Complete",
                _ if has(job, "Failed") => "Failed",
                _ if deleted => "Terminating",
                _ if has(job, "Suspended") => "Suspended",
                _ if has(job, "FailureTarget") => "FailureTarget",
                _ if has(job, "SuccessCriteriaMet") => "SuccessCriteriaMet",
                _ => "Running",
            };
            status.into()
        }),
        text("Completions", |job, _| {
            let succeeded = count(&job["status"]["succeeded"]);
            let parallelism = count(&job["spec"]["parallelism"]);
            match job["spec"]["completions"].as_i64() {
                Some(wanted) => format!("{succeeded}/{wanted}"),
                None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
                None => format!("{succeeded}/1"),
            }
            .into()
        }),
        text("Duration", |job, now| {
            let status = &job["status"];
            let Ok(start) = string(&status["startTime"]).parse::<Timestamp>() else {
                return "".into();
            };
            let end = string(&status["completionTime"]).parse().unwrap_or(now);
            since(start, end).into()
        }),
        text("Age", age),
        wide("Containers", container_names),
        wide("Images", images),
        wide("Selector", selector),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::Rows;
    use super::*;
    use serde_json::json;

    /// Headings and cells of kube-apiserver 1.36.
    #[test]
    fn rows_of_built_in_kinds_are_those_of_a_real_server() {
        let metadata = json!({"name": "x", "creationTimestamp": "2026-11-21T11:16:11Z"});
        let pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}});
        let workload =
            json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": pod});
        let rbac = "rbac.authorization.k8s.io";
        let cases = [
            (
                "",
                "Namespace",
                json!({"status": {"phase": "Active"}}),
                "Name|Status|Age",
                json!(["x", "Active", "30m"]),
            ),
            (
                "",
                "ConfigMap",
                json!({"data": {"a": "1"}, "binaryData": {"b": ""}}),
                "Name|Data|Age",
                json!(["x", 2, "30m"]),
            ),
            (
                "",
                "Secret",
                json!({"type": "Opaque", "data": {"a": ""}}),
                "Name|Type|Data|Age",
                json!(["x", "Opaque", 1, "30m"]),
            ),
            (
                "",
                "ServiceAccount",
                json!({}),
                "Name|Age",
                json!(["x", "30m"]),
            ),
            (
                "",
                "Service",
                json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.160", "clusterIPs": ["10.0.0.160"], "selector": {"a": "b"}, "ports": [
                    {"port": 80, "nodePort": 31602, "protocol": "TCP"}, {"port": 53, "nodePort": 30161, "protocol": "UDP"},
                ]}}),
                "Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector",
                json!([
                    "x",
                    "LoadBalancer",
                    "10.0.0.160",
                    "<pending>",
                    "80:31602/TCP,53:30161/UDP",
                    "30m",
                    "a=b"
                ]),
            ),
            (
                "",
                "Service",
                json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}, "status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}, {"hostname": "h"}]}}}),
                "Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector",
                json!([
                    "x",
                    "LoadBalancer",
                    "10.0.0.1",
                    "1.1.1.1,h",
                    "<none>",
                    "30m",
                    "<none>"
                ]),
            ),
            (
                "",
                "Service",
                json!({"spec": {"type": "ExternalName", "externalName": "x.y"}}),
                "Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector",
                json!([
                    "x",
                    "ExternalName",
                    "<none>",
                    "x.y",
                    "<none>",
                    "30m",
                    "<none>"
                ]),
            ),
            (
                "",
                "Event",
                json!({"involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.x"}, "reason": "R", "message": " m \n", "type": "Normal",
                    "source": {"component": "c", "host": "h"}, "firstTimestamp": "2026-11-21T00:00:00Z", "lastTimestamp": "2026-11-21T10:00:00Z", "count": 3}),
                "Last Seen|Type|Reason|Object|Subobject|Source|Message|First Seen|Count|Name",
                json!([
                    "106m", "Normal", "R", "pod/p", "spec.x", "c, h", "m", "11h", 3, "x"
                ]),
            ),
            (
                "",
                "Event",
                json!({"involvedObject": {"kind": "Node"}, "reason": "R", "eventTime": "2026-11-21T11:46:00.000000Z", "lastTimestamp": null,
                    "reportingComponent": "c", "reportingInstance": "i"}),
                "Last Seen|Type|Reason|Object|Subobject|Source|Message|First Seen|Count|Name",
                json!(["11s", "", "R", "node", "", "c, i", "", "11s", 1, "x"]),
            ),
            (
                "",
                "Pod",
                json!({"spec": {"containers": [{}]}, "status": {"phase": "Pending"}}),
                "Name|Ready|Status|Restarts|Age|IP|Node|Nominated Node|Readiness Gates",
                json!([
                    "x", "0/1", "Pending", "0", "30m", "<none>", "<none>", "<none>", "<none>"
                ]),
            ),
            (
                "",
                "Node",
                json!({"spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.2"}, "addresses": [{"type": "InternalIP", "address": "1.1.1.1"}]}}),
                "Name|Status|Roles|Age|Version|Internal-IP|External-IP|OS-Image|Kernel-Version|Container-Runtime",
                json!([
                    "x",
                    "Ready,SchedulingDisabled",
                    "<none>",
                    "30m",
                    "v1.2",
                    "1.1.1.1",
                    "<none>",
                    "<unknown>",
                    "<unknown>",
                    "<unknown>"
                ]),
            ),
            (
                "",
                "Endpoints",
                json!({"subsets": [{"addresses": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}], "ports": [{"port": 80}]}]}),
                "Name|Endpoints|Age",
                json!(["x", "1.2.3.4:80,1.2.3.5:80", "30m"]),
            ),
            (
                "apps",
                "Deployment",
                json!({"spec": workload, "status": {"readyReplicas": 1}}),
                "Name|Ready|Up-to-date|Available|Age|Containers|Images|Selector",
                json!(["x", "1/2", 0, 0, "30m", "c,d", "i,j", "a=b"]),
            ),
            (
                "apps",
                "ReplicaSet",
                json!({"spec": workload}),
                "Name|Desired|Current|Ready|Age|Containers|Images|Selector",
                json!(["x", 2, 0, 0, "30m", "c,d", "i,j", "a=b"]),
            ),
            (
                "apps",
                "StatefulSet",
                json!({"spec": workload}),
                "Name|Ready|Age|Containers|Images",
                json!(["x", "0/2", "30m", "c,d", "i,j"]),
            ),
            (
                "apps",
                "DaemonSet",
                json!({"spec": workload}),
                "Name|Desired|Current|Ready|Up-to-date|Available|Node Selector|Age|Containers|Images|Selector",
                json!(["x", 0, 0, 0, 0, 0, "<none>", "30m", "c,d", "i,j", "a=b"]),
            ),
            (
                "batch",
                "Job",
                json!({"spec": {"completions": 1, "template": pod}}),
                "Name|Status|Completions|Duration|Age|Containers|Images|Selector",
                json!(["x", "Running", "0/1", "", "30m", "c,d", "i,j", "<none>"]),
            ),
            (
                "networking.k8s.io",
                "Ingress",
                json!({"spec": {"ingressClassName": "c", "tls": [{}], "rules": [{"host": "a.b"}, {"host": "c.d"}]}}),
                "Name|Class|Hosts|Address|Ports|Age",
                json!(["x", "c", "a.b,c.d", "", "80, 443", "30m"]),
            ),
            (
                "networking.k8s.io",
                "Ingress",
                json!({"spec": {}, "status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}}),
                "Name|Class|Hosts|Address|Ports|Age",
                json!(["x", "<none>", "*", "1.1.1.1", "80", "30m"]),
            ),
            (
                "networking.k8s.io",
                "IngressClass",
                json!({"spec": {"controller": "a.b/c"}}),
                "Name|Controller|Parameters|Age",
                json!(["x", "a.b/c", "<none>", "30m"]),
            ),
            (
                rbac,
                "Role",
                json!({}),
                "Name|Created At",
                json!(["x", "2026-11-21T11:16:11Z"]),
            ),
            (
                rbac,
                "RoleBinding",
                json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
                    {"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "sa", "namespace": "n"}, {"kind": "Group", "name": "g"},
                ]}),
                "Name|Role|Age|Users|Groups|ServiceAccounts",
                json!(["x", "Role/r", "30m", "u", "g", "n/sa"]),
            ),
            (
                "coordination.k8s.io",
                "Lease",
                json!({"spec": {"holderIdentity": "h"}}),
                "Name|Holder|Age",
                json!(["x", "h", "30m"]),
            ),
            (
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                json!({}),
                "Name|Created At",
                json!(["x", "2026-11-21T11:16:11Z"]),
            ),
        ];
        let now = "2026-11-21T11:46:11Z".parse().unwrap();
        for (group, kind, mut object, headings, cells) in cases {
            object["metadata"] = metadata.clone();
            let columns = columns(group, kind);
            let rows = Rows::new(&columns, now);
            let names: Vec<Value> = rows
                .definitions()
                .iter()
                .map(|column| column["name"].clone())
                .collect();
            let expected: Vec<&str> = headings.split('|').collect();
            assert_eq!(names, expected, "{kind}");
            assert_eq!(Value::Array(rows.cells(&object)), cells, "{kind}");
        }
    }
}

//! The rows of Tables of the built-in kinds.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::builtin;
use crate::resource::Column;
use crate::store::wanted;
use crate::table::Rows;

fn columns(group: &str, kind: &str) -> Vec<Column> {
    let mut all = builtin().into_iter();
    let found = all.find(|info| info.group == group && info.kind == kind);
    found.unwrap().columns
}

/// Headings and cells of kube-apiserver 1.36.
#[test]
fn rows_of_built_in_kinds_are_those_of_a_real_server() {
    let metadata = json!({"name": "x", "creationTimestamp": "2026-11-21T11:16:11Z"});
    let pod =
        json!({"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}});
    let workload = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": pod});
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

/// Cells are computed of the part that the columns read.
#[test]
fn columns_read_all_that_they_show() {
    let terminated = json!({"exitCode": 3, "signal": 9, "reason": "Error", "finishedAt": "2026-11-21T10:00:00Z"});
    let states = [
        json!({"running": {"startedAt": "2026-11-21T11:00:00Z"}}),
        json!({"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}),
        json!({"terminated": terminated}),
        json!({"terminated": {"exitCode": 0, "reason": "Completed"}}),
        json!({"terminated": {"exitCode": 0, "signal": 9}}),
        json!({"terminated": {"exitCode": 4}}),
    ];
    let mut pods = Vec::new();
    for (number, state) in states.iter().enumerate() {
        for (other, phase) in states.iter().zip([
            "Running",
            "Failed",
            "Succeeded",
            "Pending",
            "Running",
            "Running",
        ]) {
            let status = |name: &str, state: &Value| {
                json!({
                    "name": name, "ready": number % 2 == 0, "started": true, "restartCount": 2, "state": state,
                    "lastState": {"terminated": terminated}, "image": "i", "resources": {"limits": {"cpu": "1"}},
                })
            };
            let truth = if number % 2 == 0 { "True" } else { "False" };
            let condition = |kind: &str| json!({"type": kind, "status": truth, "reason": "SchedulingGated", "message": "m"});
            pods.push(json!({
                "metadata": {"name": "x", "creationTimestamp": "2026-11-21T11:16:11Z", "managedFields": [{"manager": "m"}]},
                "spec": {
                    "nodeName": "n", "readinessGates": [{"conditionType": "Ready"}],
                    "containers": [{"name": "c", "image": "i"}, {"name": "d"}],
                    "initContainers": [{"name": "i", "restartPolicy": "Always"}, {"name": "j", "image": "i"}],
                },
                "status": {
                    "phase": phase, "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "nominatedNodeName": "o",
                    "conditions": [condition("Initialized"), condition("Ready")],
                    "containerStatuses": [status("c", state), status("d", other)],
                    "initContainerStatuses": [status("i", other), status("j", state)],
                },
            }));
        }
    }
    let mut lost = pods[0].clone();
    lost["metadata"]["deletionTimestamp"] = json!("2026-11-21T11:40:00Z");
    pods.push(lost.clone());
    lost["status"]["reason"] = json!("NodeLost");
    pods.push(lost);
    let mut gated = pods[1].clone();
    gated["status"]["conditions"][0]["type"] = json!("PodScheduled");
    pods.push(gated);
    let info = builtin()
        .into_iter()
        .find(|info| info.kind == "Pod")
        .unwrap();
    let rows = Rows::new(&info.columns, "2026-11-21T11:46:11Z".parse().unwrap());
    let mut statuses = BTreeSet::new();
    for pod in &pods {
        let part = wanted::read(pod.to_string().as_bytes(), info.strategy.read_by_columns());
        let cells = rows.cells(pod);
        assert_eq!(rows.cells(&part), cells, "{pod}");
        for cell in &cells[5..9] {
            assert_ne!(cell, "<none>", "{pod}");
        }
        statuses.insert(cells[2].to_string());
    }
    assert!(statuses.len() > 8, "{statuses:?}");
}

//! FlowSchemas and PriorityLevelConfigurations. The server stores them, and serves all requests alike.

use k8s_openapi::api::flowcontrol::v1;
use serde_json::{Value, json};

use super::entry::Entry;
use super::flow_rules;
use super::pods::put;
use super::strategy::{ALL_BUT_STATUS, Context, Paths, Strategy};
use crate::field::Errors;
use crate::meta;
use crate::resource::{Column, Generation, ResourceInfo, StatusUpdate};
use crate::table::cells::{NONE, aged, items, or_none, plain, string, text};
use crate::table::{count, number};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[
    Entry::of::<v1::FlowSchema>(GROUP, "flowschemas", &FlowSchemas),
    Entry::of::<v1::PriorityLevelConfiguration>(
        GROUP,
        "prioritylevelconfigurations",
        &PriorityLevels,
    ),
];

/// FlowSchemas.
#[derive(Debug)]
pub(super) struct FlowSchemas;

/// PriorityLevelConfigurations.
#[derive(Debug)]
pub(super) struct PriorityLevels;

// === impl FlowSchemas ===

impl Strategy for FlowSchemas {
    fn describe(&self, info: &mut ResourceInfo) {
        info.generation = Generation::Spec;
        info.status_update = StatusUpdate::StatusOnly;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("PriorityLevel", |value, _| {
                plain(&value["spec"]["priorityLevelConfiguration"]["name"])
            }),
            text("MatchingPrecedence", |value, _| {
                number(count(&value["spec"]["matchingPrecedence"]))
            }),
            text("DistinguisherMethod", |value, _| {
                or_none(&value["spec"]["distinguisherMethod"]["type"])
            }),
            aged(),
            text("MissingPL", |value, _| {
                let mut conditions = items(&value["status"]["conditions"]).iter();
                let dangling = conditions.find(|one| one["type"] == "Dangling");
                dangling.map_or_else(|| "?".into(), |one| plain(&one["status"]))
            }),
        ]
    }

    fn default(&self, _: &ResourceInfo, schema: &mut Value) {
        let spec = meta::map_at(meta::object_mut(schema), "spec");
        if count(spec.get("matchingPrecedence").unwrap_or(&Value::Null)) == 0 {
            spec.insert("matchingPrecedence".to_owned(), 1000.into());
        }
    }

    fn validate(&self, _: &Context<'_>, schema: &Value, _: Option<&Value>, errors: &mut Errors) {
        flow_rules::validate(schema, errors);
    }

    fn reset_fields(&self, subresource: &str) -> Option<Paths> {
        (subresource == "status").then_some(ALL_BUT_STATUS)
    }
}

// === impl PriorityLevels ===

impl Strategy for PriorityLevels {
    fn describe(&self, info: &mut ResourceInfo) {
        info.generation = Generation::Spec;
        info.status_update = StatusUpdate::StatusOnly;
    }

    fn columns(&self) -> Vec<Column> {
        fn queuing(value: &Value, field: &str) -> Value {
            let queuing = &value["spec"]["limited"]["limitResponse"]["queuing"];
            queuing.get(field).cloned().unwrap_or_else(|| NONE.into())
        }
        vec![
            text("Type", |value, _| string(&value["spec"]["type"]).into()),
            text("NominalConcurrencyShares", |value, _| {
                let shares = value["spec"]["limited"].get("nominalConcurrencyShares");
                shares.cloned().unwrap_or_else(|| NONE.into())
            }),
            text("Queues", |value, _| queuing(value, "queues")),
            text("HandSize", |value, _| queuing(value, "handSize")),
            text("QueueLengthLimit", |value, _| {
                queuing(value, "queueLengthLimit")
            }),
            aged(),
        ]
    }

    fn default(&self, _: &ResourceInfo, level: &mut Value) {
        let spec = meta::map_at(meta::object_mut(level), "spec");
        if let Some(exempt) = spec.get_mut("exempt").and_then(Value::as_object_mut) {
            put(exempt, "nominalConcurrencyShares", 0);
            put(exempt, "lendablePercent", 0);
        }
        let Some(limited) = spec.get_mut("limited").and_then(Value::as_object_mut) else {
            return;
        };
        put(limited, "nominalConcurrencyShares", 30);
        put(limited, "lendablePercent", 0);
        let queuing = limited
            .get_mut("limitResponse")
            .and_then(|response| response.get_mut("queuing"))
            .and_then(Value::as_object_mut);
        if let Some(queuing) = queuing {
            for (field, value) in [("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)] {
                if count(queuing.get(field).unwrap_or(&Value::Null)) == 0 {
                    queuing.insert(field.to_owned(), value.into());
                }
            }
        }
    }

    fn reset_fields(&self, subresource: &str) -> Option<Paths> {
        (subresource == "status").then_some(ALL_BUT_STATUS)
    }

    fn validate(&self, _: &Context<'_>, level: &Value, _: Option<&Value>, errors: &mut Errors) {
        flow_rules::level(level, errors);
    }
}

/// The priority levels and flow schemas that every cluster has.
pub(crate) fn initial() -> Vec<Value> {
    let mut all = Vec::new();
    // Shares, percent that may be lent, and queues with hands.
    let levels = [
        ("catch-all", 5, 0, None),
        ("global-default", 20, 50, Some((128, 6))),
        ("leader-election", 10, 0, Some((16, 4))),
        ("node-high", 40, 25, Some((64, 6))),
        ("system", 30, 33, Some((64, 6))),
        ("workload-high", 40, 50, Some((128, 6))),
        ("workload-low", 100, 90, Some((128, 6))),
    ];
    all.push(object(
        "PriorityLevelConfiguration",
        "exempt",
        json!({"type": "Exempt", "exempt": {}}),
    ));
    for (name, shares, lendable, queues) in levels {
        let response = match queues {
            None => json!({"type": "Reject"}),
            Some((queues, hand)) => {
                json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}})
            }
        };
        let limited = json!({
            "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response,
        });
        all.push(object(
            "PriorityLevelConfiguration",
            name,
            json!({"type": "Limited", "limited": limited}),
        ));
    }
    all.extend(schemas());
    all
}

fn schemas() -> Vec<Value> {
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let account = json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}});
    let everyone = json!([
        group("system:unauthenticated"),
        group("system:authenticated")
    ]);
    let nodes = json!([group("system:nodes")]);
    let resources = |verbs: &[&str], groups: &[&str], resources: &[&str], cluster: bool| {
        let mut rule = json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "namespaces": ["*"]});
        if cluster {
            rule["clusterScope"] = json!(true);
        }
        rule
    };
    let paths = |verbs: &[&str], paths: &[&str]| json!({"verbs": verbs, "nonResourceURLs": paths});
    let all = |subjects: Value| {
        json!([{
            "subjects": subjects,
            "resourceRules": [resources(&["*"], &["*"], &["*"], true)],
            "nonResourceRules": [paths(&["*"], &["*"])],
        }])
    };
    let leases = |verbs: &[&str]| resources(verbs, &["coordination.k8s.io"], &["leases"], false);
    let probes = json!([{
        "subjects": everyone,
        "nonResourceRules": [paths(&["get"], &["/healthz", "/readyz", "/livez"])],
    }]);
    let elections = json!([{
        "subjects": [user("system:kube-controller-manager"), user("system:kube-scheduler"), account],
        "resourceRules": [leases(&["get", "create", "update"])],
    }]);
    let node_health = json!([{
        "subjects": nodes,
        "resourceRules": [
            resources(&["*"], &[""], &["nodes", "nodes/status"], true),
            leases(&["*"]),
        ],
    }]);
    let manager = json!([user("system:kube-controller-manager")]);
    let scheduler = json!([user("system:kube-scheduler")]);
    let rows = [
        (
            "exempt",
            "exempt",
            1,
            "",
            all(json!([group("system:masters")])),
        ),
        ("probes", "exempt", 2, "", probes),
        (
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            elections,
        ),
        ("system-node-high", "node-high", 400, "ByUser", node_health),
        ("system-nodes", "system", 500, "ByUser", all(nodes)),
        (
            "kube-controller-manager",
            "workload-high",
            800,
            "ByNamespace",
            all(manager),
        ),
        (
            "kube-scheduler",
            "workload-high",
            800,
            "ByNamespace",
            all(scheduler),
        ),
        (
            "kube-system-service-accounts",
            "workload-high",
            900,
            "ByNamespace",
            all(json!([account])),
        ),
        (
            "service-accounts",
            "workload-low",
            9000,
            "ByUser",
            all(json!([group("system:serviceaccounts")])),
        ),
        (
            "global-default",
            "global-default",
            9900,
            "ByUser",
            all(everyone.clone()),
        ),
        ("catch-all", "catch-all", 10000, "ByUser", all(everyone)),
    ];
    rows.into_iter()
        .map(|(name, level, precedence, method, rules)| {
            let mut spec = json!({
                "priorityLevelConfiguration": {"name": level},
                "matchingPrecedence": precedence,
                "rules": rules,
            });
            if !method.is_empty() {
                spec["distinguisherMethod"] = json!({"type": method});
            }
            let mut schema = object("FlowSchema", name, spec);
            let message = format!(
                "This FlowSchema references the PriorityLevelConfiguration object named \"{level}\" and it exists"
            );
            schema["status"] = json!({"conditions": [
                {"type": "Dangling", "status": "False", "reason": "Found", "message": message},
            ]});
            schema
        })
        .collect()
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": kind,
        "metadata": {"name": name, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}},
        "spec": spec,
    })
}

//! The roles and bindings of every cluster.
//!
//! Those for users and for discovery are code; those for the controllers of a control plane, which may run beside a server, are
//! in `controllers.jsonl`, written by `tests/envtest/roles.sh` from a real server.

use serde_json::{Value, json};

/// The objects for controllers, one a line.
const CONTROLLERS: &str = include_str!("controllers.jsonl");
const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";
const RBAC: &str = "rbac.authorization.k8s.io";
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];

/// The roles and bindings of the programs of a control plane: nodes, the scheduler, and each controller of
/// kube-controller-manager.
pub(crate) fn of_controllers() -> impl Iterator<Item = Value> {
    CONTROLLERS
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
}

/// ClusterRoles `cluster-admin`, `admin`, `edit`, `view` (aggregated), `system:discovery`, `system:basic-user`,
/// `system:public-info-viewer` and their ClusterRoleBindings, as whole objects to be stored at the first start.
#[must_use]
pub fn objects() -> Vec<Value> {
    let any = json!([
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]);
    let health = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let basic = json!([
        rule(
            &["create"],
            "authorization.k8s.io",
            &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
        ),
        rule(
            &["create"],
            "authentication.k8s.io",
            &["selfsubjectreviews"]
        ),
    ]);
    vec![
        role("cluster-admin", None, json!({"rules": any})),
        role(
            "system:discovery",
            None,
            json!({"rules": [{"verbs": ["get"], "nonResourceURLs": discovery}]}),
        ),
        role(
            "system:public-info-viewer",
            None,
            json!({"rules": [{"verbs": ["get"], "nonResourceURLs": health}]}),
        ),
        role("system:basic-user", None, json!({"rules": basic})),
        aggregating("admin", None, "admin"),
        aggregating("edit", Some("admin"), "edit"),
        aggregating("view", Some("edit"), "view"),
        role(
            "system:aggregate-to-admin",
            Some("admin"),
            json!({"rules": admin_rules()}),
        ),
        role(
            "system:aggregate-to-edit",
            Some("edit"),
            json!({"rules": edit_rules()}),
        ),
        role(
            "system:aggregate-to-view",
            Some("view"),
            json!({"rules": view_rules()}),
        ),
        binding("cluster-admin", &["system:masters"]),
        binding("system:discovery", &["system:authenticated"]),
        binding("system:basic-user", &["system:authenticated"]),
        binding(
            "system:public-info-viewer",
            &["system:authenticated", "system:unauthenticated"],
        ),
    ]
}

fn admin_rules() -> Vec<Value> {
    vec![
        rule(
            &["create"],
            "authorization.k8s.io",
            &["localsubjectaccessreviews"],
        ),
        rule(&[WRITE, READ].concat(), RBAC, &["rolebindings", "roles"]),
    ]
}

fn edit_rules() -> Vec<Value> {
    let core_secretive = [
        "pods/attach",
        "pods/exec",
        "pods/portforward",
        "pods/proxy",
        "secrets",
        "services/proxy",
    ];
    let pods = [
        "pods",
        "pods/attach",
        "pods/exec",
        "pods/portforward",
        "pods/proxy",
    ];
    let core = [
        "configmaps",
        "persistentvolumeclaims",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "secrets",
        "serviceaccounts",
        "services",
        "services/proxy",
    ];
    let apps = [
        "daemonsets",
        "deployments",
        "deployments/rollback",
        "deployments/scale",
        "replicasets",
        "replicasets/scale",
        "statefulsets",
        "statefulsets/scale",
    ];
    vec![
        rule(READ, "", &core_secretive),
        rule(&["impersonate"], "", &["serviceaccounts"]),
        rule(WRITE, "", &pods),
        rule(&["create"], "", &["pods/eviction"]),
        rule(WRITE, "", &core),
        rule(&["create"], "", &["serviceaccounts/token"]),
        events(WRITE),
        rule(WRITE, "apps", &apps),
        rule(WRITE, "autoscaling", &["horizontalpodautoscalers"]),
        rule(WRITE, "batch", &["cronjobs", "jobs"]),
        rule(WRITE, "policy", &["poddisruptionbudgets"]),
        rule(
            WRITE,
            "networking.k8s.io",
            &["ingresses", "networkpolicies"],
        ),
        rule(&[WRITE, READ].concat(), "coordination.k8s.io", &["leases"]),
        rule(
            WRITE,
            "resource.k8s.io",
            &["resourceclaims", "resourceclaimtemplates"],
        ),
    ]
}

fn view_rules() -> Vec<Value> {
    let core = [
        "configmaps",
        "endpoints",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "serviceaccounts",
        "services",
        "services/status",
    ];
    let core_status = [
        "bindings",
        "limitranges",
        "namespaces/status",
        "pods/log",
        "pods/status",
        "replicationcontrollers/status",
        "resourcequotas",
        "resourcequotas/status",
    ];
    let apps = [
        "controllerrevisions",
        "daemonsets",
        "daemonsets/status",
        "deployments",
        "deployments/scale",
        "deployments/status",
        "replicasets",
        "replicasets/scale",
        "replicasets/status",
        "statefulsets",
        "statefulsets/scale",
        "statefulsets/status",
    ];
    vec![
        rule(READ, "", &core),
        rule(READ, "", &core_status),
        rule(READ, "", &["namespaces"]),
        events(READ),
        rule(READ, "discovery.k8s.io", &["endpointslices"]),
        rule(READ, "apps", &apps),
        rule(
            READ,
            "autoscaling",
            &[
                "horizontalpodautoscalers",
                "horizontalpodautoscalers/status",
            ],
        ),
        rule(
            READ,
            "batch",
            &["cronjobs", "cronjobs/status", "jobs", "jobs/status"],
        ),
        rule(
            READ,
            "policy",
            &["poddisruptionbudgets", "poddisruptionbudgets/status"],
        ),
        rule(
            READ,
            "networking.k8s.io",
            &["ingresses", "ingresses/status", "networkpolicies"],
        ),
        rule(
            READ,
            "resource.k8s.io",
            &[
                "resourceclaims",
                "resourceclaims/status",
                "resourceclaimtemplates",
            ],
        ),
    ]
}

fn events(verbs: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": ["", "events.k8s.io"], "resources": ["events"]})
}

fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources})
}

/// A ClusterRole; its rules are aggregated into `aggregate_to`.
fn role(name: &str, aggregate_to: Option<&str>, body: Value) -> Value {
    let mut role = json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "ClusterRole",
        "metadata": {
            "name": name,
            "labels": {BOOTSTRAPPING: "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
    });
    if let Some(target) = aggregate_to {
        role["metadata"]["labels"][format!("{RBAC}/aggregate-to-{target}")] = json!("true");
    }
    if let (Some(role), Value::Object(body)) = (role.as_object_mut(), body) {
        role.extend(body);
    }
    role
}

fn aggregating(name: &str, aggregate_to: Option<&str>, selected: &str) -> Value {
    let label = format!("{RBAC}/aggregate-to-{selected}");
    role(
        name,
        aggregate_to,
        json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}, "rules": null}),
    )
}

/// A ClusterRoleBinding of the ClusterRole of the same name.
fn binding(name: &str, groups: &[&str]) -> Value {
    let subjects: Vec<Value> = groups
        .iter()
        .map(|group| json!({"apiGroup": RBAC, "kind": "Group", "name": group}))
        .collect();
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "ClusterRoleBinding",
        "metadata": {
            "name": name,
            "labels": {BOOTSTRAPPING: "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": subjects,
    })
}

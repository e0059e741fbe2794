//! The manifests that follow from the code: the CRD and the access rules, as YAML.
//!
//! `manifests/base/crd.yaml`, `manifests/base/rbac.yaml` and `manifests/engines` are what these functions print; a test
//! compares them.

use serde::Serialize;
use serde_json::{Value, json};

use crate::api::{self, GROUP};
use crate::config::CONFIG_MAP;
use crate::operator::LEASE;
use crate::reconcile::RECORD;
use crate::sets::Plugin;

/// The name of the ServiceAccount and of the roles.
pub const NAME: &str = "ipblock-operator";

const HEADER: &str = "# Generated: `ipblock-operator";

/// Why a manifest cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the manifest cannot be written as YAML: {0}")]
pub struct Error(String);

/// The CRDs as YAML.
///
/// # Errors
/// When they cannot be written as YAML, which a test rules out.
pub fn crd() -> Result<String, Error> {
    documents("crd > manifests/base/crd.yaml", &api::crds())
}

/// The CRDs without CEL rules as YAML, for Kubernetes before 1.31.
///
/// # Errors
/// As [`crd`].
pub fn crd_without_rules() -> Result<String, Error> {
    documents("crd --without-rules", &api::crds_without_rules())
}

/// The access rules as YAML, for an operator in `namespace`.
///
/// # Errors
/// As [`crd`].
pub fn rbac(namespace: &str) -> Result<String, Error> {
    documents("rbac > manifests/base/rbac.yaml", &rules(namespace))
}

fn documents(command: &str, all: &[impl Serialize]) -> Result<String, Error> {
    let mut text = format!("{HEADER} {command}`\n");
    for (position, document) in all.iter().enumerate() {
        if position > 0 {
            text.push_str("---\n");
        }
        text.push_str(&yaml(document)?);
    }
    Ok(text)
}

/// The access rules that a set engine needs beside those of the operator, as YAML, for an operator in `namespace`.
///
/// # Errors
/// As [`crd`].
pub fn engine_rbac(plugin: Plugin, namespace: &str) -> Result<String, Error> {
    let engine = plugin.name();
    let mut text = format!("{HEADER} rbac --engine {engine} > manifests/engines/{engine}.yaml`\n");
    let name = format!("{NAME}-{engine}");
    let labels = json!({"app.kubernetes.io/name": NAME});
    let (groups, [sets, policies]) = plugin.resources();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels},
        "rules": [
            {"apiGroups": groups, "resources": [sets], "verbs": ["get", "list", "create", "update", "delete"]},
            {"apiGroups": groups, "resources": [policies], "verbs": ["get", "create", "update", "delete"]},
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": labels},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    });
    text.push_str(&yaml(role)?);
    text.push_str("---\n");
    text.push_str(&yaml(binding)?);
    Ok(text)
}

/// Blocks, lists and Events everywhere; the ConfigMap, the record, the Lease and the lists of sources in the operator's own
/// namespace.
fn rules(namespace: &str) -> [Value; 4] {
    let labels = json!({"app.kubernetes.io/name": NAME});
    let subject = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]);
    let binding = |kind: &str, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": NAME, "labels": labels},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": NAME},
            "subjects": subject,
        })
    };
    let mut role_binding = binding("RoleBinding", "Role");
    role_binding["metadata"]["namespace"] = json!(namespace);
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": NAME, "labels": labels},
            "rules": [
                {"apiGroups": [GROUP], "resources": ["ipblocks"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
                {"apiGroups": [GROUP], "resources": ["ipblocks/status"], "verbs": ["patch"]},
                {"apiGroups": [GROUP], "resources": ["blocklists"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [GROUP], "resources": ["blocklists/status"], "verbs": ["patch"]},
                {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
                {"apiGroups": [""], "resources": ["nodes", "services"], "verbs": ["list", "watch"]},
                {"apiGroups": ["networking.k8s.io"], "resources": ["servicecidrs"], "verbs": ["list", "watch"]},
            ],
        }),
        binding("ClusterRoleBinding", "ClusterRole"),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": NAME, "namespace": namespace, "labels": labels},
            "rules": [
                {"apiGroups": [GROUP], "resources": ["blocklists"], "verbs": ["create", "patch", "delete"]},
                {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [CONFIG_MAP], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
                {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [RECORD], "verbs": ["get", "patch", "delete"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [LEASE], "verbs": ["get", "watch", "update", "delete"]},
            ],
        }),
        role_binding,
    ]
}

fn yaml(object: impl Serialize) -> Result<String, Error> {
    let value = serde_json::to_value(object).map_err(|error| Error(error.to_string()))?;
    // One line for each text, so that tools that read line by line find it.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&without_nulls(value), options)
        .map_err(|error| Error(error.to_string()))
}

/// Optional fields that are absent are nulls to the serializer of some generated types.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn stored(name: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("manifests/base")
            .join(name);
        std::fs::read_to_string(&path).unwrap_or_default()
    }

    #[test]
    fn the_stored_crd_is_the_one_of_the_code() {
        assert!(
            stored("crd.yaml") == crd().unwrap(),
            "run: cargo run -- crd > manifests/base/crd.yaml"
        );
    }

    #[test]
    fn the_crd_without_rules_differs_from_the_other_in_its_rules_only() {
        let (full, bare) = (crd().unwrap(), crd_without_rules().unwrap());
        assert!(full.contains("isIP") && full.contains("x-kubernetes-validations"));
        assert!(!bare.contains("isIP") && !bare.contains("x-kubernetes-validations"));
        let lines = |text: &str| -> Vec<String> {
            let rules = ["x-kubernetes-validations", "- message: ", "rule: "];
            text.lines()
                .skip(1)
                .filter(|line| !rules.iter().any(|rule| line.trim().starts_with(rule)))
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(lines(&full), lines(&bare));
    }

    #[test]
    fn the_stored_access_rules_are_those_of_the_code() {
        assert!(
            stored("rbac.yaml") == rbac("default").unwrap(),
            "run: cargo run -- rbac > manifests/base/rbac.yaml"
        );
    }

    #[test]
    fn the_stored_access_rules_of_engines_are_those_of_the_code() {
        for plugin in Plugin::ALL {
            let engine = plugin.name();
            let path = format!("../engines/{engine}.yaml");
            assert!(
                stored(&path) == engine_rbac(*plugin, "default").unwrap(),
                "run: cargo run -- rbac --engine {engine} > manifests/engines/{engine}.yaml"
            );
        }
    }

    #[test]
    fn the_access_rules_hold_the_requests_of_the_operator_and_no_more() {
        let mut granted = Vec::new();
        for role in rules("default") {
            for rule in role["rules"].as_array().into_iter().flatten() {
                let names = rule["resourceNames"].as_array().map_or(0, Vec::len);
                let verbs: Vec<&str> = rule["verbs"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|verb| verb.as_str().unwrap())
                    .collect();
                let resource = rule["resources"][0].as_str().unwrap().to_owned();
                granted.push((resource, names, verbs.join(" ")));
            }
        }
        let expected = [
            ("ipblocks", 0, "get list watch create patch delete"),
            ("ipblocks/status", 0, "patch"),
            ("blocklists", 0, "get list watch"),
            ("blocklists/status", 0, "patch"),
            ("events", 0, "create patch"),
            // Their addresses are protected.
            ("nodes", 0, "list watch"),
            ("servicecidrs", 0, "list watch"),
            // Those of sources that are kept as lists.
            ("blocklists", 0, "create patch delete"),
            ("configmaps", 1, "get list watch"),
            // The operator's record; deleted by the uninstall command.
            ("configmaps", 0, "create"),
            ("configmaps", 1, "get patch delete"),
            ("leases", 0, "create"),
            // Deleted by the uninstall command.
            ("leases", 1, "get watch update delete"),
        ]
        .map(|(resource, names, verbs)| (resource.to_owned(), names, verbs.to_owned()));
        assert_eq!(granted, expected);
    }

    #[test]
    fn a_list_has_a_bounded_number_of_entries_and_the_columns_users_see() {
        let [_, crd] = api::crds().map(|crd| serde_json::to_value(crd).unwrap());
        let names = &crd["spec"]["names"];
        assert_eq!(names["plural"], "blocklists");
        assert_eq!(names["shortNames"], json!(["ipbl"]));
        let version = &crd["spec"]["versions"][0];
        assert!(version["subresources"]["status"].is_object());
        let columns = version["additionalPrinterColumns"].as_array().unwrap();
        let columns: Vec<_> = columns.iter().map(|column| &column["name"]).collect();
        assert_eq!(
            columns,
            [
                "Entries", "Enforced", "Refused", "Source", "Next End", "Age"
            ]
        );
        let schema = &version["schema"]["openAPIV3Schema"]["properties"];
        let entries = &schema["spec"]["properties"]["entries"];
        assert_eq!(entries["maxItems"], api::MOST_ENTRIES);
        assert_eq!(entries["x-kubernetes-list-type"], "atomic");
        let entry = &entries["items"];
        assert_eq!(entry["required"], json!(["target"]));
        assert_eq!(entry["properties"]["target"]["maxLength"], 64);
        assert_eq!(entry["properties"]["until"]["format"], "date-time");
    }

    #[test]
    fn the_end_of_a_ban_is_a_column_of_text_and_the_address_cannot_be_edited() {
        let crd = serde_json::to_value(api::crd()).unwrap();
        let version = &crd["spec"]["versions"][0];
        let columns = version["additionalPrinterColumns"].as_array().unwrap();
        let expires = columns.iter().find(|column| column["name"] == "Expires");
        // kubectl prints a date that is ahead as <invalid>.
        assert_eq!(expires.unwrap()["type"], "string");
        let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let rules = &spec["properties"]["ip"]["x-kubernetes-validations"];
        let rules = rules.as_array().unwrap().iter();
        let texts: Vec<&str> = rules.filter_map(|rule| rule["rule"].as_str()).collect();
        assert!(texts.contains(&"self == oldSelf"), "{texts:?}");
    }

    #[test]
    fn the_crd_has_the_columns_and_rules_users_see() {
        let crd = serde_json::to_value(api::crd()).unwrap();
        let names = &crd["spec"]["names"];
        assert_eq!(names["plural"], "ipblocks");
        assert_eq!(names["shortNames"], json!(["ipb"]));
        assert_eq!(names["categories"], json!(["security"]));
        let version = &crd["spec"]["versions"][0];
        assert!(version["subresources"]["status"].is_object());
        let columns: Vec<&str> = version["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| column["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            columns,
            ["IP", "Phase", "Expires", "Reason", "Source", "Age"]
        );
        let schema = &version["schema"]["openAPIV3Schema"]["properties"];
        let spec = &schema["spec"];
        assert_eq!(spec["required"], json!(["ip"]));
        assert_eq!(spec["properties"]["ip"]["maxLength"], 64);
        for field in ["ip", "duration"] {
            for rule in spec["properties"][field]["x-kubernetes-validations"]
                .as_array()
                .unwrap()
            {
                assert!(
                    rule["message"]
                        .as_str()
                        .unwrap()
                        .contains(&format!("spec.{field}")),
                    "{rule}"
                );
            }
        }
        let conditions = &schema["status"]["properties"]["conditions"];
        assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]));
        assert_eq!(
            conditions["items"]["required"],
            json!(["lastTransitionTime", "reason", "status", "type"])
        );
    }
}

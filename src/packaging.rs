//! The Helm chart and the manifests against the code: they know every key, kind and access rule, and no other.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::config::keys;
use crate::manifest;
use crate::sets::Plugin;

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).expect("YAML")
}

#[test]
fn the_chart_has_the_crd_and_the_access_rules_of_the_code() {
    let engines = Plugin::ALL.iter().map(|plugin| {
        let rules = manifest::engine_rbac(*plugin, "default").expect("YAML");
        (format!("engines/{}.yaml", plugin.name()), rules)
    });
    let others = [
        ("crd.yaml", manifest::crd().expect("YAML")),
        (
            "crd-without-rules.yaml",
            manifest::crd_without_rules().expect("YAML"),
        ),
        ("rbac.yaml", manifest::rbac("default").expect("YAML")),
    ]
    .map(|(name, rules)| (name.to_owned(), rules));
    for (name, expected) in others.into_iter().chain(engines) {
        let stored = file(&format!("charts/ipblock-operator/files/{name}"));
        assert!(
            stored == expected,
            "{name} is not current: run `.ci/chart files`"
        );
    }
}

#[test]
fn the_chart_accepts_every_key_of_the_configmap_and_no_other() {
    let schema: Value = serde_json::from_str(&file("charts/ipblock-operator/values.schema.json"))
        .expect("the schema of the chart's values");
    let config = &schema["properties"]["config"];
    assert_eq!(config["additionalProperties"], false);
    let listed = config["properties"].as_object().expect("keys");
    let listed: BTreeSet<String> = listed.keys().cloned().collect();
    let templates =
        ["ban", "resolve", "common"].map(|event| keys::NOTIFY_TEMPLATE_PREFIX.to_owned() + event);
    let known = keys::ALL.iter().chain(keys::NOTIFY);
    let known: BTreeSet<String> = known.map(ToString::to_string).chain(templates).collect();
    assert_eq!(
        listed, known,
        "`properties.config.properties` of charts/ipblock-operator/values.schema.json"
    );
}

#[test]
fn the_roles_of_people_name_every_kind_and_only_reading_is_aggregated() {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let crds = yaml(&manifest::crd().expect("YAML"));
    let kinds: BTreeSet<String> = crds
        .iter()
        .map(|crd| text(&crd["spec"]["names"]["plural"]))
        .collect();
    let roles = yaml(&file("manifests/base/roles.yaml"));
    assert_eq!(roles.len(), 2);
    for role in roles {
        let rules = role["rules"].as_array().expect("rules");
        assert_eq!(rules.len(), 1);
        let resources = rules[0]["resources"].as_array().expect("resources");
        let resources: BTreeSet<String> = resources.iter().map(text).collect();
        assert_eq!(resources, kinds, "{}", role["metadata"]["name"]);
        let labels = role["metadata"]["labels"].as_object().expect("labels");
        let aggregated = labels.keys().any(|label| label.contains("/aggregate-to-"));
        let verbs = rules[0]["verbs"].as_array().expect("verbs");
        let reads = ["get", "list", "watch"];
        let reads_only = verbs
            .iter()
            .all(|verb| reads.contains(&text(verb).as_str()));
        assert_eq!(aggregated, reads_only, "{}", role["metadata"]["name"]);
    }
}

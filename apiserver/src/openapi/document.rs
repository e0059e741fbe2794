//! The OpenAPI document of one group and version.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{components, descriptions};
use crate::registry::Version;
use crate::resource::ResourceInfo;

/// The Content-Type of the v2 document; with an `@` for the first dot kubectl cannot read it.
pub(crate) const V2_CONTENT_TYPE: &str =
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The v2 document, empty: `swagger: "2.0"`, an `info` with empty title and version, no paths. kubectl
/// reads it only to report that a kind is unknown.
pub(crate) const V2_DOCUMENT: &[u8] = &[
    0x0a, 0x03, b'2', b'.', b'0', // swagger
    0x12, 0x09, // info
    0x0a, 0x01, b'r', // title
    0x12, 0x04, b'v', b'1', b'.', b'0', // version
    0x42, 0x00, // paths
];

/// `/openapi/v3/apis/GROUP/VERSION` and `/openapi/v3/api/v1`.
pub(crate) fn document(group: &str, version: &Version) -> Value {
    let mut paths = Map::new();
    let mut components: BTreeMap<String, Value> = BTreeMap::new();
    for info in version.resources.values() {
        let component = add_components(info, &mut components);
        let list = add_list(info, &component, &mut components);
        add_paths(info, &component, &list, &mut paths);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Reeve", "version": group_title(group, &version.name)},
        "paths": paths,
        "components": {"schemas": components},
    })
}

/// A hash of a document, for a URL that clients can cache indefinitely.
pub(crate) fn hash(document: &Value) -> String {
    let digest = Sha256::digest(document.to_string().as_bytes());
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// `api/v1` or `apis/GROUP/VERSION`.
pub(crate) fn base_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

fn group_title(group: &str, version: &str) -> String {
    crate::discovery::group_version(group, version)
}

fn gvk(info: &ResourceInfo) -> Value {
    json!({"group": info.group, "version": info.version, "kind": info.kind})
}

/// Adds the schemas of a kind; returns the name of its own.
fn add_components(info: &ResourceInfo, components: &mut BTreeMap<String, Value>) -> String {
    if let Some(of) = info.of {
        let name = components::add(of, components);
        if let Some(component) = components.get_mut(&name) {
            component["x-kubernetes-group-version-kind"] = json!([gvk(info)]);
        }
        return name;
    }
    let name = component_name(info);
    let metadata = components::add_object_meta(components);
    let mut schema = info
        .schema
        .as_ref()
        .map_or_else(|| json!({"type": "object"}), |schema| (**schema).clone());
    if !schema.is_object() {
        schema = json!({"type": "object"});
    }
    let properties = &mut schema["properties"];
    // The descriptions of every kind; those of ConfigMap are available.
    let description = |property| descriptions::of_field("io.k8s.api.core.v1.ConfigMap", property);
    properties["apiVersion"] = json!({"type": "string", "description": description("apiVersion")});
    properties["kind"] = json!({"type": "string", "description": description("kind")});
    properties["metadata"] = json!({
        "description": description("metadata"),
        "allOf": [{"$ref": format!("{}{metadata}", components::REFERENCE)}],
    });
    schema["x-kubernetes-group-version-kind"] = json!([gvk(info)]);
    components.insert(name.clone(), schema);
    name
}

/// Adds the schema of a list of a kind; returns its name.
fn add_list(
    info: &ResourceInfo,
    component: &str,
    components: &mut BTreeMap<String, Value>,
) -> String {
    let name = format!("{component}List");
    let reference = |name: &str| json!({"$ref": format!("{}{name}", components::REFERENCE)});
    if info.verbs.contains(&"list") {
        let metadata = components::add_list_meta(components);
        let item = json!({"allOf": [reference(component)], "default": {}});
        let schema = json!({
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"allOf": [reference(&metadata)], "default": {}},
                "items": {"type": "array", "items": item},
            },
            "x-kubernetes-group-version-kind": [
                {"group": info.group, "version": info.version, "kind": info.list_kind},
            ],
        });
        components.insert(name.clone(), schema);
    }
    name
}

/// `com.example.stable.v1.CronTab` of `stable.example.com`.
fn component_name(info: &ResourceInfo) -> String {
    let mut parts: Vec<&str> = info.group.split('.').rev().collect();
    parts.extend([info.version.as_str(), info.kind.as_str()]);
    parts.join(".")
}

fn add_paths(info: &ResourceInfo, component: &str, list: &str, paths: &mut Map<String, Value>) {
    let has = |verb: &str| info.verbs.contains(&verb);
    let base = base_path(&info.group, &info.version);
    let collection = if info.namespaced {
        format!("/{base}/namespaces/{{namespace}}/{}", info.plural)
    } else {
        format!("/{base}/{}", info.plural)
    };
    let namespace = path_parameter("namespace");
    let of_namespace = || {
        if info.namespaced {
            vec![namespace.clone()]
        } else {
            Vec::new()
        }
    };

    let mut many = Map::new();
    many.insert("parameters".to_owned(), json!(of_namespace()));
    if has("list") {
        many.insert("get".to_owned(), operation(info, "list", list, &[], None));
    }
    if has("create") {
        many.insert(
            "post".to_owned(),
            operation(info, "post", component, WRITE_PARAMETERS, Some(BODIES)),
        );
    }
    paths.insert(collection.clone(), Value::Object(many));

    if !has("get") {
        return;
    }
    let mut one = Map::new();
    let mut parameters = of_namespace();
    parameters.push(path_parameter("name"));
    one.insert("parameters".to_owned(), json!(parameters));
    one.insert(
        "get".to_owned(),
        operation(info, "get", component, &[], None),
    );
    if has("update") {
        one.insert(
            "put".to_owned(),
            operation(info, "put", component, WRITE_PARAMETERS, Some(BODIES)),
        );
    }
    if has("patch") {
        one.insert(
            "patch".to_owned(),
            operation(
                info,
                "patch",
                component,
                PATCH_PARAMETERS,
                Some(PATCH_BODIES),
            ),
        );
    }
    if has("delete") {
        one.insert(
            "delete".to_owned(),
            operation(info, "delete", component, DELETE_PARAMETERS, None),
        );
    }
    paths.insert(format!("{collection}/{{name}}"), Value::Object(one));
}

const WRITE_PARAMETERS: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCH_PARAMETERS: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETE_PARAMETERS: &[&str] = &["dryRun", "gracePeriodSeconds", "propagationPolicy"];
const BODIES: &[&str] = &["application/json", "application/yaml"];
const PATCH_BODIES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
];

fn operation(
    info: &ResourceInfo,
    action: &str,
    component: &str,
    parameters: &[&str],
    bodies: Option<&[&str]>,
) -> Value {
    let schema = json!({"$ref": format!("#/components/schemas/{component}")});
    let content = |types: &[&str]| -> Value {
        types
            .iter()
            .map(|media_type| ((*media_type).to_owned(), json!({"schema": schema})))
            .collect::<Map<String, Value>>()
            .into()
    };
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|name| {
            let kind = match *name {
                "force" => "boolean",
                "gracePeriodSeconds" => "integer",
                _ => "string",
            };
            json!({"name": name, "in": "query", "schema": {"type": kind}})
        })
        .collect();
    let mut operation = json!({
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": content(&["application/json"])}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk(info),
    });
    if let Some(bodies) = bodies {
        operation["requestBody"] = json!({"content": content(bodies), "required": true});
    }
    operation
}

fn path_parameter(name: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use std::sync::Arc;

    fn version(group: &str) -> Version {
        Version {
            name: "v1".to_owned(),
            resources: kinds::builtin()
                .into_iter()
                .filter(|info| info.group == group)
                .map(|info| (info.plural.clone(), Arc::new(info)))
                .collect(),
        }
    }

    #[test]
    fn a_patch_of_every_kind_knows_field_validation_and_no_strategic_merge() {
        for group in ["", "apps", "coordination.k8s.io"] {
            let document = document(group, &version(group));
            let paths = document["paths"].as_object().unwrap();
            let all = version(group).resources;
            for info in all.values().filter(|info| info.verbs.contains(&"patch")) {
                let patch = paths
                    .values()
                    .map(|item| &item["patch"])
                    .find(|patch| patch["x-kubernetes-group-version-kind"] == gvk(info))
                    .unwrap_or_else(|| panic!("{} has no patch", info.kind));
                let parameters = patch["parameters"].as_array().unwrap();
                assert!(
                    parameters
                        .iter()
                        .any(|parameter| parameter["name"] == "fieldValidation"
                            && parameter["in"] == "query"),
                    "{}",
                    info.kind
                );
                let bodies = &patch["requestBody"]["content"];
                assert!(bodies.get("application/merge-patch+json").is_some());
                assert!(
                    bodies
                        .get("application/strategic-merge-patch+json")
                        .is_none()
                );
            }
        }
    }

    #[test]
    fn every_reference_leads_to_a_component_and_each_kind_has_one() {
        fn references(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(map) => {
                    for (name, value) in map {
                        match value {
                            Value::String(text) if name == "$ref" => found.push(text.clone()),
                            value => references(value, found),
                        }
                    }
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let mut resources = version("");
        let custom = ResourceInfo {
            group: "stable.example.com".to_owned(),
            kind: "CronTab".to_owned(),
            plural: "crontabs".to_owned(),
            custom: true,
            of: None,
            schema: Some(Arc::new(
                json!({"type": "object", "properties": {"spec": {"type": "object"}}}),
            )),
            ..(**resources.resources.values().next().unwrap()).clone()
        };
        resources
            .resources
            .insert("crontabs".to_owned(), Arc::new(custom));
        let document = document("", &resources);
        let components = document["components"]["schemas"].as_object().unwrap();
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(components.contains_key(name), "{name}");
        }
        for info in resources.resources.values() {
            let described = components.values().any(|component| {
                component["x-kubernetes-group-version-kind"] == json!([gvk(info)])
            });
            assert!(described, "{}", info.kind);
        }
        let tab = &components["com.example.stable.v1.CronTab"];
        assert_eq!(tab["properties"]["spec"]["type"], "object");
        assert_eq!(tab["properties"]["kind"]["type"], "string");
    }

    #[test]
    fn the_hash_changes_with_the_document() {
        let one = document("apps", &version("apps"));
        let mut fewer = version("apps");
        fewer.resources.remove("deployments");
        assert_eq!(hash(&one), hash(&document("apps", &version("apps"))));
        assert_ne!(hash(&one), hash(&document("apps", &fewer)));
        assert_eq!(base_path("", "v1"), "api/v1");
        assert_eq!(base_path("apps", "v1"), "apis/apps/v1");
    }
}

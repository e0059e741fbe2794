//! The OpenAPI documents of this server and of a real kube-apiserver: schemas of the built-in kinds, and operations.
//!
//! Descriptions are not compared. `IGNORED` lists what else differs, with the reason; each entry has to occur. Needs
//! `KUBEBUILDER_ASSETS`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Method};
use reeve_apiserver::assets;
use serde_json::{Map, Value, json};

use crate::conformance::client::Client;

/// The beginning of a difference, and its reason.
const IGNORED: &[(&str, &str)] = &[
    ("openid/v1/jwks: no document", NOT_A_KIND),
    (
        "no schema io.k8s.apimachinery.pkg.apis.meta.v1.",
        NOT_A_KIND,
    ),
    (
        "no schema io.k8s.apimachinery.pkg.runtime.RawExtension",
        NOT_A_KIND,
    ),
    ("no schema io.k8s.apimachinery.pkg.version.Info", NOT_A_KIND),
    ("no schema io.k8s.api.authentication.v1.", OF_A_SUBRESOURCE),
    (
        "no schema io.k8s.api.autoscaling.v1.Scale",
        OF_A_SUBRESOURCE,
    ),
    ("no schema io.k8s.api.policy.v1.Eviction", OF_A_SUBRESOURCE),
    ("x-kubernetes-unions", "the table of types has no unions"),
    (
        ".items.enum: - ",
        "the table of types has the values of fields, not those of items",
    ),
    (
        ".additionalProperties.enum: - ",
        "the table of types has the values of fields, not those of items",
    ),
    ("JSONSchemaProps.properties.", IN_ALL_OF),
    ("IngressRule.properties.http.", IN_ALL_OF),
    (
        "apis/apps/v1: io.k8s.api.core.v1.PersistentVolumeClaim.x-kubernetes-group-version-kind",
        "a kind is named in the document of its own group",
    ),
];
const NOT_A_KIND: &str = "answers and options are described by no operation here";
const OF_A_SUBRESOURCE: &str = "only operations that clients look up are described, those of kinds";
const IN_ALL_OF: &str = "a reference with a description is in `allOf` also without a default";

/// The number of differences that a failure shows; all are in `target/tmp/open-api.txt`.
const SHOWN: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_api_is_that_of_a_real_server() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let control_plane = builder.start().await.expect("the control plane starts");
    let real = Client::real(&control_plane);
    let (_server, serving, ours) = Client::built_in().await;
    let mut differences = Vec::new();
    let mut schemas = 0;
    let index = get(&real, "/openapi/v3").await;
    let our_index = get(&ours, "/openapi/v3").await;
    let empty = Map::new();
    for path in index["paths"].as_object().unwrap_or(&empty).keys() {
        // The versions with kinds; the others have no schemas of their own.
        if !path.contains("/v") {
            continue;
        }
        if our_index["paths"].get(path).is_none() {
            differences.push(format!("{path}: no document"));
            continue;
        }
        let document = get(&real, &format!("/openapi/v3/{path}")).await;
        let our_document = get(&ours, &format!("/openapi/v3/{path}")).await;
        let parts = |document: &Value| document["components"]["schemas"].clone();
        schemas += compare_schemas(
            path,
            &parts(&document),
            &parts(&our_document),
            &mut differences,
        );
        compare_operations(path, &document, &our_document, &mut differences);
    }
    let (document, our_document) = (
        get(&real, "/openapi/v2").await,
        get(&ours, "/openapi/v2").await,
    );
    let (definitions, ours) = (&document["definitions"], &our_document["definitions"]);
    schemas += compare_schemas("v2", definitions, ours, &mut differences);
    compare_operations("v2", &document, &our_document, &mut differences);
    serving.stop().await;
    println!("{schemas} schemas compared");
    assert!(schemas > 500, "only {schemas} schemas");
    let is_ignored = |text: &str| IGNORED.iter().any(|(part, _)| text.contains(part));
    for (part, reason) in IGNORED {
        let occurs = differences.iter().any(|one| one.contains(part));
        assert!(
            occurs,
            "{part} does not differ any more, remove it: {reason}"
        );
    }
    differences.retain(|one| !is_ignored(one));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("open-api.txt");
    std::fs::write(&file, differences.join("\n")).expect("the differences are written");
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences
            .iter()
            .take(SHOWN)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    );
}

async fn get(client: &Client, path: &str) -> Value {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let reply = client
        .send(&Method::GET, path, &headers, Default::default())
        .await;
    serde_json::from_slice(&reply.body).unwrap_or_default()
}

/// Compares the schemas that the real server has, and returns their number.
fn compare_schemas(at: &str, real: &Value, ours: &Value, differences: &mut Vec<String>) -> usize {
    let schemas = real.as_object().into_iter().flatten();
    let mut count = 0;
    for (name, schema) in schemas {
        count += 1;
        match ours.get(name) {
            None => differences.push(format!("{at}: no schema {name}")),
            Some(other) => {
                let path = format!("{at}: {name}");
                compare(&path, &essence(schema), &essence(other), differences);
            }
        }
    }
    for name in ours.as_object().into_iter().flatten().map(|(name, _)| name) {
        if real.get(name).is_none() {
            differences.push(format!("{at}: only here: schema {name}"));
        }
    }
    count
}

/// A schema without its description, with `required` as a set.
fn essence(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let mut kept = Map::new();
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("description", Value::String(_)) => {}
                    ("properties", Value::Object(properties)) => {
                        let all = properties
                            .iter()
                            .map(|(name, one)| (name.clone(), essence(one)));
                        kept.insert(name.clone(), Value::Object(all.collect()));
                    }
                    ("required" | "enum", Value::Array(names)) => {
                        let names: BTreeSet<String> = names.iter().map(Value::to_string).collect();
                        kept.insert(name.clone(), json!(names));
                    }
                    ("x-kubernetes-group-version-kind", Value::Array(kinds)) => {
                        let kinds: BTreeSet<String> = kinds.iter().map(Value::to_string).collect();
                        kept.insert(name.clone(), json!(kinds));
                    }
                    ("default", value) => {
                        kept.insert(name.clone(), value.clone());
                    }
                    (_, value) => {
                        kept.insert(name.clone(), essence(value));
                    }
                }
            }
            Value::Object(kept)
        }
        Value::Array(items) => items.iter().map(essence).collect(),
        other => other.clone(),
    }
}

fn compare(path: &str, real: &Value, ours: &Value, differences: &mut Vec<String>) {
    match (real, ours) {
        (Value::Object(all), Value::Object(others)) => {
            let names: BTreeSet<&String> = all.keys().chain(others.keys()).collect();
            for name in names {
                let path = format!("{path}.{name}");
                match (all.get(name), others.get(name)) {
                    (Some(real), Some(ours)) => compare(&path, real, ours, differences),
                    (Some(real), None) => differences.push(format!("{path}: - {real}")),
                    (None, ours) => {
                        differences.push(format!("{path}: + {}", ours.unwrap_or(&Value::Null)));
                    }
                }
            }
        }
        (real, ours) if real != ours => {
            differences.push(format!("{path}: - {real} + {ours}"));
        }
        _ => {}
    }
}

/// Compares the operations that this server describes: each exists on the real server, which describes more of them, and has
/// no other parameters.
fn compare_operations(at: &str, real: &Value, ours: &Value, differences: &mut Vec<String>) {
    let real = operations(real);
    for (operation, parameters) in operations(ours) {
        match real.get(&operation) {
            None => differences.push(format!("{at}: only here: operation {operation}")),
            Some(others) => {
                for parameter in parameters.difference(others) {
                    differences.push(format!("{at}: only here: {parameter} of {operation}"));
                }
            }
        }
    }
}

/// The names of the parameters of each verb of each path.
fn operations(document: &Value) -> BTreeMap<String, BTreeSet<String>> {
    const VERBS: &[&str] = &["get", "put", "post", "patch", "delete"];
    let names = |list: &Value| -> BTreeSet<String> {
        let all = list.as_array().into_iter().flatten();
        all.filter_map(|one| {
            let reference = one["$ref"]
                .as_str()
                .and_then(|path| path.rsplit('/').next());
            // A reference of version 2 ends with a hash: `fieldManager-7c6nTn1T`.
            let reference = reference.map(|name| name.split('-').next().unwrap_or(name));
            one["name"].as_str().or(reference).map(str::to_owned)
        })
        .collect()
    };
    let mut all = BTreeMap::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        let shared = names(&item["parameters"]);
        for verb in VERBS {
            if let Some(operation) = item.get(*verb) {
                let mut parameters = names(&operation["parameters"]);
                parameters.extend(shared.iter().cloned());
                all.insert(format!("{verb} {path}"), parameters);
            }
        }
    }
    all
}

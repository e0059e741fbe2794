//! Every built-in kind on this server and on a real kube-apiserver: discovery, stored objects, and rows of Tables.
//!
//! `manifests.json` has one or two manifests of each kind. Both servers get them, and their answers are compared without
//! versions, uids and times. `IGNORED` lists what differs, with the reason. Needs `KUBEBUILDER_ASSETS`.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use reeve_apiserver::assets;
use reeve_apiserver::control_plane::ControlPlane;
use reeve_apiserver::{ApiServer, Serving};
use serde_json::{Value, json};

use crate::conformance::client::Client;

mod autoscalers;

const MANIFESTS: &str = include_str!("manifests.json");
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What differs: the kind, the beginning of a path in the answer, and the reason.
const IGNORED: &[(&str, &str, &str)] = &[
    (
        "PersistentVolume",
        ".metadata.finalizers",
        "only a controller removes the finalizer",
    ),
    (
        "PersistentVolumeClaim",
        ".metadata.finalizers",
        "only a controller removes the finalizer",
    ),
    (
        "VolumeAttributesClass",
        ".metadata.finalizers",
        "only a controller removes the finalizer",
    ),
    (
        "FlowSchema",
        ".status",
        "the server does not watch priority levels",
    ),
    (
        "FlowSchema",
        ".cells[5]",
        "the server does not watch priority levels",
    ),
    (
        "CustomResourceDefinition",
        ".status",
        "a real server sets it a moment later",
    ),
    ("APIService", ".status", "APIs are not aggregated"),
    ("APIService", ".cells[2]", "APIs are not aggregated"),
];

/// The resource of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Resource {
    plural: String,
    namespaced: bool,
}

/// Resources by path of the group and version, and kind.
type Resources = BTreeMap<(String, String), Resource>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_is_that_of_a_real_server() {
    let Some((_control_plane, real)) = real().await else {
        return;
    };
    let ((_server, serving), built_in) = built_in().await;
    let mut differences = Vec::new();
    for path in ["/api", "/apis"] {
        for accept in ["application/json", AGGREGATED] {
            let (theirs, ours) = both(&real, &built_in, path, accept).await;
            compare(&theirs, &ours, path, &mut differences);
        }
    }
    for path in group_versions(&real).await {
        let (theirs, ours) = both(&real, &built_in, &path, "application/json").await;
        compare(&theirs, &ours, &path, &mut differences);
    }
    serving.stop().await;
    differences.retain(|line| !line.contains("serverAddressByClientCIDRs"));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_and_rows_of_every_kind_are_those_of_a_real_server() {
    let Some((_control_plane, real)) = real().await else {
        return;
    };
    let ((_server, serving), built_in) = built_in().await;
    let resources = resources(&real).await;
    let manifests: Vec<Value> = serde_json::from_str(MANIFESTS).expect("the manifests are JSON");
    let mut differences = Vec::new();
    let mut compared: Vec<String> = Vec::new();
    for manifest in &manifests {
        let kind = text(&manifest["kind"]);
        let base = base_path(text(&manifest["apiVersion"]));
        let resource = &resources[&(base.clone(), kind.to_owned())];
        let title = format!("{kind} {}", text(&manifest["metadata"]["name"]));
        let collection = |base: &str| match resource.namespaced {
            true => format!("{base}/namespaces/default/{}", resource.plural),
            false => format!("{base}/{}", resource.plural),
        };
        let mut found = Vec::new();
        let theirs = post(&real, &collection(&base), manifest).await;
        let ours = post(&built_in, &collection(&base), manifest).await;
        assert_eq!(
            theirs["metadata"]["name"], manifest["metadata"]["name"],
            "{title}: {theirs}"
        );
        compare(&theirs, &ours, "", &mut found);
        for ((other, of), same) in &resources {
            if of != kind || same != resource {
                continue;
            }
            let path = format!(
                "{}/{}",
                collection(other),
                text(&manifest["metadata"]["name"])
            );
            let (theirs, ours) = both(&real, &built_in, &path, "application/json").await;
            compare(&theirs, &ours, "", &mut found);
            let (theirs, ours) = both(&real, &built_in, &path, TABLE).await;
            compare(&heading(&theirs), &heading(&ours), ".columns", &mut found);
            compare(&cells(&theirs), &cells(&ours), ".cells", &mut found);
        }
        found.retain(|line| {
            !IGNORED
                .iter()
                .any(|(of, path, _)| *of == kind && line.starts_with(path))
        });
        differences.extend(found.iter().map(|line| format!("{title}: {line}")));
        compared.push(kind.to_owned());
    }
    serving.stop().await;
    println!("{} manifests compared", manifests.len());
    let missing: Vec<&str> = resources
        .keys()
        .map(|(_, kind)| kind.as_str())
        .filter(|kind| !compared.iter().any(|one| one == kind))
        .filter(|kind| !kind.ends_with("Review"))
        .collect();
    // Their objects are not stored.
    let expected = ["Binding", "ComponentStatus"];
    assert!(
        missing.iter().all(|kind| expected.contains(kind)),
        "no manifest of {missing:?}"
    );
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_server_has_the_objects_of_a_real_one() {
    let Some((_control_plane, real)) = real().await else {
        return;
    };
    let ((_server, serving), built_in) = built_in().await;
    let mut differences = Vec::new();
    for path in [
        "/api/v1/namespaces",
        "/api/v1/services",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
        "/apis/networking.k8s.io/v1/servicecidrs",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
    ] {
        let (theirs, ours) = both(&real, &built_in, path, "application/json").await;
        let of_prepared = |item: &&Value| text(&item["metadata"]["name"]).starts_with("conf-");
        let items = |list: &Value| -> BTreeMap<String, Value> {
            let all = list["items"].as_array().into_iter().flatten();
            all.filter(|item| !of_prepared(item))
                .map(|item| (text(&item["metadata"]["name"]).to_owned(), item.clone()))
                .collect()
        };
        compare(
            &json!(items(&theirs)),
            &json!(items(&ours)),
            path,
            &mut differences,
        );
    }
    serving.stop().await;
    // The port of the server, and conditions that a controller of the real server sets some time after the start.
    differences.retain(|line| !line.contains(".targetPort") && !line.contains(".status"));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

async fn built_in() -> ((ApiServer, Serving), Client) {
    let (server, serving, client) = Client::built_in().await;
    ((server, serving), client)
}

async fn real() -> Option<(ControlPlane, Client)> {
    let control_plane = assets::control_plane()?
        .start()
        .await
        .expect("the control plane starts");
    let client = Client::real(&control_plane);
    Some((control_plane, client))
}

async fn request(client: &Client, method: &Method, path: &str, accept: &str, body: Bytes) -> Value {
    let mut headers = HeaderMap::new();
    let accept = HeaderValue::from_str(accept).expect("a media type");
    headers.insert(ACCEPT, accept);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let reply = client.send(method, path, &headers, body).await;
    serde_json::from_slice(&reply.body).unwrap_or(Value::Null)
}

async fn post(client: &Client, path: &str, manifest: &Value) -> Value {
    let body = Bytes::from(manifest.to_string());
    let answer = request(client, &Method::POST, path, "application/json", body).await;
    normal(&answer)
}

async fn both(real: &Client, built_in: &Client, path: &str, accept: &str) -> (Value, Value) {
    let get = Method::GET;
    let theirs = request(real, &get, path, accept, Bytes::new()).await;
    let ours = request(built_in, &get, path, accept, Bytes::new()).await;
    (normal(&theirs), normal(&ours))
}

async fn group_versions(client: &Client) -> Vec<String> {
    let list = request(
        client,
        &Method::GET,
        "/apis",
        "application/json",
        Bytes::new(),
    )
    .await;
    let groups = list["groups"].as_array().into_iter().flatten();
    let versions = groups.flat_map(|group| group["versions"].as_array().into_iter().flatten());
    let mut paths = vec!["/api/v1".to_owned()];
    paths.extend(versions.map(|version| base_path(text(&version["groupVersion"]))));
    paths
}

async fn resources(client: &Client) -> Resources {
    let mut all = Resources::new();
    for path in group_versions(client).await {
        let list = request(
            client,
            &Method::GET,
            &path,
            "application/json",
            Bytes::new(),
        )
        .await;
        for resource in list["resources"].as_array().into_iter().flatten() {
            let plural = text(&resource["name"]).to_owned();
            if plural.contains('/') {
                continue;
            }
            let kind = text(&resource["kind"]).to_owned();
            let namespaced = resource["namespaced"] == true;
            all.insert((path.clone(), kind), Resource { plural, namespaced });
        }
    }
    all
}

fn base_path(group_version: &str) -> String {
    match group_version.contains('/') {
        true => format!("/apis/{group_version}"),
        false => format!("/api/{group_version}"),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Without what differs between two runs.
fn normal(value: &Value) -> Value {
    const DROPPED: &[&str] = &[
        "creationTimestamp",
        "managedFields",
        "resourceVersion",
        "uid",
    ];
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(name, _)| !DROPPED.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), normal(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::String(text) if is_time(text) => "TIME".into(),
        // Also the one in the text of a selector.
        Value::String(text) if is_uid(text.rsplit('=').next().unwrap_or_default()) => "UID".into(),
        Value::String(text) if is_age(text) => "AGE".into(),
        other => other.clone(),
    }
}

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T' && text.starts_with("20")
}

fn is_uid(text: &str) -> bool {
    text.len() == 36 && text.matches('-').count() == 4
}

fn is_age(text: &str) -> bool {
    let number = text.trim_end_matches(['s', 'm']);
    number.len() + 1 == text.len() && number.parse::<u32>().is_ok()
}

fn heading(table: &Value) -> Value {
    let columns = table["columnDefinitions"].as_array().into_iter().flatten();
    columns
        .map(|column| {
            json!([
                column["name"],
                column["type"],
                column["format"],
                column["priority"]
            ])
        })
        .collect()
}

/// The cells of the only row.
fn cells(table: &Value) -> Value {
    table["rows"][0]["cells"].clone()
}

/// Adds a line for each place where `ours` differs from `theirs`.
fn compare(theirs: &Value, ours: &Value, path: &str, lines: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(one), Value::Object(other)) => {
            for name in one
                .keys()
                .chain(other.keys().filter(|name| !one.contains_key(*name)))
            {
                let path = format!("{path}.{name}");
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => compare(one, other, &path, lines),
                    (one, other) => lines.push(format!("{path}: real {one:?}, ours {other:?}")),
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (at, (one, other)) in one.iter().zip(other).enumerate() {
                compare(one, other, &format!("{path}[{at}]"), lines);
            }
        }
        _ if theirs == ours => {}
        _ => lines.push(format!("{path}: real {theirs}, ours {ours}")),
    }
}

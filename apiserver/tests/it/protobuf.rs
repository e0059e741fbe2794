//! The bytes of a real kube-apiserver and those of reeve-wire and of the built-in server, for the same objects.

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use reeve_apiserver::{ApiServer, assets};
use reeve_wire::{Message, from_slice, to_vec};
use serde_json::{Value, json};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Options of streams, which are not objects.
const STREAMS: [&str; 6] = [
    "PodAttachOptions",
    "PodExecOptions",
    "PodPortForwardOptions",
    "PodProxyOptions",
    "ServiceProxyOptions",
    "NodeProxyOptions",
];

async fn ask(client: &Client, method: &str, path: &str, accept: &str, body: &Value) -> Bytes {
    let content = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept)
        .header("content-type", JSON)
        .body(Body::from(content))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let (head, body) = response.into_parts();
    let content = body.collect().await.unwrap().to_bytes();
    assert!(head.status.is_success(), "{path}: {content:?}");
    let content_type = head.headers["content-type"].to_str().unwrap();
    assert_eq!(content_type, accept, "{path}");
    content
}

async fn get(client: &Client, path: &str) -> Value {
    let content = ask(client, "GET", path, JSON, &Value::Null).await;
    serde_json::from_slice(&content).unwrap()
}

/// The roots of all group versions.
async fn roots(client: &Client) -> Vec<String> {
    let mut roots = vec!["/api/v1".to_owned()];
    for group in get(client, "/apis").await["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            roots.push(format!(
                "/apis/{}",
                version["groupVersion"].as_str().unwrap()
            ));
        }
    }
    roots
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_writes_the_same_bytes_for_every_resource() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let control_plane = builder.start().await.unwrap();
    let client = control_plane.client().unwrap();
    let (mut compared, mut items) = (0, 0);
    for root in roots(&client).await {
        let resources = get(&client, &root).await;
        let own = resources["groupVersion"].as_str().unwrap().to_owned();
        for resource in resources["resources"].as_array().unwrap() {
            let text = |name: &str| resource[name].as_str().unwrap_or_default();
            let (kind, version) = (text("kind"), text("version"));
            let api_version = match text("group") {
                "" if version.is_empty() => own.clone(),
                "" => version.to_owned(),
                group => format!("{group}/{version}"),
            };
            if !STREAMS.contains(&kind) {
                let known = Message::of(&api_version, kind).is_some();
                assert!(known, "{api_version} {kind} is not in the table");
            }
            if !resource["verbs"]
                .as_array()
                .unwrap()
                .contains(&json!("list"))
            {
                continue;
            }
            // A real server lists them in a random order.
            if kind == "ComponentStatus" {
                continue;
            }
            let list = same_list(&client, &format!("{root}/{}", text("name"))).await;
            compared += 1;
            items += list["items"].as_array().map_or(0, Vec::len);
        }
    }
    assert!(compared > 40, "{compared}");
    assert!(items > 100, "{items}");
}

/// Compares both encodings of a list, which may change in between.
async fn same_list(client: &Client, path: &str) -> Value {
    for _ in 0..10 {
        let plain = get(client, path).await;
        let content = ask(client, "GET", path, PROTOBUF, &Value::Null).await;
        let read: Value = from_slice(&content).unwrap_or_else(|error| panic!("{path}: {error}"));
        if read["metadata"] != plain["metadata"] {
            continue;
        }
        assert_eq!(
            without_empty_items(&read),
            without_empty_items(&plain),
            "{path}"
        );
        let written = to_vec(&plain).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(written, content, "{path}");
        return plain;
    }
    panic!("{path} changes with each request");
}

/// A list without items is null or empty.
fn without_empty_items(list: &Value) -> Value {
    let mut list = list.clone();
    if list["items"].as_array().is_none_or(Vec::is_empty) {
        list["items"] = Value::Null;
    }
    list
}

/// Objects that have the same content on both servers, the metadata of the server aside.
fn objects() -> Vec<(&'static str, Value)> {
    let meta =
        json!({"name": "same", "labels": {"b": "2", "a": "1"}, "annotations": {"text": "ä\n<&>"}});
    let template = json!({
        "metadata": {"labels": {"app": "same"}},
        "spec": {"containers": [{
            "name": "c", "image": "image:1", "command": ["a", "b"],
            "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "ports": [{"name": "http", "containerPort": 80}],
            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
            "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
        }], "securityContext": {"runAsNonRoot": false}},
    });
    vec![
        (
            "/api/v1/namespaces/default/configmaps",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"b": "", "a": "x"}, "binaryData": {"c": "AP8="}}),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"k": "v"}, "immutable": false}),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {
                "holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.123456Z",
            }}),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {
                "replicas": 0, "selector": {"matchLabels": {"app": "same"}}, "template": template,
            }}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": [
                {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]},
            ]}),
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta, "spec": {"rules": [{
                "host": "h.example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]},
            }]}}),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_servers_write_the_same_bytes_for_the_same_object() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let control_plane = builder.start().await.unwrap();
    let real = control_plane.client().unwrap();
    let server = ApiServer::builder().start().await.unwrap();
    let ours = server.client();
    for (path, object) in objects() {
        let mut bodies = Vec::new();
        for client in [&real, &ours] {
            let made = ask(client, "POST", path, PROTOBUF, &object).await;
            let read = ask(
                client,
                "GET",
                &format!("{path}/same"),
                PROTOBUF,
                &Value::Null,
            )
            .await;
            assert_eq!(made, read, "{path}");
            bodies.push(comparable(&read));
        }
        assert_eq!(bodies[0], bodies[1], "{path}");
    }
    server.shutdown().await.unwrap();
}

/// The body without the metadata that each server makes of its own.
fn comparable(body: &Bytes) -> Vec<u8> {
    let mut object: Value = from_slice(body).unwrap();
    assert_eq!(to_vec(&object).unwrap(), &body[..]);
    let metadata = object["metadata"].as_object_mut().unwrap();
    for name in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
    ] {
        metadata.remove(name);
    }
    to_vec(&object).unwrap()
}

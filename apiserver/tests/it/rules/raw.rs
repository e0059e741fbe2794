//! Requests as bytes, without a client library between.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use reeve_apiserver::{ApiServer, Body};
use reeve_clock::Clock;
use serde_json::Value;
use tower::ServiceExt;

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server whose clock follows tokio's paused time.
pub(crate) async fn server() -> ApiServer {
    ApiServer::builder().clock(clock()).start().await.unwrap()
}

pub(crate) fn clock() -> Clock {
    Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1)
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn message(&self) -> String {
        self.json()["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// The object of a write that must succeed.
    pub(crate) fn expect_ok(self) -> Value {
        assert!(self.code < 300, "{self:?}");
        self.json()
    }
}

/// Sends a request; `Err` when the connection broke.
pub(crate) async fn try_send(
    server: &ApiServer,
    method: Method,
    path: &str,
    content_type: &str,
    body: impl Into<Bytes>,
) -> std::io::Result<Answer> {
    let mut request = Request::builder().method(method).uri(path);
    if !content_type.is_empty() {
        request = request.header("content-type", content_type);
    }
    let request = request.body(Full::new(body.into())).unwrap();
    let response = server.service().oneshot(request).await?;
    let (head, body) = response.into_parts();
    let content = body.collect().await?.to_bytes();
    Ok(Answer {
        code: head.status.as_u16(),
        headers: head.headers,
        text: String::from_utf8(content.to_vec()).unwrap(),
    })
}

async fn send(
    server: &ApiServer,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Answer {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    try_send(server, method, path, content_type, body)
        .await
        .unwrap()
}

pub(crate) async fn get(server: &ApiServer, path: &str) -> Answer {
    send(server, Method::GET, path, "", &Value::Null).await
}

pub(crate) async fn post(server: &ApiServer, path: &str, body: &Value) -> Answer {
    send(server, Method::POST, path, "application/json", body).await
}

pub(crate) async fn put(server: &ApiServer, path: &str, body: &Value) -> Answer {
    send(server, Method::PUT, path, "application/json", body).await
}

pub(crate) async fn merge(server: &ApiServer, path: &str, body: &Value) -> Answer {
    send(
        server,
        Method::PATCH,
        path,
        "application/merge-patch+json",
        body,
    )
    .await
}

pub(crate) async fn delete(server: &ApiServer, path: &str, body: &Value) -> Answer {
    send(server, Method::DELETE, path, "application/json", body).await
}

/// The events of a watch, one by one.
pub(crate) struct Frames {
    body: Body,
    left: Vec<u8>,
}

/// Opens a watch that must be answered with 200.
pub(crate) async fn watch(server: &ApiServer, path: &str) -> Frames {
    let request = Request::builder()
        .uri(path)
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    Frames {
        body: response.into_body(),
        left: Vec::new(),
    }
}

impl Frames {
    /// The next event; `None` at the end of the stream; `Err` when it breaks.
    pub(crate) async fn try_next(&mut self) -> std::io::Result<Option<Value>> {
        loop {
            if let Some(end) = self.left.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.left.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).unwrap()));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(error),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.left.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Option<Value> {
        self.try_next().await.unwrap()
    }

    /// Type, name and version of the next event.
    pub(crate) async fn brief(&mut self) -> Option<(String, String, u64)> {
        let event = self.next().await?;
        let metadata = &event["object"]["metadata"];
        Some((
            event["type"].as_str().unwrap().to_owned(),
            metadata["name"].as_str().unwrap_or_default().to_owned(),
            version(&event["object"]),
        ))
    }

    /// What was received and is no whole frame.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.left
    }
}

/// `metadata.resourceVersion` as a number.
pub(crate) fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .parse()
        .unwrap_or(0)
}

/// A ConfigMap's body.
pub(crate) fn map(name: &str) -> Value {
    serde_json::json!({"metadata": {"name": name}})
}

/// A ConfigMap's body with one label.
pub(crate) fn labelled(name: &str, value: &str) -> Value {
    serde_json::json!({"metadata": {"name": name, "labels": {"app": value}}})
}

/// Lets the background task of the server do what is due.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// A definition of `foos.example.com`, with status and scale.
pub(crate) fn foos() -> Value {
    serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "replicas": {"type": "integer", "default": 1, "minimum": 0},
                        "color": {"type": "string", "enum": ["red", "blue"]},
                    }},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    })
}

pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";

/// A Foo's body.
pub(crate) fn foo(name: &str) -> Value {
    serde_json::json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}, "spec": {}})
}

/// The `apiVersion` in which each object of a storage is on disk, by key.
pub(crate) fn stored_versions(directory: &Path, storage: &str) -> BTreeMap<String, String> {
    let number = |name: &str| -> Option<u64> {
        let name = name.strip_suffix(".jsonl")?;
        match name.strip_prefix("log.") {
            Some(number) => number.parse().ok(),
            None => (name == "snapshot").then_some(0),
        }
    };
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: BTreeMap<u64, String> = names
        .filter_map(|name| Some((number(&name)?, name)))
        .collect();
    let mut stored = BTreeMap::new();
    for name in files.values() {
        let text = std::fs::read_to_string(directory.join(name)).unwrap();
        for line in text.lines() {
            let line: Value = serde_json::from_str(&line[9..]).unwrap();
            if line["storage"] != storage {
                continue;
            }
            let key = line["key"].as_str().unwrap().to_owned();
            let version = line["apiVersion"].as_str().unwrap_or_default();
            match line["value"].is_null() {
                true => stored.remove(&key),
                false => stored.insert(key, version.to_owned()),
            };
        }
    }
    stored
}

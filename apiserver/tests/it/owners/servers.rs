//! Both servers, and their answers to one write.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use reeve_apiserver::control_plane::ControlPlane;
use reeve_apiserver::{ApiServer, Serving, assets};
use serde_json::{Value, json};

use super::is_failure;
use super::subjects::{Subject, What, Write, definition};
use crate::conformance::client::Client;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PARTS: &str = "/apis/owners.example.com/v1/namespaces/default/parts";

/// A real server and the built-in one.
pub struct Servers {
    clients: [Client; 2],
    serving: Serving,
    _server: ApiServer,
    _control_plane: ControlPlane,
}

/// An answer without what differs from server to server.
#[derive(PartialEq)]
pub struct Answer {
    code: u16,
    body: Value,
}

// === impl Servers ===

impl Servers {
    pub async fn start() -> Option<Self> {
        let control_plane = assets::control_plane()?
            .start()
            .await
            .expect("the control plane starts");
        let real = Client::real(&control_plane);
        let server = ApiServer::builder().start().await.expect("it starts");
        let address: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let serving = server.serve(address).await.expect("it listens");
        let own = Client::plain(serving.local_addr());
        let servers = Self {
            clients: [real, own],
            serving,
            _server: server,
            _control_plane: control_plane,
        };
        for client in &servers.clients {
            let body = definition();
            let made = send(
                client,
                &Method::POST,
                DEFINITIONS,
                "application/json",
                &body,
            )
            .await;
            assert_eq!(made.0, 201, "{}", made.1);
            while send(client, &Method::GET, PARTS, "", &Value::Null).await.0 != 200 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Some(servers)
    }

    pub async fn stop(self) {
        self.serving.stop().await;
    }

    /// The answers of the real server and of the built-in one.
    pub async fn perform(&self, subject: &Subject, name: &str, write: &Write) -> [Answer; 2] {
        let [real, own] = &self.clients;
        let (real, own) = tokio::join!(
            perform(real, subject, name, write),
            perform(own, subject, name, write)
        );
        [real, own]
    }
}

async fn perform(client: &Client, subject: &Subject, name: &str, write: &Write) -> Answer {
    let object = format!("{}/{name}{}", subject.path, write.subresource);
    let manager = format!("fieldManager={}", write.manager);
    let (code, mut body) = match write.what {
        What::Apply => {
            let path = format!("{object}?{manager}&force={}", write.force);
            let kind = "application/apply-patch+yaml";
            send(client, &Method::PATCH, &path, kind, &write.body).await
        }
        What::Merge => {
            let path = format!("{object}?{manager}");
            let kind = "application/merge-patch+json";
            send(client, &Method::PATCH, &path, kind, &write.body).await
        }
        What::Create => {
            let path = format!("{}?{manager}", subject.path);
            send(
                client,
                &Method::POST,
                &path,
                "application/json",
                &write.body,
            )
            .await
        }
        What::Replace => {
            let (code, mut present) = send(client, &Method::GET, &object, "", &Value::Null).await;
            if code == 200 {
                merge(&mut present, &write.body);
            } else {
                present = write.body.clone();
            }
            let path = format!("{object}?{manager}");
            send(client, &Method::PUT, &path, "application/json", &present).await
        }
    };
    if write.subresource == "/scale" && code < 300 {
        // The owners show in the object.
        let whole = format!("{}/{name}", subject.path);
        body = json!([
            body,
            send(client, &Method::GET, &whole, "", &Value::Null).await.1
        ]);
    }
    normalize(&mut body);
    Answer { code, body }
}

async fn send(
    client: &Client,
    method: &Method,
    path: &str,
    kind: &'static str,
    body: &Value,
) -> (u16, Value) {
    let mut headers = HeaderMap::new();
    let mut bytes = Bytes::new();
    if !kind.is_empty() {
        headers.insert("content-type", HeaderValue::from_static(kind));
        bytes = Bytes::from(body.to_string());
    }
    let reply = client.send(method, path, &headers, bytes).await;
    let body = serde_json::from_slice(&reply.body).unwrap_or_default();
    (reply.status.as_u16(), body)
}

/// A JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            if let Some(target) = target.as_object_mut() {
                target.remove(name);
            }
        } else {
            merge(&mut target[name.as_str()], value);
        }
    }
}

/// Removes what differs from server to server.
fn normalize(body: &mut Value) {
    match body {
        Value::Array(items) => items.iter_mut().for_each(normalize),
        body if is_failure(body) => {
            // The order of conflicts with several managers is random on a real server, and so is that of invalid fields.
            if let Some(causes) = body
                .pointer_mut("/details/causes")
                .and_then(Value::as_array_mut)
            {
                causes.sort_by_key(Value::to_string);
            }
            let message = body["message"].as_str().unwrap_or_default();
            let list = message.split_once(": [");
            let list = list.and_then(|(head, list)| Some((head, list.strip_suffix(']')?)));
            if let Some((head, list)) = list {
                let mut errors: Vec<&str> = list.split(", ").collect();
                errors.sort_unstable();
                body["message"] = format!("{head}: [{}]", errors.join(", ")).into();
            }
        }
        body => {
            if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
                for field in ["uid", "resourceVersion", "creationTimestamp"] {
                    metadata.remove(field);
                }
                if let Some(entries) = metadata
                    .get_mut("managedFields")
                    .and_then(Value::as_array_mut)
                {
                    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
                        if let Some(time) = entry.get_mut("time") {
                            *time = "<time>".into();
                        }
                    }
                    // The times decide the order, and a second may end between the two servers.
                    entries.sort_by_key(Value::to_string);
                }
            }
            if let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut) {
                for field in ["clusterIP", "clusterIPs"] {
                    spec.remove(field);
                }
            }
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.body)
    }
}

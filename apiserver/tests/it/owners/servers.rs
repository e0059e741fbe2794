//! Both servers, and their answers to one write.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use reeve_apiserver::control_plane::ControlPlane;
use reeve_apiserver::{ApiServer, Serving, assets};
use reeve_clock::Clock;
use serde_json::{Value, json};

use super::is_failure;
use super::subjects::definition;
use super::writes::{What, Write};
use crate::conformance::client::Client;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PARTS: &str = "/apis/owners.example.com/v1/namespaces/default/parts";

/// The milliseconds of a second after which no write begins.
const LATE: i64 = 850;

/// A real server and the built-in one.
pub struct Servers {
    clients: [Client; 2],
    clock: Clock,
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
            clock: Clock::system(),
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

    /// Whether the real server has no such object.
    pub async fn is_absent(&self, name: &str, write: &Write) -> bool {
        let path = format!("{}/{name}", write.path);
        send(&self.clients[0], &Method::GET, &path, "", &Value::Null)
            .await
            .0
            == 404
    }

    /// The answers of the real server and of the built-in one.
    ///
    /// Both write in the same second, because entries of managedFields have the second of their last change, which
    /// decides their order and which of them are merged.
    pub async fn perform(&self, name: &str, write: &Write) -> [Answer; 2] {
        let millisecond = self.clock.now().as_millisecond().rem_euclid(1000);
        if millisecond > LATE {
            let rest = u64::try_from(1000 - millisecond).unwrap_or_default();
            tokio::time::sleep(Duration::from_millis(rest)).await;
        }
        let [real, own] = &self.clients;
        let (real, own) = tokio::join!(perform(real, name, write), perform(own, name, write));
        [real, own]
    }
}

async fn perform(client: &Client, name: &str, write: &Write) -> Answer {
    let whole = format!("{}/{name}", write.path);
    let object = format!("{whole}{}", write.subresource);
    let managed = format!("{object}?fieldManager={}", write.manager);
    let patch =
        async |kind, path: &str| send(client, &Method::PATCH, path, kind, &write.body).await;
    let json = "application/json";
    let (code, mut body) = match write.what {
        What::Apply => {
            let path = format!("{managed}&force={}", write.force);
            patch("application/apply-patch+yaml", &path).await
        }
        What::Merge => patch("application/merge-patch+json", &managed).await,
        What::Strategic => patch("application/strategic-merge-patch+json", &managed).await,
        What::Json => patch("application/json-patch+json", &managed).await,
        What::Create => {
            let path = format!("{}?fieldManager={}", write.path, write.manager);
            send(client, &Method::POST, &path, json, &write.body).await
        }
        What::Replace => {
            let (code, mut present) = send(client, &Method::GET, &object, "", &Value::Null).await;
            if code == 200 {
                merge(&mut present, &write.body);
            } else {
                present = write.body.clone();
            }
            send(client, &Method::PUT, &managed, json, &present).await
        }
        What::Delete => {
            let options = json!({"propagationPolicy": "Background"});
            send(client, &Method::DELETE, &object, json, &options).await
        }
    };
    if (write.subresource == "/scale" || write.what == What::Delete) && code < 300 {
        // The owners show in the object.
        let rest = send(client, &Method::GET, &whole, "", &Value::Null).await.1;
        body = json!([body, rest]);
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
            if let Some(details) = body["details"].as_object_mut() {
                details.remove("uid");
            }
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

//! The two servers, and what they answer.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use parking_lot::Mutex;
use reeve_apiserver::control_plane::ControlPlane;
use reeve_apiserver::{ApiServer, Serving};
use serde_json::Value;

use crate::conformance::client::{Client, Reply};

/// A server.
pub struct Server {
    client: Client,
    /// The resources of each group and version.
    resources: Mutex<BTreeMap<String, Vec<Value>>>,
}

/// The answer to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub code: u16,
    /// The fields that the causes name.
    pub fields: BTreeSet<String>,
    pub message: String,
}

/// The documents of a YAML file.
pub fn manifests(text: &str) -> Vec<Value> {
    text.split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).expect("a manifest"))
        .collect()
}

// === impl Server ===

impl Server {
    /// It serves until the first two are dropped.
    pub async fn built_in() -> (ApiServer, Serving, Self) {
        let (server, serving, client) = Client::built_in().await;
        (server, serving, Self::new(client))
    }

    pub fn real(control_plane: &ControlPlane) -> Self {
        Self::new(Client::real(control_plane))
    }

    fn new(client: Client) -> Self {
        let resources = Mutex::default();
        Self { client, resources }
    }

    /// The path for a POST of `manifest`; none if its kind is not served.
    pub async fn path(&self, manifest: &Value) -> Option<String> {
        let version = manifest["apiVersion"].as_str()?;
        let prefix = if version.contains('/') {
            format!("/apis/{version}")
        } else {
            format!("/api/{version}")
        };
        let known = self.resources.lock().get(version).cloned();
        let resources = if let Some(known) = known {
            known
        } else {
            let reply = self.send(&Method::GET, &prefix, "").await;
            let list: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            let list = list["resources"].as_array().cloned().unwrap_or_default();
            self.resources
                .lock()
                .insert(version.to_owned(), list.clone());
            list
        };
        let of_kind = |resource: &&Value| {
            resource["kind"] == manifest["kind"]
                && !resource["name"].as_str().unwrap_or_default().contains('/')
        };
        let resource = resources.iter().find(of_kind)?;
        let plural = resource["name"].as_str()?;
        Some(if resource["namespaced"] == true {
            format!("{prefix}/namespaces/default/{plural}")
        } else {
            format!("{prefix}/{plural}")
        })
    }

    /// Creates an object. The error is the whole answer.
    pub async fn create(&self, path: &str, manifest: &Value) -> Result<Value, Verdict> {
        let reply = self.send(&Method::POST, path, &manifest.to_string()).await;
        if reply.status.is_success() {
            return Ok(serde_json::from_slice(&reply.body).expect("an object"));
        }
        Err(Verdict::of(&reply))
    }

    /// A dry run of a POST under another name.
    pub async fn try_create(&self, path: &str, manifest: &Value) -> Verdict {
        let mut manifest = manifest.clone();
        let kind = manifest["kind"].as_str().unwrap_or_default();
        // The names of these follow from their content.
        if !["CustomResourceDefinition", "APIService", "IPAddress"].contains(&kind) {
            let name = format!(
                "{}-2",
                manifest["metadata"]["name"].as_str().unwrap_or_default()
            );
            manifest["metadata"]["name"] = name.into();
        }
        let path = format!("{path}?dryRun=All");
        Verdict::of(&self.send(&Method::POST, &path, &manifest.to_string()).await)
    }

    /// A dry run of a PUT over the object that `created` has become: a real server writes the status of some.
    pub async fn update(&self, path: &str, created: &Value, manifest: &Value) -> Verdict {
        let name = created["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{path}/{name}");
        let reply = self.send(&Method::GET, &path, "").await;
        let current: Value = serde_json::from_slice(&reply.body).expect("an object");
        let mut manifest = manifest.clone();
        manifest["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
        let path = format!("{path}?dryRun=All");
        Verdict::of(&self.send(&Method::PUT, &path, &manifest.to_string()).await)
    }

    async fn send(&self, method: &Method, path: &str, body: &str) -> Reply {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let body = Bytes::copy_from_slice(body.as_bytes());
        self.client.send(method, path, &headers, body).await
    }
}

// === impl Verdict ===

impl Verdict {
    pub fn accepted(&self) -> bool {
        self.code < 300
    }

    fn of(reply: &Reply) -> Self {
        let status: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let code = reply.status.as_u16();
        if code < 300 {
            return Self {
                code,
                fields: BTreeSet::new(),
                message: String::new(),
            };
        }
        let causes = status["details"]["causes"].as_array();
        let fields = causes
            .into_iter()
            .flatten()
            .filter_map(|cause| cause["field"].as_str())
            .map(str::to_owned)
            .collect();
        let message = status["message"].as_str().unwrap_or_default().to_owned();
        Self {
            code,
            fields,
            message,
        }
    }
}

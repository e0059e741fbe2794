//! The objects that the server has before its first request.

use std::sync::Arc;

use http::{Method, Request};
use kube_client::Client;
use kube_client::core::Status;
use serde_json::{Value, json};

use super::manifests::{Document, Place};
use crate::ApiServer;
use crate::registry::Served;
use crate::resource::ResourceInfo;

/// The number of refused objects that one error shows.
const SHOWN: usize = 10;

/// The reason why objects could not be created.
#[derive(Debug, thiserror::Error)]
#[error("{}", Self::text(&.0, .1))]
pub(super) struct Error(Vec<Refused>, usize);

/// An object that the server refused.
#[derive(Debug)]
struct Refused {
    place: Place,
    object: String,
    why: String,
}

/// The order of creation: each rank needs at most those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Namespace,
    Definition,
    Object,
    /// It changes or refuses what is written after it.
    Admission,
}

// === impl Error ===

impl Error {
    fn text(refused: &[Refused], more: &usize) -> String {
        let mut lines: Vec<String> = refused
            .iter()
            .map(|one| format!("{} ({}): {}", one.place, one.object, one.why))
            .collect();
        if *more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines.join("\nerror: ")
    }
}

// === impl Rank ===

impl Rank {
    fn of(document: &Document) -> Self {
        match (document.group(), document.kind()) {
            ("", "Namespace") => Self::Namespace,
            ("admissionregistration.k8s.io", _) => Self::Admission,
            _ if document.is_definition() => Self::Definition,
            _ => Self::Object,
        }
    }
}

/// Creates the objects in an order that works.
pub(super) async fn create(server: &ApiServer, mut documents: Vec<Document>) -> Result<(), Error> {
    documents.sort_by_key(Rank::of);
    let client = server.client();
    for rank in documents.chunk_by(|one, other| Rank::of(one) == Rank::of(other)) {
        // Definitions change what is served.
        let served = server.core().registry.served();
        let mut refused = Vec::new();
        for document in rank {
            refused.extend(write(&client, &served, document).await.err());
        }
        if !refused.is_empty() {
            let more = refused.len().saturating_sub(SHOWN);
            refused.truncate(SHOWN);
            return Err(Error(refused, more));
        }
    }
    Ok(())
}

/// Creates one object. A definition that exists is replaced; another object that exists stays.
async fn write(client: &Client, served: &Served, document: &Document) -> Result<(), Refused> {
    let metadata = &document.object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let refused = |why: String| Refused {
        place: document.place.clone(),
        object: format!("{} {name}", document.kind()),
        why,
    };
    let Some(info) = resource(served, document) else {
        let why = format!(
            "no kind {} in {} is served; does its definition come with --crd-dir?",
            document.kind(),
            document.api_version()
        );
        return Err(refused(why));
    };
    let namespace = metadata["namespace"].as_str().unwrap_or("default");
    let collection = collection(&info, namespace);
    let object = format!("{collection}/{name}");
    let of_status = |error: Box<Status>| refused(error.message);
    match send(client, Method::POST, &collection, &document.object).await {
        Ok(_) => {}
        Err(error) if error.reason == "AlreadyExists" => {
            if document.is_definition() {
                replace(client, &object, document)
                    .await
                    .map_err(of_status)?;
            }
            return Ok(());
        }
        Err(error) => return Err(of_status(error)),
    }
    // A creation ignores the status. That of a definition is the server's own.
    let status = &document.object["status"];
    if info.status && status.is_object() && !name.is_empty() && !document.is_definition() {
        let patch = json!({"status": status});
        let path = format!("{object}/status");
        send(client, Method::PATCH, &path, &patch)
            .await
            .map_err(of_status)?;
    }
    Ok(())
}

async fn replace(client: &Client, path: &str, document: &Document) -> Result<(), Box<Status>> {
    let stored = send(client, Method::GET, path, &Value::Null).await?;
    let mut object = document.object.clone();
    object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
    send(client, Method::PUT, path, &object).await?;
    Ok(())
}

/// The resource that takes the object: that of its version.
fn resource(served: &Served, document: &Document) -> Option<Arc<ResourceInfo>> {
    let api_version = document.api_version();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    served.of_kind(group, version, document.kind()).cloned()
}

fn collection(info: &ResourceInfo, namespace: &str) -> String {
    let mut path = match info.group.as_str() {
        "" => format!("/api/{}", info.version),
        group => format!("/apis/{group}/{}", info.version),
    };
    if info.namespaced {
        path.push_str("/namespaces/");
        path.push_str(namespace);
    }
    path.push('/');
    path.push_str(&info.plural);
    path
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<Value, Box<Status>> {
    let failed = |message: String| Box::new(Status::failure(&message, ""));
    let content_type = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let content = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content_type)
        .header(http::header::USER_AGENT, "reeve-apiserver/seed")
        .body(content)
        .map_err(|error| failed(format!("{path} is not a path: {error}")))?;
    match client.request(request).await {
        Ok(value) => Ok(value),
        Err(kube_client::Error::Api(status)) => Err(status),
        Err(error) => Err(failed(error.to_string())),
    }
}

//! IPBlock objects from the outside: the bench makes, changes and watches them with plain requests.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use ipblock_operator::api::Place;
use ipblock_operator::decide::effective_hash;
use ipblock_operator::target::Target;
use jiff::Timestamp;
use kube_client::Client;
use kube_core::{DynamicObject, WatchEvent};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::local::setup;

pub(crate) const GROUP_PATH: &str = "/apis/ops.yiiong.top/v1/namespaces/default/ipblocks";

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("request could not be built")]
    Build(#[from] http::Error),
    #[error("request failed")]
    Client(#[from] kube_client::Error),
    #[error("a process or a socket failed")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Setup(String),
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The nth address of the bench's range, never repeated below 16 million.
pub(crate) fn address(n: usize) -> String {
    format!("11.{}.{}.{}", (n >> 16) & 255, (n >> 8) & 255, n & 255)
}

pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    kind: &str,
    body: &Value,
) -> Result<Value> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        })?;
    Ok(client.request(request).await?)
}

pub(crate) async fn create(client: &Client, name: &str, ip: &str, duration: &str) -> Result<Value> {
    let body = json!({
        "apiVersion": "ops.yiiong.top/v1", "kind": "IPBlock",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"ip": ip, "duration": duration, "reason": "bench", "source": "bench"},
    });
    send(client, "POST", GROUP_PATH, "application/json", &body).await
}

/// The status of a ban, as the operator writes it.
pub(crate) fn active_status(
    ip: &str,
    since: Timestamp,
    until: Timestamp,
    place: &Place,
) -> Result<Value> {
    let target: Target = ip.parse().map_err(setup)?;
    let message = format!("{ip} is banned by {place} until {until:.3}");
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "Banned", "message": message,
            "lastTransitionTime": format!("{since:.0}"), "observedGeneration": 1})
    };
    Ok(json!({"status": {
        "phase": "active", "result": "success", "message": message, "blockedAt": format!("{since:.3}"),
        "expiresAt": format!("{until:.3}"), "lastSpecHash": effective_hash(&target, &place.engine), "banCount": 1,
        "observedGeneration": 1, "target": ip, "engine": place.engine,
        "conditions": [condition("Ready"), condition("Enforced")],
    }}))
}

/// The status of a ban that was lifted, as a patch of the one before it.
pub(crate) fn expired_status(ip: &str, at: Timestamp) -> Value {
    let message = format!("the ban of {ip} ended");
    let condition = |kind: &str| {
        json!({"type": kind, "status": "False", "reason": "Expired", "message": message,
            "lastTransitionTime": format!("{at:.0}"), "observedGeneration": 1})
    };
    json!({"status": {"phase": "expired", "message": message, "unblockedAt": format!("{at:.3}"),
        "conditions": [condition("Ready"), condition("Enforced")]}})
}

pub(crate) async fn merge(
    client: &Client,
    name: &str,
    subresource: &str,
    body: &Value,
) -> Result<Value> {
    send(
        client,
        "PATCH",
        &format!("{GROUP_PATH}/{name}{subresource}"),
        "application/merge-patch+json",
        body,
    )
    .await
}

pub(crate) async fn delete(client: &Client, name: &str) -> Result<Value> {
    send(
        client,
        "DELETE",
        &format!("{GROUP_PATH}/{name}"),
        "application/json",
        &Value::Null,
    )
    .await
}

pub(crate) async fn list(client: &Client) -> Result<Vec<Value>> {
    let mut listed = send(client, "GET", GROUP_PATH, "application/json", &Value::Null).await?;
    Ok(listed["items"]
        .as_array_mut()
        .map(std::mem::take)
        .unwrap_or_default())
}

/// Runs `work` for each of `0..count`, `lanes` at a time; the first error ends it.
pub(crate) async fn each<F, W>(count: usize, lanes: usize, work: W) -> Result<()>
where
    W: Fn(usize) -> F,
    F: Future<Output = Result<()>>,
{
    stream::iter((0..count).map(work))
        .buffer_unordered(lanes)
        .try_collect()
        .await
}

/// Removes every object, including finalizers, and waits until none is left.
pub(crate) async fn clear(client: &Client) -> Result<()> {
    loop {
        let left = list(client).await?;
        if left.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = left
            .iter()
            .filter_map(|object| object["metadata"]["name"].as_str().map(String::from))
            .collect();
        each(names.len(), 16, |n| {
            let name = names[n].clone();
            async move {
                // An object that is already gone is fine; other errors show in the next listing.
                let _ = merge(
                    client,
                    &name,
                    "",
                    &json!({"metadata": {"finalizers": null}}),
                )
                .await;
                let _ = delete(client, &name).await;
                Ok(())
            }
        })
        .await?;
    }
}

/// When the bench's own watch first saw each object in each phase.
pub(crate) struct Watched {
    seen: Arc<Mutex<Seen>>,
    _task: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    phases: HashMap<(String, String), Instant>,
    current: HashMap<String, String>,
}

// === impl Watched ===

impl Watched {
    pub(crate) async fn start(client: &Client) -> Result<Self> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let listed = send(
            client,
            "GET",
            &format!("{GROUP_PATH}?limit=1"),
            "application/json",
            &Value::Null,
        )
        .await?;
        let version = listed["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or("0")
            .to_string();
        let mut task = JoinSet::new();
        task.spawn(follow(client.clone(), version, seen.clone()));
        Ok(Self { seen, _task: task })
    }

    /// How many objects are in `phase` now.
    pub(crate) fn in_phase(&self, phase: &str) -> usize {
        self.seen
            .lock()
            .current
            .values()
            .filter(|current| *current == phase)
            .count()
    }

    /// When each object first was in `phase`.
    pub(crate) fn reached(&self, phase: &str) -> BTreeMap<String, Instant> {
        self.seen
            .lock()
            .phases
            .iter()
            .filter(|((_, seen), _)| seen == phase)
            .map(|((name, _), at)| (name.clone(), *at))
            .collect()
    }
}

async fn follow(client: Client, mut version: String, seen: Arc<Mutex<Seen>>) {
    loop {
        let request = Request::builder().uri(format!(
            "{GROUP_PATH}?watch=true&allowWatchBookmarks=true&resourceVersion={version}"
        ));
        let Ok(request) = request.body(Vec::new()) else {
            return;
        };
        let Ok(events) = client.request_events::<DynamicObject>(request).await else {
            // The API server is down: the scenario that stopped it waits for it, too.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let mut events = std::pin::pin!(events);
        while let Some(Ok(event)) = events.next().await {
            let at = Instant::now();
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    version = object.metadata.resource_version.clone().unwrap_or(version);
                    let name = object.metadata.name.clone().unwrap_or_default();
                    let phase = object.data["status"]["phase"]
                        .as_str()
                        .unwrap_or("")
                        .to_string();
                    let mut seen = seen.lock();
                    seen.phases
                        .entry((name.clone(), phase.clone()))
                        .or_insert(at);
                    seen.current.insert(name, phase);
                }
                WatchEvent::Deleted(object) => {
                    version = object.metadata.resource_version.clone().unwrap_or(version);
                    let name = object.metadata.name.clone().unwrap_or_default();
                    let mut seen = seen.lock();
                    seen.phases
                        .entry((name.clone(), "deleted".into()))
                        .or_insert(at);
                    seen.current.remove(&name);
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(_) => break,
            }
        }
    }
}

//! The cluster and the calls of the tests.

use std::sync::Arc;

use jiff::Timestamp;
use kube_core::gvk::GroupVersionKind;
use parking_lot::{Mutex, RwLock};
use preprod_guard::config::{Config, Mark};
use preprod_guard::live::Live;
use preprod_guard::object::{Facts, Key};
use preprod_guard::state::State;
use preprod_guard::webhook::Guard as Handler;
use reeve_webhook::Webhook;
use reeve_webhook::admission::Operation;
use reeve_webhook::testing::{Call, Reply};
use serde_json::{Value, json};

pub(crate) const CALLERS: &str = "callers: {users: [hbox-pre]}";

pub(crate) struct Guard {
    pub(crate) webhook: Webhook,
    pub(crate) recorder: Webhook,
    pub(crate) lines: Arc<Mutex<Vec<Value>>>,
}

pub(crate) fn mark() -> Mark {
    Config::default().mark
}

pub(crate) fn key(group: &str, resource: &str, name: &str) -> Key {
    let scoped = matches!(
        resource,
        "namespaces" | "nodes" | "customresourcedefinitions"
    );
    Key {
        group: group.into(),
        resource: resource.into(),
        namespace: if scoped { String::new() } else { "hbox".into() },
        name: name.into(),
    }
}

pub(crate) fn object(name: &str, environment: Option<&str>, spec: Value) -> Value {
    let labels = environment.map_or(
        json!({"app": "web"}),
        |environment| json!({"app": "web", "environment": environment}),
    );
    json!({
        "metadata": {
            "name": name, "namespace": "hbox", "uid": format!("uid-{name}"), "labels": labels,
            "creationTimestamp": "2026-01-10T00:00:00Z",
        },
        "spec": spec,
    })
}

/// The Pod `web-0` of production and what is around it, and the Pod `try-0`, which is not production.
pub(crate) fn state() -> State {
    let mut state = State::default();
    state.synced = true;
    let spec = json!({
        "nodeName": "node-1", "serviceAccountName": "web",
        "volumes": [{"configMap": {"name": "web-settings"}}, {"secret": {"secretName": "web-key"}},
            {"persistentVolumeClaim": {"claimName": "web-data"}}],
    });
    let mut web = object("web-0", Some("production"), spec);
    web["metadata"]["ownerReferences"] = json!([{"uid": "uid-web-rs"}]);
    let mut set = object("web-rs", None, json!({}));
    set["metadata"]["ownerReferences"] = json!([{"uid": "uid-front"}]);
    for (group, resource, value) in [
        ("", "pods", web),
        (
            "",
            "pods",
            object("try-0", None, json!({"nodeName": "node-2"})),
        ),
        ("apps", "replicasets", set),
        (
            "apps",
            "deployments",
            object("api", Some("production"), json!({})),
        ),
        (
            "example.com",
            "websites",
            object("site", Some("production"), json!({})),
        ),
        ("", "serviceaccounts", object("web", None, json!({}))),
        ("", "namespaces", object("hbox", None, json!({}))),
        ("", "namespaces", object("pre", None, json!({}))),
    ] {
        let name = value["metadata"]["name"].as_str().unwrap();
        state.put(key(group, resource, name), Facts::of(&value, &mark()));
    }
    state
}

pub(crate) fn guard_of(config: &str, state: State) -> Guard {
    guard_reading(config, state, None)
}

/// A guard that reads objects.
pub(crate) fn guard_reading(config: &str, state: State, live: Option<Live>) -> Guard {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let now: Timestamp = "2026-01-20T00:00:00Z".parse().unwrap();
    let config = Arc::new(Config::parse(config).unwrap());
    let state = Arc::new(RwLock::new(state));
    let mut guard = Handler::new(
        config,
        state,
        move || now,
        move |line| {
            let line = serde_json::from_str(&line.line()).unwrap();
            sink.lock().push(line);
        },
    );
    if let Some(live) = live {
        guard = guard.reading(live);
    }
    let [webhook, recorder] = guard.webhooks();
    Guard {
        webhook,
        recorder,
        lines,
    }
}

pub(crate) fn call(
    operation: Operation,
    (group, kind, plural): (&str, &str, &str),
    old: Option<Value>,
    new: Option<Value>,
) -> Call {
    Call::of(
        operation,
        &GroupVersionKind::gvk(group, "v1", kind),
        plural,
        new,
        old,
    )
    .user("hbox-pre")
}

pub(crate) const POD: (&str, &str, &str) = ("", "Pod", "pods");
pub(crate) const DEPLOYMENT: (&str, &str, &str) = ("apps", "Deployment", "deployments");

pub(crate) fn delete(kind: (&str, &str, &str), old: Value) -> Call {
    call(Operation::Delete, kind, Some(old), None)
}

pub(crate) fn update(kind: (&str, &str, &str), old: Value, new: Value) -> Call {
    call(Operation::Update, kind, Some(old), Some(new))
}

pub(crate) fn create(kind: (&str, &str, &str), new: Value) -> Call {
    call(Operation::Create, kind, None, Some(new))
}

pub(crate) async fn ask(call: &Call) -> Reply {
    call.to(&guard_of(CALLERS, state()).webhook).await
}

/// Checks that the call is denied to the pre-release caller with a text, and that a production caller may do the same.
pub(crate) async fn denied(call: Call, text: &str) {
    let reply = ask(&call).await;
    assert!(!reply.allowed(), "{call}");
    assert!(
        reply.message().contains(text),
        "{call}: {}",
        reply.message()
    );
    let call = call.user("admin");
    assert!(ask(&call).await.allowed(), "{call}");
}

pub(crate) async fn allowed(call: Call) {
    let reply = ask(&call).await;
    assert!(reply.allowed(), "{call}: {}", reply.message());
}

pub(crate) fn production(name: &str) -> Value {
    object(name, Some("production"), json!({}))
}

pub(crate) fn plain(name: &str) -> Value {
    object(name, None, json!({}))
}

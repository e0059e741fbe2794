//! Writes whose admission takes its time, or refuses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use reeve_clock::Clock;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::admission::{Admission, AdmissionRequest, Answer, Server};
use crate::server::ApiServer;
use crate::service::Service;
use crate::status::Status;

mod order;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const PODS: &str = "/api/v1/namespaces/default/pods";
const MERGE: &str = "application/merge-patch+json";
const SLOW: Duration = Duration::from_secs(5);

/// Waits for each object named `slow`, refuses one labelled `refused`, and labels one named `mutated`.
#[derive(Debug, Default)]
struct Step {
    wait: Duration,
    asked: Mutex<Vec<String>>,
}

// === impl Step ===

impl Admission for Step {
    fn name(&self) -> &'static str {
        "Test"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.request.agent != "kube-apiserver"
    }

    fn mutate<'a>(
        &'a self,
        _: &'a Server<'_>,
        request: &'a mut AdmissionRequest<'_>,
    ) -> Answer<'a> {
        self.asked.lock().push(question(request));
        if request.name() == "mutated"
            && let Some(object) = &mut request.object
        {
            object["metadata"]["labels"]["by"] = json!("admission");
        }
        let waits = request.name() == "slow";
        async move {
            if waits {
                sleep(self.wait).await;
            }
            Ok(())
        }
        .boxed()
    }

    fn validate<'a>(&'a self, _: &'a Server<'_>, request: &'a AdmissionRequest<'_>) -> Answer<'a> {
        async move {
            if request.name() == "slow" {
                sleep(self.wait).await;
            }
            let labels = request
                .object
                .as_deref()
                .map(|object| &object["metadata"]["labels"]);
            if labels.is_some_and(|labels| labels["refused"].is_string()) {
                return Err(Status::bad_request("admission webhook denied the request"));
            }
            Ok(())
        }
        .boxed()
    }
}

/// A question in one line: the operation, the resource, and what the object and the old one are.
fn question(request: &AdmissionRequest<'_>) -> String {
    let shown = |object: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!("{} {}", text(&object["apiVersion"]), text(&object["kind"]))
    };
    let (of, object) = (request.request, request.object.as_deref());
    let resource = match of.subresource.as_str() {
        "" => of.info.plural.clone(),
        subresource => format!("{}/{subresource}", of.info.plural),
    };
    format!(
        "{:?} {resource} {}: {} < {}",
        request.operation,
        request.name(),
        object.map(shown).unwrap_or_default(),
        request.old_object().as_ref().map(shown).unwrap_or_default()
    )
}

async fn server(wait: Duration) -> (ApiServer, Arc<Step>) {
    let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
    let step = Arc::new(Step {
        wait,
        ..Step::default()
    });
    let builder = ApiServer::builder().clock(clock).admission(step.clone());
    (builder.start().await.unwrap(), step)
}

async fn send_as(
    service: Service,
    method: &str,
    path: &str,
    content_type: &str,
    body: Value,
) -> (u16, Value) {
    let body = if body.is_null() {
        Bytes::new()
    } else {
        Bytes::from(body.to_string())
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("user-agent", "test");
    let request = request.body(Full::new(body)).unwrap();
    let response = service.oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.ok().unwrap();
    (code, serde_json::from_slice(&body.to_bytes()).unwrap())
}

async fn send(server: &ApiServer, method: &str, path: &str, body: Value) -> (u16, Value) {
    let content_type = if method == "PATCH" {
        MERGE
    } else {
        "application/json"
    };
    send_as(server.service(), method, path, content_type, body).await
}

/// Begins a request, and goes on with it until its admission waits.
async fn begin(
    server: &ApiServer,
    method: &'static str,
    path: &str,
    body: Value,
) -> tokio::task::JoinHandle<(u16, Value)> {
    let (service, path) = (server.service(), path.to_owned());
    let content_type = if method == "PATCH" {
        MERGE
    } else {
        "application/json"
    };
    let task =
        tokio::spawn(async move { send_as(service, method, &path, content_type, body).await });
    sleep(SLOW / 2).await;
    task
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

fn service(name: &str, port: u64) -> Value {
    json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "clusterIP": format!("10.96.0.{}", port - 30_000),
        "ports": [{"port": 80, "nodePort": port}]}})
}

#[tokio::test(start_paused = true)]
async fn a_slow_admission_step_blocks_no_other_write() {
    let (server, _) = server(SLOW).await;
    let slow_map = begin(&server, "POST", MAPS, map("slow")).await;
    let slow_service = begin(&server, "POST", SERVICES, service("slow", 30_100)).await;
    let start = Instant::now();
    for (path, body) in [
        (MAPS, map("fast")),
        (SERVICES, service("fast", 30_101)),
        (
            SERVICES,
            json!({"metadata": {"name": "chosen"}, "spec": {"ports": [{"port": 80}]}}),
        ),
    ] {
        assert_eq!(send(&server, "POST", path, body).await.0, 201);
    }
    assert_eq!(
        send(&server, "DELETE", &format!("{MAPS}/fast"), Value::Null)
            .await
            .0,
        200
    );
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(slow_map.await.unwrap().0, 201);
    assert_eq!(slow_service.await.unwrap().0, 201);
    assert!(server.core().claims.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_leaves_nothing() {
    let (server, _) = server(SLOW * 2).await;
    let before = server.resource_version();
    let first = begin(&server, "POST", SERVICES, service("slow", 30_100)).await;
    sleep(SLOW * 2).await;
    assert!(!server.core().claims.is_empty());
    let (code, refused) = send(&server, "POST", SERVICES, service("other", 30_100)).await;
    assert_eq!(code, 422, "{refused}");
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert!(server.core().claims.is_empty());
    assert_eq!(server.resource_version(), before);
    let (code, stored) = send(&server, "POST", SERVICES, service("other", 30_100)).await;
    assert_eq!(code, 201, "{stored}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_leaves_nothing() {
    let (server, _) = server(SLOW).await;
    let mut refused = service("x", 30_100);
    refused["metadata"]["labels"] = json!({"refused": "yes"});
    let before = server.resource_version();
    assert_eq!(send(&server, "POST", SERVICES, refused).await.0, 400);
    assert!(server.core().claims.is_empty());
    assert_eq!(server.resource_version(), before);
    let again = send(&server, "POST", SERVICES, service("x", 30_100)).await;
    assert_eq!(again.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_a_version_is_admitted_again_after_a_race() {
    let (server, step) = server(SLOW).await;
    let slow = begin(&server, "POST", MAPS, map("slow")).await;
    assert_eq!(slow.await.unwrap().0, 201);
    let path = format!("{MAPS}/slow");
    let patch = begin(&server, "PATCH", &path, json!({"data": {"patched": "yes"}})).await;
    step.asked.lock().clear();
    let core = server.core();
    let stored = core.store.get("configmaps", "default/slow").unwrap();
    let mut other = stored.to_value();
    other["data"]["other"] = json!("yes");
    let expected = crate::store::Expected::Version(stored.version());
    core.store
        .commit("configmaps", "default/slow", expected, Some(other))
        .unwrap();
    let (code, patched) = patch.await.unwrap();
    assert_eq!(code, 200);
    assert_eq!(
        patched["data"],
        json!({"k": "v", "other": "yes", "patched": "yes"})
    );
    assert_eq!(step.asked.lock().len(), 1, "it was asked once more");
}

#[tokio::test(start_paused = true)]
async fn a_race_is_answered_as_the_request_allows() {
    let (server, _) = server(SLOW).await;
    let core = server.core();
    let path = format!("{MAPS}/slow");
    let stored = || core.store.get("configmaps", "default/slow").unwrap();
    let touch = |round: u64| {
        let mut other = stored().to_value();
        other["data"]["round"] = json!(round.to_string());
        let expected = crate::store::Expected::Version(stored().version());
        core.store
            .commit("configmaps", "default/slow", expected, Some(other))
            .unwrap();
    };
    // Two creations: the one that comes later has lost.
    let slow = begin(&server, "POST", MAPS, map("slow")).await;
    let mut first = map("slow");
    first["metadata"]["namespace"] = json!("default");
    core.store
        .commit(
            "configmaps",
            "default/slow",
            crate::store::Expected::Absent,
            Some(first),
        )
        .unwrap();
    let (code, lost) = slow.await.unwrap();
    assert_eq!((code, &lost["reason"]), (409, &json!("AlreadyExists")));
    // A client that names a version gets the conflict.
    let mut named = map("slow");
    named["metadata"]["resourceVersion"] = json!(stored().version().to_string());
    named["data"]["put"] = json!("yes");
    let put = begin(&server, "PUT", &path, named).await;
    touch(1);
    let (code, conflict) = put.await.unwrap();
    assert_eq!((code, &conflict["reason"]), (409, &json!("Conflict")));
    // One without a version replaces what is there.
    let put = begin(&server, "PUT", &path, map("slow")).await;
    touch(2);
    assert_eq!(put.await.unwrap().0, 200);
    assert_eq!(stored().value()["data"], json!({"k": "v"}));
    // A deletion removes whatever version there is.
    let delete = begin(&server, "DELETE", &path, Value::Null).await;
    touch(3);
    assert_eq!(delete.await.unwrap().0, 200);
    assert!(core.store.get("configmaps", "default/slow").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_goes_while_its_change_is_admitted_is_not_found() {
    let (server, _) = server(SLOW).await;
    let slow = begin(&server, "POST", MAPS, map("slow")).await;
    assert_eq!(slow.await.unwrap().0, 201);
    let path = format!("{MAPS}/slow");
    let patch = begin(&server, "PATCH", &path, json!({"data": {"a": "b"}})).await;
    let store = &server.core().store;
    let stored = store.get("configmaps", "default/slow").unwrap();
    let expected = crate::store::Expected::Version(stored.version());
    store
        .commit("configmaps", "default/slow", expected, None)
        .unwrap();
    assert_eq!(patch.await.unwrap().0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_takes_longer_than_34_seconds_times_out() {
    let (server, _) = server(SLOW * 4).await;
    let start = Instant::now();
    let (code, status) = send(&server, "POST", MAPS, map("slow")).await;
    assert_eq!(
        (code, &status["reason"], start.elapsed().as_secs()),
        (504, &json!("Timeout"), 34)
    );
}

#[tokio::test(start_paused = true)]
async fn what_admission_changes_is_stored_and_a_dry_run_stores_nothing() {
    let (server, step) = server(SLOW).await;
    step.asked.lock().clear();
    let before = server.resource_version();
    let tried = send(
        &server,
        "POST",
        &format!("{MAPS}?dryRun=All"),
        map("mutated"),
    )
    .await;
    assert_eq!(tried.1["metadata"]["labels"], json!({"by": "admission"}));
    assert_eq!(server.resource_version(), before);
    assert_eq!(step.asked.lock().len(), 1);
    send(&server, "POST", MAPS, map("mutated")).await;
    let (_, stored) = send(&server, "GET", &format!("{MAPS}/mutated"), Value::Null).await;
    assert_eq!(stored["metadata"]["labels"], json!({"by": "admission"}));
}

#[tokio::test(start_paused = true)]
async fn each_verb_asks_about_its_operation_and_its_objects() {
    let (server, step) = server(SLOW).await;
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let apps = "/apis/apps/v1/namespaces/default/deployments";
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}});
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    let scale = json!({"metadata": {"name": "d"}, "spec": {"replicas": 3}});
    let apply = "application/apply-patch+yaml";
    let of = |path: &str, rest: &str| format!("{path}/{rest}");
    let json_type = "application/json";
    for (method, path, content_type, body, asked) in [
        (
            "POST",
            MAPS.to_owned(),
            json_type,
            map("x"),
            "Create configmaps x: v1 ConfigMap < ",
        ),
        (
            "PUT",
            of(MAPS, "x"),
            json_type,
            map("x"),
            "Update configmaps x: v1 ConfigMap < v1 ConfigMap",
        ),
        (
            "PATCH",
            of(MAPS, "x"),
            MERGE,
            json!({"data": {"a": "b"}}),
            "Update configmaps x: v1 ConfigMap < v1 ConfigMap",
        ),
        (
            "PATCH",
            of(MAPS, "a?fieldManager=m"),
            apply,
            applied.clone(),
            "Create configmaps a: v1 ConfigMap < ",
        ),
        (
            "PATCH",
            of(MAPS, "a?fieldManager=m"),
            apply,
            applied,
            "Update configmaps a: v1 ConfigMap < v1 ConfigMap",
        ),
        (
            "DELETE",
            of(MAPS, "x"),
            json_type,
            Value::Null,
            "Delete configmaps x:  < v1 ConfigMap",
        ),
        (
            "DELETE",
            MAPS.to_owned(),
            json_type,
            Value::Null,
            "Delete configmaps :  < v1 ConfigMap",
        ),
        (
            "POST",
            PODS.to_owned(),
            json_type,
            pod,
            "Create pods p: v1 Pod < ",
        ),
        (
            "POST",
            of(PODS, "p/binding"),
            json_type,
            binding,
            "Create pods/binding p: v1 Binding < ",
        ),
        (
            "PATCH",
            of(PODS, "p/status"),
            MERGE,
            json!({"status": {"phase": "Failed"}}),
            "Update pods/status p: v1 Pod < v1 Pod",
        ),
        (
            "POST",
            of(PODS, "p/eviction"),
            json_type,
            json!({"metadata": {"name": "p"}}),
            "Create pods/eviction p: policy/v1 Eviction < ",
        ),
        (
            "POST",
            "/api/v1/namespaces/default/serviceaccounts".to_owned(),
            json_type,
            json!({"metadata": {"name": "a"}}),
            "Create serviceaccounts a: v1 ServiceAccount < ",
        ),
        (
            "POST",
            "/api/v1/namespaces/default/serviceaccounts/a/token".to_owned(),
            json_type,
            json!({"spec": {}}),
            "Create serviceaccounts/token a: authentication.k8s.io/v1 TokenRequest < ",
        ),
        (
            "POST",
            apps.to_owned(),
            json_type,
            deployment,
            "Create deployments d: apps/v1 Deployment < ",
        ),
        (
            "PUT",
            of(apps, "d/scale"),
            json_type,
            scale,
            "Update deployments/scale d: autoscaling/v1 Scale < autoscaling/v1 Scale",
        ),
        (
            "DELETE",
            of("/api/v1/namespaces", "default"),
            json_type,
            Value::Null,
            "",
        ),
    ] {
        step.asked.lock().clear();
        let what = format!("{method} {path}");
        let (code, answer) = send_as(server.service(), method, &path, content_type, body).await;
        assert_eq!(code >= 300, asked.is_empty(), "{what}: {answer}");
        let wanted: Vec<&str> = Some(asked)
            .filter(|asked| !asked.is_empty())
            .into_iter()
            .collect();
        let questions = step.asked.lock().clone();
        assert_eq!(questions, wanted, "{what}");
    }
    let stored = server.core().store.get("deployments.apps", "default/d");
    assert_eq!(stored.unwrap().value()["spec"]["replicas"], 3);
}

#[tokio::test(start_paused = true)]
async fn the_servers_own_writes_are_admitted_too() {
    let (server, step) = server(SLOW).await;
    let (_, owner) = send(&server, "POST", MAPS, map("owner")).await;
    let mut owned = map("owned");
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    send(&server, "POST", MAPS, owned).await;
    send(
        &server,
        "POST",
        "/api/v1/namespaces",
        json!({"metadata": {"name": "n"}}),
    )
    .await;
    sleep(SLOW).await;
    step.asked.lock().clear();
    send(&server, "DELETE", &format!("{MAPS}/owner"), Value::Null).await;
    send(&server, "DELETE", "/api/v1/namespaces/n", Value::Null).await;
    sleep(SLOW).await;
    let mut asked = step.asked.lock().clone();
    asked.sort();
    assert_eq!(
        asked,
        [
            "Delete configmaps owned:  < v1 ConfigMap",
            "Delete configmaps owner:  < v1 ConfigMap",
            "Delete namespaces n:  < v1 Namespace",
            "Delete serviceaccounts default:  < v1 ServiceAccount",
            "Update namespaces/finalize n: v1 Namespace < v1 Namespace",
        ]
    );
}

//! Webhooks in this process, under virtual time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::service_fn;

use crate::server::ApiServer;

const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

type Asked = Arc<Mutex<Vec<String>>>;

/// Serves `ops/hooks`: waits for `delay`, and allows.
fn serve(server: &ApiServer, delay: Duration) -> Asked {
    let asked = Asked::default();
    let record = asked.clone();
    let service = service_fn(move |request: Request<Body>| {
        let record = record.clone();
        async move {
            record.lock().push(request.uri().to_string());
            let body = request.into_body().collect().await;
            let review: Value = serde_json::from_slice(&body.unwrap().to_bytes()).unwrap();
            sleep(delay).await;
            let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                "response": {"uid": review["request"]["uid"], "allowed": true}});
            Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
        }
    });
    server.serve_webhooks("ops", "hooks", service);
    asked
}

fn hook(name: &str, seconds: u64, failure_policy: &str) -> Value {
    json!({
        "name": format!("{name}.example.com"),
        "clientConfig": {"service": {"namespace": "ops", "name": "hooks", "path": format!("/{name}")}},
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "timeoutSeconds": seconds, "failurePolicy": failure_policy,
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    })
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let request = request.body(Body::from(body.to_string().into_bytes()));
    let answer = client.send(request.unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap())
}

async fn configure(client: &Client, plural: &str, name: &str, hooks: Value) {
    let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
    let body = json!({"metadata": {"name": name}, "webhooks": hooks});
    let (code, answer) = send(client, "POST", &path, &body).await;
    assert_eq!(code, 201, "{answer}");
}

async fn create(client: &Client, name: &str) -> (u16, Value) {
    send(client, "POST", MAPS, &json!({"metadata": {"name": name}})).await
}

async fn server() -> (ApiServer, Client) {
    let server = ApiServer::builder().start().await.unwrap();
    let client = server.client();
    (server, client)
}

#[tokio::test(start_paused = true)]
async fn a_webhook_in_this_process_is_asked_at_the_address_of_its_service() {
    let (server, client) = server().await;
    let asked = serve(&server, Duration::ZERO);
    configure(&client, VALIDATING, "a", json!([hook("a", 5, "Fail")])).await;
    assert_eq!(create(&client, "one").await.0, 201);
    assert_eq!(*asked.lock(), ["https://hooks.ops.svc:443/a?timeout=5s"]);
}

#[tokio::test(start_paused = true)]
async fn validating_webhooks_are_asked_at_once() {
    let (server, client) = server().await;
    serve(&server, Duration::from_secs(2));
    let hooks = json!([
        hook("a", 5, "Fail"),
        hook("b", 5, "Fail"),
        hook("c", 5, "Fail")
    ]);
    configure(&client, VALIDATING, "a", hooks).await;
    let start = Instant::now();
    assert_eq!(create(&client, "one").await.0, 201);
    assert_eq!(start.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn mutating_webhooks_are_asked_in_turn() {
    let (server, client) = server().await;
    serve(&server, Duration::from_secs(2));
    let hooks = json!([hook("a", 5, "Fail"), hook("b", 5, "Fail")]);
    configure(&client, MUTATING, "a", hooks).await;
    let start = Instant::now();
    assert_eq!(create(&client, "one").await.0, 201);
    assert_eq!(start.elapsed(), Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_fails_the_write_or_is_ignored() {
    let (server, client) = server().await;
    serve(&server, Duration::from_secs(60));
    configure(&client, VALIDATING, "a", json!([hook("a", 3, "Ignore")])).await;
    let start = Instant::now();
    assert_eq!(create(&client, "one").await.0, 201);
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    configure(&client, VALIDATING, "b", json!([hook("b", 1, "Fail")])).await;
    let (code, answer) = create(&client, "two").await;
    let text = "Internal error occurred: failed calling webhook \"b.example.com\": failed to call webhook: \
        Post \"https://hooks.ops.svc:443/b?timeout=1s\": context deadline exceeded";
    assert_eq!((code, &answer["message"]), (500, &json!(text)));
}

/// Several webhooks that do not answer, each within its own time, are too late together.
/// (kubernetes#128162.)
#[tokio::test(start_paused = true)]
async fn ignored_failures_still_end_with_the_time_of_the_write() {
    let (server, client) = server().await;
    let asked = serve(&server, Duration::from_secs(600));
    let hooks = json!([
        hook("a", 20, "Ignore"),
        hook("b", 20, "Ignore"),
        hook("c", 20, "Ignore")
    ]);
    configure(&client, MUTATING, "a", hooks).await;
    let start = Instant::now();
    assert_eq!(create(&client, "one").await.0, 504);
    assert_eq!(start.elapsed(), Duration::from_secs(34));
    assert_eq!(
        *asked.lock(),
        [
            "https://hooks.ops.svc:443/a?timeout=20s",
            "https://hooks.ops.svc:443/b?timeout=14s"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_configuration_without_a_webhook_can_be_deleted() {
    let (_server, client) = server().await;
    let mut all = hook("a", 1, "Fail");
    all["rules"] = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    configure(&client, VALIDATING, "a", json!([all])).await;
    let (code, answer) = create(&client, "one").await;
    let why = "service \"hooks\" not found";
    assert!(
        code == 500 && answer["message"].as_str().unwrap().ends_with(why),
        "{answer}"
    );
    let path = format!("/apis/admissionregistration.k8s.io/v1/{VALIDATING}/a");
    assert_eq!(send(&client, "DELETE", &path, &Value::Null).await.0, 200);
    assert_eq!(create(&client, "one").await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_configuration_counts_for_the_next_write() {
    let (server, client) = server().await;
    let asked = serve(&server, Duration::ZERO);
    configure(&client, VALIDATING, "a", json!([hook("a", 5, "Fail")])).await;
    assert_eq!(create(&client, "one").await.0, 201);
    let path = format!("/apis/admissionregistration.k8s.io/v1/{VALIDATING}/a");
    let (_, mut stored) = send(&client, "GET", &path, &Value::Null).await;
    stored["webhooks"][0]["rules"][0]["resources"] = json!(["secrets"]);
    assert_eq!(send(&client, "PUT", &path, &stored).await.0, 200);
    assert_eq!(create(&client, "two").await.0, 201);
    assert_eq!(asked.lock().len(), 1);
    server.stop_webhooks("ops", "hooks");
}

#[tokio::test(start_paused = true)]
async fn the_server_writes_under_the_names_of_its_controllers() {
    let (server, client) = server().await;
    let users: Asked = Asked::default();
    let record = users.clone();
    let service = service_fn(move |request: Request<Body>| {
        let record = record.clone();
        async move {
            let body = request.into_body().collect().await;
            let review: Value = serde_json::from_slice(&body.unwrap().to_bytes()).unwrap();
            let request = &review["request"];
            let user = request["userInfo"]["username"].as_str().unwrap();
            let operation = request["operation"].as_str().unwrap();
            record.lock().push(format!("{operation} {user}"));
            let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                "response": {"uid": request["uid"], "allowed": true}});
            Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
        }
    });
    server.serve_webhooks("ops", "hooks", service);
    let owner = create(&client, "owner").await.1;
    let dependent = json!({"metadata": {"name": "dependent", "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]}});
    assert_eq!(send(&client, "POST", MAPS, &dependent).await.0, 201);
    configure(&client, VALIDATING, "a", json!([hook("a", 5, "Fail")])).await;
    let path = format!("{MAPS}/owner");
    assert_eq!(send(&client, "DELETE", &path, &Value::Null).await.0, 200);
    let path = format!("{MAPS}/dependent");
    while send(&client, "GET", &path, &Value::Null).await.0 != 404 {
        sleep(Duration::from_millis(1)).await;
    }
    let collector = "DELETE system:serviceaccount:kube-system:generic-garbage-collector";
    assert_eq!(*users.lock(), ["DELETE system:admin", collector]);
}

//! Answers in protobuf: the same objects as in JSON.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use reeve_apiserver::{ApiServer, Body};
use reeve_wire::{Envelope, from_slice, to_vec, watch::Event};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::rules::raw::*;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Code, content type and body of an answer.
async fn ask(
    server: &ApiServer,
    method: Method,
    path: &str,
    accept: &str,
    body: &Value,
) -> (u16, String, Bytes) {
    let content = match (&method, body) {
        (_, Value::Null) => String::new(),
        (_, body) => body.to_string(),
    };
    let content_type = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept)
        .header("content-type", content_type)
        .body(Full::new(Bytes::from(content)))
        .unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let content_type = head.headers["content-type"].to_str().unwrap().to_owned();
    let content = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), content_type, content)
}

/// An answer that must be in protobuf, and the object in it.
async fn read(server: &ApiServer, method: Method, path: &str, body: &Value) -> (u16, Value) {
    read_as(server, method, path, PROTOBUF, body).await
}

async fn read_as(
    server: &ApiServer,
    method: Method,
    path: &str,
    accept: &str,
    body: &Value,
) -> (u16, Value) {
    let (code, content_type, content) = ask(server, method, path, accept, body).await;
    assert_eq!(content_type, PROTOBUF, "{path}: {content:?}");
    (code, from_slice(&content).unwrap())
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "100m"}}}]},
    })
}

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(start_paused = true)]
async fn each_verb_is_answered_with_the_message_of_its_json() {
    let server = server().await;
    let one = format!("{PODS}/a");
    let (code, made) = read(&server, Method::POST, PODS, &pod("a")).await;
    assert_eq!(
        (code, &made["spec"]["containers"][0]["image"]),
        (201, &json!("i"))
    );
    let plain = get(&server, &one).await.expect_ok();
    assert_eq!(made["metadata"], plain["metadata"]);
    let (_, _, content) = ask(&server, Method::GET, &one, PROTOBUF, &Value::Null).await;
    assert_eq!(content, to_vec(&plain).unwrap());
    let mut changed = plain;
    changed["metadata"]["labels"]["app"] = json!("b");
    let (code, put) = read(&server, Method::PUT, &one, &changed).await;
    assert_eq!(
        (code, &put["metadata"]["labels"]["app"]),
        (200, &json!("b"))
    );
    let patch = json!({"metadata": {"labels": {"app": "c"}}});
    let (code, patched) = read(&server, Method::PATCH, &one, &patch).await;
    assert_eq!(
        (code, &patched["metadata"]["labels"]["app"]),
        (200, &json!("c"))
    );
    let (_, _, content) = ask(&server, Method::GET, PODS, PROTOBUF, &Value::Null).await;
    let list = get(&server, PODS).await.expect_ok();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(content, to_vec(&list).unwrap());
    let (code, _) = read(
        &server,
        Method::DELETE,
        &one,
        &json!({"gracePeriodSeconds": 0}),
    )
    .await;
    assert_eq!(code, 200);
    let (code, list) = read(&server, Method::GET, PODS, &Value::Null).await;
    assert_eq!(
        (code, &list["kind"], &list["items"]),
        (200, &json!("PodList"), &Value::Null)
    );
}

#[tokio::test(start_paused = true)]
async fn every_kind_is_listed_in_the_message_of_its_json() {
    let server = server().await;
    let mut listed = 0;
    let mut roots = vec!["/api/v1".to_owned()];
    for group in get(&server, "/apis").await.expect_ok()["groups"]
        .as_array()
        .unwrap()
    {
        for version in group["versions"].as_array().unwrap() {
            roots.push(format!(
                "/apis/{}",
                version["groupVersion"].as_str().unwrap()
            ));
        }
    }
    for root in roots {
        for resource in get(&server, &root).await.expect_ok()["resources"]
            .as_array()
            .unwrap()
        {
            let verbs = resource["verbs"].as_array().unwrap();
            if !verbs.contains(&json!("list")) {
                continue;
            }
            let path = format!("{root}/{}", resource["name"].as_str().unwrap());
            let plain = get(&server, &path).await.expect_ok();
            let (code, _, content) = ask(&server, Method::GET, &path, PROTOBUF, &Value::Null).await;
            assert_eq!(code, 200, "{path}");
            assert_eq!(content, to_vec(&plain).unwrap(), "{path}");
            listed += 1;
        }
    }
    assert!(listed > 20, "{listed}");
}

#[tokio::test(start_paused = true)]
async fn errors_are_statuses_in_protobuf() {
    let server = server().await;
    let (code, status) = read(
        &server,
        Method::GET,
        &format!("{MAPS}/absent"),
        &Value::Null,
    )
    .await;
    assert_eq!((code, &status["reason"]), (404, &json!("NotFound")));
    assert_eq!(
        status["details"],
        json!({"name": "absent", "kind": "configmaps"})
    );
    let (code, status) = read(&server, Method::GET, "/apis/apps/v1/nothing", &Value::Null).await;
    assert_eq!((code, &status["kind"]), (404, &json!("Status")));
    // A type with a shape is not one of an error.
    let path = format!("{MAPS}/absent");
    let (code, content_type, _) = ask(&server, Method::GET, &path, METADATA, &Value::Null).await;
    assert_eq!((code, content_type.as_str()), (404, "application/json"));
}

#[tokio::test(start_paused = true)]
async fn custom_resources_have_metadata_in_protobuf_and_nothing_else() {
    let server = server().await;
    post(&server, CRDS, &foos()).await.expect_ok();
    settle().await;
    post(&server, FOOS, &foo("a")).await.expect_ok();
    let one = format!("{FOOS}/a");
    let (code, status) = read(&server, Method::GET, &one, &Value::Null).await;
    assert_eq!(code, 406);
    assert_eq!(
        status["message"],
        "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
    );
    let both = format!("{PROTOBUF},application/json");
    let (code, content_type, _) = ask(&server, Method::GET, &one, &both, &Value::Null).await;
    assert_eq!((code, content_type.as_str()), (200, "application/json"));
    let (_, metadata) = read_as(&server, Method::GET, &one, METADATA, &Value::Null).await;
    let plain = get(&server, &one).await.expect_ok();
    assert_eq!(metadata["kind"], "PartialObjectMetadata");
    assert_eq!(metadata["metadata"], plain["metadata"]);
    let (_, list) = read_as(&server, Method::GET, FOOS, METADATA_LIST, &Value::Null).await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["metadata"], plain["metadata"]);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn subresources_and_reviews_are_answered_in_protobuf() {
    let server = server().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let web = json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}},
    }});
    let (code, made) = read(&server, Method::POST, deployments, &web).await;
    assert_eq!((code, &made["spec"]["replicas"]), (201, &json!(1)));
    let scale = format!("{deployments}/web/scale");
    let (_, read_scale) = read(&server, Method::GET, &scale, &Value::Null).await;
    assert_eq!(read_scale["kind"], "Scale");
    assert_eq!(read_scale["spec"]["replicas"], 1);
    let status = json!({"status": {"replicas": 3}});
    let (_, changed) = read(
        &server,
        Method::PATCH,
        &format!("{deployments}/web/status"),
        &status,
    )
    .await;
    assert_eq!(changed["status"]["replicas"], 3);
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (code, answered) = read(&server, Method::POST, reviews, &review).await;
    assert_eq!((code, &answered["status"]["allowed"]), (201, &json!(true)));
    let token = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let (code, answered) = read(&server, Method::POST, token, &json!({"spec": {}})).await;
    assert_eq!(code, 201);
    assert!(answered["status"]["token"].is_string());
}

/// The events of a watch in protobuf.
struct Stream {
    body: Body,
    left: Vec<u8>,
}

impl Stream {
    async fn open(server: &ApiServer, path: &str, accept: &str) -> Self {
        let request = Request::builder().uri(path).header("accept", accept);
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let response = server.service().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(
            response.headers()["content-type"],
            "application/vnd.kubernetes.protobuf;stream=watch"
        );
        Self {
            body: response.into_body(),
            left: Vec::new(),
        }
    }

    /// Type and object of the next event; `None` at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            let mut rest = self.left.as_slice();
            if let Some(event) = reeve_wire::watch::split(&mut rest, 1 << 20).unwrap() {
                let event = Event::parse(event).unwrap();
                let found = (event.kind.to_string(), from_slice(event.object).unwrap());
                self.left = rest.to_vec();
                return Some(found);
            }
            let frame = self.body.frame().await?.unwrap();
            if let Ok(data) = frame.into_data() {
                self.left.extend_from_slice(&data);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_in_protobuf_has_the_events_of_one_in_json() {
    let server = server().await;
    post(&server, PODS, &pod("a")).await.expect_ok();
    let path = format!(
        "{PODS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=300"
    );
    let mut plain = watch(&server, &path).await;
    let mut stream = Stream::open(&server, &path, PROTOBUF).await;
    let mut metadata = Stream::open(&server, &path, METADATA).await;
    post(&server, PODS, &pod("b")).await.expect_ok();
    merge(
        &server,
        &format!("{PODS}/a"),
        &json!({"metadata": {"labels": {"app": "z"}}}),
    )
    .await
    .expect_ok();
    let now = json!({"gracePeriodSeconds": 0});
    delete(&server, &format!("{PODS}/b"), &now)
        .await
        .expect_ok();
    let mut kinds = Vec::new();
    for _ in 0..7 {
        let (event, (kind, object)) = (plain.next().await.unwrap(), stream.next().await.unwrap());
        let (metadata_kind, short) = metadata.next().await.unwrap();
        assert_eq!((&json!(kind), &kind), (&event["type"], &metadata_kind));
        // The JSON of the message has the zeros that the server's JSON may lack.
        let expected: Value = from_slice(&to_vec(&event["object"]).unwrap()).unwrap();
        assert_eq!(object, expected);
        assert_eq!(short["kind"], "PartialObjectMetadata");
        assert_eq!(short["metadata"], object["metadata"]);
        kinds.push(kind);
    }
    assert_eq!(
        kinds,
        [
            "ADDED", "BOOKMARK", "ADDED", "MODIFIED", "MODIFIED", "DELETED", "BOOKMARK"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_watch_is_a_status_in_protobuf() {
    let history = reeve_apiserver::History {
        min_events: 1,
        max_events: 5,
        ..reeve_apiserver::History::default()
    };
    let server = ApiServer::builder()
        .clock(clock())
        .history(history)
        .start()
        .await
        .unwrap();
    for number in 0..20 {
        post(&server, MAPS, &map(&format!("m{number}")))
            .await
            .expect_ok();
    }
    let path = format!("{MAPS}?watch=1&resourceVersion=2");
    let mut stream = Stream::open(&server, &path, PROTOBUF).await;
    let (kind, status) = stream.next().await.unwrap();
    assert_eq!(
        (kind.as_str(), &status["kind"]),
        ("ERROR", &json!("Status"))
    );
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(410), &json!("Expired"))
    );
    assert_eq!(stream.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn managed_fields_are_raw_json_in_protobuf() {
    let server = server().await;
    let owned = json!({"f:data": {".": {}, "f:key": {}}});
    let entry = json!({
        "manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": owned,
    });
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": [entry]},
    });
    let body = to_vec(&object).unwrap();
    let envelope = Envelope::parse(&body).unwrap();
    let text = owned.to_string();
    let holds = envelope
        .object
        .windows(text.len())
        .any(|part| part == text.as_bytes());
    assert!(holds);
    let sent = try_send(&server, Method::POST, MAPS, PROTOBUF, body)
        .await
        .unwrap();
    assert_eq!(sent.code, 201);
}

//! Custom resources that a webhook converts, in this process and under virtual time.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube_client::client::Body;
use parking_lot::Mutex;
use reeve_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::service_fn;

use super::definitions::{FOOS_V2, foo_of, text, two_versions};
use crate::rules::raw::*;

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.example.com";

/// `foos` with `spec.address` in v1, which is stored, and `spec.host` and `spec.port` in v2.
pub(super) fn addresses(review_versions: &[&str]) -> Value {
    let mut definition = two_versions(
        json!({"address": text()}),
        json!({"host": text(), "port": text()}),
    );
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"service": {"namespace": "ops", "name": "hooks", "path": "/convert"}},
        "conversionReviewVersions": review_versions,
    }});
    definition
}

/// Changes the answer of a webhook.
pub(super) type Change = fn(&mut Value);

/// The reviews that a webhook got.
pub(super) type Asked = Arc<Mutex<Vec<Value>>>;

/// Serves a webhook that converts addresses; `change` may change its answer.
fn serve(server: &ApiServer, change: Change) -> Asked {
    let asked = Asked::default();
    let record = asked.clone();
    let service = service_fn(move |request: Request<Body>| {
        let record = record.clone();
        async move {
            assert_eq!(request.uri(), "https://hooks.ops.svc:443/convert");
            let body = request.into_body().collect().await;
            let review: Value = serde_json::from_slice(&body.unwrap().to_bytes()).unwrap();
            record.lock().push(review.clone());
            let mut answer = converted(&review);
            change(&mut answer);
            Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
        }
    });
    server.serve_webhooks("ops", "hooks", service);
    asked
}

pub(super) fn converted(review: &Value) -> Value {
    let request = &review["request"];
    let to = request["desiredAPIVersion"].as_str().unwrap();
    let objects = request["objects"].as_array().unwrap().iter();
    let objects: Vec<Value> = objects
        .map(|object| {
            let mut new = object.clone();
            new["apiVersion"] = json!(to);
            let spec = &object["spec"];
            new["spec"] = if to.ends_with("v1") {
                let part = |name: &str| spec[name].as_str().unwrap_or_default();
                json!({"address": format!("{}:{}", part("host"), part("port"))})
            } else {
                let address = spec["address"].as_str().unwrap_or_default();
                let (host, port) = address.split_once(':').unwrap_or((address, ""));
                json!({"host": host, "port": port})
            };
            new
        })
        .collect();
    json!({
        "kind": "ConversionReview", "apiVersion": review["apiVersion"],
        "response": {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects},
    })
}

/// A server with the definition and its webhook.
pub(super) async fn converting(change: Change) -> (ApiServer, Asked) {
    let server = server().await;
    let asked = serve(&server, change);
    let made = post(&server, CRDS, &addresses(&["v1"])).await;
    assert_eq!(made.headers.get("warning"), None);
    let made = made.expect_ok();
    let config = &made["spec"]["conversion"]["webhook"]["clientConfig"];
    assert_eq!(config["service"]["port"], 443);
    (server, asked)
}

pub(super) fn at(name: &str, address: &str) -> Value {
    foo_of("v1", name, json!({"address": address}))
}

#[tokio::test(start_paused = true)]
async fn an_object_is_stored_in_one_version_and_shown_in_each() {
    let (server, asked) = converting(|_| {}).await;
    let body = foo_of("v2", "x", json!({"host": "h", "port": "1"}));
    let made = post(&server, FOOS_V2, &body).await.expect_ok();
    assert_eq!(made["spec"], body["spec"]);
    let stored = get(&server, &format!("{FOOS}/x")).await.expect_ok();
    assert_eq!(stored["spec"], json!({"address": "h:1"}));
    let one = format!("{FOOS_V2}/x");
    let patch = json!({"spec": {"port": "2"}});
    let patched = merge(&server, &one, &patch).await.expect_ok();
    assert_eq!(patched["spec"], json!({"host": "h", "port": "2"}));
    let found = get(&server, &format!("{FOOS}/x")).await.expect_ok();
    assert_eq!(found["spec"], json!({"address": "h:2"}));
    assert_eq!(found["metadata"]["uid"], made["metadata"]["uid"]);
    delete(&server, &one, &Value::Null).await.expect_ok();
    assert_eq!(get(&server, &one).await.code, 404);
    let first = &asked.lock()[0]["request"];
    assert_eq!(first["desiredAPIVersion"], "example.com/v1");
    assert_eq!(first["objects"][0]["spec"], body["spec"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_one_call_and_a_watch_shows_converted_objects() {
    let (server, asked) = converting(|_| {}).await;
    let mut frames = watch(&server, &format!("{FOOS_V2}?watch=true")).await;
    for number in 0..20 {
        let name = format!("x{number:02}");
        post(&server, FOOS, &at(&name, &format!("h{number}:1")))
            .await
            .expect_ok();
    }
    let event = frames.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["spec"]),
        (&json!("ADDED"), &json!({"host": "h0", "port": "1"}))
    );
    asked.lock().clear();
    let list = get(&server, FOOS_V2).await.expect_ok();
    assert_eq!(list["items"].as_array().unwrap().len(), 20);
    assert_eq!(
        list["items"][19]["spec"],
        json!({"host": "h19", "port": "1"})
    );
    let calls = std::mem::take(&mut *asked.lock());
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0]["request"]["objects"].as_array().unwrap().len(), 20);
    get(&server, FOOS).await.expect_ok();
    assert_eq!(*asked.lock(), Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn objects_from_before_the_storage_version_moved_are_converted_until_they_are_written() {
    let (server, asked) = converting(|_| {}).await;
    for name in ["a", "b"] {
        post(&server, FOOS, &at(name, "h:1")).await.expect_ok();
    }
    let mut moved = get(&server, DEFINITION).await.expect_ok();
    for version in 0..2 {
        moved["spec"]["versions"][version]["storage"] = json!(version == 1);
    }
    let moved = put(&server, DEFINITION, &moved).await.expect_ok();
    assert_eq!(moved["status"]["storedVersions"], json!(["v1", "v2"]));
    // A write without a change migrates an object, as in a real server.
    let one = format!("{FOOS_V2}/a");
    let found = get(&server, &one).await.expect_ok();
    put(&server, &one, &found).await.expect_ok();
    asked.lock().clear();
    let list = get(&server, FOOS_V2).await.expect_ok();
    for item in list["items"].as_array().unwrap() {
        assert_eq!(item["spec"], json!({"host": "h", "port": "1"}));
    }
    let calls = std::mem::take(&mut *asked.lock());
    let sent = calls[0]["request"]["objects"].as_array().unwrap();
    let names: Vec<&Value> = sent.iter().map(|one| &one["metadata"]["name"]).collect();
    assert_eq!((calls.len(), names), (1, vec![&json!("b")]));
}

#[tokio::test(start_paused = true)]
async fn labels_and_annotations_may_change_and_other_metadata_not() {
    let (server, _) = converting(|answer| {
        let metadata = &mut answer["response"]["convertedObjects"][0]["metadata"];
        metadata["labels"] = json!({"converted": "yes"});
        metadata["annotations"] = Value::Null;
        metadata["finalizers"] = json!(["example.com/f"]);
        metadata["generation"] = json!(77);
    })
    .await;
    let mut body = at("x", "h:1");
    body["metadata"]["annotations"] = json!({"a": "b"});
    post(&server, FOOS, &body).await.expect_ok();
    let found = get(&server, &format!("{FOOS_V2}/x")).await.expect_ok();
    let metadata = &found["metadata"];
    assert_eq!(metadata["labels"], json!({"converted": "yes"}));
    assert_eq!(metadata["annotations"], Value::Null);
    assert_eq!(metadata["finalizers"], Value::Null);
    assert_eq!(metadata["generation"], 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_webhook_does_not_convert_fails_with_the_reason() {
    const OF: &str = "conversion webhook for example.com/v1, Kind=Foo";
    let cases: [(Change, &str); 12] = [
        (
            |answer| answer["apiVersion"] = json!("apiextensions.k8s.io/v2"),
            " failed: no kind \"ConversionReview\" is registered for version \"apiextensions.k8s.io/v2\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
        (
            |answer| answer["response"] = Value::Null,
            " failed: no response provided",
        ),
        (
            |answer| {
                answer["response"]["result"] = json!({"status": "Failure", "message": "not today"});
            },
            " failed: not today",
        ),
        (
            |answer| answer["response"]["result"] = json!({}),
            " failed: response.result.status was '', not 'Success'",
        ),
        (
            |answer| answer["response"]["convertedObjects"] = json!([]),
            " returned 0 objects, expected 1",
        ),
        (
            |answer| {
                answer["response"]["convertedObjects"][0]["apiVersion"] = json!("example.com/v3");
            },
            " returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["kind"] = json!("Bar"),
            " returned invalid object at index 0: invalid kind (expected Foo, received Bar)",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["name"] = json!("y"),
            " returned invalid object: must have the same name: x != y",
        ),
        (
            |answer| {
                answer["response"]["convertedObjects"][0]["metadata"]["namespace"] = json!("y");
            },
            " returned invalid object: must have the same namespace: default != y",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["uid"] = json!("1"),
            " returned invalid object: must have the same UID: ",
        ),
        (
            |answer| {
                answer["response"]["convertedObjects"][0]["metadata"]["labels"] = json!({"a": 1});
            },
            " returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
        (
            |answer| {
                answer["response"]["convertedObjects"][0]["metadata"]["labels"] =
                    json!({"a b": "c"});
            },
            " returned invalid metadata: metadata.labels: Invalid value: \"a b\": ",
        ),
    ];
    for (change, wanted) in cases {
        let (server, _) = converting(change).await;
        post(&server, FOOS, &at("x", "h:1")).await.expect_ok();
        let failed = get(&server, &format!("{FOOS_V2}/x")).await;
        let message = failed.message();
        assert_eq!(failed.code, 500, "{message}");
        assert!(message.starts_with(&format!("{OF}{wanted}")), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_reads_only_v1beta1_gets_that_and_echoes_no_uid() {
    let server = server().await;
    let asked = serve(&server, |answer| answer["response"]["uid"] = Value::Null);
    let definition = addresses(&["v2", "v1beta1"]);
    post(&server, CRDS, &definition).await.expect_ok();
    post(&server, FOOS, &at("x", "h:1")).await.expect_ok();
    let found = get(&server, &format!("{FOOS_V2}/x")).await.expect_ok();
    assert_eq!(found["spec"]["host"], "h");
    let version = &asked.lock()[0]["apiVersion"];
    assert_eq!(version, "apiextensions.k8s.io/v1beta1");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_webhook_counts_for_the_next_request() {
    let (server, _) = converting(|_| {}).await;
    post(&server, FOOS, &at("x", "h:1")).await.expect_ok();
    let config = json!({"service": {"name": "others"}});
    let change = json!({"spec": {"conversion": {"webhook": {"clientConfig": config}}}});
    merge(&server, DEFINITION, &change).await.expect_ok();
    let one = format!("{FOOS_V2}/x");
    assert_eq!(get(&server, &one).await.code, 500);
    let back = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"service": {"name": "hooks"}}}}}});
    merge(&server, DEFINITION, &back).await.expect_ok();
    get(&server, &one).await.expect_ok();
}

/// The owners of an object: manager, operation, version and fields of the spec.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array();
    let mut owners: Vec<String> = entries
        .into_iter()
        .flatten()
        .map(|entry| {
            let fields = entry["fieldsV1"]["f:spec"].as_object();
            let fields: Vec<&str> = fields
                .into_iter()
                .flat_map(|fields| fields.keys())
                .filter_map(|field| field.strip_prefix("f:"))
                .collect();
            let text = |field: &str| entry[field].as_str().unwrap().to_owned();
            let (manager, operation) = (text("manager"), text("operation"));
            let version = text("apiVersion");
            format!("{manager} {operation} {version} {}", fields.join(","))
        })
        .collect();
    owners.sort();
    owners
}

#[tokio::test(start_paused = true)]
async fn owners_of_one_version_stay_when_another_one_is_written() {
    let (server, _) = converting(|_| {}).await;
    let mut body = at("x", "h:1");
    body["metadata"]["labels"] = json!({"a": "b"});
    post(&server, &format!("{FOOS}?fieldManager=one"), &body)
        .await
        .expect_ok();
    let by_two = format!("{FOOS_V2}/x?fieldManager=two");
    let mut found = get(&server, &by_two).await.expect_ok();
    found["spec"]["port"] = json!("2");
    let put = put(&server, &by_two, &found).await.expect_ok();
    // The changed port is the address of the first version, which has lost its owner; the label has not.
    assert_eq!(
        owners(&put),
        [
            "one Update example.com/v1 ",
            "two Update example.com/v2 port"
        ]
    );
    let patch = json!({"metadata": {"labels": {"c": "d"}}});
    let by_three = format!("{FOOS_V2}/x?fieldManager=three");
    let patched = merge(&server, &by_three, &patch).await.expect_ok();
    assert_eq!(
        owners(&patched),
        [
            "one Update example.com/v1 ",
            "three Update example.com/v2 ",
            "two Update example.com/v2 port"
        ]
    );
}

/// Applies as a manager.
async fn apply(server: &ApiServer, path: &str, body: &Value) -> Answer {
    let content_type = "application/apply-patch+yaml";
    try_send(server, Method::PATCH, path, content_type, body.to_string())
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn applies_through_two_versions_know_each_other() {
    let (server, _) = converting(|_| {}).await;
    let one = format!("{FOOS}/x?fieldManager=one");
    let two = format!("{FOOS_V2}/x?fieldManager=two");
    apply(&server, &one, &at("x", "h:1")).await.expect_ok();
    let same = foo_of("v2", "x", json!({"host": "h", "port": "1"}));
    let shared = apply(&server, &two, &same).await.expect_ok();
    assert_eq!(
        owners(&shared),
        [
            "one Apply example.com/v1 address",
            "two Apply example.com/v2 host,port"
        ]
    );
    let other = foo_of("v2", "x", json!({"host": "h", "port": "2"}));
    let refused = apply(&server, &two, &other).await;
    assert_eq!(refused.code, 409);
    let message = refused.message();
    assert!(
        message.ends_with("conflict with \"one\": .spec.address"),
        "{message}"
    );
    let forced = apply(&server, &format!("{two}&force=true"), &other)
        .await
        .expect_ok();
    assert_eq!(owners(&forced), ["two Apply example.com/v2 host,port"]);
    assert_eq!(forced["spec"], other["spec"]);
    // What is not applied any more is removed, through the other version.
    let less = foo_of("v2", "x", json!({"host": "h"}));
    let pruned = apply(&server, &two, &less).await.expect_ok();
    assert_eq!(owners(&pruned), ["two Apply example.com/v2 host"]);
}

/// `addresses` with a selectable field in the second version.
fn selectable() -> Value {
    let mut definition = addresses(&["v1"]);
    definition["spec"]["versions"][1]["selectableFields"] = json!([{"jsonPath": ".spec.host"}]);
    definition
}

/// Names of the items of a list.
fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn selectors_match_the_version_of_the_request() {
    let server = server().await;
    serve(&server, |_| {});
    post(&server, CRDS, &selectable()).await.expect_ok();
    let selected = format!("{FOOS_V2}?fieldSelector=spec.host%3Dh");
    let mut frames = watch(&server, &format!("{selected}&watch=true")).await;
    for (name, address) in [("a", "h:1"), ("b", "other:1"), ("c", "h:2"), ("d", "h:3")] {
        post(&server, FOOS, &at(name, address)).await.expect_ok();
    }
    let list = get(&server, &selected).await.expect_ok();
    assert_eq!(names(&list), ["a", "c", "d"]);
    // A page is full although its first objects do not match.
    let page = get(&server, &format!("{selected}&limit=2"))
        .await
        .expect_ok();
    assert_eq!(names(&page), ["a", "c"]);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = get(&server, &format!("{selected}&limit=2&continue={token}"))
        .await
        .expect_ok();
    assert_eq!(names(&rest), ["d"]);
    // An object that leaves the selection is deleted for the watch.
    let change = json!({"spec": {"address": "other:1"}});
    merge(&server, &format!("{FOOS}/a"), &change)
        .await
        .expect_ok();
    let mut events = Vec::new();
    for _ in 0..4 {
        let event = frames.next().await.unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let object = &event["object"];
        events.push([
            text(&event["type"]),
            text(&object["metadata"]["name"]),
            text(&object["spec"]["host"]),
        ]);
    }
    assert_eq!(
        events,
        [
            ["ADDED", "a", "h"],
            ["ADDED", "c", "h"],
            ["ADDED", "d", "h"],
            ["DELETED", "a", "h"]
        ]
    );
    let others = format!("{FOOS_V2}?fieldSelector=spec.host%21%3Dh");
    delete(&server, &others, &Value::Null).await.expect_ok();
    let left = get(&server, FOOS).await.expect_ok();
    assert_eq!(names(&left), ["c", "d"]);
    let initial = watch(&server, &format!("{selected}&watch=true")).await;
    drop(frames);
    let mut frames = initial;
    for name in ["c", "d"] {
        let event = frames.next().await.unwrap();
        assert_eq!(event["object"]["metadata"]["name"], name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_in_time_while_a_webhook_does_not_answer() {
    let server = server().await;
    let silent = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, Infallible>>());
    server.serve_webhooks("ops", "hooks", silent);
    post(&server, CRDS, &addresses(&["v1"])).await.expect_ok();
    post(&server, FOOS, &at("x", "h:1")).await.expect_ok();
    let start = Instant::now();
    let path = format!("{FOOS_V2}?watch=true&timeoutSeconds=5");
    let mut frames = watch(&server, &path).await;
    assert_eq!(frames.next().await, None);
    assert_eq!(start.elapsed().as_secs(), 5);
}

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

/// Stores a policy that reads objects in the second version, with two bindings.
async fn bind(server: &ApiServer, kind: &str, name: &str, fields: &Value) {
    let (group, plural) = (
        "admissionregistration.k8s.io/v1",
        format!(
            "{}admissionpolic",
            &kind.to_lowercase()[..kind.len() - "AdmissionPolicy".len()]
        ),
    );
    let mut spec = json!({"matchConstraints": {"resourceRules": [{"operations": ["CREATE"],
        "apiGroups": ["example.com"], "apiVersions": ["v2"], "resources": ["foos"]}]}});
    for (field, value) in fields.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let policy =
        json!({"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec});
    post(server, &format!("{POLICIES}/{plural}ies"), &policy)
        .await
        .expect_ok();
    for number in 0..2 {
        let mut spec = json!({"policyName": name});
        if kind.starts_with("Validating") {
            spec["validationActions"] = json!(["Deny"]);
        }
        let binding = json!({"apiVersion": group, "kind": format!("{kind}Binding"),
            "metadata": {"name": format!("{name}-{number}")}, "spec": spec});
        post(server, &format!("{POLICIES}/{plural}ybindings"), &binding)
            .await
            .expect_ok();
    }
}

#[tokio::test(start_paused = true)]
async fn policies_read_one_conversion_and_fail_by_their_failure_policy_without_it() {
    const WHY: &str = "conversion webhook for example.com/v1, Kind=Foo failed: not today";
    let fail: Change = |answer| {
        answer["response"]["result"] = json!({"status": "Failure", "message": "not today"});
    };
    let checks = json!({"validations": [{"expression": "object.spec.host == 'h'"}]});
    let changes = json!({"reinvocationPolicy": "Never", "mutations": [{"patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": "Object{spec: Object.spec{port: '2'}}"}}]});
    let (server, asked) = converting(|_| {}).await;
    bind(&server, "ValidatingAdmissionPolicy", "a", &checks).await;
    post(&server, FOOS, &at("x", "h:1")).await.expect_ok();
    assert_eq!(asked.lock().len(), 1);
    assert_eq!(post(&server, FOOS, &at("y", "i:1")).await.code, 422);
    bind(&server, "MutatingAdmissionPolicy", "a", &changes).await;
    let changed = post(&server, FOOS, &at("z", "h:1")).await.expect_ok();
    assert_eq!(changed["spec"]["address"], "h:2");

    let cases = [
        (
            "ValidatingAdmissionPolicy",
            &checks,
            "ValidatingAdmissionPolicy 'a' with binding 'a-0' denied request: failed to configure binding: failed to convert object version: ",
        ),
        (
            "MutatingAdmissionPolicy",
            &changes,
            "policy \"a\" denied request: failed to configure policy: ",
        ),
    ];
    for (kind, fields, wanted) in cases {
        let (server, _) = converting(fail).await;
        bind(&server, kind, "a", fields).await;
        let refused = post(&server, FOOS, &at("x", "h:1")).await;
        assert!(
            (403..=422).contains(&refused.code),
            "{kind}: {}",
            refused.code
        );
        let message = refused.message();
        assert!(message.contains(&format!("{wanted}{WHY}")), "{message}");
        let (server, _) = converting(fail).await;
        let mut ignoring = fields.clone();
        ignoring["failurePolicy"] = json!("Ignore");
        bind(&server, kind, "a", &ignoring).await;
        post(&server, FOOS, &at("x", "h:1")).await.expect_ok();
    }
}

//! Definitions with several versions, and the end of definitions.

use serde_json::{Value, json};

use crate::rules::raw::*;

pub(super) const FOOS_V2: &str = "/apis/example.com/v2/namespaces/default/foos";

/// One version of `foos` whose spec has these properties.
fn version(name: &str, storage: bool, properties: Value) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": properties},
        }}},
    })
}

/// `foos.example.com` in v1, which is stored, and v2.
pub(super) fn two_versions(first: Value, second: Value) -> Value {
    let mut definition = foos();
    definition["spec"]["versions"] =
        json!([version("v1", true, first), version("v2", false, second)]);
    definition
}

pub(super) fn foo_of(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Foo", "metadata": {"name": name}, "spec": spec})
}

pub(super) fn text() -> Value {
    json!({"type": "string"})
}

#[tokio::test(start_paused = true)]
async fn what_the_storage_version_does_not_know_is_pruned_on_the_way_to_storage() {
    let server = server().await;
    let definition = two_versions(json!({"a": text()}), json!({"a": text(), "b": text()}));
    post(&server, CRDS, &definition).await.expect_ok();
    let body = foo_of("v2", "x", json!({"a": "1", "b": "2"}));
    let made = post(&server, FOOS_V2, &body).await.expect_ok();
    assert_eq!(made["spec"], json!({"a": "1"}));
    let found = get(&server, &format!("{FOOS_V2}/x")).await.expect_ok();
    assert_eq!(found["spec"], json!({"a": "1"}));
    let patch = json!({"spec": {"b": "3"}});
    let patched = merge(&server, &format!("{FOOS_V2}/x"), &patch)
        .await
        .expect_ok();
    assert_eq!(patched["spec"], json!({"a": "1"}));
    // The field is there from the day on which the storage version has it.
    let mut moved = get(&server, &format!("{CRDS}/foos.example.com"))
        .await
        .expect_ok();
    for version in 0..2 {
        moved["spec"]["versions"][version]["storage"] = json!(version == 1);
    }
    put(&server, &format!("{CRDS}/foos.example.com"), &moved)
        .await
        .expect_ok();
    let patched = merge(&server, &format!("{FOOS_V2}/x"), &patch)
        .await
        .expect_ok();
    assert_eq!(patched["spec"], json!({"a": "1", "b": "3"}));
    let found = get(&server, &format!("{FOOS}/x")).await.expect_ok();
    assert_eq!(found["spec"], json!({"a": "1"}));
}

#[tokio::test(start_paused = true)]
async fn stored_objects_have_the_defaults_of_the_storage_version() {
    let server = server().await;
    let default = |value: &str| json!({"type": "string", "default": value});
    let first = json!({"a": text(), "c": default("of v1"), "d": default("of v1")});
    let second = json!({"a": text(), "b": default("of v2"), "d": default("of v2")});
    post(&server, CRDS, &two_versions(first, second))
        .await
        .expect_ok();
    post(&server, FOOS_V2, &foo_of("v2", "x", json!({"a": "1"})))
        .await
        .expect_ok();
    // The request got the defaults of its version, and storage added its own.
    let found = get(&server, &format!("{FOOS}/x")).await.expect_ok();
    assert_eq!(found["spec"], json!({"a": "1", "c": "of v1", "d": "of v2"}));
    let found = get(&server, &format!("{FOOS_V2}/x")).await.expect_ok();
    assert_eq!(found["spec"], json!({"a": "1", "d": "of v2"}));
}

/// Two equal versions that are converted by a webhook.
pub(super) fn with_webhook() -> Value {
    let mut definition = two_versions(json!({"a": text()}), json!({"a": text()}));
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"service": {"namespace": "ops", "name": "hooks", "path": "/convert"}},
        "conversionReviewVersions": ["v1"],
    }});
    definition
}

/// The text for an object of `version` whose webhook does not exist.
fn not_converted(version: &str) -> String {
    format!(
        "conversion webhook for example.com/{version}, Kind=Foo failed: Post \"https://hooks.ops.svc:443/convert\": service \"hooks\" not found"
    )
}

#[tokio::test(start_paused = true)]
async fn without_its_webhook_an_object_is_there_in_its_stored_version_alone() {
    let server = server().await;
    post(&server, CRDS, &with_webhook()).await.expect_ok();
    get(&server, FOOS_V2).await.expect_ok();
    let refused = post(&server, FOOS_V2, &foo_of("v2", "x", json!({}))).await;
    assert_eq!(
        (refused.code, refused.message()),
        (500, not_converted("v2"))
    );
    let mut frames = watch(&server, &format!("{FOOS_V2}?watch=true")).await;

    post(&server, FOOS, &foo_of("v1", "x", json!({"a": "1"})))
        .await
        .expect_ok();
    let event = frames.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["message"]),
        (&json!("ERROR"), &json!(not_converted("v1")))
    );
    assert_eq!(frames.next().await, None);
    let one = format!("{FOOS_V2}/x");
    for refused in [
        get(&server, FOOS_V2).await,
        get(&server, &one).await,
        merge(&server, &one, &json!({"spec": {"a": "2"}})).await,
        delete(&server, &one, &Value::Null).await,
        delete(&server, FOOS_V2, &Value::Null).await,
    ] {
        assert_eq!(
            (refused.code, refused.message()),
            (500, not_converted("v1"))
        );
    }
    assert_eq!(get(&server, &format!("{FOOS_V2}/absent")).await.code, 404);
    let found = merge(&server, &format!("{FOOS}/x"), &json!({"spec": {"a": "3"}}))
        .await
        .expect_ok();
    assert_eq!(found["spec"], json!({"a": "3"}));
    delete(&server, &format!("{FOOS}/x"), &Value::Null)
        .await
        .expect_ok();
    assert_eq!(get(&server, FOOS_V2).await.expect_ok()["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn objects_from_before_the_storage_version_moved_need_the_webhook_too() {
    let server = server().await;
    post(&server, CRDS, &with_webhook()).await.expect_ok();
    post(&server, FOOS, &foo_of("v1", "old", json!({})))
        .await
        .expect_ok();
    let path = format!("{CRDS}/foos.example.com");
    let mut moved = get(&server, &path).await.expect_ok();
    for version in 0..2 {
        moved["spec"]["versions"][version]["storage"] = json!(version == 1);
    }
    put(&server, &path, &moved).await.expect_ok();
    post(&server, FOOS_V2, &foo_of("v2", "new", json!({})))
        .await
        .expect_ok();
    get(&server, &format!("{FOOS_V2}/new")).await.expect_ok();
    assert_eq!(get(&server, &format!("{FOOS_V2}/old")).await.code, 500);
    assert_eq!(get(&server, &format!("{FOOS}/new")).await.code, 500);
    // Another change of the definition leaves that as it is.
    merge(&server, &path, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .expect_ok();
    get(&server, &format!("{FOOS_V2}/new")).await.expect_ok();
    // The server itself needs no conversion.
    delete(&server, &path, &Value::Null).await.expect_ok();
    settle().await;
    assert_eq!(get(&server, &path).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_definition_without_a_served_version_waits_for_the_finalizers_of_its_objects() {
    let server = server().await;
    post(&server, CRDS, &foos()).await.expect_ok();
    let mut body = foo("x");
    body["metadata"]["finalizers"] = json!(["example.com/f"]);
    post(&server, FOOS, &body).await.expect_ok();
    let path = format!("{CRDS}/foos.example.com");
    let serve = async |served: bool| {
        let mut definition = get(&server, &path).await.expect_ok();
        definition["spec"]["versions"][0]["served"] = json!(served);
        put(&server, &path, &definition).await.expect_ok();
    };
    serve(false).await;
    assert_eq!(get(&server, FOOS).await.code, 404);
    delete(&server, &path, &Value::Null).await.expect_ok();
    settle().await;
    get(&server, &path).await.expect_ok();
    serve(true).await;
    let one = format!("{FOOS}/x");
    let found = get(&server, &one).await.expect_ok();
    assert!(
        found["metadata"]["deletionTimestamp"].is_string(),
        "{found}"
    );
    merge(&server, &one, &json!({"metadata": {"finalizers": null}}))
        .await
        .expect_ok();
    settle().await;
    assert_eq!(get(&server, &path).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn what_the_objects_of_a_definition_own_goes_with_them() {
    let server = server().await;
    post(&server, CRDS, &foos()).await.expect_ok();
    let mut references = Vec::new();
    for name in ["x", "y"] {
        let made = post(&server, FOOS, &foo(name)).await.expect_ok();
        let uid = &made["metadata"]["uid"];
        references
            .push(json!({"apiVersion": "example.com/v1", "kind": "Foo", "name": name, "uid": uid}));
    }
    for (name, owners) in [("one", &references[..1]), ("two", &references[..])] {
        let mut owned = map(name);
        owned["metadata"]["ownerReferences"] = json!(owners);
        post(&server, MAPS, &owned).await.expect_ok();
    }
    settle().await;
    let path = format!("{CRDS}/foos.example.com");
    delete(&server, &path, &Value::Null).await.expect_ok();
    settle().await;
    assert_eq!(get(&server, &path).await.code, 404);
    for name in ["one", "two"] {
        let left = get(&server, &format!("{MAPS}/{name}")).await;
        assert_eq!(left.code, 404, "{name}");
    }
}

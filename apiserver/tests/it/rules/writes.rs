//! POST, PUT, PATCH: conflicts, generation, status, scale, dry runs, validation.

use serde_json::{Value, json};

use crate::rules::raw::*;

#[tokio::test(start_paused = true)]
async fn the_server_sets_what_is_its_own() {
    let server = server().await;
    let body = json!({"metadata": {
        "name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z", "generation": 7, "managedFields": [{}],
    }});
    let made = post(&server, MAPS, &body).await.expect_ok();
    let metadata = &made["metadata"];
    assert_ne!(metadata["uid"], "mine");
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
    for field in ["deletionTimestamp", "managedFields"] {
        assert!(metadata.get(field).is_none(), "{field}");
    }
    assert_eq!(metadata["namespace"], "default");
}

#[tokio::test(start_paused = true)]
async fn a_name_is_generated_and_differs_each_time() {
    let server = server().await;
    let body = json!({"metadata": {"generateName": "web-"}});
    let one = post(&server, MAPS, &body).await.expect_ok();
    let two = post(&server, MAPS, &body).await.expect_ok();
    let name = one["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
}

#[tokio::test(start_paused = true)]
async fn creation_in_a_namespace_that_is_not_there_is_not_found() {
    let server = server().await;
    let answer = post(&server, "/api/v1/namespaces/nope/configmaps", &map("a")).await;
    assert_eq!(answer.code, 404);
    assert_eq!(answer.message(), "namespaces \"nope\" not found");
}

#[tokio::test(start_paused = true)]
async fn of_two_writers_with_one_version_the_second_is_refused() {
    let server = server().await;
    let made = post(&server, MAPS, &map("a")).await.expect_ok();
    let mut mine = made.clone();
    mine["data"] = json!({"k": "1"});
    put(&server, &format!("{MAPS}/a"), &mine).await.expect_ok();
    mine["data"] = json!({"k": "2"});
    let refused = put(&server, &format!("{MAPS}/a"), &mine).await;
    assert_eq!(refused.code, 409);
    assert_eq!(refused.json()["reason"], "Conflict");
    let patch = json!({"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"k": "3"}});
    assert_eq!(merge(&server, &format!("{MAPS}/a"), &patch).await.code, 409);
    // Without a version a ConfigMap is replaced as it is; a custom resource is not.
    put(&server, &format!("{MAPS}/a"), &map("a"))
        .await
        .expect_ok();
    post(&server, CRDS, &foos()).await.expect_ok();
    post(&server, FOOS, &foo("a")).await.expect_ok();
    let refused = put(&server, &format!("{FOOS}/a"), &foo("a")).await;
    assert_eq!(refused.code, 422);
    assert!(
        refused
            .message()
            .contains("must be specified for an update"),
        "{}",
        refused.message()
    );
}

#[tokio::test(start_paused = true)]
async fn patches_of_many_writers_at_once_are_all_kept() {
    let server = server().await;
    post(&server, MAPS, &map("a")).await.expect_ok();
    let path = format!("{MAPS}/a");
    let patches: Vec<Value> = (0..20)
        .map(|n| json!({"data": {format!("k{n}"): "v"}}))
        .collect();
    futures::future::join_all(patches.iter().map(|patch| merge(&server, &path, patch))).await;
    let object = get(&server, &path).await.expect_ok();
    assert_eq!(object["data"].as_object().unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn generation_follows_the_spec_and_nothing_else() {
    let server = server().await;
    post(&server, CRDS, &foos()).await.expect_ok();
    let path = format!("{FOOS}/a");
    let generation = |object: Value| object["metadata"]["generation"].as_i64().unwrap();
    assert_eq!(
        generation(post(&server, FOOS, &foo("a")).await.expect_ok()),
        1
    );
    let labels = json!({"metadata": {"labels": {"l": "1"}}});
    assert_eq!(
        generation(merge(&server, &path, &labels).await.expect_ok()),
        1
    );
    let status = json!({"status": {"ready": true}});
    assert_eq!(
        generation(
            merge(&server, &format!("{path}/status"), &status)
                .await
                .expect_ok()
        ),
        1
    );
    assert_eq!(
        generation(
            merge(&server, &path, &json!({"spec": {"color": "red"}}))
                .await
                .expect_ok()
        ),
        2
    );
    assert_eq!(
        generation(
            merge(&server, &path, &json!({"spec": {"color": "red"}}))
                .await
                .expect_ok()
        ),
        2
    );
    let finalizer = json!({"metadata": {"finalizers": ["example.com/f"]}});
    assert_eq!(
        generation(merge(&server, &path, &finalizer).await.expect_ok()),
        2
    );
    let marked = delete(&server, &path, &Value::Null).await.expect_ok();
    assert_eq!(generation(marked), 3, "asking for deletion counts");
}

#[tokio::test(start_paused = true)]
async fn status_is_written_only_through_its_subresource_and_nothing_else_is() {
    let server = server().await;
    post(&server, CRDS, &foos()).await.expect_ok();
    let mut body = foo("a");
    body["status"] = json!({"x": 1});
    assert!(
        post(&server, FOOS, &body)
            .await
            .expect_ok()
            .get("status")
            .is_none()
    );
    let path = format!("{FOOS}/a");
    let both =
        json!({"spec": {"color": "red"}, "status": {"x": 2}, "metadata": {"labels": {"l": "1"}}});
    let main = merge(&server, &path, &both).await.expect_ok();
    assert!(main.get("status").is_none());
    assert_eq!(main["spec"]["color"], "red");
    let both =
        json!({"spec": {"color": "blue"}, "status": {"x": 3}, "metadata": {"labels": {"l": "2"}}});
    let status = merge(&server, &format!("{path}/status"), &both)
        .await
        .expect_ok();
    assert_eq!(status["status"]["x"], 3);
    assert_eq!(status["spec"]["color"], "red");
    assert_eq!(
        status["metadata"]["labels"]["l"], "1",
        "labels sent to status vanish"
    );
    assert_eq!(get(&server, &format!("{MAPS}/a/status")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn scale_shows_and_sets_replicas() {
    let server = server().await;
    post(&server, CRDS, &foos()).await.expect_ok();
    post(&server, FOOS, &foo("a")).await.expect_ok();
    let path = format!("{FOOS}/a/scale");
    let scale = get(&server, &path).await.expect_ok();
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(scale["spec"]["replicas"], 1, "the default of the schema");
    let scaled = merge(&server, &path, &json!({"spec": {"replicas": 4}}))
        .await
        .expect_ok();
    assert_eq!(scaled["apiVersion"], "autoscaling/v1");
    assert_eq!(
        get(&server, &format!("{FOOS}/a")).await.expect_ok()["spec"]["replicas"],
        4
    );
    assert_eq!(
        merge(&server, &path, &json!({"spec": {"replicas": -1}}))
            .await
            .code,
        422
    );
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_does_everything_and_leaves_no_trace() {
    let server = server().await;
    let before = server.resource_version();
    let made = post(&server, &format!("{MAPS}?dryRun=All"), &map("a")).await;
    assert_eq!(made.code, 201);
    assert!(made.json()["metadata"].get("resourceVersion").is_none());
    assert_eq!(get(&server, &format!("{MAPS}/a")).await.code, 404);
    post(&server, MAPS, &map("b")).await.expect_ok();
    let path = format!("{MAPS}/b?dryRun=All");
    assert_eq!(
        merge(&server, &path, &json!({"data": {"k": "v"}}))
            .await
            .expect_ok()["data"]["k"],
        "v"
    );
    delete(&server, &path, &Value::Null).await.expect_ok();
    let after = get(&server, &format!("{MAPS}/b")).await.expect_ok();
    assert!(after.get("data").is_none());
    assert_eq!(server.resource_version(), version(&after));
    assert!(before < version(&after));
    assert_eq!(
        post(&server, &format!("{MAPS}?dryRun=Some"), &map("c"))
            .await
            .code,
        422
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_dropped_reported_or_refused() {
    let server = server().await;
    post(&server, CRDS, &foos()).await.expect_ok();
    let body = |name: &str| {
        let mut body = foo(name);
        body["spec"] = json!({"color": "red", "zork": 1});
        body
    };
    let warned = post(&server, FOOS, &body("a")).await;
    assert_eq!(
        warned.headers["warning"],
        "299 - \"unknown field \\\"spec.zork\\\"\""
    );
    assert!(warned.expect_ok()["spec"].get("zork").is_none());
    let silent = post(
        &server,
        &format!("{FOOS}?fieldValidation=Ignore"),
        &body("b"),
    )
    .await;
    assert!(!silent.headers.contains_key("warning"));
    assert!(silent.expect_ok()["spec"].get("zork").is_none());
    let strict = post(
        &server,
        &format!("{FOOS}?fieldValidation=Strict"),
        &body("c"),
    )
    .await;
    assert_eq!(strict.code, 400);
    assert!(
        strict
            .message()
            .ends_with("strict decoding error: unknown field \"spec.zork\""),
        "{}",
        strict.message()
    );
}

#[tokio::test(start_paused = true)]
async fn what_breaks_the_schema_is_named_field_by_field() {
    let server = server().await;
    post(&server, CRDS, &foos()).await.expect_ok();
    let mut body = foo("a");
    body["spec"] = json!({"color": "green"});
    let refused = post(&server, FOOS, &body).await;
    assert_eq!(refused.code, 422);
    assert_eq!(
        refused.message(),
        "Foo.example.com \"a\" is invalid: spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\""
    );
    assert_eq!(
        refused.json()["details"]["causes"][0]["field"],
        "spec.color"
    );
}

#[tokio::test(start_paused = true)]
async fn bodies_of_other_types_get_415_and_large_ones_413() {
    let server = server().await;
    let send = |content_type: &'static str, body: String| {
        try_send(&server, http::Method::POST, MAPS, content_type, body)
    };
    let other = send("text/plain", "hello".into()).await.unwrap();
    assert_eq!(other.code, 415);
    assert_eq!(
        other.message(),
        "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"
    );
    let large = send("application/json", "x".repeat(4 << 20)).await.unwrap();
    assert_eq!(large.code, 413);
    let yaml = send(
        "application/yaml",
        "metadata: {name: a}\ndata: {k: v}\n".into(),
    )
    .await
    .unwrap();
    assert_eq!(yaml.expect_ok()["data"]["k"], "v");
}

#[tokio::test(start_paused = true)]
async fn events_of_either_group_are_one() {
    let server = server().await;
    let core = "/api/v1/namespaces/default/events";
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({
        "metadata": {"name": "e"}, "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "Started", "note": "text", "type": "Normal", "action": "Start",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c", "reportingInstance": "c-1",
    });
    post(&server, new, &event).await.expect_ok();
    let seen = get(&server, &format!("{core}/e")).await.expect_ok();
    assert_eq!(seen["apiVersion"], "v1");
    assert_eq!(seen["involvedObject"]["name"], "p");
    assert_eq!(seen["message"], "text");
    let found = get(
        &server,
        &format!("{core}?fieldSelector=involvedObject.name%3Dp,reason%3DStarted"),
    )
    .await
    .expect_ok();
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    let found = get(
        &server,
        &format!("{new}?fieldSelector=regarding.name%3Dother"),
    )
    .await
    .expect_ok();
    assert_eq!(found["items"].as_array().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_service_gets_an_address_that_stays_its_own() {
    let server = server().await;
    let services = "/api/v1/namespaces/default/services";
    let body = |name: &str| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    let one = post(&server, services, &body("one")).await.expect_ok();
    let two = post(&server, services, &body("two")).await.expect_ok();
    assert_ne!(one["spec"]["clusterIP"], two["spec"]["clusterIP"]);
    let again = put(&server, &format!("{services}/one"), &body("one"))
        .await
        .expect_ok();
    assert_eq!(again["spec"]["clusterIP"], one["spec"]["clusterIP"]);
}

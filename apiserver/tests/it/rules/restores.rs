//! A server that goes back to a template while its clients watch.

use reeve_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::rules::raw::*;

const FOO: &str = "/apis/example.com/v1/namespaces/default/foos";

/// All objects of these paths, without versions.
async fn state(server: &ApiServer, paths: &[&str]) -> Vec<Value> {
    let mut all = Vec::new();
    for path in paths {
        let answer = get(server, path).await;
        let mut items = match answer.code {
            200 => answer.json()["items"].take(),
            code => json!(code),
        };
        for item in items.as_array_mut().into_iter().flatten() {
            item["metadata"]["resourceVersion"].take();
        }
        all.push(items);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_restore_brings_back_what_was_changed_removed_and_added() {
    let server = server().await;
    post(&server, CRDS, &foos()).await.expect_ok();
    post(&server, FOO, &foo("a")).await.expect_ok();
    for name in ["kept", "changed", "removed"] {
        post(&server, MAPS, &map(name)).await.expect_ok();
    }
    post(&server, "/api/v1/namespaces", &map("gone"))
        .await
        .expect_ok();
    let inside = "/api/v1/namespaces/gone/configmaps";
    let kept = json!({"metadata": {"name": "f", "finalizers": ["example.com/f"]}});
    post(&server, inside, &kept).await.expect_ok();
    settle().await;
    let paths = [MAPS, "/api/v1/namespaces", inside, CRDS, FOO];
    let before = state(&server, &paths).await;
    let template = server.template();
    let unchanged = get(&server, &format!("{MAPS}/kept")).await.expect_ok();

    for round in 0..2 {
        let start = server.resource_version();
        merge(
            &server,
            &format!("{MAPS}/changed"),
            &json!({"data": {"a": "b"}}),
        )
        .await
        .expect_ok();
        delete(&server, &format!("{MAPS}/removed"), &Value::Null)
            .await
            .expect_ok();
        post(&server, MAPS, &map("added")).await.expect_ok();
        post(&server, "/api/v1/namespaces", &map("new"))
            .await
            .expect_ok();
        post(&server, "/api/v1/namespaces/new/configmaps", &map("x"))
            .await
            .expect_ok();
        delete(&server, "/api/v1/namespaces/gone", &Value::Null)
            .await
            .expect_ok();
        merge(
            &server,
            &format!("{inside}/f"),
            &json!({"metadata": {"finalizers": null}}),
        )
        .await
        .expect_ok();
        settle().await;
        assert_eq!(get(&server, "/api/v1/namespaces/gone").await.code, 404);
        delete(&server, &format!("{CRDS}/foos.example.com"), &Value::Null)
            .await
            .expect_ok();
        settle().await;
        assert_eq!(get(&server, FOO).await.code, 404);

        let mut watch = watch(
            &server,
            &format!("{MAPS}?watch=true&resourceVersion={start}"),
        )
        .await;
        let written = server.restore(&template).unwrap();
        assert!(written >= 8, "{written}");
        settle().await;
        assert_eq!(state(&server, &paths).await, before, "round {round}");
        assert_eq!(
            get(&server, &format!("{MAPS}/kept")).await.json(),
            unchanged
        );
        assert_eq!(server.restore(&template).unwrap(), 0);
        // Writes of the test, then those of the restore, with versions that grow.
        let mut last = start;
        let mut seen = Vec::new();
        while seen.len() < 6 {
            let (change, name, version) = watch.brief().await.unwrap();
            assert!(version > last);
            last = version;
            seen.push(format!("{change} {name}"));
        }
        assert_eq!(
            seen[..3],
            ["MODIFIED changed", "DELETED removed", "ADDED added"]
        );
        seen[3..].sort();
        assert_eq!(
            seen[3..],
            ["ADDED removed", "DELETED added", "MODIFIED changed"]
        );
        // A kind that was removed takes objects again.
        post(&server, FOO, &foo(&format!("b{round}")))
            .await
            .expect_ok();
        server.restore(&template).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_came_after_the_template_is_not_served_after_a_restore() {
    let server = server().await;
    let template = server.template();
    post(&server, CRDS, &foos()).await.expect_ok();
    post(&server, FOO, &foo("a")).await.expect_ok();
    let start = server.resource_version();
    let mut watch = watch(
        &server,
        &format!("{FOO}?watch=true&resourceVersion={start}"),
    )
    .await;
    server.restore(&template).unwrap();
    assert_eq!(get(&server, FOO).await.code, 404);
    let (change, name, _) = watch.brief().await.unwrap();
    assert_eq!((change.as_str(), name.as_str()), ("DELETED", "a"));
    post(&server, CRDS, &foos()).await.expect_ok();
    assert_eq!(
        get(&server, FOO).await.expect_ok()["items"],
        json!([]),
        "objects of the former kind"
    );
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_being_deleted_is_whole_after_a_restore() {
    let server = server().await;
    post(&server, CRDS, &foos()).await.expect_ok();
    post(&server, FOO, &foo("a")).await.expect_ok();
    let template = server.template();
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    let definition = format!("{CRDS}/foos.example.com");
    // With and without the work of the background task.
    for settles in [true, false] {
        if settles {
            merge(&server, &format!("{FOO}/a"), &held).await.expect_ok();
        }
        delete(&server, &definition, &Value::Null).await.expect_ok();
        if settles {
            settle().await;
        }
        assert_eq!(post(&server, FOO, &foo("b")).await.code, 403);
        server.restore(&template).unwrap();
        settle().await;
        let definition = get(&server, &definition).await.expect_ok();
        assert!(definition["metadata"]["deletionTimestamp"].is_null());
        let found = get(&server, &format!("{FOO}/a")).await.expect_ok();
        assert!(found["metadata"]["deletionTimestamp"].is_null());
        assert!(found["metadata"]["finalizers"].is_null());
        post(&server, FOO, &foo("b")).await.expect_ok();
        delete(&server, &format!("{FOO}/b"), &Value::Null)
            .await
            .expect_ok();
    }
}

#[tokio::test(start_paused = true)]
async fn dependents_come_back_with_their_owners() {
    let server = server().await;
    let mut names = Vec::new();
    let mut owner: Option<Value> = None;
    // A chain in the opposite order of its names.
    for name in ["e", "d", "c", "b", "a"] {
        let mut object = map(name);
        if let Some(owner) = &owner {
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
            }]);
        }
        owner = Some(post(&server, MAPS, &object).await.expect_ok());
        names.push(name);
    }
    settle().await;
    let before = state(&server, &[MAPS]).await;
    let template = server.template();
    delete(&server, &format!("{MAPS}/e"), &Value::Null)
        .await
        .expect_ok();
    settle().await;
    assert_eq!(get(&server, &format!("{MAPS}/a")).await.code, 404);
    server.restore(&template).unwrap();
    settle().await;
    assert_eq!(state(&server, &[MAPS]).await, before);
}

#[tokio::test]
async fn a_restore_is_on_disk() {
    let directory = std::env::temp_dir().join(format!("reeve-restores-{}", std::process::id()));
    let open = async || {
        let builder = ApiServer::builder().data_dir(&directory);
        builder.start().await.unwrap()
    };
    let first = open().await;
    post(&first, MAPS, &map("before")).await.expect_ok();
    let template = first.template();
    post(&first, MAPS, &map("after")).await.expect_ok();
    delete(&first, &format!("{MAPS}/before"), &Value::Null)
        .await
        .expect_ok();
    first.restore(&template).unwrap();
    first.shutdown().await.unwrap();
    let second = open().await;
    get(&second, &format!("{MAPS}/before")).await.expect_ok();
    assert_eq!(get(&second, &format!("{MAPS}/after")).await.code, 404);
    second.shutdown().await.unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_uid_is_removed_before_the_former_is_created() {
    let server = server().await;
    let uid = |object: &Value| object["metadata"]["uid"].clone();
    let first = post(&server, MAPS, &map("a")).await.expect_ok();
    let template = server.template();
    delete(&server, &format!("{MAPS}/a"), &Value::Null)
        .await
        .expect_ok();
    let second = post(&server, MAPS, &map("a")).await.expect_ok();
    assert_ne!(uid(&first), uid(&second));
    let start = version(&second);
    let path = format!("{MAPS}?watch=true&resourceVersion={start}");
    let mut watch = watch(&server, &path).await;
    assert_eq!(server.restore(&template).unwrap(), 1);
    for (change, object) in [("DELETED", &second), ("ADDED", &first)] {
        let event = watch.next().await.unwrap();
        assert_eq!(event["type"], change);
        assert_eq!(uid(&event["object"]), uid(object));
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_older_than_its_schema_comes_back_as_it_was_shown() {
    let server = server().await;
    post(&server, CRDS, &foos()).await.expect_ok();
    post(&server, FOO, &foo("a")).await.expect_ok();
    settle().await;
    let mut definition = get(&server, &format!("{CRDS}/foos.example.com"))
        .await
        .expect_ok();
    let color = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color";
    definition.pointer_mut(color).unwrap()["default"] = json!("red");
    put(&server, &format!("{CRDS}/foos.example.com"), &definition)
        .await
        .expect_ok();
    settle().await;
    let path = format!("{FOO}/a");
    let before = get(&server, &path).await.expect_ok();
    assert_eq!(before["spec"], json!({"color": "red", "replicas": 1}));
    let template = server.template();
    let changed = json!({"spec": {"replicas": 5}});
    merge(&server, &path, &changed).await.expect_ok();
    assert_eq!(server.restore(&template).unwrap(), 1);
    let after = get(&server, &path).await.expect_ok();
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(server.restore(&template).unwrap(), 0, "nothing is left");
}

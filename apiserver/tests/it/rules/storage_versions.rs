//! The versions in which objects are stored: each keeps its own until its next write.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reeve_apiserver::ApiServer;
use serde_json::{Value, json};

use super::definitions::{FOOS_V2, foo_of, text, two_versions, with_webhook};
use crate::rules::raw::*;

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.example.com";

/// A server, and the directory that it writes to.
struct World {
    server: Option<ApiServer>,
    directory: PathBuf,
}

// === impl World ===

impl World {
    async fn new(name: &str) -> Self {
        let name = format!("reeve-rules-{}-{name}", std::process::id());
        let mut world = Self {
            server: None,
            directory: std::env::temp_dir().join(name),
        };
        world.restart().await;
        world
    }

    async fn restart(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown().await.unwrap();
        }
        let builder = ApiServer::builder().data_dir(&self.directory);
        // A sync of the background task would need another thread.
        let builder = builder.sync_writes(false);
        self.server = Some(builder.clock(clock()).start().await.unwrap());
    }

    fn server(&self) -> &ApiServer {
        self.server.as_ref().unwrap()
    }

    /// The version of each Foo on disk, by name.
    fn stored(&self) -> BTreeMap<String, String> {
        let stored = stored_versions(&self.directory, "foos.example.com");
        let name = |key: String| key.strip_prefix("default/").unwrap().to_owned();
        let of_group = |version: String| version.strip_prefix("example.com/").unwrap().to_owned();
        stored
            .into_iter()
            .map(|(key, version)| (name(key), of_group(version)))
            .collect()
    }

    /// Makes v2 the storage version.
    async fn move_to_v2(&self) -> Value {
        let mut moved = get(self.server(), DEFINITION).await.expect_ok();
        for version in 0..2 {
            moved["spec"]["versions"][version]["storage"] = json!(version == 1);
        }
        put(self.server(), DEFINITION, &moved).await.expect_ok()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.server.take());
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn same_fields() -> Value {
    two_versions(json!({"a": text()}), json!({"a": text()}))
}

fn versions(expected: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, version): &(&str, &str)| ((*name).to_owned(), (*version).to_owned());
    expected.iter().map(owned).collect()
}

#[tokio::test(start_paused = true)]
async fn an_object_keeps_the_version_in_which_it_is_stored_until_it_is_written_again() {
    let mut world = World::new("kept").await;
    let server = world.server();
    post(server, CRDS, &same_fields()).await.expect_ok();
    for (path, version, name) in [(FOOS, "v1", "one"), (FOOS_V2, "v2", "two")] {
        let body = foo_of(version, name, json!({"a": "1"}));
        post(server, path, &body).await.expect_ok();
    }
    // Also what was written through v2 is stored in v1.
    assert_eq!(world.stored(), versions(&[("one", "v1"), ("two", "v1")]));
    let moved = world.move_to_v2().await;
    assert_eq!(moved["status"]["storedVersions"], json!(["v1", "v2"]));
    let body = foo_of("v1", "three", json!({"a": "1"}));
    post(server, FOOS, &body).await.expect_ok();
    let former = versions(&[("one", "v1"), ("three", "v2"), ("two", "v1")]);
    assert_eq!(world.stored(), former);
    world.restart().await;
    let server = world.server();
    assert_eq!(world.stored(), former);
    // Each is there in each version.
    for (path, version) in [(FOOS, "example.com/v1"), (FOOS_V2, "example.com/v2")] {
        let list = get(server, path).await.expect_ok();
        for item in list["items"].as_array().unwrap() {
            assert_eq!(item["apiVersion"], version);
            assert_eq!(item["spec"], json!({"a": "1"}));
        }
        assert_eq!(list["items"].as_array().unwrap().len(), 3);
    }
    // A write through either version moves an object, also one that changes nothing.
    let one = get(server, &format!("{FOOS}/one")).await.expect_ok();
    let same = put(server, &format!("{FOOS}/one"), &one).await.expect_ok();
    assert!(version(&same) > version(&one));
    assert_eq!(same["spec"], one["spec"]);
    let again = put(server, &format!("{FOOS}/one"), &same).await.expect_ok();
    assert_eq!(version(&again), version(&same));
    merge(
        server,
        &format!("{FOOS_V2}/two"),
        &json!({"spec": {"a": "2"}}),
    )
    .await
    .expect_ok();
    assert_eq!(
        world.stored(),
        versions(&[("one", "v2"), ("three", "v2"), ("two", "v2")])
    );
}

#[tokio::test(start_paused = true)]
async fn a_former_storage_version_goes_when_no_object_is_stored_in_it() {
    let world = World::new("former").await;
    let server = world.server();
    post(server, CRDS, &same_fields()).await.expect_ok();
    let body = foo_of("v1", "x", json!({"a": "1"}));
    post(server, FOOS, &body).await.expect_ok();
    let mut definition = world.move_to_v2().await;
    let without_v1 = |definition: &Value| {
        let mut definition = definition.clone();
        definition["spec"]["versions"]
            .as_array_mut()
            .unwrap()
            .remove(0);
        definition
    };
    let refused = put(server, DEFINITION, &without_v1(&definition)).await;
    assert_eq!(refused.code, 422, "{}", refused.text);
    merge(server, &format!("{FOOS}/x"), &json!({}))
        .await
        .expect_ok();
    assert_eq!(world.stored(), versions(&[("x", "v2")]));
    definition["status"]["storedVersions"] = json!(["v2"]);
    let status = format!("{DEFINITION}/status");
    let definition = put(server, &status, &definition).await.expect_ok();
    assert_eq!(definition["status"]["storedVersions"], json!(["v2"]));
    let left = put(server, DEFINITION, &without_v1(&definition)).await;
    assert_eq!(left.expect_ok()["status"]["storedVersions"], json!(["v2"]));
    get(server, &format!("{FOOS_V2}/x")).await.expect_ok();
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_waits_is_a_write_in_the_new_storage_version() {
    let world = World::new("marked").await;
    let server = world.server();
    post(server, CRDS, &same_fields()).await.expect_ok();
    let mut body = foo_of("v1", "x", json!({"a": "1"}));
    body["metadata"]["finalizers"] = json!(["example.com/f"]);
    post(server, FOOS, &body).await.expect_ok();
    world.move_to_v2().await;
    let one = format!("{FOOS}/x");
    let marked = delete(server, &one, &Value::Null).await.expect_ok();
    assert_eq!(marked["apiVersion"], "example.com/v1");
    assert_eq!(marked["spec"], json!({"a": "1"}));
    assert_eq!(world.stored(), versions(&[("x", "v2")]));
}

#[tokio::test(start_paused = true)]
async fn events_before_and_after_the_storage_version_moved_have_the_version_of_their_watch() {
    let world = World::new("watched").await;
    let server = world.server();
    let definition = two_versions(json!({"a": text(), "b": text()}), json!({"a": text()}));
    post(server, CRDS, &definition).await.expect_ok();
    let body = foo_of("v1", "x", json!({"a": "1", "b": "1"}));
    let mut labelled = body.clone();
    labelled["metadata"]["labels"] = json!({"in": "yes"});
    let made = post(server, FOOS, &labelled).await.expect_ok();
    let from = version(&made) - 1;
    world.move_to_v2().await;
    merge(
        server,
        &format!("{FOOS_V2}/x"),
        &json!({"spec": {"a": "2"}}),
    )
    .await
    .expect_ok();
    // It leaves the selection, with the last state that was in it.
    let unlabelled = json!({"metadata": {"labels": null}});
    merge(server, &format!("{FOOS_V2}/x"), &unlabelled)
        .await
        .expect_ok();
    for (path, name, first) in [
        (FOOS, "example.com/v1", json!({"a": "1", "b": "1"})),
        (FOOS_V2, "example.com/v2", json!({"a": "1"})),
    ] {
        let query = format!("{path}?watch=true&resourceVersion={from}&labelSelector=in");
        let mut frames = watch(server, &query).await;
        let expected = [
            ("ADDED", first),
            ("MODIFIED", json!({"a": "2"})),
            ("DELETED", json!({"a": "2"})),
        ];
        for (kind, spec) in expected {
            let frame = frames.next().await.unwrap();
            assert_eq!(frame["type"], kind, "{name}");
            assert_eq!(frame["object"]["apiVersion"], name, "{kind}");
            assert_eq!(frame["object"]["spec"], spec, "{name} {kind}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_version_needs_the_webhook_also_after_a_restart() {
    let mut world = World::new("webhook").await;
    let server = world.server();
    post(server, CRDS, &with_webhook()).await.expect_ok();
    let mut old = foo_of("v1", "old", json!({"a": "1"}));
    old["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    post(server, FOOS, &old).await.expect_ok();
    world.move_to_v2().await;
    let new = foo_of("v2", "new", json!({"a": "1"}));
    post(server, FOOS_V2, &new).await.expect_ok();
    world.restart().await;
    let server = world.server();
    let code = async |path: &str, name: &str| get(server, &format!("{path}/{name}")).await.code;
    assert_eq!(code(FOOS, "old").await, 200);
    assert_eq!(code(FOOS_V2, "old").await, 500);
    assert_eq!(code(FOOS, "new").await, 500);
    assert_eq!(code(FOOS_V2, "new").await, 200);
    // Neither a read nor a write of it has the form of another version.
    let change = json!({"spec": {"a": "2"}});
    for (path, name) in [(FOOS, "old"), (FOOS_V2, "old"), (FOOS, "new")] {
        let refused = merge(server, &format!("{path}/{name}"), &change).await;
        assert_eq!(refused.code, 500, "{path}/{name}");
    }
    assert_eq!(world.stored(), versions(&[("new", "v2"), ("old", "v1")]));
    // The server itself ends both.
    delete(server, DEFINITION, &Value::Null).await.expect_ok();
    settle().await;
    assert_eq!(get(server, DEFINITION).await.code, 404);
}

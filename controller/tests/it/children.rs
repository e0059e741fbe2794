//! Children of an object, on the built-in API server.

use std::error::Error as _;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use reeve_controller::client::{Change, Error, Patch};
use reeve_controller::{child, owner};
use serde_json::json;

use super::client::{key, map, server};

fn wanted(value: &str) -> ConfigMap {
    let child =
        json!({"metadata": {"name": "child", "labels": {"of": "a"}}, "data": {"key": value}});
    serde_json::from_value(child).unwrap()
}

fn set(child: &mut ConfigMap, wanted: ConfigMap) {
    child.data = wanted.data;
}

#[tokio::test(start_paused = true)]
async fn a_child_is_created_in_the_namespace_of_its_owner_and_changed_only_when_it_differs() {
    let (server, client) = server().await;
    let client = reeve_controller::Client::new(client.kube().clone());
    let parent = client.create(&map("a")).await.unwrap();
    let (made, change) = child::create_or_patch(&client, &parent, wanted("1"), set)
        .await
        .unwrap();
    assert_eq!(change, Change::Created);
    assert_eq!(made.metadata.namespace.as_deref(), Some("default"));
    assert!(owner::is_controlled_by(&made, &parent));

    // Fields of others stay; labels of the child are set again.
    let other = json!({"metadata": {"labels": {"of": "b", "team": "shop"}}, "data": {"key": "2"}});
    let child = key("child");
    let patch = Patch::merge(other);
    client.patch::<ConfigMap>(&child, patch).await.unwrap();
    let (mended, change) = child::create_or_patch(&client, &parent, wanted("1"), set)
        .await
        .unwrap();
    assert_eq!(change, Change::Updated);
    let labels = mended.metadata.labels.unwrap();
    assert_eq!((&*labels["of"], &*labels["team"]), ("a", "shop"));
    assert_eq!(mended.data.unwrap()["key"], "1");

    server.requests().clear();
    let (_, change) = child::create_or_patch(&client, &parent, wanted("1"), set)
        .await
        .unwrap();
    assert_eq!(change, Change::Unchanged);
    let all = server.requests().all();
    let verbs: Vec<&str> = all.iter().map(|request| &*request.verb).collect();
    assert_eq!(verbs, ["get"]);

    // The error of the function stops the write.
    let stop = |_: &mut ConfigMap, _: ConfigMap| Err("stop");
    let error = child::create_or_patch(&client, &parent, wanted("3"), stop)
        .await
        .unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), "stop");
    assert_eq!(server.requests().all().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_owner_in_a_namespace_has_no_children_without_one() {
    let (server, client) = server().await;
    let client = reeve_controller::Client::new(client.kube().clone());
    let parent = client.create(&map("a")).await.unwrap();
    server.requests().clear();
    let role: ClusterRole = serde_json::from_value(json!({"rules": []})).unwrap();
    let never = |_: &mut ClusterRole, _: ClusterRole| {};
    let error = child::create_or_patch(&client, &parent, role, never)
        .await
        .unwrap_err();
    let expected =
        "a cannot be owned by ConfigMap default/a: it is in no namespace, or none is set yet";
    assert_eq!(error.source().unwrap().to_string(), expected);
    let all = server.requests().all();
    assert!(all.iter().all(|request| request.verb == "get"), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_is_neither_changed_nor_adopted() {
    let (_server, client) = server().await;
    let client = reeve_controller::Client::new(client.kube().clone());
    let parent = client.create(&map("a")).await.unwrap();
    let other = client.create(&map("b")).await.unwrap();
    let refused = async |expected: &str| {
        let before = client.get::<ConfigMap>(&key("child")).await.unwrap();
        let never = |_: &mut ConfigMap, _: ConfigMap| -> () { panic!("it belongs to another") };
        let error = child::create_or_patch(&client, &parent, wanted("1"), never)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Mutate { .. }), "{error:?}");
        assert_eq!(error.source().unwrap().to_string(), expected);
        let after = client.get::<ConfigMap>(&key("child")).await.unwrap();
        assert_eq!(before, after);
    };
    let created = client.create(&map("child")).await.unwrap();
    refused(
        "default/child exists already, and ConfigMap default/a does not control it: delete or rename one of the two",
    )
    .await;

    let control = |child: &mut ConfigMap| owner::set_controller(&other, child).map(drop);
    client.mutate(&created, control).await.unwrap();
    let uid = other.metadata.uid.clone().unwrap();
    refused(&format!(
        "default/child is controlled by ConfigMap b (uid {uid}) already"
    ))
    .await;
}

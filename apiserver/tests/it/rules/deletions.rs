//! DELETE: finalizers, propagation, collection, namespaces, definitions.

use serde_json::{Value, json};

use crate::rules::raw::*;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn finalized(name: &str) -> Value {
    json!({"metadata": {"name": name, "finalizers": ["example.com/f"]}})
}

fn owned(name: &str, owner: &Value, blocks: bool) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks,
    }]}})
}

#[tokio::test(start_paused = true)]
async fn without_finalizers_an_object_goes_at_once() {
    let server = server().await;
    let made = post(&server, MAPS, &map("a")).await.expect_ok();
    let status = delete(&server, &format!("{MAPS}/a"), &Value::Null)
        .await
        .expect_ok();
    assert_eq!(status["status"], "Success");
    assert_eq!(status["details"]["uid"], made["metadata"]["uid"]);
    assert_eq!(status["details"]["kind"], "configmaps");
    assert_eq!(
        delete(&server, &format!("{MAPS}/a"), &Value::Null)
            .await
            .code,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_keeps_an_object_until_it_is_removed() {
    let server = server().await;
    let made = post(&server, MAPS, &finalized("a")).await.expect_ok();
    let path = format!("{MAPS}/a");
    let mut events = watch(
        &server,
        &format!("{MAPS}?watch=1&resourceVersion={}", version(&made)),
    )
    .await;
    let marked = delete(&server, &path, &Value::Null).await.expect_ok();
    assert_eq!(
        marked["metadata"]["deletionTimestamp"],
        "2026-01-01T00:00:00Z"
    );
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let again = delete(&server, &path, &Value::Null).await.expect_ok();
    assert_eq!(
        version(&again),
        version(&marked),
        "asking again changes nothing"
    );

    let refused = merge(
        &server,
        &path,
        &json!({"metadata": {"finalizers": ["example.com/f", "b.c/d"]}}),
    )
    .await;
    assert_eq!(refused.code, 422);
    let exists = post(&server, MAPS, &map("a")).await;
    assert_eq!(exists.code, 409);
    assert!(
        exists.message().starts_with("object is being deleted: "),
        "{}",
        exists.message()
    );

    let last = merge(&server, &path, &json!({"metadata": {"finalizers": null}}))
        .await
        .expect_ok();
    assert!(last["metadata"].get("finalizers").is_none());
    assert_eq!(get(&server, &path).await.code, 404);
    assert_eq!(events.brief().await.unwrap().0, "MODIFIED");
    let gone = events.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(
        gone["object"]["metadata"]["finalizers"],
        json!(["example.com/f"]),
        "the state without it was never stored"
    );
}

#[tokio::test(start_paused = true)]
async fn a_precondition_that_does_not_hold_is_a_conflict() {
    let server = server().await;
    let made = post(&server, MAPS, &map("a")).await.expect_ok();
    for wrong in [json!({"uid": "other"}), json!({"resourceVersion": "1"})] {
        let refused = delete(
            &server,
            &format!("{MAPS}/a"),
            &json!({"preconditions": wrong}),
        )
        .await;
        assert_eq!(refused.code, 409, "{wrong}");
    }
    let right = json!({"preconditions": {
        "uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"],
    }});
    delete(&server, &format!("{MAPS}/a"), &right)
        .await
        .expect_ok();
}

#[tokio::test(start_paused = true)]
async fn dependents_go_after_their_owner_and_theirs_after_them() {
    let server = server().await;
    let owner = post(&server, MAPS, &map("owner")).await.expect_ok();
    let child = post(&server, MAPS, &owned("child", &owner, false))
        .await
        .expect_ok();
    post(&server, SECRETS, &owned("grandchild", &child, false))
        .await
        .expect_ok();
    delete(&server, &format!("{MAPS}/owner"), &Value::Null)
        .await
        .expect_ok();
    settle().await;
    assert_eq!(get(&server, &format!("{MAPS}/child")).await.code, 404);
    assert_eq!(
        get(&server, &format!("{SECRETS}/grandchild")).await.code,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn a_dependent_lives_while_one_of_its_owners_does() {
    let server = server().await;
    let one = post(&server, MAPS, &map("one")).await.expect_ok();
    let two = post(&server, MAPS, &map("two")).await.expect_ok();
    let mut child = owned("child", &one, false);
    let other = owned("x", &two, false)["metadata"]["ownerReferences"][0].clone();
    child["metadata"]["ownerReferences"]
        .as_array_mut()
        .unwrap()
        .push(other);
    post(&server, MAPS, &child).await.expect_ok();
    delete(&server, &format!("{MAPS}/one"), &Value::Null)
        .await
        .expect_ok();
    settle().await;
    let child = get(&server, &format!("{MAPS}/child")).await.expect_ok();
    let left = child["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(
        left.len(),
        1,
        "the reference to the absent owner is dropped"
    );
    assert_eq!(left[0]["name"], "two");
    delete(&server, &format!("{MAPS}/two"), &Value::Null)
        .await
        .expect_ok();
    settle().await;
    assert_eq!(get(&server, &format!("{MAPS}/child")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_never_was_is_absent() {
    let server = server().await;
    let ghost = json!({"metadata": {"name": "ghost", "uid": "no-such-uid"}});
    post(&server, MAPS, &owned("child", &ghost, false))
        .await
        .expect_ok();
    settle().await;
    assert_eq!(get(&server, &format!("{MAPS}/child")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_an_owner_waits_for_dependents_that_block() {
    let server = server().await;
    let owner = post(&server, MAPS, &map("owner")).await.expect_ok();
    let mut child = owned("child", &owner, true);
    child["metadata"]["finalizers"] = json!(["example.com/f"]);
    post(&server, MAPS, &child).await.expect_ok();
    let options = json!({"propagationPolicy": "Foreground"});
    let marked = delete(&server, &format!("{MAPS}/owner"), &options)
        .await
        .expect_ok();
    assert_eq!(
        marked["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    settle().await;
    let child = get(&server, &format!("{MAPS}/child")).await.expect_ok();
    assert!(child["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(
        get(&server, &format!("{MAPS}/owner")).await.code,
        200,
        "the child blocks"
    );
    merge(
        &server,
        &format!("{MAPS}/child"),
        &json!({"metadata": {"finalizers": null}}),
    )
    .await
    .expect_ok();
    settle().await;
    assert_eq!(get(&server, &format!("{MAPS}/owner")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_goes_on_when_a_dependent_has_another_living_owner() {
    let server = server().await;
    let going = post(&server, MAPS, &map("going")).await.expect_ok();
    let living = post(&server, MAPS, &map("living")).await.expect_ok();
    let mut child = owned("child", &going, true);
    let other = owned("x", &living, true)["metadata"]["ownerReferences"][0].clone();
    child["metadata"]["ownerReferences"]
        .as_array_mut()
        .unwrap()
        .push(other);
    post(&server, MAPS, &child).await.expect_ok();
    let options = json!({"propagationPolicy": "Foreground"});
    delete(&server, &format!("{MAPS}/going"), &options)
        .await
        .expect_ok();
    settle().await;
    assert_eq!(get(&server, &format!("{MAPS}/going")).await.code, 404);
    let child = get(&server, &format!("{MAPS}/child")).await.expect_ok();
    assert!(child["metadata"].get("deletionTimestamp").is_none());
    let left = child["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["name"], "living");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_scoped_object_that_names_a_namespaced_owner_is_never_collected() {
    let server = server().await;
    let owner = post(&server, MAPS, &map("owner")).await.expect_ok();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let ghost = json!({"metadata": {"name": "ghost", "uid": "no-such-uid"}});
    post(&server, roles, &owned("mistaken", &owner, false))
        .await
        .expect_ok();
    post(&server, roles, &owned("haunted", &ghost, false))
        .await
        .expect_ok();
    settle().await;
    for name in ["mistaken", "haunted"] {
        assert_eq!(get(&server, &format!("{roles}/{name}")).await.code, 200);
    }
    let events = get(&server, "/api/v1/namespaces/default/events")
        .await
        .expect_ok();
    let events = events["items"].as_array().unwrap();
    assert_eq!(events.len(), 1, "only of the owner that exists: {events:?}");
    assert_eq!(events[0]["reason"], "OwnerRefInvalidNamespace");
    assert_eq!(events[0]["involvedObject"]["name"], "mistaken");
    assert_eq!(events[0]["involvedObject"]["kind"], "ClusterRole");
    let uid = owner["metadata"]["uid"].as_str().unwrap();
    assert_eq!(
        events[0]["message"],
        format!(
            "ownerRef [v1/ConfigMap, namespace: , name: owner, uid: {uid}] does not exist in namespace \"\""
        )
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_names_an_owner_in_another_namespace_is_collected_with_an_event() {
    let server = server().await;
    post(&server, "/api/v1/namespaces", &map("other"))
        .await
        .expect_ok();
    let owner = post(&server, MAPS, &map("owner")).await.expect_ok();
    let elsewhere = "/api/v1/namespaces/other/configmaps";
    post(&server, elsewhere, &owned("child", &owner, false))
        .await
        .expect_ok();
    settle().await;
    assert_eq!(get(&server, &format!("{elsewhere}/child")).await.code, 404);
    let events = get(&server, "/api/v1/namespaces/other/events")
        .await
        .expect_ok();
    assert_eq!(events["items"][0]["reason"], "OwnerRefInvalidNamespace");
}

#[tokio::test(start_paused = true)]
async fn orphans_lose_the_reference_and_stay() {
    let server = server().await;
    let owner = post(&server, MAPS, &map("owner")).await.expect_ok();
    post(&server, MAPS, &owned("child", &owner, true))
        .await
        .expect_ok();
    let options = json!({"propagationPolicy": "Orphan"});
    delete(&server, &format!("{MAPS}/owner"), &options)
        .await
        .expect_ok();
    settle().await;
    assert_eq!(get(&server, &format!("{MAPS}/owner")).await.code, 404);
    let child = get(&server, &format!("{MAPS}/child")).await.expect_ok();
    assert!(child["metadata"].get("ownerReferences").is_none());
}

#[tokio::test(start_paused = true)]
async fn without_collection_dependents_stay_as_under_envtest() {
    let server = reeve_apiserver::ApiServer::builder()
        .clock(clock())
        .garbage_collection(false)
        .start()
        .await
        .unwrap();
    let owner = post(&server, MAPS, &map("owner")).await.expect_ok();
    post(&server, MAPS, &owned("child", &owner, false))
        .await
        .expect_ok();
    delete(&server, &format!("{MAPS}/owner"), &Value::Null)
        .await
        .expect_ok();
    settle().await;
    assert_eq!(get(&server, &format!("{MAPS}/child")).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_selector() {
    let server = server().await;
    for (name, value) in [("a", "1"), ("b", "2")] {
        post(&server, MAPS, &labelled(name, value))
            .await
            .expect_ok();
    }
    let deleted = delete(
        &server,
        &format!("{MAPS}?labelSelector=app%3D1"),
        &Value::Null,
    )
    .await
    .expect_ok();
    assert_eq!(deleted["items"].as_array().unwrap().len(), 1);
    let left = get(&server, MAPS).await.expect_ok();
    assert_eq!(left["items"][0]["metadata"]["name"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_emptied_and_goes() {
    let server = server().await;
    let namespaces = "/api/v1/namespaces";
    let made = post(&server, namespaces, &map("n")).await.expect_ok();
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(
        made["metadata"]["labels"]["kubernetes.io/metadata.name"],
        "n"
    );
    let inside = "/api/v1/namespaces/n/configmaps";
    post(&server, inside, &map("a")).await.expect_ok();
    post(&server, inside, &finalized("f")).await.expect_ok();
    let marked = delete(&server, "/api/v1/namespaces/n", &Value::Null)
        .await
        .expect_ok();
    assert_eq!(marked["status"]["phase"], "Terminating");
    settle().await;
    assert_eq!(get(&server, &format!("{inside}/a")).await.code, 404);
    assert_eq!(
        get(&server, "/api/v1/namespaces/n").await.code,
        200,
        "f keeps it"
    );
    let refused = post(&server, inside, &map("late")).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.json()["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );
    merge(
        &server,
        &format!("{inside}/f"),
        &json!({"metadata": {"finalizers": null}}),
    )
    .await
    .expect_ok();
    settle().await;
    assert_eq!(get(&server, "/api/v1/namespaces/n").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_waits_for_the_finalizers_of_others_in_its_spec() {
    let server = server().await;
    let namespaces = "/api/v1/namespaces";
    let mut body = map("n");
    body["spec"] = json!({"finalizers": ["example.com/f"]});
    let made = post(&server, namespaces, &body).await.expect_ok();
    assert_eq!(
        made["spec"]["finalizers"],
        json!(["example.com/f", "kubernetes"])
    );
    delete(&server, "/api/v1/namespaces/n", &Value::Null)
        .await
        .expect_ok();
    settle().await;
    let waiting = get(&server, "/api/v1/namespaces/n").await.expect_ok();
    assert_eq!(waiting["spec"]["finalizers"], json!(["example.com/f"]));
    let mut last = waiting;
    last["spec"] = json!({});
    put(&server, "/api/v1/namespaces/n/finalize", &last)
        .await
        .expect_ok();
    settle().await;
    assert_eq!(get(&server, "/api/v1/namespaces/n").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn the_namespaces_of_every_cluster_cannot_be_deleted() {
    let server = server().await;
    for name in ["default", "kube-system", "kube-public"] {
        let refused = delete(&server, &format!("/api/v1/namespaces/{name}"), &Value::Null).await;
        assert_eq!(refused.code, 403, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_goes_takes_its_objects_and_comes_back_empty() {
    let server = server().await;
    let crd = format!("{CRDS}/foos.example.com");
    post(&server, CRDS, &foos()).await.expect_ok();
    let first = post(&server, FOOS, &foo("a")).await.expect_ok();
    let mut kept = foo("f");
    kept["metadata"]["finalizers"] = json!(["example.com/f"]);
    post(&server, FOOS, &kept).await.expect_ok();
    delete(&server, &crd, &Value::Null).await.expect_ok();
    settle().await;
    assert_eq!(get(&server, &format!("{FOOS}/a")).await.code, 404);
    assert_eq!(get(&server, &crd).await.code, 200, "f keeps it");
    let refused = post(&server, FOOS, &foo("late")).await;
    assert_eq!(refused.code, 403);
    assert!(
        refused
            .message()
            .contains("custom resource definition is terminating")
    );
    merge(
        &server,
        &format!("{FOOS}/f"),
        &json!({"metadata": {"finalizers": null}}),
    )
    .await
    .expect_ok();
    settle().await;
    assert_eq!(get(&server, &crd).await.code, 404);
    assert_eq!(get(&server, FOOS).await.code, 404);
    post(&server, CRDS, &foos()).await.expect_ok();
    assert_eq!(get(&server, FOOS).await.expect_ok()["items"], json!([]));
    let again = post(&server, FOOS, &foo("a")).await.expect_ok();
    assert_ne!(again["metadata"]["uid"], first["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_is_given_its_grace() {
    let server = server().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    post(&server, pods, &pod).await.expect_ok();
    let marked = delete(&server, &format!("{pods}/p"), &Value::Null)
        .await
        .expect_ok();
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(
        marked["metadata"]["deletionTimestamp"],
        "2026-01-01T00:00:30Z"
    );
    assert_eq!(get(&server, &format!("{pods}/p")).await.code, 200);
    delete(
        &server,
        &format!("{pods}/p"),
        &json!({"gracePeriodSeconds": 0}),
    )
    .await
    .expect_ok();
    assert_eq!(get(&server, &format!("{pods}/p")).await.code, 404);
}

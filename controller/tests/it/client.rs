//! Every verb of the client on the built-in API server: typed, dynamic, and metadata only.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube_core::metadata::PartialObjectMeta;
use kube_core::params::{DeleteParams, ListParams, Preconditions};
use kube_core::{ApiResource, DynamicObject};
use parking_lot::Mutex;
use reeve_apiserver::ApiServer;
use reeve_apiserver::faults::Rule;
use reeve_controller::client::{
    AnyObject, ApplyOptions, Error, FieldValidation, Interceptor, Objects, Patch, Verb,
    WriteOptions, optional,
};
use reeve_controller::{Client, ObjectKey};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

pub(crate) async fn server() -> (ApiServer, Client) {
    let server = ApiServer::builder().start().await.unwrap();
    let client = Client::new(server.client());
    (server, client)
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

pub(crate) fn map(name: &str) -> ConfigMap {
    let map = json!({"metadata": {"namespace": "default", "name": name, "labels": {"app": "web"}},
        "data": {"key": "0"}});
    serde_json::from_value(map).unwrap()
}

#[tokio::test]
async fn an_object_is_created_without_reading_the_answer() {
    let (_server, client) = server().await;
    let maps = client.objects::<ConfigMap>();
    maps.create_unread(&map("a")).await.unwrap();
    assert_eq!(maps.get(&key("a")).await.unwrap().data, map("a").data);
    let again = maps.create_unread(&map("a")).await.unwrap_err();
    assert!(again.is_already_exists(), "{again}");
}

fn maps() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}

/// The projection of an object as JSON.
fn shown<K: AnyObject>(object: &K) -> Value {
    serde_json::to_value(object).unwrap()
}

/// Sends one object through every verb, in one projection. `whole` is whether the projection can be created.
async fn every_verb<K: AnyObject>(
    case: &str,
    server: &ApiServer,
    typed: &Client,
    objects: Objects<K>,
    whole: Option<fn(ConfigMap) -> K>,
) {
    let (a, kind) = (key("a"), "ConfigMap");
    let metadata_only = objects.endpoint().resource().kind == kind && whole.is_none();
    let data = |object: &K| shown(object)["data"]["key"].clone();
    let expect = |value: &str| {
        if metadata_only {
            Value::Null
        } else {
            json!(value)
        }
    };

    // Create and update.
    match whole {
        Some(make) => {
            let created = objects.create(&make(map("a"))).await.unwrap();
            assert!(created.meta().uid.is_some(), "{case}");
            assert_eq!(data(&created), expect("0"), "{case}");
            let again = objects.create(&make(map("a"))).await.unwrap_err();
            assert!(again.is_already_exists(), "{case}: {again}");
            let mut changed = created.clone();
            changed.meta_mut().annotations = Some([("n".to_owned(), "1".to_owned())].into());
            let updated = objects.update(&changed).await.unwrap();
            assert_eq!(updated.meta().annotations, changed.meta().annotations);
            let stale = objects.update(&created).await.unwrap_err();
            assert!(stale.is_conflict(), "{case}: {stale}");
        }
        None => {
            let created = typed.create(&map("a")).await.unwrap();
            let metadata = objects.get(&a).await.unwrap();
            assert_eq!(metadata.meta().uid, created.metadata.uid, "{case}");
            let before = server.requests().all().len();
            for refused in [
                objects.create(&metadata).await,
                objects.update(&metadata).await,
            ] {
                let error = refused.unwrap_err().to_string();
                assert!(error.contains("metadata alone"), "{case}: {error}");
            }
            assert_eq!(
                server.requests().all().len(),
                before,
                "{case}: nothing sent"
            );
        }
    }

    // The three patches.
    let options = WriteOptions::new().field_owner("tester");
    let merge = Patch::merge(json!({"data": {"key": "1"}}));
    let patched = objects
        .patch_with(&a, options.clone(), merge)
        .await
        .unwrap();
    assert_eq!(data(&patched), expect("1"), "{case}");
    let operations = json!([{"op": "test", "path": "/data/key", "value": "1"},
        {"op": "replace", "path": "/data/key", "value": "2"}]);
    let patched = objects
        .patch_with(&a, options.clone(), Patch::json(&operations))
        .await
        .unwrap();
    assert_eq!(data(&patched), expect("2"), "{case}");
    let failed = objects.patch_with(&a, options.clone(), Patch::json(&operations));
    assert!(
        failed.await.unwrap_err().is_invalid(),
        "{case}: the test operation"
    );
    let strategic = Patch::strategic(json!({"data": {"key": "3"}}));
    let patched = objects.patch_with(&a, options, strategic).await.unwrap();
    assert_eq!(data(&patched), expect("3"), "{case}");
    let manager = server.requests().all().last().unwrap().query.clone();
    assert_eq!(manager, "fieldManager=tester", "{case}");

    // Patches made of two states, with and without the lock.
    let mut labelled = patched.clone();
    labelled.meta_mut().labels = Some([("app".to_owned(), "db".to_owned())].into());
    let patch = Patch::merge_from(&patched, &labelled).unwrap();
    let now = objects.patch(&a, patch).await.unwrap();
    assert_eq!(now.meta().labels, labelled.meta().labels, "{case}");
    let patch = Patch::merge_from_locked(&patched, &labelled).unwrap();
    let stale = objects.patch(&a, patch).await;
    assert!(stale.unwrap_err().is_conflict(), "{case}: locked");

    // Reads: the type is set, in lists too.
    let got = objects.get(&a).await.unwrap();
    assert_eq!(data(&got), expect("3"), "{case}");
    let of_db = ListParams::default().labels("app=db");
    let listed = objects.list(Some("default"), &of_db).await.unwrap();
    let item = listed.items.first().expect("one");
    assert_eq!(item.meta().uid, got.meta().uid, "{case}");
    if case.starts_with("dynamic") {
        assert_eq!(
            (&shown(&got)["kind"], &shown(item)["kind"]),
            (&json!(kind), &json!(kind))
        );
        assert_eq!(shown(item)["apiVersion"], "v1", "{case}");
    }

    // A dry run keeps nothing.
    let dry = WriteOptions::new().dry_run();
    let patch = Patch::merge(json!({"data": {"key": "never"}}));
    objects.patch_with(&a, dry, patch).await.unwrap();
    objects
        .delete(&a, &DeleteParams::default().dry_run())
        .await
        .unwrap();
    assert_eq!(data(&objects.get(&a).await.unwrap()), expect("3"), "{case}");

    // Deletes.
    let other = Preconditions {
        uid: Some("another".to_owned()),
        resource_version: None,
    };
    let refused = objects
        .delete(&a, &DeleteParams::default().preconditions(other))
        .await;
    assert!(refused.unwrap_err().is_conflict(), "{case}: precondition");
    objects
        .delete(&a, &DeleteParams::background())
        .await
        .unwrap();
    let gone = objects.get(&a).await;
    assert!(optional(gone).unwrap().is_none(), "{case}");
    for name in ["b", "c"] {
        typed.create(&map(name)).await.unwrap();
    }
    let mut kept = map("kept");
    kept.metadata.labels = None;
    typed.create(&kept).await.unwrap();
    let which = ListParams::default().labels("app=web");
    let params = DeleteParams::default();
    objects
        .delete_all_of(Some("default"), &which, &params)
        .await
        .unwrap();
    let all = ListParams::default();
    let left = objects.list(Some("default"), &all).await.unwrap();
    let names: Vec<_> = left
        .iter()
        .filter_map(|object| object.meta().name.as_deref())
        .collect();
    assert!(
        names.contains(&"kept") && !names.contains(&"b") && !names.contains(&"c"),
        "{case}: {names:?}"
    );
    objects.delete(&key("kept"), &params).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_verb_does_the_same_for_every_projection() {
    let (server, client) = server().await;
    let dynamic = |map: ConfigMap| -> DynamicObject {
        let mut object: DynamicObject =
            serde_json::from_value(serde_json::to_value(map).unwrap()).unwrap();
        // The client adds them.
        object.types = None;
        object
    };
    every_verb(
        "typed",
        &server,
        &client,
        client.objects::<ConfigMap>(),
        Some(|map| map),
    )
    .await;
    every_verb(
        "dynamic",
        &server,
        &client,
        client.dynamic(&maps()),
        Some(dynamic),
    )
    .await;
    every_verb(
        "metadata",
        &server,
        &client,
        client.metadata::<ConfigMap>(),
        None,
    )
    .await;
    every_verb(
        "dynamic metadata",
        &server,
        &client,
        client.dynamic_metadata(&maps()),
        None,
    )
    .await;
    // A metadata type is requested as metadata.
    client.create(&map("a")).await.unwrap();
    let metadata: PartialObjectMeta<ConfigMap> = client.get(&key("a")).await.unwrap();
    assert_eq!(metadata.types.unwrap().kind, "PartialObjectMetadata");
}

#[tokio::test(start_paused = true)]
async fn an_answer_keeps_nothing_of_the_request() {
    // controller-runtime: "no stale data in reused object".
    let (_server, client) = server().await;
    client.create(&map("a")).await.unwrap();
    let patch = Patch::merge(json!({"data": null, "metadata": {"labels": null}}));
    let patched: ConfigMap = client.patch(&key("a"), patch).await.unwrap();
    assert!(patched.data.is_none() && patched.metadata.labels.is_none());
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_pages_of_one_state() {
    let (server, client) = server().await;
    for number in 0..7 {
        client.create(&map(&format!("m{number}"))).await.unwrap();
    }
    let maps = client.objects::<ConfigMap>();
    let labelled = ListParams::default().labels("app=web").limit(3);
    let mut pages = maps.pages(Some("default"), &labelled);
    let mut sizes = Vec::new();
    while let Some(page) = pages.next().await.unwrap() {
        sizes.push(page.items.len());
        if sizes.len() == 1 {
            // The list does not show changes that happen in between.
            let params = DeleteParams::default();
            client
                .delete::<ConfigMap>(&key("m5"), &params)
                .await
                .unwrap();
        }
    }
    assert_eq!(sizes, [3, 3, 1]);
    assert!(pages.next().await.unwrap().is_none());

    // When the server has compacted the state of the first page, everything is listed in one piece.
    let mut pages = maps.pages(Some("default"), &labelled);
    pages.next().await.unwrap();
    server.compact(None);
    client.create(&map("m9")).await.unwrap();
    server.compact(None);
    assert!(pages.next().await.unwrap_err().is_expired());
    let requests = server.requests();
    requests.clear();
    let forgets = Rule::new()
        .verb("list")
        .after(1)
        .times(1)
        .status(410, "too old");
    server.faults().add(forgets);
    let all = maps.pages(Some("default"), &labelled).all().await.unwrap();
    assert_eq!(all.len(), 7);
    let queries: Vec<String> = requests
        .all()
        .into_iter()
        .map(|request| request.query)
        .collect();
    assert_eq!(queries.len(), 3, "{queries:?}");
    assert!(!queries[2].contains("limit"), "{queries:?}");
}

pub(crate) fn deployment() -> Deployment {
    let object = json!({"metadata": {"namespace": "default", "name": "web"}, "spec": {"replicas": 1,
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}});
    serde_json::from_value(object).unwrap()
}

#[tokio::test(start_paused = true)]
async fn subresources_are_read_and_written() {
    let (_server, client) = server().await;
    let created = client.create(&deployment()).await.unwrap();
    let deployments = client.objects::<Deployment>();
    let web = key("web");

    // Only the status.
    let mut changed = created.clone();
    changed.spec.as_mut().unwrap().replicas = Some(9);
    changed.status.get_or_insert_default().observed_generation = Some(1);
    let updated = client.update_status(&changed).await.unwrap();
    assert_eq!(updated.status.unwrap().observed_generation, Some(1));
    assert_eq!(updated.spec.unwrap().replicas, Some(1));
    let patch = Patch::merge(json!({"status": {"replicas": 1}}));
    let patched = deployments.patch_status(&web, &patch).await.unwrap();
    assert_eq!(patched.status.unwrap().replicas, Some(1));
    let stale = client.update_status(&changed).await.unwrap_err();
    assert!(stale.is_conflict());

    // The scale.
    let mut scale = deployments.scale(&web).await.unwrap();
    assert_eq!(scale.spec.as_ref().unwrap().replicas, Some(1));
    assert_eq!(
        deployments
            .set_replicas(&web, 3)
            .await
            .unwrap()
            .spec
            .unwrap()
            .replicas,
        Some(3)
    );
    scale.spec.as_mut().unwrap().replicas = Some(5);
    let subresource = client.subresource::<Deployment>("scale");
    let stale = subresource
        .update::<_, Value>(&web, WriteOptions::new(), &scale)
        .await;
    assert!(
        stale.unwrap_err().is_conflict(),
        "a scale has the object's version"
    );
    scale.metadata.resource_version = None;
    let scaled: Value = subresource
        .update(&web, WriteOptions::new(), &scale)
        .await
        .unwrap();
    assert_eq!(scaled["spec"]["replicas"], 5);
    assert_eq!(
        client
            .get::<Deployment>(&web)
            .await
            .unwrap()
            .spec
            .unwrap()
            .replicas,
        Some(5)
    );

    // A token.
    let account = json!({"metadata": {"namespace": "default", "name": "robot"}});
    let account: ServiceAccount = serde_json::from_value(account).unwrap();
    client.create(&account).await.unwrap();
    let request: TokenRequest = serde_json::from_value(
        json!({"metadata": {}, "spec": {"audiences": ["a"], "expirationSeconds": 600}}),
    )
    .unwrap();
    let token = client
        .objects::<ServiceAccount>()
        .token(&key("robot"), &request)
        .await
        .unwrap();
    assert!(!token.status.unwrap().token.unwrap_or_default().is_empty());

    // A subresource that does not exist.
    let none = client
        .subresource::<ConfigMap>("nothing")
        .get::<Value>(&web)
        .await;
    assert!(none.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_cannot_be_undone_by_a_call() {
    let (server, client) = server().await;
    client.create(&map("a")).await.unwrap();
    let version = server.resource_version();
    let dry = client.clone().dry_run();
    let (a, params) = (key("a"), DeleteParams::default());
    dry.create(&map("b")).await.unwrap();
    dry.update(&map("a")).await.unwrap();
    let patch = Patch::merge(json!({"data": {"key": "9"}}));
    dry.patch::<ConfigMap>(&a, patch).await.unwrap();
    dry.delete::<ConfigMap>(&a, &params).await.unwrap();
    dry.delete_all_of::<ConfigMap>(Some("default"), &ListParams::default(), &params)
        .await
        .unwrap();
    assert_eq!(server.resource_version(), version, "nothing was kept");
}

#[tokio::test(start_paused = true)]
async fn the_clients_owner_and_validation_apply_unless_the_call_sets_others() {
    let (server, client) = server().await;
    let client = client
        .field_owner("ours")
        .field_validation(FieldValidation::Strict);
    let maps = client.objects::<ConfigMap>();
    let queries = || -> Vec<String> {
        let all = server.requests().all();
        server.requests().clear();
        all.into_iter().map(|request| request.query).collect()
    };
    let own = WriteOptions::new()
        .field_owner("mine")
        .field_validation(FieldValidation::Ignore);
    maps.create(&map("a")).await.unwrap();
    maps.create_with(&map("b"), own.clone()).await.unwrap();
    maps.update(&map("a")).await.unwrap();
    maps.update_with(&map("b"), own.clone()).await.unwrap();
    let patch = Patch::merge(json!({"data": {}}));
    maps.patch(&key("a"), &patch).await.unwrap();
    maps.patch_with(&key("b"), own, &patch).await.unwrap();
    let (ours, mine) = (
        "fieldManager=ours&fieldValidation=Strict",
        "fieldManager=mine&fieldValidation=Ignore",
    );
    assert_eq!(queries(), [ours, mine, ours, mine, ours, mine]);
    // Reads and deletes send neither.
    maps.get(&key("a")).await.unwrap();
    maps.delete(&key("a"), &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(queries(), ["", ""]);
    // Apply always has its own owner, and is strict.
    let _ = maps
        .apply(&map("b"), ApplyOptions::new("applier").force())
        .await;
    assert_eq!(
        queries(),
        ["fieldManager=applier&fieldValidation=Strict&force=true"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_of_one_namespace_stays_in_it() {
    let (server, client) = server().await;
    let ours = client.clone().in_namespace("default");
    let mut unnamed = map("a");
    unnamed.metadata.namespace = None;
    let created = ours.create(&unnamed).await.unwrap();
    assert_eq!(created.metadata.namespace.as_deref(), Some("default"));
    ours.get::<ConfigMap>(&ObjectKey::cluster("a"))
        .await
        .unwrap();
    ours.get::<ConfigMap>(&key("a")).await.unwrap();
    let listed = ours
        .list::<ConfigMap>(None, &ListParams::default())
        .await
        .unwrap();
    assert!(
        listed
            .iter()
            .all(|map| map.metadata.namespace.as_deref() == Some("default"))
    );

    let before = server.requests().all().len();
    let elsewhere = ObjectKey::namespaced("kube-system", "a");
    let mut foreign = map("a");
    foreign.metadata.namespace = Some("kube-system".into());
    let (all, params, options) = (
        ListParams::default(),
        DeleteParams::default(),
        WriteOptions::new(),
    );
    let patch = Patch::merge(json!({}));
    let maps = ours.objects::<ConfigMap>();
    let refused = [
        maps.get(&elsewhere).await.map(drop),
        maps.list(Some("kube-system"), &all).await.map(drop),
        maps.create(&foreign).await.map(drop),
        maps.update(&foreign).await.map(drop),
        maps.patch_with(&elsewhere, options, &patch).await.map(drop),
        maps.apply(&foreign, ApplyOptions::new("me"))
            .await
            .map(drop),
        maps.delete(&elsewhere, &params).await,
        maps.delete_all_of(Some("kube-system"), &all, &params).await,
        maps.update_status(&foreign).await.map(drop),
        maps.scale(&elsewhere).await.map(drop),
    ];
    for error in refused.map(Result::unwrap_err) {
        let text = error.to_string();
        assert!(
            text.ends_with("the namespace kube-system is not this client's, which is default"),
            "{text}"
        );
    }
    assert_eq!(server.requests().all().len(), before, "nothing sent");

    // Kinds without namespaces are unchanged.
    ours.get::<Namespace>(&ObjectKey::cluster("kube-system"))
        .await
        .unwrap();
    // A client without a namespace does not write to all namespaces.
    let everywhere = client.delete_all_of::<ConfigMap>(None, &all, &params).await;
    assert!(
        everywhere
            .unwrap_err()
            .to_string()
            .contains("are in a namespace")
    );
}

#[tokio::test(start_paused = true)]
async fn interceptors_fail_delay_and_change_what_a_call_answers() {
    let (server, real) = server().await;
    let calls = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&calls);
    let client = real.clone().intercepted(
        Interceptor::new()
            .create(
                |_, call| async move { Err(Error::refused(&call, 403, "Forbidden", "not today")) },
            )
            .get(move |next, call| {
                log.lock()
                    .push(format!("{} {}", call.verb().as_str(), call.name()));
                async move {
                    // The client of `next` is the real one.
                    let other = next.client().get::<ConfigMap>(&key("b")).await.is_ok();
                    sleep(Duration::from_secs(5)).await;
                    let mut value: Value = next.send(call).await?.read()?;
                    value["data"]["key"] = json!(format!("changed, b is there: {other}"));
                    reeve_controller::client::Answer::of(&value)
                }
            }),
    );
    let refused = client.create(&map("a")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "create configmap default/a: not today (403)"
    );
    assert!(server.requests().count("create", "configmaps") == 0);
    real.create(&map("a")).await.unwrap();
    let start = Instant::now();
    let got: ConfigMap = client.get(&key("a")).await.unwrap();
    assert_eq!(got.data.unwrap()["key"], "changed, b is there: false");
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    assert_eq!(*calls.lock(), ["get a"]);
    // Verbs without a function pass; an added layer comes first.
    client.update(&map("a")).await.unwrap();
    let twice = client.intercepted(Interceptor::new().get(|next, call| async move {
        let mut value: Value = next.send(call).await?.read()?;
        value["data"]["outer"] = json!("too");
        reeve_controller::client::Answer::of(&value)
    }));
    let got: ConfigMap = twice.get(&key("a")).await.unwrap();
    let data = got.data.unwrap();
    assert!(data["key"].starts_with("changed") && data["outer"] == "too");
}

#[tokio::test(start_paused = true)]
async fn each_verb_has_its_own_function() {
    let (_server, client) = server().await;
    let hit = Arc::new(Mutex::new(Vec::new()));
    let refuse = |name: &'static str| {
        let hit = Arc::clone(&hit);
        move |_, call: reeve_controller::client::Call| {
            hit.lock().push(name);
            async move { Err(Error::refused(&call, 418, "Teapot", name)) }
        }
    };
    let interceptor = Interceptor::new()
        .get(refuse("get"))
        .list(refuse("list"))
        .create(refuse("create"))
        .update(refuse("update"))
        .patch(refuse("patch"))
        .apply(refuse("apply"))
        .delete(refuse("delete"))
        .delete_all_of(refuse("delete_all_of"))
        .subresource_get(refuse("subresource_get"))
        .subresource_create(refuse("subresource_create"))
        .subresource_update(refuse("subresource_update"))
        .subresource_patch(refuse("subresource_patch"))
        .subresource_apply(refuse("subresource_apply"));
    let client = client.intercepted(interceptor);
    let (a, all, params) = (key("a"), ListParams::default(), DeleteParams::default());
    let maps = client.objects::<ConfigMap>();
    let patch = Patch::merge(json!({}));
    let none = WriteOptions::new;
    let apply = || ApplyOptions::new("me");
    let scale = maps.subresource("scale");
    let _ = maps.get(&a).await;
    let _ = maps.list(None, &all).await;
    let _ = maps.create(&map("a")).await;
    let _ = maps.update(&map("a")).await;
    let _ = maps.patch_with(&a, none(), &patch).await;
    let _ = maps.apply(&map("a"), apply()).await;
    let _ = maps.delete(&a, &params).await;
    let _ = maps.delete_all_of(Some("default"), &all, &params).await;
    let _ = scale.get::<Value>(&a).await;
    let _ = scale.create::<_, Value>(&a, none(), &json!({})).await;
    let _ = maps.update_status(&map("a")).await;
    let _ = maps.patch_status_with(&a, none(), &patch).await;
    let _ = maps.apply_status(&map("a"), apply()).await;
    assert_eq!(
        *hit.lock(),
        [
            "get",
            "list",
            "create",
            "update",
            "patch",
            "apply",
            "delete",
            "delete_all_of",
            "subresource_get",
            "subresource_create",
            "subresource_update",
            "subresource_patch",
            "subresource_apply"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn any_verb_can_be_intercepted_and_other_calls_have_the_settings_of_the_client() {
    let (_server, real) = server().await;
    let interceptor = Interceptor::new()
        .on(Verb::Delete, |next, call| async move {
            // A dry run as well: nothing is created.
            next.client().create(&map("b")).await?;
            next.send(call).await
        })
        .on_subresource(Verb::Get, |_, call| async move {
            Err(Error::refused(&call, 418, "Teapot", "no"))
        });
    let client = real.clone().dry_run().intercepted(interceptor);
    real.create(&map("a")).await.unwrap();
    let params = DeleteParams::default();
    client
        .delete::<ConfigMap>(&key("a"), &params)
        .await
        .unwrap();
    assert!(real.get::<ConfigMap>(&key("a")).await.is_ok());
    assert!(real.get::<ConfigMap>(&key("b")).await.is_err());
    let scale = client.subresource::<Deployment>("scale");
    let error = scale.get::<Value>(&key("a")).await.unwrap_err();
    assert_eq!(error.status().map(|status| status.code), Some(418));
}

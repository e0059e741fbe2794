//! Edits with a retry on conflict, and waits for a state, on the built-in API server.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::DeleteParams;
use kube_core::{DynamicObject, ResourceExt};
use reeve_apiserver::faults::Rule;
use reeve_controller::cache::Kind;
use reeve_controller::client::{Error, Patch};
use reeve_controller::testing::Cluster;
use reeve_controller::{Client, ObjectKey};
use serde_json::json;
use tokio::time::{Instant, sleep};

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

async fn map(cluster: &Cluster, name: &str) -> ConfigMap {
    let metadata = json!({"namespace": "default", "name": name});
    cluster.create(json!({ "metadata": metadata })).await
}

fn value(map: &ConfigMap) -> &str {
    map.data.as_ref().map_or("", |data| &data["value"])
}

fn set(text: &'static str) -> impl FnMut(&mut ConfigMap) + Send {
    move |map| {
        let data = map.data.get_or_insert_default();
        data.insert("value".to_owned(), text.to_owned());
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_is_written_once_and_only_if_it_changes_something() {
    let cluster = Cluster::in_process().await;
    let client = cluster.client();
    let missing = client.edit(&key("a"), set("1")).await.unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
    let created = map(&cluster, "a").await;
    let edited = client.edit(&key("a"), set("1")).await.unwrap();
    assert_eq!(value(&edited), "1");
    assert_ne!(edited.resource_version(), created.resource_version());
    let again = client.edit(&key("a"), set("1")).await.unwrap();
    assert_eq!(again.resource_version(), edited.resource_version());
    assert_eq!(cluster.requests().count("update", "configmaps"), 1);
    // The name stays, and an error of the function stops the write.
    let renamed = |map: &mut ConfigMap| map.metadata.name = Some("b".into());
    let renamed = client.edit(&key("a"), renamed).await.unwrap_err();
    assert!(matches!(renamed, Error::Mutate { .. }), "{renamed}");
    let refused = |_: &mut ConfigMap| Err::<(), _>("it is closed");
    let refused = client.edit(&key("a"), refused).await.unwrap_err();
    assert!(matches!(refused, Error::Mutate { .. }), "{refused}");
    assert_eq!(cluster.requests().count("update", "configmaps"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_edit_is_tried_again_after_a_conflict_five_times_in_all() {
    let cluster = Cluster::in_process().await;
    let client = cluster.client();
    map(&cluster, "a").await;
    // The change of another client between the read and the write, twice.
    let mut others = 2;
    let edit = async |client: &Client, others: &mut u32| {
        let change = |map: &mut ConfigMap| {
            if *others > 0 {
                *others -= 1;
                // A version that is not the present one any more has the same effect.
                map.metadata.resource_version = Some("1".into());
            }
            set("1")(map);
        };
        client.edit(&key("a"), change).await
    };
    // The function cannot change the precondition.
    edit(&client, &mut others).await.unwrap();
    assert_eq!(
        (others, cluster.requests().count("update", "configmaps")),
        (1, 1)
    );

    let conflicts = |times| {
        let rule = Rule::new()
            .verb("update")
            .resource("configmaps")
            .times(times);
        cluster.faults().add(rule.status(409, "it was changed"))
    };
    let four = conflicts(4);
    let start = Instant::now();
    let edited = client.edit(&key("a"), set("2")).await.unwrap();
    assert_eq!((value(&edited), four.hits()), ("2", 4));
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(40) && took < Duration::from_millis(60),
        "{took:?}"
    );
    let five = conflicts(9);
    let failed = client.edit(&key("a"), set("3")).await.unwrap_err();
    assert!(failed.is_conflict() && five.hits() == 5, "{failed}");
}

#[tokio::test(start_paused = true)]
async fn edits_of_several_clients_at_once_are_all_kept() {
    let cluster = Cluster::in_process().await;
    map(&cluster, "a").await;
    let add = async |name: String| {
        let change = |map: &mut ConfigMap| {
            let data = map.data.get_or_insert_default();
            data.insert(name.clone(), String::new());
        };
        cluster.client().edit(&key("a"), change).await.unwrap();
    };
    let (one, two, three) = (add("one".into()), add("two".into()), add("three".into()));
    tokio::join!(one, two, three);
    let read: ConfigMap = cluster.client().get(&key("a")).await.unwrap();
    assert_eq!(read.data.unwrap().len(), 3);
}

async fn deployment(cluster: &Cluster) -> Deployment {
    let labels = json!({"app": "web"});
    let web = json!({"metadata": {"namespace": "default", "name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}});
    cluster.create(web).await
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_the_status_writes_the_status_alone() {
    let cluster = Cluster::in_process().await;
    let client = cluster.client();
    deployment(&cluster).await;
    let change = |web: &mut Deployment| {
        web.status.get_or_insert_default().observed_generation = Some(1);
        web.spec.as_mut().unwrap().replicas = Some(9);
    };
    let edited = client.edit_status(&key("web"), change).await.unwrap();
    assert_eq!(edited.status.unwrap().observed_generation, Some(1));
    assert_eq!(edited.spec.unwrap().replicas, Some(1));
    let before = cluster.requests().all().len();
    client.edit_status(&key("web"), change).await.unwrap();
    assert_eq!(cluster.requests().all().len(), before + 1, "a read alone");
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_the_object_exists_and_is_as_expected() {
    let cluster = Cluster::in_process().await;
    let (client, a) = (cluster.client(), key("a"));
    let minute = Duration::from_secs(60);
    let waits = async {
        let wait = client.wait_for(&a, minute, |map: &ConfigMap| value(map) == "1");
        let map = wait.await.unwrap();
        (map.name_any(), Instant::now())
    };
    let start = Instant::now();
    let work = async {
        sleep(Duration::from_secs(5)).await;
        // Another object, and another state, do not end it.
        map(&cluster, "b").await;
        map(&cluster, "a").await;
        sleep(Duration::from_secs(5)).await;
        client.edit(&key("a"), set("1")).await.unwrap();
    };
    let ((name, at), ()) = tokio::join!(waits, work);
    assert_eq!(name, "a");
    let took = at - start;
    assert!(
        took >= Duration::from_secs(10) && took < Duration::from_secs(11),
        "{took:?}"
    );
    assert_eq!(cluster.requests().count("list", "configmaps"), 1);
    // At once, in any projection.
    let kind = Kind::of::<ConfigMap>();
    let dynamic = client.dynamic(&kind);
    let seen = dynamic.wait_for(&a, minute, |map: &DynamicObject| {
        map.data["data"]["value"] == "1"
    });
    assert_eq!(seen.await.unwrap().types.unwrap().kind, "ConfigMap");
    let metadata = client.metadata::<ConfigMap>();
    let seen = metadata.wait_for(&a, minute, |map| map.labels().is_empty());
    assert_eq!(seen.await.unwrap().name_any(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_at_its_limit_names_the_last_state() {
    let cluster = Cluster::in_process().await;
    let client = cluster.client();
    let limit = Duration::from_secs(30);
    let wait = async || {
        client
            .wait_for(&key("a"), limit, |_: &ConfigMap| false)
            .await
    };
    let start = Instant::now();
    let error = wait().await.unwrap_err();
    assert_eq!(start.elapsed().as_secs(), 30);
    assert_eq!(
        error.to_string(),
        "wait for configmap default/a: not reached within 30s: there is no such object"
    );
    map(&cluster, "a").await;
    let error = wait().await.unwrap_err().to_string();
    assert!(
        error.contains("it exists, in the resourceVersion"),
        "{error}"
    );
    let forbidden = Rule::new().verb("list").status(403, "not for you");
    let forbidden = cluster.faults().add(forbidden);
    let start = Instant::now();
    let error = wait().await.unwrap_err();
    assert_eq!(error.status().unwrap().code, 403);
    assert!(start.elapsed() < Duration::from_secs(1));
    forbidden.remove();
}

#[tokio::test(start_paused = true)]
async fn a_wait_outlives_a_server_that_fails_and_watches_that_break() {
    let cluster = Cluster::in_process().await;
    let client = cluster.client();
    map(&cluster, "a").await;
    let busy = Rule::new().verb("list").times(3).status(503, "starting");
    let busy = cluster.faults().add(busy);
    let watches = Rule::new().verb("watch").status(403, "not for you");
    let watches = cluster.faults().add(watches);
    let limit = Duration::from_secs(600);
    let a = key("a");
    let wait = client.wait_for(&a, limit, |map: &ConfigMap| value(map) == "1");
    let work = async {
        sleep(Duration::from_secs(60)).await;
        assert!(busy.hits() == 3 && watches.hits() > 3);
        client.edit(&key("a"), set("1")).await.unwrap();
        Instant::now()
    };
    let (found, at) = tokio::join!(wait, work);
    assert_eq!(value(&found.unwrap()), "1");
    assert!(at.elapsed() <= Duration::from_secs(6), "{:?}", at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_deletion_ends_when_this_object_is_gone() {
    let cluster = Cluster::in_process().await;
    let client = cluster.client();
    let limit = Duration::from_secs(60);
    client
        .wait_until_deleted::<ConfigMap>(&key("a"), limit)
        .await
        .unwrap();
    map(&cluster, "a").await;
    let finalizers = |names: &[&str]| {
        let patch = Patch::merge(json!({"metadata": {"finalizers": names}}));
        let client = client.clone();
        async move {
            let a = key("a");
            let patched = client.patch::<ConfigMap>(&a, patch);
            patched.await.unwrap();
        }
    };
    finalizers(&["example.com/x"]).await;
    let params = DeleteParams::default();
    client
        .delete::<ConfigMap>(&key("a"), &params)
        .await
        .unwrap();
    let wait = async || {
        client
            .wait_until_deleted::<ConfigMap>(&key("a"), limit)
            .await
    };
    let error = wait().await.unwrap_err().to_string();
    assert!(
        error.contains("is being deleted, with the finalizers [\"example.com/x\"]"),
        "{error}"
    );
    let start = Instant::now();
    let ends = async {
        sleep(Duration::from_secs(7)).await;
        finalizers(&[]).await;
        // Another object of this name.
        map(&cluster, "a").await;
    };
    let (gone, ()) = tokio::join!(wait(), ends);
    gone.unwrap();
    assert_eq!(start.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_for_one_namespace_and_ends_without_the_kind() {
    let cluster = Cluster::in_process().await;
    let client = cluster.client();
    let limit = Duration::from_secs(60);
    map(&cluster, "a").await;
    let error = client
        .wait_until_deleted::<ConfigMap>(&ObjectKey::cluster("a"), limit)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("name one"), "{error}");

    let names = kube_core::GroupVersionKind::gvk("example.com", "v1", "Widget");
    let widgets = kube_core::ApiResource::from_gvk_with_plural(&names, "widgets");
    let widgets = client.dynamic(&widgets);
    let start = Instant::now();
    widgets.wait_until_deleted(&key("a"), limit).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
}

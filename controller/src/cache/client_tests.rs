//! A client on caches of several namespaces, and of parts of objects.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube_core::params::DeleteParams;
use reeve_apiserver::faults::Rule;
use reeve_informer::ObjectKey;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::tests::Cluster;
use super::wire_tests::tiers;
use super::*;
use crate::Client;
use crate::client::{CachedError, Change, GroupKind, Patch};
use crate::own_writes::Reading;
use crate::own_writes::effect::{Effect, Notes, Write};

const SOON: Duration = Duration::from_secs(5);

/// A client that waits for its own writes in `caches`.
fn client(cluster: &Cluster, caches: &Caches) -> (Client, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let client = cluster
        .client
        .clone()
        .with_reading(Reading::new(caches, &cluster.metrics, "test"))
        .with_notes(Arc::clone(&notes));
    (client, notes)
}

#[tokio::test(start_paused = true)]
async fn an_update_does_not_delete_what_the_cache_leaves_out() {
    let own = KindOptions::new;
    for (case, own) in [
        ("skipped", own().skip([".data.size".parse().unwrap()])),
        (
            "transformed",
            own().transform(|map: &mut ConfigMap| map.data = None),
        ),
        (
            "of one namespace",
            own()
                .in_namespace("red", Selected::new().skip([".data".parse().unwrap()]))
                .in_all_others(Selected::new()),
        ),
    ] {
        let cluster = tiers().await;
        let caches = cluster.caches_with(CacheOptions::new().for_kind::<ConfigMap>(own));
        let maps = caches.keep(&View::<ConfigMap>::typed()).unwrap();
        caches.start();
        maps.wait_synced(SOON).await.unwrap();
        let (client, _) = client(&cluster, &caches);
        let mut a = ConfigMap::default();
        a.metadata.namespace = Some("red".to_owned());
        a.metadata.name = Some("a".to_owned());
        let label = |value: &'static str| {
            move |map: &mut ConfigMap| {
                let labels = map.metadata.labels.get_or_insert_default();
                labels.insert("own".to_owned(), value.to_owned());
            }
        };
        client
            .create_or_update(a.clone(), label("1"))
            .await
            .unwrap();
        client.create_or_patch(a, label("2")).await.unwrap();
        let key = ObjectKey::namespaced("red", "a");
        let stored: ConfigMap = cluster.client.get(&key).await.unwrap();
        assert_eq!(stored.metadata.labels.unwrap()["own"], "2", "{case}");
        assert_eq!(stored.data.unwrap()["size"], "large", "{case}");
        caches.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_does_not_delete_what_the_cache_leaves_out_of_the_items_of_a_list() {
    let cluster = tiers().await;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "red"},
        "spec": {"containers": [
            {"name": "main", "image": "one", "env": [{"name": "MODE", "value": "fast"}]}
        ]}
    }))
    .unwrap();
    cluster.client.create(&pod).await.unwrap();
    let own = KindOptions::new().skip([".spec.containers[*].env".parse().unwrap()]);
    let caches = cluster.caches_with(CacheOptions::new().for_kind::<Pod>(own));
    let pods = caches.keep(&View::<Pod>::typed()).unwrap();
    caches.start();
    pods.wait_synced(SOON).await.unwrap();
    let (client, _) = client(&cluster, &caches);
    let image = |pod: &mut Pod| {
        pod.spec.as_mut().unwrap().containers[0].image = Some("two".to_owned());
    };
    client.create_or_patch(pod, image).await.unwrap();
    let key = ObjectKey::namespaced("red", "a");
    let stored: Pod = cluster.client.get(&key).await.unwrap();
    let container = &stored.spec.unwrap().containers[0];
    assert_eq!(container.image.as_deref(), Some("two"));
    assert_eq!(container.env.as_ref().map(Vec::len), Some(1));
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_read_and_written_in_one_namespace_does_not_wait_for_another() {
    let cluster = tiers().await;
    let refusal = Rule::new().namespace("red").status(403, "no right to it");
    cluster.server.faults().add(refusal);
    let front = || Selected::new().labels("tier=front");
    let options = CacheOptions::new()
        .in_namespace("red", front())
        .in_namespace("blue", front());
    let caches = cluster.caches_with(options);
    caches.keep(&View::<ConfigMap>::typed()).unwrap();
    caches.start();
    sleep(SOON).await;
    let (client, _) = client(&cluster, &caches);
    let maps = client.cached::<ConfigMap>().unwrap();
    let a = ObjectKey::namespaced("blue", "a");
    let start = Instant::now();
    assert!(maps.get(&a).await.unwrap().is_some());
    assert_eq!(maps.list(Some("blue")).await.unwrap().len(), 1);
    assert_eq!(start.elapsed(), Duration::ZERO, "blue is filled");
    // The answer for a namespace that is not cached is known, too.
    let none = maps.get(&ObjectKey::namespaced("green", "a")).await;
    assert!(matches!(
        none.unwrap_err(),
        CachedError::Unread(ReadError::Namespace { .. })
    ));
    assert_eq!(start.elapsed(), Duration::ZERO, "green is not cached");

    // The object leaves the selection: the watch of its own namespace shows that.
    let patch = Patch::merge(json!({"metadata": {"labels": {"tier": "back"}}}));
    client.patch::<ConfigMap>(&a, patch).await.unwrap();
    let start = Instant::now();
    assert!(maps.get(&a).await.unwrap().is_none());
    let waited = start.elapsed();
    assert!(waited < Duration::from_secs(1), "{waited:?}");

    // Not all of them are readable.
    let all = maps.wait_at_most(SOON);
    assert!(all.list(None).await.is_err());
    assert_eq!(start.elapsed().saturating_sub(waited), SOON);
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_its_cache_cannot_hold_is_read_from_the_server_at_once() {
    let cluster = tiers().await;
    for verb in ["list", "watch"] {
        let refusal = Rule::new().verb(verb).status(403, "no right to it");
        cluster.server.faults().add(refusal);
    }
    let caches = cluster.caches_with(CacheOptions::new());
    caches.keep(&View::<ConfigMap>::typed()).unwrap();
    caches.start();
    sleep(SOON).await;
    let (client, _) = client(&cluster, &caches);
    let mut a = ConfigMap::default();
    a.metadata.namespace = Some("red".to_owned());
    a.metadata.name = Some("a".to_owned());
    let label = |map: &mut ConfigMap| {
        let labels = map.metadata.labels.get_or_insert_default();
        labels.insert("own".to_owned(), "1".to_owned());
    };
    let start = Instant::now();
    let (_, updated) = client.create_or_update(a.clone(), label).await.unwrap();
    let (_, patched) = client.create_or_patch(a, label).await.unwrap();
    assert_eq!((updated, patched), (Change::Updated, Change::Unchanged));
    assert!(start.elapsed() < Duration::from_secs(1));
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_ends_an_object_is_noted_as_its_end() {
    let cluster = tiers().await;
    let (maps, params) = (
        cluster.client.objects::<ConfigMap>(),
        DeleteParams::default(),
    );
    let a = ObjectKey::namespaced("red", "a");
    let finalizers = |finalizers: serde_json::Value| {
        Patch::merge(json!({"metadata": {"finalizers": finalizers}}))
    };
    let hold = finalizers(json!(["example.com/hold"]));
    let held = maps.patch(&a, hold).await.unwrap();
    let notes = Arc::new(Notes::default());
    let client = cluster.client.clone().with_notes(Arc::clone(&notes));
    let effects = || -> Vec<Effect> {
        let taken = notes.take().into_iter();
        taken.map(|write| write.effect).collect()
    };
    client.delete::<ConfigMap>(&a, &params).await.unwrap();
    let marked = effects();
    let [Effect::Version { state, .. }] = &marked[..] else {
        panic!("{marked:?}");
    };
    client
        .patch::<ConfigMap>(&a, finalizers(json!(null)))
        .await
        .unwrap();
    let gone = Effect::Gone {
        uid: held.metadata.uid,
        after: Some(state.clone()),
    };
    assert_eq!(effects(), [gone]);
    // Its controller still holds it.
    let green = ObjectKey::cluster("green");
    client.delete::<Namespace>(&green, &params).await.unwrap();
    assert!(matches!(effects()[..], [Effect::Version { .. }]));
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_kind_without_namespaces_is_noted_without_one() {
    let cluster = tiers().await;
    let notes = Arc::new(Notes::default());
    let client = cluster.client.clone().with_notes(Arc::clone(&notes));
    let patch = Patch::merge(json!({"metadata": {"labels": {"n": "1"}}}));
    let key = ObjectKey::namespaced("default", "red");
    client.patch::<Namespace>(&key, patch).await.unwrap();
    assert_eq!(notes.take()[0].key, ObjectKey::cluster("red"));
}

#[tokio::test(start_paused = true)]
async fn a_name_is_selected_with_one_sign_of_equality_or_two() {
    for fields in ["metadata.name=a", "metadata.name==a"] {
        let cluster = tiers().await;
        let own = KindOptions::new().fields(fields);
        let caches = cluster.caches_with(CacheOptions::new().for_kind::<ConfigMap>(own));
        let maps = caches.keep(&View::<ConfigMap>::typed()).unwrap();
        caches.start();
        maps.wait_synced(SOON).await.unwrap();
        let covers = |name: &str| {
            caches.covers(&Write {
                kind: GroupKind::new("", "ConfigMap"),
                key: ObjectKey::namespaced("red", name),
                effect: Effect::UNKNOWN,
            })
        };
        assert!(covers("a") && !covers("b"), "{fields}");
        caches.stop().await;
    }
}

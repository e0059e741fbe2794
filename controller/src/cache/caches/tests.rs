//! The effects of making a store, and the locks held meanwhile.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_core::ResourceExt;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::super::tests::Cluster;
use super::super::{CacheOptions, Kind, ReadError, View};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn an_index_function_may_use_the_caches_while_the_store_of_a_filled_informer_is_made() {
    let cluster = Cluster::start().await;
    cluster.create("a").await;
    let options = CacheOptions::new().linger(Duration::from_secs(60));
    let caches = cluster.caches_with(options);
    let view = View::<ConfigMap>::typed();
    let lister = caches.keep(&view).unwrap();
    caches.start();
    lister.wait_synced(SOON).await.unwrap();
    drop(lister);
    caches.release(&Kind::of::<ConfigMap>());
    // The kind is not used, so the index is added on its first use.
    let found = Arc::new(Mutex::new(Vec::new()));
    let (seen, inside) = (Arc::clone(&found), caches.clone());
    caches
        .add_index(&view, "by-name", move |map| {
            // A read that would never end is not started.
            let free = inside.shared.state.try_lock().is_some();
            let read = free.then(|| {
                let lister = inside.lister::<ConfigMap>().unwrap();
                let waits = lister.wait_synced(SOON).now_or_never().is_none();
                (
                    waits,
                    lister.by_index("by-name", "a").map(|maps| maps.len()),
                )
            });
            seen.lock().push(read);
            vec![map.name_any().into()]
        })
        .unwrap();
    assert!(found.lock().is_empty());
    let lister = caches.keep(&view).unwrap();
    let found = found.lock().pop();
    // A read meanwhile fails with "not there yet", and not with "no such index".
    assert!(
        matches!(found, Some(Some((true, Err(ReadError::NotStarted { .. }))))),
        "{found:?}"
    );
    assert_eq!(lister.by_index("by-name", "a").unwrap().len(), 1);
    assert_eq!(cluster.watches(), 1, "it lingered");
    caches.stop().await;
}

fn constant(value: &str) -> impl Fn(&ConfigMap) -> Vec<Arc<str>> + Send + Sync + 'static {
    let value: Arc<str> = value.into();
    move |_| vec![Arc::clone(&value)]
}

#[tokio::test(start_paused = true)]
async fn a_removed_index_may_be_added_again_with_other_captures() {
    let cluster = Cluster::start().await;
    cluster.create("a").await;
    let caches = cluster.caches();
    let (view, kind) = (View::<ConfigMap>::typed(), Kind::of::<ConfigMap>());
    let lister = caches.keep(&view).unwrap();
    caches.start();
    lister.wait_synced(SOON).await.unwrap();
    let found = |value: &str| lister.by_index("state", value).map(|maps| maps.len());
    caches.add_index(&view, "state", constant("one")).unwrap();
    assert_eq!(found("one").unwrap(), 1);
    let error = caches
        .add_index(&view, "state", constant("two"))
        .unwrap_err();
    assert!(error.to_string().contains("remove_index"), "{error}");

    assert!(caches.remove_index(&kind, "state"));
    let error = found("one").unwrap_err().to_string();
    assert!(error.contains("there is no index \"state\""), "{error}");
    assert!(!caches.remove_index(&kind, "state"), "it is gone");
    assert!(!caches.remove_index(&Kind::of::<Secret>(), "state"));

    caches.add_index(&view, "state", constant("two")).unwrap();
    assert_eq!((found("one").unwrap(), found("two").unwrap()), (0, 1));
    cluster.create("b").await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(found("two").unwrap(), 2);
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_index_that_is_removed_while_its_kind_lingers_is_not_there_when_it_is_used_again() {
    let cluster = Cluster::start().await;
    cluster.create("a").await;
    let options = CacheOptions::new().linger(Duration::from_secs(60));
    let caches = cluster.caches_with(options);
    let (view, kind) = (View::<ConfigMap>::typed(), Kind::of::<ConfigMap>());
    for name in ["changed", "dropped"] {
        caches.add_index(&view, name, constant("one")).unwrap();
    }
    let lister = caches.keep(&view).unwrap();
    caches.start();
    lister.wait_synced(SOON).await.unwrap();
    drop(lister);
    caches.release(&kind);

    assert!(caches.remove_index(&kind, "changed") && caches.remove_index(&kind, "dropped"));
    caches.add_index(&view, "changed", constant("two")).unwrap();
    let lister = caches.keep(&view).unwrap();
    let found = |name: &str, value: &str| lister.by_index(name, value).map(|maps| maps.len());
    assert_eq!(found("changed", "two").unwrap(), 1);
    assert_eq!(found("changed", "one").unwrap(), 0);
    assert!(found("dropped", "one").is_err());
    assert_eq!(cluster.watches(), 1, "it lingered");
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_index_that_is_removed_while_the_store_is_made_is_not_there() {
    let cluster = Cluster::start().await;
    cluster.create("a").await;
    let options = CacheOptions::new().linger(Duration::from_secs(60));
    let caches = cluster.caches_with(options);
    let (view, kind) = (View::<ConfigMap>::typed(), Kind::of::<ConfigMap>());
    let lister = caches.keep(&view).unwrap();
    caches.start();
    lister.wait_synced(SOON).await.unwrap();
    drop(lister);
    caches.release(&kind);
    // Another thread removes it while the store, which is filled, is indexed.
    let inside = caches.clone();
    let removed = Arc::new(Mutex::new(0));
    let count = Arc::clone(&removed);
    let function = move |_: &ConfigMap| -> Vec<Arc<str>> {
        let mut count = count.lock();
        *count += 1;
        if *count == 1 {
            inside.shared.state.lock().indexes.clear();
        }
        vec!["x".into()]
    };
    caches.add_index(&view, "x", function).unwrap();
    let lister = caches.keep(&view).unwrap();
    assert_eq!(*removed.lock(), 1);
    assert!(lister.by_index("x", "x").is_err(), "it stays removed");
    caches.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_label_index_changes_no_result() {
    let cluster = Cluster::start().await;
    cluster.create("a").await;
    let caches = cluster.caches();
    let (view, kind) = (View::<ConfigMap>::typed(), Kind::of::<ConfigMap>());
    caches.add_label_index(&kind, "app").unwrap();
    // The name of the label's index is taken, and so is that of namespaces.
    assert!(caches.add_index(&view, "label:app", constant("x")).is_err());
    assert!(caches.add_index(&view, "namespace", constant("x")).is_err());
    let lister = caches.keep(&view).unwrap();
    caches.start();
    lister.wait_synced(SOON).await.unwrap();
    let labels = [("app".to_owned(), "a".to_owned())].into_iter().collect();
    let found = || lister.select(None, &labels).unwrap().len();
    assert_eq!(
        (found(), lister.by_index("label:app", "a").unwrap().len()),
        (1, 1)
    );
    assert!(!caches.remove_index(&kind, "app") && caches.remove_label_index(&kind, "app"));
    assert_eq!(found(), 1);
    assert!(lister.by_index("label:app", "a").is_err());
    assert!(!caches.remove_label_index(&kind, "app"));
    caches.add_index(&view, "label:app", constant("x")).unwrap();
    caches.stop().await;
}

//! The effects of making a store, and the locks held meanwhile.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::ResourceExt;
use parking_lot::Mutex;

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

//! What making a store does, and under which locks.

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
    // Nobody uses the kind, so the index is added when somebody does.
    let found = Arc::new(Mutex::new(Vec::new()));
    let (seen, inside) = (Arc::clone(&found), caches.clone());
    caches
        .add_index(&view, "by-name", move |map| {
            // A look that would never end is not begun.
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
    // Whoever reads the kind meanwhile is told that it is not there yet, and not that it has no such index.
    assert!(
        matches!(found, Some(Some((true, Err(ReadError::NotStarted { .. }))))),
        "{found:?}"
    );
    assert_eq!(lister.by_index("by-name", "a").unwrap().len(), 1);
    assert_eq!(cluster.watches(), 1, "it lingered");
    caches.stop().await;
}

//! The informer against the built-in API server, under paused time.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_client::{Api, Client};
use reeve_apiserver::ApiServer;
use reeve_apiserver::faults::Rule;
use reeve_informer::{
    Compact, Endpoint, Form, HandlerOptions, ObjectKey, ResourceVersion, Scope, SharedInformer,
    Stored,
};
use tokio_util::sync::CancellationToken;

use crate::setup::{clock, map, run};

async fn server(streaming: bool) -> ApiServer {
    ApiServer::builder()
        .clock(clock(1))
        .streaming_lists(streaming)
        .start()
        .await
        .unwrap()
}

fn start(server: &ApiServer) -> (SharedInformer<ConfigMap>, CancellationToken) {
    let informer = SharedInformer::<ConfigMap>::builder(server.client())
        .scope(Scope::namespace("default"))
        .clock(server.clock().clone())
        .build();
    let (stop, _) = run(&informer);
    (informer, stop)
}

/// Twenty ConfigMaps, `m0` to `m19`.
async fn fill(maps: &Api<ConfigMap>) {
    for number in 0..20 {
        maps.create(&PostParams::default(), &map(&format!("m{number}"), "first"))
            .await
            .unwrap();
    }
}

/// Every ConfigMap of the namespace: name, version, value.
fn texts<'a>(maps: impl IntoIterator<Item = &'a ConfigMap>) -> Vec<String> {
    let mut texts: Vec<_> = maps
        .into_iter()
        .map(|map| format!("{}@{} {:?}", map.name(), map.resource_version(), map.data))
        .collect();
    texts.sort();
    texts
}

async fn assert_same(client: &Client, informer: &SharedInformer<ConfigMap>) {
    let listed = Api::<ConfigMap>::namespaced(client.clone(), "default")
        .list(&Default::default())
        .await
        .unwrap();
    let stored = informer.lister().list();
    assert_eq!(
        texts(stored.iter().map(AsRef::as_ref)),
        texts(&listed.items)
    );
    assert!(
        stored
            .iter()
            .all(|map| map.metadata.managed_fields.is_none())
    );
}

#[tokio::test(start_paused = true)]
async fn a_compact_store_holds_the_same_as_a_typed_one() {
    for streaming in [true, false] {
        let server = server(streaming).await;
        let client = server.client();
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
        fill(&maps).await;
        let informer = SharedInformer::<Compact<ConfigMap>>::builder_for(
            client.clone(),
            Endpoint::of::<ConfigMap>(),
        )
        .scope(Scope::namespace("default"))
        .clock(server.clock().clone())
        .build();
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            async move { informer.run(stop).await }
        });
        informer.wait_synced().await.unwrap();
        let patch = Patch::Merge(serde_json::json!({"data": {"value": "second"}}));
        let patched = maps
            .patch("m7", &PatchParams::default(), &patch)
            .await
            .unwrap();
        maps.delete("m8", &DeleteParams::default()).await.unwrap();
        let last = maps.patch("m9", &PatchParams::default(), &patch).await;
        let version = ResourceVersion::from(last.unwrap().resource_version());
        informer
            .wait_for_resource_version(&Scope::namespace("default"), &version)
            .await
            .unwrap();
        let listed = maps.list(&Default::default()).await.unwrap();
        let stored = informer.lister().list();
        let typed: Vec<_> = stored.iter().map(|map| map.typed().unwrap()).collect();
        assert_eq!(texts(typed.iter().map(AsRef::as_ref)), texts(&listed.items));
        let seventh = informer.lister().get_named(Some("default"), "m7").unwrap();
        assert_eq!(seventh.resource_version(), patched.resource_version());
        assert_eq!(seventh.dynamic().unwrap().types.unwrap().kind, "ConfigMap");
        assert!(!seventh.json().contains("managedFields"));
        stop.cancel();
        running.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_store_follows_writes_with_streaming_lists_and_without() {
    for streaming in [true, false] {
        let server = server(streaming).await;
        let client = server.client();
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
        fill(&maps).await;
        let (informer, stop) = start(&server);
        let received = std::sync::Arc::new(parking_lot::Mutex::new(0));
        let count = std::sync::Arc::clone(&received);
        let handle = informer
            .add_handler(move |_| *count.lock() += 1, HandlerOptions::new())
            .unwrap();
        handle.wait_synced().await.unwrap();
        assert_eq!(*received.lock(), informer.lister().len());
        assert_same(&client, &informer).await;
        // Read your writes.
        let patch = serde_json::json!({"data": {"value": "second"}});
        let written = maps
            .patch("m1", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
        let version = ResourceVersion::from(written.resource_version());
        informer
            .wait_for_resource_version(&Scope::namespace("default"), &version)
            .await
            .unwrap();
        let read = informer
            .lister()
            .get(&ObjectKey::namespaced("default", "m1"))
            .unwrap();
        assert_eq!(read.data.as_ref().unwrap()["value"], "second");
        maps.delete("m2", &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(
            informer
                .lister()
                .get(&ObjectKey::namespaced("default", "m2"))
                .is_none()
        );
        assert_same(&client, &informer).await;
        stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn it_converges_through_an_outage_compaction_and_faults() {
    for streaming in [true, false] {
        let server = server(streaming).await;
        let client = server.client();
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
        let (informer, stop) = start(&server);
        informer.wait_synced().await.unwrap();
        for round in 0..6 {
            for number in 0..10 {
                let _ = maps
                    .create(
                        &PostParams::default(),
                        &map(&format!("m{round}-{number}"), "x"),
                    )
                    .await;
            }
            if round > 0 {
                maps.delete(&format!("m{}-0", round - 1), &DeleteParams::default())
                    .await
                    .unwrap();
            }
            match round {
                0 => server.close_watches(),
                1 => {
                    server.close_watches();
                    server.forget_history(None);
                }
                2 => {
                    server.go_down();
                    tokio::time::sleep(Duration::from_secs(20)).await;
                    server.come_up();
                }
                3 => {
                    server
                        .faults()
                        .add(Rule::new().verb("watch").times(3).status(429, "busy"));
                    server.close_watches();
                }
                4 => {
                    server
                        .faults()
                        .add(Rule::new().verb("watch").times(2).stall_after(1));
                    server.close_watches();
                }
                _ => {}
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_same(&client, &informer).await;
        assert!(informer.health().is_ready(), "{:?}", informer.health());
        stop.cancel();
    }
}

//! The informer against a real kube-apiserver with etcd. Runs when `KUBEBUILDER_ASSETS` names a directory with
//! both; says that it was skipped when not. tools/kube-apiserver builds them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_client::client::Body;
use kube_client::{Api, Client, Config};
use kube_core::metadata::PartialObjectMeta;
use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use reeve_apiserver::control_plane::ControlPlane;
use reeve_informer::{
    Endpoint, Gauges, InformerIdentity, InformerMetrics, Measurement, MetricsProvider,
    ReflectorOptions, Scope, SharedInformer, Stored,
};
use tokio_util::sync::CancellationToken;

fn map(name: &str, value: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some(BTreeMap::from([("value".to_owned(), value.to_owned())]));
    map
}

/// Counts lists that came as streams, and in pages.
#[derive(Clone, Default)]
struct Lists(Arc<[AtomicUsize; 2]>);

impl MetricsProvider for Lists {
    fn informer(&self, _: &InformerIdentity, _: Weak<dyn Gauges>) -> Box<dyn InformerMetrics> {
        Box::new(self.clone())
    }
}

impl InformerMetrics for Lists {
    fn record(&self, measurement: Measurement) {
        if let Measurement::Listed { streamed, .. } = measurement {
            self.0[usize::from(streamed)].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Lists {
    fn count(&self, streamed: bool) -> usize {
        self.0[usize::from(streamed)].load(Ordering::Relaxed)
    }
}

fn spawn<S: Stored>(informer: &SharedInformer<S>, stop: &CancellationToken) {
    let (informer, stop) = (informer.clone(), stop.clone());
    tokio::spawn(async move { informer.run(stop).await.unwrap() });
}

fn identities<'a, S: Stored>(objects: impl IntoIterator<Item = &'a S>) -> Vec<String> {
    let mut texts: Vec<_> = objects
        .into_iter()
        .map(|object| {
            format!(
                "{}@{} {}",
                object.key(),
                object.resource_version(),
                object.uid()
            )
        })
        .collect();
    texts.sort();
    texts
}

/// Looks until `is_so`, at most a minute.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never: {what}");
}

async fn converged<S: Stored>(client: &Client, informer: &SharedInformer<S>, when: &str) {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    eventually(when, async || {
        let Ok(list) = maps.list(&ListParams::default()).await else {
            return false;
        };
        identities(informer.lister().list().iter().map(AsRef::as_ref)) == identities(&list.items)
    })
    .await;
    eventually("healthy", async || informer.health().is_ready()).await;
}

/// Forgets all history, as etcd does each five minutes.
async fn compact(control_plane: &ControlPlane) {
    let client = Client::try_from(Config::new(control_plane.etcd_url().parse().unwrap())).unwrap();
    let post = |path: &str, body: String| {
        http::Request::post(path.to_owned())
            .body(Body::from(body.into_bytes()))
            .unwrap()
    };
    let answer = client
        .send(post("/v3/kv/range", r#"{"key":"AA=="}"#.to_owned()))
        .await
        .unwrap();
    let answer: serde_json::Value =
        serde_json::from_slice(&answer.into_body().collect_bytes().await.unwrap()).unwrap();
    let revision = answer["header"]["revision"].as_str().unwrap();
    let answer = client
        .send(post(
            "/v3/kv/compaction",
            format!(r#"{{"revision":"{revision}","physical":true}}"#),
        ))
        .await
        .unwrap();
    assert!(answer.status().is_success(), "{}", answer.status());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_converges_with_a_real_server_through_churn_crash_compaction_and_removed_kinds() {
    let Some(mut control_plane) = ControlPlane::from_assets().await.unwrap() else {
        println!("SKIPPED: KUBEBUILDER_ASSETS is not set");
        return;
    };
    let client = control_plane.client().unwrap();
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    for number in 0..300 {
        maps.create(&PostParams::default(), &map(&format!("m{number}"), "first"))
            .await
            .unwrap();
    }
    let stop = CancellationToken::new();
    let options = |streaming| ReflectorOptions {
        streaming,
        page_size: 50,
        ..ReflectorOptions::default()
    };
    let lists = [Arc::new(Lists::default()), Arc::new(Lists::default())];
    let [streamed, paged] = [true, false].map(|streaming| {
        SharedInformer::<ConfigMap>::builder(client.clone())
            .scope(Scope::namespace("default"))
            .metrics(Arc::clone(&lists[usize::from(streaming)]) as _)
            .reflector(options(streaming))
            .build()
    });
    let metadata = SharedInformer::<PartialObjectMeta<ConfigMap>>::builder(client.clone())
        .scope(Scope::namespace("default"))
        .build();
    spawn(&streamed, &stop);
    spawn(&paged, &stop);
    spawn(&metadata, &stop);
    for informer in [&streamed, &paged] {
        informer.wait_synced().await.unwrap();
        assert!(
            informer
                .lister()
                .list()
                .iter()
                .all(|map| map.metadata.managed_fields.is_none())
        );
    }
    assert_eq!((lists[1].count(true), lists[1].count(false)), (1, 0));
    assert_eq!((lists[0].count(true), lists[0].count(false)), (0, 1));
    converged(&client, &streamed, "synced by a stream").await;
    converged(&client, &paged, "synced in pages").await;
    converged(&client, &metadata, "synced metadata").await;

    for number in 0..100 {
        let patch = Patch::Merge(serde_json::json!({"data": {"value": "second"}}));
        maps.patch(&format!("m{number}"), &PatchParams::default(), &patch)
            .await
            .unwrap();
        maps.delete(&format!("m{}", 200 + number), &DeleteParams::default())
            .await
            .unwrap();
    }
    for informer in [&streamed, &paged] {
        converged(&client, informer, "after churn").await;
    }

    control_plane.stop_apiserver();
    eventually("noticed that the server is gone", async || {
        !streamed.health().is_ready()
    })
    .await;
    assert!(streamed.health().trouble().is_some());
    compact(&control_plane).await;
    control_plane.start_apiserver().await.unwrap();
    for number in 0..20 {
        maps.delete(&format!("m{number}"), &DeleteParams::default())
            .await
            .unwrap();
        maps.create(&PostParams::default(), &map(&format!("n{number}"), "third"))
            .await
            .unwrap();
    }
    compact(&control_plane).await;
    for informer in [&streamed, &paged] {
        converged(&client, informer, "after a crash and a compaction").await;
    }
    converged(
        &client,
        &metadata,
        "metadata after a crash and a compaction",
    )
    .await;

    kinds_come_and_go(&client, &stop).await;
    stop.cancel();
}

fn widgets() -> CustomResourceDefinition {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": "widgets.example.io"},
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    }))
    .unwrap()
}

async fn kinds_come_and_go(client: &Client, stop: &CancellationToken) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.io", "v1", "Widget"));
    let widgets_api = Api::<DynamicObject>::default_namespaced_with(client.clone(), &resource);
    // The informer may be there before its kind.
    let informer = SharedInformer::<DynamicObject>::builder_for(
        client.clone(),
        Endpoint::for_type::<DynamicObject>(&resource),
    )
    .build();
    spawn(&informer, stop);
    for round in 0..2 {
        definitions
            .create(&PostParams::default(), &widgets())
            .await
            .unwrap();
        for number in 0..5 {
            let widget = DynamicObject::new(&format!("w{number}"), &resource);
            eventually("the kind is served", async || {
                widgets_api
                    .create(&PostParams::default(), &widget)
                    .await
                    .is_ok()
            })
            .await;
        }
        let listed = widgets_api.list(&ListParams::default()).await.unwrap();
        eventually("follows the kind", async || {
            identities(informer.lister().list().iter().map(AsRef::as_ref))
                == identities(&listed.items)
        })
        .await;
        assert!(
            informer
                .lister()
                .list()
                .iter()
                .all(|widget| widget.types.is_some())
        );
        definitions
            .delete("widgets.example.io", &DeleteParams::default())
            .await
            .unwrap();
        eventually(&format!("empty in round {round}"), async || {
            informer.lister().is_empty()
        })
        .await;
        eventually("the definition is gone", async || {
            definitions
                .get_opt("widgets.example.io")
                .await
                .unwrap()
                .is_none()
        })
        .await;
    }
}

//! The informer against a real kube-apiserver with etcd. Runs when `KUBEBUILDER_ASSETS` names a directory with
//! both, and reports a skip otherwise. tools/kube-apiserver builds them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::{DeleteParams, ListParams, PostParams};
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

use crate::setup::{map, run_until};

/// Counts lists that arrived as streams, and in pages.
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

/// Waits until `is_so` is true, at most a minute.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never: {what}");
}

/// The content of a fresh list.
async fn listed(client: &Client) -> Vec<ConfigMap> {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let mut items = maps.list(&ListParams::default()).await.unwrap().items;
    for map in &mut items {
        map.metadata.managed_fields = None;
    }
    items
}

/// While nothing changes, the store of each informer becomes equal to a fresh list.
async fn converged<S: Stored>(listed: &[ConfigMap], informer: &SharedInformer<S>, when: &str) {
    let expected = identities(listed);
    eventually(when, async || {
        let stored = informer.lister().list();
        stored.len() == listed.len() && identities(stored.iter().map(AsRef::as_ref)) == expected
    })
    .await;
    eventually("healthy", async || informer.health().is_ready()).await;
}

/// So do the objects themselves.
fn assert_same_content(listed: &[ConfigMap], informer: &SharedInformer<ConfigMap>) {
    let stored = informer.lister().list();
    let stored: BTreeMap<_, _> = stored.iter().map(|map| (map.key(), &**map)).collect();
    assert_eq!(stored.len(), listed.len());
    for map in listed {
        assert_eq!(stored.get(&map.key()), Some(&map));
    }
}

/// Sends a request for each number, many at once. The answers are not decoded: the server should be busy, not this
/// program.
async fn send_all(
    client: &Client,
    numbers: std::ops::Range<usize>,
    request: impl Fn(usize) -> (http::Method, String, String),
) {
    let sent = futures::stream::iter(numbers).map(|number| {
        let (method, name, body) = request(number);
        let request = http::Request::builder()
            .method(method)
            .uri(format!("/api/v1/namespaces/default/configmaps{name}"))
            .header("content-type", "application/json")
            .body(Body::from(body.into_bytes()))
            .unwrap();
        async move {
            let answer = client.send(request).await.unwrap();
            assert!(answer.status().is_success(), "{}", answer.status());
            answer.into_body().collect_bytes().await.unwrap();
        }
    });
    sent.buffer_unordered(32).collect::<Vec<()>>().await;
}

async fn create(client: &Client, prefix: &str, numbers: std::ops::Range<usize>) {
    send_all(client, numbers, |number| {
        let body = serde_json::to_string(&map(&format!("{prefix}{number}"), "first")).unwrap();
        (http::Method::POST, String::new(), body)
    })
    .await;
}

async fn change(client: &Client, prefix: &str, numbers: std::ops::Range<usize>) {
    send_all(client, numbers, |number| {
        let body = serde_json::to_string(&map(&format!("{prefix}{number}"), "second")).unwrap();
        (http::Method::PUT, format!("/{prefix}{number}"), body)
    })
    .await;
}

async fn delete(client: &Client, prefix: &str, numbers: std::ops::Range<usize>) {
    send_all(client, numbers, |number| {
        let name = format!("/{prefix}{number}");
        (http::Method::DELETE, name, String::new())
    })
    .await;
}

/// Compacts the history, as kube-apiserver does each five minutes.
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

/// The number of ConfigMaps.
const MAPS: usize = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_converges_with_a_real_server_through_churn_crash_compaction_and_removed_kinds() {
    let Some(mut control_plane) = ControlPlane::from_assets().await.unwrap() else {
        return;
    };
    let client = control_plane.client().unwrap();
    create(&client, "m", 0..MAPS).await;
    let stop = CancellationToken::new();
    let options = |streaming| ReflectorOptions::new().streaming(streaming);
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
    run_until(&streamed, &stop);
    run_until(&paged, &stop);
    run_until(&metadata, &stop);
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
    let all_converge = async |when: &str| {
        let listed = listed(&client).await;
        for informer in [&streamed, &paged] {
            converged(&listed, informer, when).await;
            assert_same_content(&listed, informer);
        }
        converged(&listed, &metadata, when).await;
        listed.len()
    };
    // The server adds one to each namespace.
    assert!(all_converge("synced").await >= MAPS);

    tokio::join!(
        change(&client, "m", 0..1000),
        delete(&client, "m", MAPS - 1000..MAPS),
        create(&client, "n", 0..500),
    );
    all_converge("after churn").await;

    control_plane.stop_apiserver();
    eventually("noticed that the server is gone", async || {
        !streamed.health().is_ready()
    })
    .await;
    assert!(streamed.health().trouble().is_some());
    compact(&control_plane).await;
    control_plane.start_apiserver().await.unwrap();
    tokio::join!(
        delete(&client, "m", 0..200),
        change(&client, "m", 500..700),
        create(&client, "o", 0..200),
    );
    compact(&control_plane).await;
    all_converge("after a crash and a compaction").await;

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
    // The informer may start before its kind exists.
    let informer = SharedInformer::<DynamicObject>::builder_for(
        client.clone(),
        Endpoint::for_type::<DynamicObject>(&resource),
    )
    .build();
    run_until(&informer, stop);
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

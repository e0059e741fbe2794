//! Changes in protobuf are read over objects that the store has no longer, and never over one that a user has.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;
use reeve_informer::{Event, HandlerOptions, Policy, ReflectorOptions, SharedInformer};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const OBJECTS: usize = 20;
const CHANGES: usize = 4_000;

/// The object that has `version`, of 3 KB. Texts, keys and their number differ with the version.
fn object(version: usize) -> Value {
    let keys = 28 + version % 5;
    let data: serde_json::Map<_, _> = (0..keys)
        .map(|key| {
            let length = 80 + version % 7;
            let text = format!("{version:0length$}");
            (format!("key-{:02}", key + version % 3), text.into())
        })
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": format!("map-{:02}", version % OBJECTS),
            "namespace": "ns",
            "uid": format!("uid-{}", version % OBJECTS),
            "resourceVersion": version.to_string(),
        },
        "data": data,
    })
}

fn typed(version: usize) -> ConfigMap {
    serde_json::from_value(object(version)).unwrap()
}

/// A server with the objects of the versions from 1 on, and changes of them, which are there at once.
fn client() -> Client {
    let items: Vec<Value> = (1..=OBJECTS).map(object).collect();
    let list = json!({
        "apiVersion": "v1",
        "kind": "ConfigMapList",
        "metadata": {"resourceVersion": OBJECTS.to_string()},
        "items": items,
    });
    let list = Bytes::from(reeve_wire::to_vec(&list).unwrap());
    let change = |version| {
        let body = reeve_wire::to_vec(&object(version)).unwrap();
        let envelope = reeve_wire::Envelope::parse(&body).unwrap();
        reeve_wire::watch::frame("MODIFIED", "v1", "ConfigMap", envelope.object)
    };
    let changes: Vec<_> = (OBJECTS + 1..=OBJECTS + CHANGES).map(change).collect();
    let changes = Bytes::from(changes.concat());
    let answer = move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let body = if query.contains("watch=") {
            changes.clone()
        } else {
            list.clone()
        };
        let answer =
            Response::builder().header("content-type", "application/vnd.kubernetes.protobuf");
        std::future::ready(Ok::<_, Infallible>(answer.body(Full::new(body)).unwrap()))
    };
    Client::new(tower::service_fn(answer), "default")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_a_handler_keeps_stays_as_it_was() {
    let informer = SharedInformer::<ConfigMap>::builder(client())
        .reflector(ReflectorOptions::new().streaming(false))
        .build();
    let (kept, wrong) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(Mutex::new(Vec::new())),
    );
    let handler = {
        let (kept, wrong) = (Arc::clone(&kept), Arc::clone(&wrong));
        move |event: Event<ConfigMap>| {
            let Event::Updated { old, new, .. } = event else {
                return;
            };
            let version = |object: &ConfigMap| -> usize {
                let version = object.metadata.resource_version.as_deref();
                version.unwrap().parse().unwrap()
            };
            // Those of others are free to be read over.
            if version(&new) % 97 == 0 {
                kept.lock().push((version(&old), old));
                kept.lock().push((version(&new), new));
            } else if *new != typed(version(&new)) {
                wrong.lock().push(version(&new));
            }
        }
    };
    let options = HandlerOptions::new().policy(Policy::Block { bound: 64 });
    let handle = informer.add_handler(handler, options).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    let newest = (OBJECTS + CHANGES).to_string();
    let mut versions = informer.versions();
    let reached = versions.wait_for(|version| version.as_str() == newest);
    reached.await.unwrap();
    let snapshot = informer.lister().list();
    stop.cancel();
    running.await.unwrap().unwrap();
    drop(handle);
    assert_eq!(snapshot.len(), OBJECTS);
    for object in snapshot {
        let version = object.metadata.resource_version.as_deref().unwrap();
        assert_eq!(*object, typed(version.parse().unwrap()));
    }
    assert_eq!(*wrong.lock(), [0; 0], "as they were handled");
    let kept = std::mem::take(&mut *kept.lock());
    assert!(kept.len() > CHANGES / 97, "{}", kept.len());
    for (version, object) in kept {
        assert_eq!(*object, typed(version), "{version}");
    }
}

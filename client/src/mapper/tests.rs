//! Discovery in both forms, against the built-in API server.

use crate::key::ObjectKey;
use http::{HeaderValue, Request, header};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::GroupVersionKind;
use kube_core::params::{DeleteParams, ListParams};
use reeve_apiserver::ApiServer;
use serde_json::json;

use crate::{Client, Error, GroupKind, Kind, Patch};

async fn server() -> ApiServer {
    ApiServer::builder().start().await.unwrap()
}

/// A client of a server with the legacy form of discovery only.
fn old(server: &ApiServer) -> Client {
    let kube = server.client();
    let service = tower::service_fn(move |mut request: Request<kube_client::client::Body>| {
        let kube = kube.clone();
        if request.headers()[header::ACCEPT]
            .as_bytes()
            .starts_with(b"application/json;g=apidiscovery")
        {
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(header::ACCEPT, json);
        }
        async move { kube.send(request).await }
    });
    Client::new(kube_client::Client::new(service, "default"))
}

async fn define(client: &Client, versions: &[&str]) -> ObjectKey {
    let version = |name: &&str| {
        json!({"name": name, "served": true, "storage": *name == versions[0],
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
        "versions": versions.iter().map(version).collect::<Vec<_>>()}});
    let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
    client.create(&definition).await.unwrap();
    let key = ObjectKey::cluster("widgets.example.com");
    for _ in 0..200 {
        let live: CustomResourceDefinition = client.get(&key).await.unwrap();
        let conditions = live.status.and_then(|status| status.conditions);
        if conditions.is_some_and(|all| {
            all.iter()
                .any(|one| one.type_ == "Established" && one.status == "True")
        }) {
            return key;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("never established");
}

fn asked(server: &ApiServer) -> Vec<String> {
    let all = server.requests().all();
    server.requests().clear();
    let paths = all.into_iter().map(|request| request.path);
    paths
        .filter(|path| path.matches('/').count() <= 3 && !path.contains("customresource"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn aggregated_discovery_learns_everything_with_two_requests() {
    let server = server().await;
    let client = Client::new(server.client());
    let mapper = client.mapper();
    let deployment = mapper
        .kind(&GroupKind::new("apps", "Deployment"))
        .await
        .unwrap();
    assert_eq!(
        deployment,
        Kind::of::<k8s_openapi::api::apps::v1::Deployment>()
    );
    let node = mapper.resource("", "nodes").await.unwrap();
    assert!(!node.is_namespaced() && node.resource().kind == "Node");
    let lease = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
    assert!(
        client
            .clone()
            .mapper()
            .version(&lease)
            .await
            .unwrap()
            .is_namespaced()
    );
    assert_eq!(asked(&server), ["/api", "/apis"]);
    mapper.invalidate();
    mapper.kind(&GroupKind::new("", "Pod")).await.unwrap();
    assert_eq!(asked(&server), ["/api", "/apis"]);
}

#[tokio::test(start_paused = true)]
async fn the_old_form_is_asked_group_by_group() {
    let server = server().await;
    let mapper = old(&server).mapper();
    let deployment = mapper
        .kind(&GroupKind::new("apps", "Deployment"))
        .await
        .unwrap();
    assert_eq!(
        deployment,
        Kind::of::<k8s_openapi::api::apps::v1::Deployment>()
    );
    assert_eq!(asked(&server), ["/api", "/apis", "/apis/apps/v1"]);
    mapper
        .kind(&GroupKind::new("apps", "ReplicaSet"))
        .await
        .unwrap();
    assert!(asked(&server).is_empty());
    let node = mapper.kind(&GroupKind::new("", "Node")).await.unwrap();
    assert!(!node.is_namespaced());
    assert_eq!(asked(&server), ["/api/v1"]);
}

#[tokio::test(start_paused = true)]
async fn a_definition_added_at_run_time_is_found_and_one_that_went_is_forgotten() {
    for old_form in [false, true] {
        let server = server().await;
        let client = if old_form {
            old(&server)
        } else {
            Client::new(server.client())
        };
        let mapper = client.mapper();
        let widget = GroupKind::new("example.com", "Widget");
        mapper.kind(&GroupKind::new("", "Pod")).await.unwrap();
        assert!(matches!(
            mapper.kind(&widget).await,
            Err(Error::NoMatch { .. })
        ));
        let definition = define(&client, &["v1", "v1beta1"]).await;
        let found = mapper.kind(&widget).await.unwrap();
        assert_eq!(found.resource().version, "v1", "the preferred one");
        let beta = GroupVersionKind::gvk("example.com", "v1beta1", "Widget");
        assert_eq!(
            mapper.version(&beta).await.unwrap().resource().version,
            "v1beta1"
        );

        // Dynamic calls by it.
        let objects = client.discovered(&beta).await.unwrap();
        let object =
            json!({"metadata": {"namespace": "default", "name": "w"}, "spec": {"size": 3}});
        let created = objects
            .create(&serde_json::from_value(object).unwrap())
            .await
            .unwrap();
        assert_eq!(created.types.unwrap().api_version, "example.com/v1beta1");

        // A version that is no longer served.
        let patch = Patch::json(
            json!([{"op": "replace", "path": "/spec/versions/1/served", "value": false}]),
        );
        client
            .patch::<CustomResourceDefinition>(&definition, patch)
            .await
            .unwrap();
        let all = ListParams::default();
        let mut tries = 0;
        let gone = loop {
            match objects.list(None, &all).await {
                Err(error) => break error,
                Ok(_) if tries < 200 => tries += 1,
                Ok(_) => panic!("still served"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        };
        assert!(gone.is_not_found() && gone.is_not_served(), "{gone}");
        let none = mapper.version(&beta).await.unwrap_err().to_string();
        assert_eq!(
            none,
            "the server has no Widget in example.com/v1beta1: there are of that name Widget (example.com/v1)"
        );
        // A missing object does not show whether its kind is served.
        let key = ObjectKey::namespaced("default", "none");
        let missing = client.dynamic(&found).get(&key).await.unwrap_err();
        assert!(
            missing.is_not_found() && !missing.is_not_served(),
            "{missing}"
        );
        let params = DeleteParams::default();
        client
            .delete::<CustomResourceDefinition>(&definition, &params)
            .await
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_found_names_what_is_there() {
    let server = server().await;
    let client = Client::new(server.client());
    for (group, kind, expected) in [
        (
            "extensions",
            "Ingress",
            "the server has no Ingress in extensions: there are of that name Ingress (networking.k8s.io/v1)",
        ),
        (
            "apps",
            "Pods",
            "the server has no Pods in apps: there are of that name Pod (v1)",
        ),
    ] {
        let error = client
            .mapper()
            .kind(&GroupKind::new(group, kind))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let error = client
        .mapper()
        .kind(&GroupKind::new("coordination.k8s.io", "Leash"))
        .await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("in coordination.k8s.io: the group has Lease"),
        "{error}"
    );
    let error = client
        .mapper()
        .kind(&GroupKind::new("example.com", "Widget"))
        .await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("there are the groups ") && error.contains("apps"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn many_misses_of_the_same_key_ask_once() {
    let server = server().await;
    let client = Client::new(server.client());
    let lookups = (0..20).map(|_| {
        let mapper = client.mapper();
        async move { mapper.kind(&GroupKind::new("apps", "Deployment")).await }
    });
    let found = futures::future::join_all(lookups).await;
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(asked(&server).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_of_one_namespace_finds_out_whether_a_kind_has_any() {
    let server = server().await;
    let client = Client::new(server.client()).in_namespace("default");
    let resource = |group: &str, version: &str, kind: &str| {
        kube_core::ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    };
    let maps = client.dynamic(&resource("", "v1", "ConfigMap"));
    let map = json!({"metadata": {"name": "a"}});
    let created = maps
        .create(&serde_json::from_value(map).unwrap())
        .await
        .unwrap();
    assert_eq!(created.metadata.namespace.as_deref(), Some("default"));
    let spaces = client.dynamic(&resource("", "v1", "Namespace"));
    spaces
        .get(&ObjectKey::cluster("kube-system"))
        .await
        .unwrap();
    let unknown = client.dynamic(&resource("example.com", "v1", "Widget"));
    let error = unknown.get(&ObjectKey::cluster("w")).await.unwrap_err();
    assert!(matches!(error, Error::NoMatch { .. }), "{error}");
}

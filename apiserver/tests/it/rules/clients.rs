//! One client's day: create, read, list, watch, patch, delete, in process and over a socket.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_client::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube_client::core::{ApiResource, DynamicObject, GroupVersionKind};
use reeve_apiserver::ApiServer;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn a_day(client: Client) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let object: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "a"}, "data": {"k": "1"}})).unwrap();
    let made = maps.create(&PostParams::default(), &object).await.unwrap();
    assert!(made.metadata.uid.is_some());
    let list = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 1);
    let version = list.metadata.resource_version.unwrap();
    let mut watch = maps
        .watch(&WatchParams::default().timeout(290), &version)
        .await
        .unwrap()
        .boxed();
    let patch = json!({"data": {"k": "2"}});
    let patched = maps
        .patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    let Some(WatchEvent::Modified(seen)) = watch.try_next().await.unwrap() else {
        panic!("no modification was seen");
    };
    assert_eq!(
        seen.metadata.resource_version,
        patched.metadata.resource_version
    );
    let stale = maps
        .replace("a", &PostParams::default(), &made)
        .await
        .unwrap_err();
    assert!(
        stale.to_string().contains("the object has been modified"),
        "{stale}"
    );
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let Some(WatchEvent::Deleted(gone)) = watch.try_next().await.unwrap() else {
        panic!("no deletion was seen");
    };
    assert_ne!(
        gone.metadata.resource_version,
        patched.metadata.resource_version
    );
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_client_in_process_lives_a_day() {
    let server = ApiServer::builder().start().await.unwrap();
    a_day(server.client()).await;
}

#[tokio::test]
async fn a_client_over_http_lives_the_same_day() {
    let server = ApiServer::builder().start().await.unwrap();
    let serving = server.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let config = kube_client::Config::new(serving.url().parse().unwrap());
    a_day(Client::try_from(config).unwrap()).await;
    serving.stop().await;
}

#[tokio::test]
async fn a_client_over_https_lives_the_same_day() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = ApiServer::builder().rbac().start().await.unwrap();
    let serving = server
        .serve_tls("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    let kubeconfig = kube_client::config::Kubeconfig::from_yaml(&serving.kubeconfig()).unwrap();
    let config = kube_client::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    a_day(Client::try_from(config).unwrap()).await;
    serving.stop().await;
}

#[tokio::test]
async fn a_server_that_goes_down_breaks_its_connections_and_listens_there_again_when_it_is_up() {
    let server = ApiServer::builder().start().await.unwrap();
    let serving = server.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = serving.local_addr();
    let mut watch = TcpStream::connect(address).await.unwrap();
    let request = "GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n";
    watch.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    watch.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");

    server.go_down();
    // Returns when the connection has ended, in whatever way.
    let _ = watch.read_to_end(&mut Vec::new()).await;
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }

    server.come_up();
    while TcpStream::connect(address).await.is_err() {
        tokio::task::yield_now().await;
    }
    let config = kube_client::Config::new(serving.url().parse().unwrap());
    let client = Client::try_from(config).unwrap();
    client.apiserver_version().await.unwrap();
    serving.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_definition_serves_its_resource_until_it_goes() {
    let server = ApiServer::builder().start().await.unwrap();
    let client = server.client();
    let crd = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
    ));
    let crds: Api<DynamicObject> = Api::all_with(client.clone(), &crd);
    let definition: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    }))
    .unwrap();
    crds.create(&PostParams::default(), &definition)
        .await
        .unwrap();
    let foo = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"));
    let foos: Api<DynamicObject> = Api::default_namespaced_with(client, &foo);
    let object = DynamicObject::new("a", &foo).data(json!({"spec": {"x": 1}, "status": {"y": 1}}));
    let made = foos.create(&PostParams::default(), &object).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    assert!(
        made.data.get("status").is_none(),
        "status is dropped at creation"
    );
    let patch = json!({"status": {"y": 2}, "spec": {"x": 9}});
    let patched = foos
        .patch_status("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    assert_eq!(patched.data["status"]["y"], 2);
    assert_eq!(patched.data["spec"]["x"], 1);
    assert_eq!(patched.metadata.generation, Some(1));
    crds.delete("foos.example.com", &DeleteParams::default())
        .await
        .unwrap();
    for _ in 0..100 {
        if crds.get_opt("foos.example.com").await.unwrap().is_none() {
            assert!(foos.list(&ListParams::default()).await.is_err());
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the definition stayed");
}

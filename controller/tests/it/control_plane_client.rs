//! The client on a real kube-apiserver, if `KUBEBUILDER_ASSETS` names one: server-side apply with its owners, evictions,
//! approvals, ephemeral containers, discovery of definitions, defaults.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::params::{DeleteParams, ListParams};
use kube_core::{ApiResource, DynamicObject};
use reeve_apiserver::control_plane::ControlPlane;
use reeve_controller::cache::Kind;
use reeve_controller::client::{
    ApplyOptions, Change, Error, GroupKind, Patch, WriteOptions, optional,
};
use reeve_controller::{Client, ObjectKey};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

async fn control_plane() -> Option<(ControlPlane, Client)> {
    let control_plane = ControlPlane::from_assets().await.unwrap()?;
    let client = Client::new(control_plane.client().unwrap());
    Some((control_plane, client))
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

fn map(data: Value) -> ConfigMap {
    let map = json!({"metadata": {"namespace": "default", "name": "shared"}, "data": data});
    serde_json::from_value(map).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_has_the_remaining_features() {
    let Some((_control_plane, client)) = control_plane().await else {
        return;
    };
    discovery(&client).await;
    apply_owns_its_fields(&client).await;
    apply_goes_for_every_projection(&client).await;
    create_or_update(&client).await;
    subresources(&client).await;
    approval(&client).await;
}

async fn discovery(client: &Client) {
    let mapper = client.mapper();
    let deployment = mapper.kind(&GroupKind::new("apps", "Deployment")).await;
    assert_eq!(deployment.unwrap(), Kind::of::<Deployment>());
    let widget = GroupKind::new("example.com", "Widget");
    let none = mapper.kind(&widget).await.unwrap_err();
    assert!(matches!(none, Error::NoMatch { .. }), "{none}");
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
    client.create(&definition).await.unwrap();
    // Discovery shows the definition a little later.
    let end = Instant::now() + Duration::from_secs(30);
    let widgets = loop {
        match mapper.kind(&widget).await {
            Ok(found) => break client.dynamic(&found),
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(widgets.endpoint().namespaced(), Some(false));
    let object = json!({"metadata": {"name": "w"}, "size": 3});
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while let Err(error) = widgets.create(&object).await {
        assert!(error.is_not_served() && Instant::now() < end, "{error}");
        sleep(Duration::from_millis(100)).await;
    }
    let missing = widgets.get(&ObjectKey::cluster("none")).await.unwrap_err();
    assert!(
        missing.is_not_found() && !missing.is_not_served(),
        "{missing}"
    );
    // The kind is gone with its definition.
    let params = DeleteParams::default();
    let key = ObjectKey::cluster("widgets.example.com");
    client
        .delete::<CustomResourceDefinition>(&key, &params)
        .await
        .unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match widgets.list(None, &ListParams::default()).await {
            Err(error) if error.is_not_served() => break,
            other => assert!(Instant::now() < end, "still served: {other:?}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// The defaults of a real server in a Deployment do not cause repeated writes.
async fn create_or_update(client: &Client) {
    let mut named = Deployment::default();
    named.metadata.namespace = Some("default".into());
    named.metadata.name = Some("wanted".into());
    let want = async |image: &str| {
        let upserted = client.create_or_update(named.clone(), |web| {
            let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template":
                {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": image,
                "resources": {"limits": {"cpu": "1000m"}}}]}}});
            web.spec = Some(serde_json::from_value(spec).unwrap());
        });
        let (web, change) = upserted.await.unwrap();
        (web.metadata.resource_version, change)
    };
    let (first, change) = want("web:1").await;
    assert_eq!(change, Change::Created);
    for _ in 0..3 {
        let (version, change) = want("web:1").await;
        assert_eq!((version, change), (first.clone(), Change::Unchanged));
    }
    let (second, change) = want("web:2").await;
    assert_eq!(change, Change::Updated);
    assert_ne!(second, first);
    assert_eq!(want("web:2").await, (second, Change::Unchanged));
}

async fn apply_owns_its_fields(client: &Client) {
    let ours = || ApplyOptions::new("ours");
    // A missing object is created.
    let wanted = map(json!({"a": "1", "b": "1"}));
    let created = client.apply(&wanted, ours()).await.unwrap();
    assert!(created.metadata.uid.is_some());
    let again = client.apply(&wanted, ours()).await.unwrap();
    assert_eq!(
        again.metadata.resource_version,
        created.metadata.resource_version
    );
    // The field of another owner is a conflict, unless the apply is forced.
    let theirs = map(json!({"a": "2"}));
    let conflict = client
        .apply(&theirs, ApplyOptions::new("theirs"))
        .await
        .unwrap_err();
    assert!(conflict.is_conflict(), "{conflict}");
    assert!(
        conflict.to_string().contains("ours"),
        "it names the owner: {conflict}"
    );
    let forced = ApplyOptions::new("theirs").force();
    let dry = client.apply(&theirs, forced.clone().dry_run()).await;
    assert_eq!(dry.unwrap().data.unwrap()["a"], "2");
    let live: ConfigMap = client.get(&key("shared")).await.unwrap();
    assert_eq!(live.data.unwrap()["a"], "1", "a dry run keeps nothing");
    let taken = client.apply(&theirs, forced).await.unwrap();
    assert_eq!(taken.data.unwrap()["a"], "2");
    // Fields that are not applied any more are removed, but not fields that have another owner now.
    let less = client.apply(&map(json!({})), ours()).await.unwrap();
    assert_eq!(less.data, Some([("a".to_owned(), "2".to_owned())].into()));
    // An object that was read has managedFields, which must not be sent.
    let mut read: ConfigMap = client.get(&key("shared")).await.unwrap();
    assert!(read.metadata.managed_fields.is_some());
    read.metadata.resource_version = None;
    client.apply(&read, ours().force()).await.unwrap();
    // Unknown fields are refused, as apply is strict.
    let odd = Patch::apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "colour": "red"}));
    let strict = WriteOptions::new()
        .field_owner("ours")
        .field_validation(reeve_controller::client::FieldValidation::Strict);
    let refused = client
        .objects::<ConfigMap>()
        .patch_with(&key("shared"), strict, odd)
        .await;
    assert!(refused.unwrap_err().to_string().contains("colour"));
    client
        .delete::<ConfigMap>(&key("shared"), &DeleteParams::default())
        .await
        .unwrap();
}

async fn apply_goes_for_every_projection(client: &Client) {
    let resource = ApiResource::erase::<ConfigMap>(&());
    let dynamic = client.dynamic(&resource);
    let object =
        json!({"metadata": {"namespace": "default", "name": "shared"}, "data": {"a": "1"}});
    let object = serde_json::from_value(object).unwrap();
    let applied = dynamic
        .apply(&object, ApplyOptions::new("ours"))
        .await
        .unwrap();
    assert_eq!(applied.types.unwrap().kind, "ConfigMap");
    assert_eq!(applied.data["data"]["a"], "1");
    let metadata = client.metadata::<ConfigMap>();
    let mut labelled = metadata.get(&key("shared")).await.unwrap();
    labelled.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
    labelled.metadata.resource_version = None;
    let applied = metadata
        .apply(&labelled, ApplyOptions::new("labels"))
        .await
        .unwrap();
    assert_eq!(applied.metadata.labels, labelled.metadata.labels);
    let whole: ConfigMap = client.get(&key("shared")).await.unwrap();
    assert_eq!(whole.data.unwrap()["a"], "1", "the rest is unchanged");
}

async fn subresources(client: &Client) {
    let web = json!({"metadata": {"namespace": "default", "name": "web"}, "spec": {"replicas": 1,
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}});
    let web: Deployment = serde_json::from_value(web).unwrap();
    client.create(&web).await.unwrap();
    // Only the status.
    let mut status = json!({"metadata": {"namespace": "default", "name": "web"}, "spec": {}});
    status["status"] = json!({"replicas": 2});
    let objects = client.dynamic(&ApiResource::erase::<Deployment>(&()));
    let status = serde_json::from_value(status).unwrap();
    let applied = objects
        .apply_status(&status, ApplyOptions::new("ours"))
        .await
        .unwrap();
    assert_eq!(applied.data["status"]["replicas"], 2);
    assert_eq!(applied.data["spec"]["replicas"], 1);
    // The scale, applied.
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 4}});
    let forced = ApplyOptions::new("scaler").force();
    let scaled: Value = client
        .subresource::<Deployment>("scale")
        .apply(&key("web"), forced, &scale)
        .await
        .unwrap();
    assert_eq!(scaled["spec"]["replicas"], 4);

    let pod = json!({"metadata": {"namespace": "default", "name": "one"},
        "spec": {"containers": [{"name": "web", "image": "web:1"}], "automountServiceAccountToken": false}});
    let mut pod: Pod = serde_json::from_value(pod).unwrap();
    // Without a controller manager there is no default service account.
    let account = json!({"metadata": {"namespace": "default", "name": "default"}});
    let account = serde_json::from_value::<k8s_openapi::api::core::v1::ServiceAccount>(account);
    let _ = client.create(&account.unwrap()).await;
    pod = client.create(&pod).await.unwrap();
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox:1"}]}});
    let pods = client.objects::<Pod>();
    let changed: Pod = pods
        .subresource("ephemeralcontainers")
        .patch(&key("one"), Patch::strategic(debug))
        .await
        .unwrap();
    assert_eq!(
        changed.spec.unwrap().ephemeral_containers.unwrap()[0].name,
        "debug"
    );
    // A binding, then an eviction.
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "one"},
        "target": {"kind": "Node", "name": "node-1"}});
    let _: Value = pods
        .subresource("binding")
        .create(&key("one"), WriteOptions::new(), &binding)
        .await
        .unwrap();
    let bound = pods.get(&key("one")).await.unwrap();
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("node-1"));
    assert_eq!(bound.metadata.uid, pod.metadata.uid);
    pods.evict(&key("one"), &Eviction::default()).await.unwrap();
    let evicted = optional(pods.get(&key("one")).await).unwrap();
    assert!(evicted.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()));
}

async fn approval(client: &Client) {
    let pem = "-----BEGIN CERTIFICATE REQUEST-----";
    let request = rcgen::CertificateParams::new(Vec::new())
        .unwrap()
        .serialize_request(&rcgen::KeyPair::generate().unwrap())
        .unwrap()
        .pem()
        .unwrap();
    assert!(request.starts_with(pem));
    let object = json!({"metadata": {"name": "ours"}, "spec": {
        "request": k8s_openapi::ByteString(request.into_bytes()),
        "signerName": "example.com/ours", "usages": ["client auth"]}});
    let object: CertificateSigningRequest = serde_json::from_value(object).unwrap();
    let requests = client.objects::<CertificateSigningRequest>();
    let created = requests.create(&object).await.unwrap();
    let mut approved = serde_json::to_value(&created).unwrap();
    approved["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "Test", "message": "fine"}]);
    let key = ObjectKey::cluster("ours");
    let answer: CertificateSigningRequest = requests
        .subresource("approval")
        .update(&key, WriteOptions::new(), &approved)
        .await
        .unwrap();
    let conditions = answer.status.unwrap().conditions.unwrap();
    assert_eq!(conditions[0].type_, "Approved");
}

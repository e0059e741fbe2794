//! Websites on an API server in this process, under virtual time.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use reeve_controller::client::Patch;
use reeve_controller::kube_core::params::DeleteParams;
use reeve_controller::prelude::*;
use reeve_controller::testing::{self, Cluster, Rule, Running};
use serde_json::json;
use website::api::Website;
use website::controller::{DIRECTORY, websites};

/// A cluster with the kind and the directory, and the controller in it.
async fn start(cluster: &Cluster) -> Running {
    cluster.install::<Website>().await;
    let (namespace, name) = DIRECTORY;
    cluster
        .create::<Namespace>(json!({"metadata": {"name": namespace}}))
        .await;
    let directory = json!({"metadata": {"namespace": namespace, "name": name}});
    cluster.create::<ConfigMap>(directory).await;
    cluster.run([websites().unwrap()]).await
}

fn shop() -> ObjectKey {
    ObjectKey::namespaced("default", "shop")
}

async fn create_shop(cluster: &Cluster) -> Website {
    let spec = json!({"host": "shop.example.com", "page": "<h1>Shop</h1>", "replicas": 2});
    cluster
        .create(json!({"metadata": {"namespace": "default", "name": "shop"}, "spec": spec}))
        .await
}

/// The kit has no controller for Deployments: the test sets their status.
async fn pods_are_ready(cluster: &Cluster, ready: i32) {
    let generation = deployed(cluster).await.metadata.generation;
    let status =
        json!({"replicas": ready, "readyReplicas": ready, "observedGeneration": generation});
    let patch = Patch::merge(json!({"status": status}));
    let (client, shop) = (cluster.client(), shop());
    let write = client.patch_status::<Deployment>(&shop, patch);
    write.await.unwrap();
}

async fn deployed(cluster: &Cluster) -> Deployment {
    cluster
        .eventually("a Deployment", async || {
            cluster.client().get::<Deployment>(&shop()).await
        })
        .await
}

/// The reason of the condition `Ready`.
async fn ready_reason(cluster: &Cluster) -> Option<String> {
    let site = cluster.client().get::<Website>(&shop()).await.ok()?;
    let status = site.status?;
    let ready = conditions::find(&status.conditions, "Ready")?;
    (ready.observed_generation == site.metadata.generation).then(|| ready.reason.clone())
}

/// The host in the directory.
async fn listed(cluster: &Cluster) -> Option<String> {
    let directory = ObjectKey::namespaced(DIRECTORY.0, DIRECTORY.1);
    let map = cluster.client().get::<ConfigMap>(&directory).await.ok()?;
    map.data?.remove("default.shop")
}

#[test]
fn a_site_is_ready_when_its_pods_are() {
    testing::run(async |cluster: Cluster| {
        let running = start(&cluster).await;
        create_shop(&cluster).await;
        let deployment = deployed(&cluster).await;
        assert_eq!(deployment.spec.unwrap().replicas, Some(2));
        let reason = async || ready_reason(&cluster).await;
        let starting = Some("Starting".to_owned());
        cluster
            .eventually_eq("it is starting", starting, reason)
            .await;
        pods_are_ready(&cluster, 2).await;
        let serving = Some("Serving".to_owned());
        cluster
            .eventually_eq("it is serving", serving, reason)
            .await;
        assert_eq!(listed(&cluster).await.as_deref(), Some("shop.example.com"));
        running.end().await;
    });
}

#[test]
fn a_change_by_another_client_is_undone() {
    testing::run(async |cluster: Cluster| {
        let running = start(&cluster).await;
        create_shop(&cluster).await;
        deployed(&cluster).await;
        let patch = Patch::merge(json!({"spec": {"replicas": 7}}));
        let client = cluster.client();
        client.patch::<Deployment>(&shop(), patch).await.unwrap();
        let replicas = async || deployed(&cluster).await.spec.unwrap().replicas;
        cluster
            .eventually_eq("it has 2 replicas again", Some(2), replicas)
            .await;
        running.end().await;
    });
}

#[test]
fn an_invalid_site_is_refused() {
    testing::run(async |cluster: Cluster| {
        cluster.install::<Website>().await;
        let spec = json!({"host": "Not a host", "page": "", "replicas": 21});
        let site = json!({"apiVersion": "web.example.com/v1", "kind": "Website",
            "metadata": {"namespace": "default", "name": "shop"}, "spec": spec});
        let site: Website = serde_json::from_value(site).unwrap();
        let refused = cluster
            .client()
            .create(&site)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("spec.host") && refused.contains("spec.replicas"),
            "{refused}"
        );
    });
}

/// The directory refuses every write for six hours. The deletion waits, and then completes by itself.
#[test]
fn a_deleted_site_leaves_the_directory_also_after_an_outage() {
    testing::run(async |cluster: Cluster| {
        let running = start(&cluster).await;
        create_shop(&cluster).await;
        let is_listed = async || listed(&cluster).await;
        cluster.eventually("it is listed", is_listed).await;

        let outage = Rule::new()
            .verb("patch")
            .resource("configmaps")
            .name(DIRECTORY.1);
        let outage = cluster
            .faults()
            .add(outage.status(503, "the directory is down"));
        let client = cluster.client();
        client
            .delete::<Website>(&shop(), &DeleteParams::default())
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(6 * 3600)).await;
        assert!(listed(&cluster).await.is_some());
        assert!(
            cluster.client().get::<Website>(&shop()).await.is_ok(),
            "its finalizer holds it"
        );

        outage.remove();
        let gone = async || cluster.client().get::<Website>(&shop()).await.is_err();
        cluster.eventually("it is gone", gone).await;
        assert_eq!(listed(&cluster).await, None);
        running.end().await;
    });
}

/// The server did what was requested, and the controller does not learn it.
#[test]
fn lost_answers_and_a_crash_make_nothing_twice() {
    testing::run(async |cluster: Cluster| {
        let running = start(&cluster).await;
        let create = Rule::new().verb("create").resource("deployments").times(1);
        let lost = cluster.faults().add(create.lose_answer());
        create_shop(&cluster).await;
        deployed(&cluster).await;
        running.crash().await;
        assert_eq!(lost.hits(), 1);

        let running = cluster.run([websites().unwrap()]).await;
        let reason = async || ready_reason(&cluster).await;
        let starting = Some("Starting".to_owned());
        cluster
            .eventually_eq("it is starting", starting, reason)
            .await;
        assert_eq!(cluster.requests().count("create", "deployments"), 1);
        running.end().await;
    });
}

#[test]
fn an_object_that_another_made_is_left_alone() {
    testing::run(async |cluster: Cluster| {
        let running = start(&cluster).await;
        let theirs =
            json!({"metadata": {"namespace": "default", "name": "shop"}, "data": {"a": "b"}});
        let theirs: ConfigMap = cluster.create(theirs).await;
        create_shop(&cluster).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let client = cluster.client();
        assert_eq!(
            client.get::<ConfigMap>(&shop()).await.unwrap().data,
            theirs.data
        );

        client
            .delete::<ConfigMap>(&shop(), &DeleteParams::default())
            .await
            .unwrap();
        // The next try is at most 1000 s after the last.
        tokio::time::sleep(Duration::from_secs(1000)).await;
        deployed(&cluster).await;
        running.end().await;
    });
}

/// The rights that the controller used, compared with those of the manifest. After a lost answer it reads the object.
#[test]
fn the_manifest_grants_the_rights_that_the_controller_uses() {
    testing::run(async |cluster: Cluster| {
        start(&cluster).await.end().await;
        let lease = leader_election::Options::new(DIRECTORY.0, "website");
        let builder = cluster.manager().leader_election(lease);
        let manager = builder.build().await.unwrap();
        manager.add_controller(websites().unwrap()).unwrap();
        let running = cluster.start(&manager);

        let lost = Rule::new().verb("patch").resource("websites").times(2);
        cluster.faults().add(lost.lose_answer());
        create_shop(&cluster).await;
        pods_are_ready(&cluster, 2).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let client = cluster.client();
        client
            .delete::<Website>(&shop(), &DeleteParams::default())
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        running.end().await;
        cluster
            .rights()
            .check(include_str!("../manifests/2-rbac.yaml"));
    });
}

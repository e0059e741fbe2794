//! The controller on the API server of the test kit, in this process and under virtual time.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use reeve_controller::client::Patch;
use reeve_controller::kube_core::CustomResourceExt;
use reeve_controller::kube_core::params::{DeleteParams, ListParams};
use reeve_controller::prelude::*;
use reeve_controller::serde_json::json;
use reeve_controller::testing::{self, Cluster, Rule, Running};
use {{crate_name}}::api::{READY, {{kind}}};
use {{crate_name}}::controller::{MESSAGE, controller};
use {{crate_name}}::{NAME, api};

/// The namespace of the program.
const OWN: &str = concat!("{{project-name}}", "-system");

/// Creates the definition and the program's namespace, and starts one copy of the program.
async fn start(cluster: &Cluster) -> Running {
    let client = cluster.client();
    client.create::<CustomResourceDefinition>(&{{kind}}::crd()).await.unwrap();
    cluster.create::<Namespace>(json!({"metadata": {"name": OWN} })).await;
    let served = async || client.list::<{{kind}}>(None, &ListParams::default()).await.map(drop);
    cluster.eventually("the kind is served", served).await;
    copy(cluster, "one").await
}

async fn copy(cluster: &Cluster, identity: &str) -> Running {
    let lease = leader_election::Options::new(OWN, NAME).identity(identity);
    let manager = cluster.manager().leader_election(lease).build().await.unwrap();
    manager.add_controller(controller().unwrap()).unwrap();
    cluster.start(&manager)
}

/// The key of an object.
fn key(name: &str) -> ObjectKey {
    {% if namespaced %}ObjectKey::namespaced("default", name){% else %}ObjectKey::cluster(name){% endif %}
}

/// The key of its ConfigMap.
fn map_key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

async fn create(cluster: &Cluster, name: &str, message: &str) -> {{kind}} {
    let meta = json!({"name": name{% if namespaced %}, "namespace": "default"{% endif %} });
    cluster.create(json!({"metadata": meta, "spec": {"message": message} })).await
}

/// Waits until the ConfigMap holds `message`, and the status says so.
async fn holds(cluster: &Cluster, name: &str, message: &str) {
    let client = cluster.client();
    let look = async || {
        let map = client.get::<ConfigMap>(&map_key(name)).await.ok()?;
        map.data?.get(MESSAGE).cloned()
    };
    cluster.eventually_eq("the ConfigMap", Some(message.to_owned()), look).await;
    let ready = async || {
        let object = client.get::<{{kind}}>(&key(name)).await.ok()?;
        let is_current = |ready: &Option<i64>| *ready == object.metadata.generation;
        let status = object.status?;
        let ready = conditions::find(&status.conditions, READY)?;
        (ready.status == "True" && is_current(&ready.observed_generation)).then_some(())
    };
    cluster.eventually("it is ready", ready).await;
}

async fn spoil(cluster: &Cluster, name: &str) {
    let patch = Patch::merge(json!({"data": {MESSAGE: "spoiled"} }));
    let (client, key) = (cluster.client(), map_key(name));
    client.patch::<ConfigMap>(&key, patch).await.unwrap();
}

#[test]
fn the_config_map_follows_the_object_and_is_mended() {
    testing::run(async |cluster| {
        let running = start(&cluster).await;
        create(&cluster, "a", "hello").await;
        holds(&cluster, "a", "hello").await;
        spoil(&cluster, "a").await;
        holds(&cluster, "a", "hello").await;
        let (client, key) = (cluster.client(), key("a"));
        let patch = Patch::merge(json!({"spec": {"message": "good bye"} }));
        client.patch::<{{kind}}>(&key, patch).await.unwrap();
        holds(&cluster, "a", "good bye").await;
        let events = client.list::<Event>(Some("default"), &ListParams::default()).await.unwrap();
        assert!(events.items.iter().any(|event| event.reason.as_deref() == Some("Written")));
        running.end().await;
    });
}

#[test]
fn a_refused_write_is_tried_again() {
    testing::run(async |cluster| {
        let running = start(&cluster).await;
        let refuse = Rule::new().verb("create").resource("configmaps").times(3);
        cluster.faults().add(refuse.status(503, "busy"));
        create(&cluster, "a", "hello").await;
        holds(&cluster, "a", "hello").await;
        running.end().await;
    });
}

#[test]
fn a_config_map_of_another_owner_is_left_alone() {
    testing::run(async |cluster| {
        let running = start(&cluster).await;
        let meta = json!({"name": "other", "namespace": "default"});
        let other: ConfigMap = cluster.create(json!({"metadata": meta})).await;
        let meta = json!({"name": "a", "namespace": "default", "ownerReferences": [other.controller_owner_ref(&())]});
        cluster.create::<ConfigMap>(json!({"metadata": meta})).await;
        create(&cluster, "a", "hello").await;
        let reason = async || {
            let status = cluster.client().get::<{{kind}}>(&key("a")).await.ok()?.status?;
            Some(conditions::find(&status.conditions, READY)?.reason.clone())
        };
        cluster.eventually_eq("the reason", Some("NameTaken".to_owned()), reason).await;

        let client = cluster.client();
        client.delete::<ConfigMap>(&map_key("a"), &DeleteParams::default()).await.unwrap();
        holds(&cluster, "a", "hello").await;
        cluster.eventually_eq("the reason", Some("Written".to_owned()), reason).await;
        running.end().await;
    });
}

#[test]
fn the_roles_allow_exactly_what_the_program_requests() {
    testing::run(async |cluster| {
        let running = start(&cluster).await;
        // An answer that is lost makes the program read the object.
        for (verb, resource) in [("create", "configmaps"), ("patch", "{{plural}}")] {
            let lost = Rule::new().verb(verb).resource(resource).times(1);
            cluster.faults().add(lost.lose_answer());
        }
        create(&cluster, "a", "hello").await;
        holds(&cluster, "a", "hello").await;
        // The same Event again becomes a series.
        for _ in 0..5 {
            spoil(&cluster, "a").await;
            holds(&cluster, "a", "hello").await;
        }
        let standby = copy(&cluster, "two").await;
        let client = cluster.client();
        client.delete::<{{kind}}>(&key("a"), &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        running.end().await;
        standby.end().await;
        // `check` instead of `check_exactly` permits roles with more rights.
        cluster.rights().check_exactly(include_str!("../manifests/rbac.yaml"));
    });
}

#[test]
fn the_stored_definition_is_the_one_of_the_code() {
    assert!(
        api::crd().unwrap() == include_str!("../manifests/crd.yaml"),
        "run: cargo run -- crd > manifests/crd.yaml"
    );
}

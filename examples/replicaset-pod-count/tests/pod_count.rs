//! The count, and the mistakes of controller-runtime's example: each case with whole Pods and with only their metadata.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube_core::params::{DeleteParams, Patch};
use kube_core::{PartialObjectMeta, ResourceExt};
use reeve_apiserver::ApiServer;
use reeve_controller::client::Object;
use reeve_controller::testing::rbac::Rights;
use reeve_controller::testing::{Cluster, Rule, Running, Server, Setup};
use reeve_controller::{Manager, ObjectKey, leader_election};
use replicaset_pod_count::{LABEL, add};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Makes two tests of each case.
macro_rules! with_pods_and_metadata {
    ($($case:ident),+ $(,)?) => {
        mod typed {
            $(#[test] fn $case() { super::run(super::$case::<super::Pod>); })+
        }
        mod metadata {
            $(#[test] fn $case() { super::run(super::$case::<super::PartialObjectMeta<super::Pod>>); })+
        }
    };
}

/// Runs a case on the built-in server, without its garbage collector: the case deletes the Pods.
fn run(case: impl AsyncFnOnce(Cluster)) {
    Setup::new()
        .server(Server::BuiltIn)
        .api_server(|server| server.garbage_collection(false))
        .run(case);
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

async fn start<P: Object>(cluster: &Cluster) -> Running {
    let manager = cluster.manager().build().await.unwrap();
    add::<P>(&manager).unwrap();
    cluster.start(&manager)
}

/// A ReplicaSet, by default without labels, for Pods labelled `app=<name>`.
async fn replica_set(cluster: &Cluster, name: &str, labels: Value) -> ReplicaSet {
    let app = json!({"app": name});
    let containers = json!([{"name": "c", "image": "nginx"}]);
    cluster
        .create(json!({
            "metadata": {"namespace": "default", "name": name, "labels": labels},
            "spec": {"selector": {"matchLabels": app}, "template": {"metadata": {"labels": app}, "spec": {"containers": containers}}},
        }))
        .await
}

fn owner(of: &ReplicaSet, controller: bool) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": of.name_any(), "uid": of.uid(), "controller": controller}])
}

/// A Pod with the labels of the template of `app`.
async fn pod(cluster: &Cluster, name: &str, app: &str, owners: Value) -> Pod {
    cluster
        .create(json!({
            "metadata": {"namespace": "default", "name": name, "labels": {"app": app}, "ownerReferences": owners},
            "spec": {"containers": [{"name": "c", "image": "nginx"}]},
        }))
        .await
}

async fn delete<K: Object>(cluster: &Cluster, name: &str) {
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    cluster
        .client()
        .delete::<K>(&key(name), &now)
        .await
        .unwrap();
}

async fn label(cluster: &Cluster, name: &str) -> Option<String> {
    let replica_set = cluster.client().get::<ReplicaSet>(&key(name)).await.ok()?;
    replica_set.labels().get(LABEL).cloned()
}

async fn counted(cluster: &Cluster, name: &str, count: &str) {
    let look = async || label(cluster, name).await;
    cluster
        .eventually_eq(
            &format!("{name} owns {count}"),
            Some(count.to_owned()),
            look,
        )
        .await;
}

/// Waits until all effects of former steps have happened.
async fn quiet() {
    sleep(Duration::from_secs(30)).await;
}

fn patches(cluster: &Cluster) -> usize {
    cluster.requests().count("patch", "replicasets")
}

fn failures(running: &Running) -> Option<f64> {
    running.metric("controller_runtime_reconcile_errors_total")
}

async fn the_label_follows_the_pods<P: Object>(cluster: Cluster) {
    let running = start::<P>(&cluster).await;
    let frontend = replica_set(&cluster, "frontend", Value::Null).await;
    counted(&cluster, "frontend", "0").await;
    for number in 0..3 {
        pod(
            &cluster,
            &format!("frontend-{number}"),
            "frontend",
            owner(&frontend, true),
        )
        .await;
    }
    counted(&cluster, "frontend", "3").await;
    delete::<Pod>(&cluster, "frontend-1").await;
    counted(&cluster, "frontend", "2").await;
    running.end().await;
}

/// controller-runtime's example writes into a map that is nil if there are no labels.
async fn a_replica_set_without_labels_gets_one_and_one_with_labels_keeps_them<P: Object>(
    cluster: Cluster,
) {
    let running = start::<P>(&cluster).await;
    replica_set(&cluster, "bare", Value::Null).await;
    replica_set(&cluster, "labelled", json!({"team": "shop"})).await;
    counted(&cluster, "bare", "0").await;
    counted(&cluster, "labelled", "0").await;
    let labelled = cluster
        .client()
        .get::<ReplicaSet>(&key("labelled"))
        .await
        .unwrap();
    assert_eq!(
        labelled.labels().get("team").map(String::as_str),
        Some("shop")
    );
    running.end().await;
}

/// controller-runtime's example counts every Pod with the labels of the template.
async fn pods_of_other_owners_with_the_labels_of_the_template_are_not_counted<P: Object>(
    cluster: Cluster,
) {
    let running = start::<P>(&cluster).await;
    let mine = replica_set(&cluster, "mine", Value::Null).await;
    let other = replica_set(&cluster, "other", Value::Null).await;
    pod(&cluster, "owned", "mine", owner(&mine, true)).await;
    pod(&cluster, "unowned", "mine", Value::Null).await;
    pod(&cluster, "others", "mine", owner(&other, true)).await;
    pod(&cluster, "not-controlled", "mine", owner(&mine, false)).await;
    counted(&cluster, "mine", "1").await;
    counted(&cluster, "other", "1").await;
    quiet().await;
    assert_eq!(label(&cluster, "mine").await.as_deref(), Some("1"));
    running.end().await;
}

/// controller-runtime's example writes each time, and each write requests the next reconcile.
async fn a_write_does_not_cause_another_one<P: Object>(cluster: Cluster) {
    let running = start::<P>(&cluster).await;
    let set = replica_set(&cluster, "a", Value::Null).await;
    counted(&cluster, "a", "0").await;
    quiet().await;
    assert_eq!(patches(&cluster), 1);
    pod(&cluster, "a-0", "a", owner(&set, true)).await;
    counted(&cluster, "a", "1").await;
    quiet().await;
    assert_eq!(patches(&cluster), 2);
    // The next reconcile finds nothing to do.
    running.end().await;
    let running = start::<P>(&cluster).await;
    quiet().await;
    assert_eq!(patches(&cluster), 2);
    running.end().await;
}

/// controller-runtime's example replaces the whole object by the cached one: a conflict at best.
async fn a_cache_that_is_behind_neither_fails_nor_undoes_other_changes<P: Object>(
    cluster: Cluster,
) {
    let running = start::<P>(&cluster).await;
    let set = replica_set(&cluster, "a", Value::Null).await;
    counted(&cluster, "a", "0").await;
    quiet().await;
    let away = ["list", "watch"].map(|verb| {
        cluster.faults().add(
            Rule::new()
                .verb(verb)
                .resource("replicasets")
                .status(503, "away"),
        )
    });
    cluster.built_in().unwrap().close_watches();
    let patch =
        Patch::Merge(json!({"spec": {"replicas": 7}, "metadata": {"labels": {"team": "shop"}}}));
    cluster
        .client()
        .patch::<ReplicaSet>(&key("a"), &patch)
        .await
        .unwrap();
    pod(&cluster, "a-0", "a", owner(&set, true)).await;
    counted(&cluster, "a", "1").await;
    for handle in away {
        handle.remove();
    }
    quiet().await;
    let now = cluster.client().get::<ReplicaSet>(&key("a")).await.unwrap();
    assert_eq!(now.spec.as_ref().unwrap().replicas, Some(7));
    assert_eq!(now.labels().get("team").map(String::as_str), Some("shop"));
    assert_eq!(failures(&running), Some(0.0));
    running.end().await;
}

async fn a_replica_set_that_is_created_again_does_not_get_the_count_of_the_old_one<P: Object>(
    cluster: Cluster,
) {
    let running = start::<P>(&cluster).await;
    let old = replica_set(&cluster, "a", Value::Null).await;
    counted(&cluster, "a", "0").await;
    quiet().await;
    let away = ["list", "watch"].map(|verb| {
        cluster.faults().add(
            Rule::new()
                .verb(verb)
                .resource("replicasets")
                .status(503, "away"),
        )
    });
    cluster.built_in().unwrap().close_watches();
    delete::<ReplicaSet>(&cluster, "a").await;
    replica_set(&cluster, "a", Value::Null).await;
    pod(&cluster, "a-0", "a", owner(&old, true)).await;
    quiet().await;
    assert_eq!(
        label(&cluster, "a").await,
        None,
        "the cache still has the old one"
    );
    // The label of the old one, and one patch that the server refused.
    assert_eq!(patches(&cluster), 2);
    for handle in away {
        handle.remove();
    }
    counted(&cluster, "a", "0").await;
    assert_eq!(failures(&running), Some(0.0));
    running.end().await;
}

/// controller-runtime's first example returns "not found" as an error, and is called repeatedly.
async fn a_replica_set_that_is_gone_is_not_a_failure<P: Object>(cluster: Cluster) {
    let running = start::<P>(&cluster).await;
    let set = replica_set(&cluster, "a", Value::Null).await;
    pod(&cluster, "a-0", "a", owner(&set, true)).await;
    counted(&cluster, "a", "1").await;
    delete::<ReplicaSet>(&cluster, "a").await;
    // Its Pods outlive it, and still have it as their owner.
    delete::<Pod>(&cluster, "a-0").await;
    quiet().await;
    // It is deleted between the read and the write.
    cluster.faults().add(
        Rule::new()
            .verb("patch")
            .resource("replicasets")
            .times(1)
            .status(404, "gone"),
    );
    replica_set(&cluster, "b", Value::Null).await;
    quiet().await;
    assert_eq!(failures(&running), Some(0.0));
    running.end().await;
}

async fn a_pod_with_a_new_owner_is_counted_once<P: Object>(cluster: Cluster) {
    let running = start::<P>(&cluster).await;
    let (one, two) = (
        replica_set(&cluster, "one", Value::Null).await,
        replica_set(&cluster, "two", Value::Null).await,
    );
    pod(&cluster, "p", "one", owner(&one, true)).await;
    counted(&cluster, "one", "1").await;
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owner(&two, true)}}));
    cluster
        .client()
        .patch::<Pod>(&key("p"), &patch)
        .await
        .unwrap();
    counted(&cluster, "one", "0").await;
    counted(&cluster, "two", "1").await;
    running.end().await;
}

with_pods_and_metadata!(
    the_label_follows_the_pods,
    a_replica_set_without_labels_gets_one_and_one_with_labels_keeps_them,
    pods_of_other_owners_with_the_labels_of_the_template_are_not_counted,
    a_write_does_not_cause_another_one,
    a_cache_that_is_behind_neither_fails_nor_undoes_other_changes,
    a_replica_set_that_is_created_again_does_not_get_the_count_of_the_old_one,
    a_replica_set_that_is_gone_is_not_a_failure,
    a_pod_with_a_new_owner_is_counted_once,
);

/// The rights of a life of the program: start, election, a lost answer, end.
async fn rights<P: Object>(cluster: &Cluster) -> Rights {
    let copy = async |identity: &str| {
        let lease =
            leader_election::Options::new("default", "replicaset-pod-count").identity(identity);
        let builder = cluster.manager().leader_election(lease);
        let manager = builder.build().await.unwrap();
        add::<P>(&manager).unwrap();
        cluster.start(&manager)
    };
    let leader = copy("one").await;
    let lost = Rule::new().verb("patch").resource("replicasets").times(1);
    cluster.faults().add(lost.lose_answer());
    let frontend = replica_set(cluster, "frontend", Value::Null).await;
    counted(cluster, "frontend", "0").await;
    pod(cluster, "a-pod", "frontend", owner(&frontend, true)).await;
    counted(cluster, "frontend", "1").await;
    let standby = copy("two").await;
    quiet().await;
    standby.end().await;
    leader.end().await;
    cluster.rights()
}

#[test]
fn the_roles_allow_exactly_the_requests_of_the_program() {
    let all = std::cell::RefCell::new(Rights::default());
    let add = |rights: Rights| all.replace_with(|all| all.clone().and(rights));
    run(async |cluster| drop(add(rights::<Pod>(&cluster).await)));
    run(async |cluster| drop(add(rights::<PartialObjectMeta<Pod>>(&cluster).await)));
    all.into_inner()
        .check_exactly(include_str!("../manifests/rbac.yaml"));
}

/// On a real server a controller manager creates the Pods.
#[test]
fn on_a_real_server_the_label_follows_the_pods() {
    let real = Setup::new().server(Server::Assets);
    let managed = real.control_plane(|server| server.controller_manager(true));
    managed.run(async |cluster| {
        let scale = async |replicas: u32| {
            let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            let (client, frontend) = (cluster.client(), key("frontend"));
            client.patch::<ReplicaSet>(&frontend, &patch).await.unwrap();
        };
        replica_set(&cluster, "frontend", Value::Null).await;
        let running = start::<Pod>(&cluster).await;
        counted(&cluster, "frontend", "1").await;
        scale(3).await;
        counted(&cluster, "frontend", "3").await;
        running.end().await;
        let running = start::<PartialObjectMeta<Pod>>(&cluster).await;
        scale(2).await;
        counted(&cluster, "frontend", "2").await;
        running.end().await;
    });
}

/// The `accept` headers of the program's requests for Pods.
async fn accepted<P: Object>() -> Vec<String> {
    let server = ApiServer::builder().start().await.unwrap();
    let accepted: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&accepted);
    let service = tower::ServiceBuilder::new()
        .map_request(move |request: http::Request<kube_client::client::Body>| {
            if request.uri().path() == "/api/v1/pods" {
                let accept = request.headers().get(http::header::ACCEPT);
                let accept = accept
                    .and_then(|value| value.to_str().ok())
                    .unwrap_or_default();
                noted.lock().unwrap().push(accept.to_owned());
            }
            request
        })
        .service(server.service());
    let client = kube_client::Client::new(service, "default");
    let manager = Manager::builder(client).build().await.unwrap();
    add::<P>(&manager).unwrap();
    let running = Running::start(&manager);
    sleep(Duration::from_secs(10)).await;
    running.end().await;
    let accepted = accepted.lock().unwrap().clone();
    assert!(!accepted.is_empty());
    accepted
}

#[tokio::test(start_paused = true)]
async fn with_metadata_only_metadata_is_requested() {
    let partial = |accept: &String| accept.contains("as=PartialObjectMetadata");
    assert!(
        accepted::<PartialObjectMeta<Pod>>()
            .await
            .iter()
            .all(partial)
    );
    assert!(!accepted::<Pod>().await.iter().any(partial));
}

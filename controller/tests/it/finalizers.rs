//! Reconcilers of objects, and the finalizer around them, on the built-in API server.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_core::DynamicObject;
use kube_core::params::DeleteParams;
use parking_lot::Mutex;
use reeve_apiserver::faults::Rule;
use reeve_controller::cache::Kind;
use reeve_controller::client::{Patch, optional};
use reeve_controller::finalizer::Event;
use reeve_controller::prelude::*;
use reeve_controller::testing::Cluster;
use serde_json::json;
use tokio::time::sleep;

const NAME: &str = "example.com/records";

type Log = Arc<Mutex<Vec<&'static str>>>;

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

async fn create(cluster: &Cluster, name: &str, finalizers: &[&str]) -> ConfigMap {
    let metadata = json!({"namespace": "default", "name": name, "finalizers": finalizers});
    cluster.create(json!({ "metadata": metadata })).await
}

async fn delete<K: reeve_controller::client::Object>(cluster: &Cluster, name: &str) {
    let params = DeleteParams::default();
    cluster
        .client()
        .delete::<K>(&key(name), &params)
        .await
        .unwrap();
}

async fn finalizers(cluster: &Cluster, name: &str) -> Option<Vec<String>> {
    let read = cluster.client().get::<ConfigMap>(&key(name)).await;
    let map = optional(read).unwrap()?;
    Some(map.metadata.finalizers.unwrap_or_default())
}

async fn is_gone(cluster: &Cluster, name: &str) {
    let gone = async || finalizers(cluster, name).await.is_none();
    cluster.eventually("the object is gone", gone).await;
}

/// The number of cleanups.
fn cleanups(log: &Log) -> usize {
    let log = log.lock();
    log.iter().filter(|entry| **entry == "cleanup").count()
}

/// Keeps a Secret for each ConfigMap, and records its calls. The `n`th cleanup returns `cleanup(n)`.
fn records(log: &Log, cleanup: fn(usize) -> Outcome) -> Controller {
    let log = Arc::clone(log);
    let reconciler = reconcile::object(move |ctx: Context, map: Arc<ConfigMap>| {
        let log = Arc::clone(&log);
        async move {
            finalizer::apply_or_cleanup(&ctx, NAME, map, async |event| match event {
                Event::Apply(map) => {
                    assert!(finalizer::contains(&map, NAME));
                    log.lock().push("apply");
                    let key = ObjectKey::of(&map);
                    if ctx.lister::<Secret>()?.get(&key)?.is_none() {
                        let mut secret = Secret::default();
                        secret.metadata.namespace = map.namespace();
                        secret.metadata.name = map.metadata.name.clone();
                        owner::set_controller(&map, &mut secret)?;
                        ctx.client().create(&secret).await?;
                    }
                    Ok::<_, reconcile::Error>(Outcome::done())
                }
                Event::Cleanup(map) => {
                    assert!(finalizer::is_deleting(&map));
                    let mut log = log.lock();
                    log.push("cleanup");
                    let times = log.iter().filter(|entry| **entry == "cleanup").count();
                    Ok(cleanup(times))
                }
            })
            .await
        }
    });
    let builder = Controller::builder("records").for_kind::<ConfigMap>();
    builder.owns::<Secret>().complete(reconciler).unwrap()
}

/// The reconciles of the controller that ended in this result.
fn results(running: &reeve_controller::testing::Running, result: &str) -> f64 {
    let name = "controller_runtime_reconcile_total{";
    let label = format!("result=\"{result}\"");
    let text = running.manager().metrics().encode();
    let line = text
        .lines()
        .find(|line| line.starts_with(name) && line.contains(&label));
    line.map_or(0.0, |line| {
        line.rsplit(' ').next().unwrap().parse().unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn an_object_is_applied_with_its_finalizer_and_cleaned_up_once() {
    let cluster = Cluster::in_process().await;
    let log = Log::default();
    let running = cluster.run([records(&log, |_| Outcome::done())]).await;
    create(&cluster, "a", &[]).await;
    let secret = async || cluster.client().get::<Secret>(&key("a")).await;
    cluster.eventually("the secret exists", secret).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(finalizers(&cluster, "a").await.unwrap(), [NAME]);
    assert_eq!(cluster.requests().count("create", "secrets"), 1);
    assert!(log.lock().iter().all(|entry| *entry == "apply"));

    delete::<ConfigMap>(&cluster, "a").await;
    is_gone(&cluster, "a").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(cleanups(&log), 1);
    assert_eq!(*log.lock().last().unwrap(), "cleanup");
    assert_eq!(results(&running, "error"), 0.0);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_finalizers_of_others_stay_and_an_object_without_ours_is_not_cleaned_up() {
    let cluster = Cluster::in_process().await;
    let log = Log::default();
    create(&cluster, "a", &["other.example.com/x"]).await;
    // Deleted before this controller saw it.
    create(&cluster, "b", &["other.example.com/x"]).await;
    delete::<ConfigMap>(&cluster, "b").await;
    let running = cluster.run([records(&log, |_| Outcome::done())]).await;
    let both = vec!["other.example.com/x".to_owned(), NAME.to_owned()];
    let of_a = async || finalizers(&cluster, "a").await;
    cluster
        .eventually_eq("the finalizer is added", Some(both), of_a)
        .await;
    delete::<ConfigMap>(&cluster, "a").await;
    let other = Some(vec!["other.example.com/x".to_owned()]);
    cluster
        .eventually_eq("ours is removed", other.clone(), of_a)
        .await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(cleanups(&log), 1);
    assert_eq!(finalizers(&cluster, "b").await, other);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_by_another_client_meanwhile_is_retried_and_is_no_error() {
    let cluster = Cluster::in_process().await;
    let log = Log::default();
    let conflict = || {
        let rule = Rule::new().verb("patch").resource("configmaps").times(2);
        cluster.faults().add(rule.status(409, "it was changed"))
    };
    let running = cluster.run([records(&log, |_| Outcome::done())]).await;
    let conflicts = conflict();
    create(&cluster, "a", &[]).await;
    let applied = async || !log.lock().is_empty();
    cluster.eventually("it is applied", applied).await;
    assert_eq!(conflicts.hits(), 2);
    // Without a generation, the cleanup runs again: the change may concern it.
    let conflicts = conflict();
    delete::<ConfigMap>(&cluster, "a").await;
    is_gone(&cluster, "a").await;
    assert_eq!(conflicts.hits(), 2);
    assert_eq!(cleanups(&log), 3);
    assert_eq!(results(&running, "error"), 0.0);
    assert_eq!(results(&running, "requeue"), 4.0);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_stays_until_a_cleanup_is_done() {
    let cluster = Cluster::in_process().await;
    let log = Log::default();
    let running = cluster
        .run([records(&log, |times| match times {
            1 => Outcome::requeue_after(Duration::from_secs(10)),
            2 => Outcome::retry(),
            _ => Outcome::done(),
        })])
        .await;
    create(&cluster, "a", &[]).await;
    let applied = async || !log.lock().is_empty();
    cluster.eventually("it is applied", applied).await;
    delete::<ConfigMap>(&cluster, "a").await;
    sleep(Duration::from_secs(9)).await;
    assert_eq!(finalizers(&cluster, "a").await.unwrap(), [NAME]);
    is_gone(&cluster, "a").await;
    assert_eq!(cleanups(&log), 3);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_that_writes_the_status_runs_once() {
    let cluster = Cluster::in_process().await;
    let log = Log::default();
    let calls = Arc::clone(&log);
    let reconciler = reconcile::object(move |ctx: Context, web: Arc<Deployment>| {
        let log = Arc::clone(&calls);
        async move {
            finalizer::apply_or_cleanup(&ctx, NAME, web, async |event| {
                if let Event::Cleanup(web) = event {
                    log.lock().push("cleanup");
                    let patch = Patch::merge(json!({"status": {"observedGeneration": 7}}));
                    let key = ObjectKey::of(&web);
                    let client = ctx.client();
                    client.patch_status::<Deployment>(&key, patch).await?;
                }
                Ok::<_, reconcile::Error>(Outcome::done())
            })
            .await
        }
    });
    let controller = Controller::builder("web").for_kind::<Deployment>();
    let running = cluster
        .run([controller.complete(reconciler).unwrap()])
        .await;
    let labels = json!({"app": "web"});
    cluster
        .create::<Deployment>(json!({
            "metadata": {"namespace": "default", "name": "web"},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}}))
        .await;
    let read = async || cluster.client().get::<Deployment>(&key("web")).await;
    cluster
        .eventually("it has the finalizer", async || {
            finalizer::contains(&read().await.ok()?, NAME).then_some(())
        })
        .await;
    delete::<Deployment>(&cluster, "web").await;
    let gone = async || optional(read().await).unwrap().is_none();
    cluster.eventually("it is gone", gone).await;
    assert_eq!(*log.lock(), ["cleanup"]);
    assert_eq!(results(&running, "requeue"), 0.0);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_known_at_run_time_has_the_same_reconciler_and_finalizer() {
    let cluster = Cluster::in_process().await;
    let log = Log::default();
    let kind = Kind::of::<ConfigMap>();
    let view = View::dynamic(&kind);
    let calls = Arc::clone(&log);
    let reconciler = reconcile::object_in(
        view.clone(),
        move |ctx: Context, object: Arc<DynamicObject>| {
            let (log, kind) = (Arc::clone(&calls), kind.clone());
            async move {
                let objects = ctx.client().dynamic(&kind);
                finalizer::apply_or_cleanup_in(&objects, NAME, object, async |event| {
                    log.lock().push(match event {
                        Event::Apply(_) => "apply",
                        Event::Cleanup(_) => "cleanup",
                    });
                    Ok::<_, reconcile::Error>(Outcome::done())
                })
                .await
            }
        },
    );
    let controller = Controller::builder("any").for_view(view);
    let running = cluster
        .run([controller.complete(reconciler).unwrap()])
        .await;
    create(&cluster, "a", &[]).await;
    let has_ours = async || finalizers(&cluster, "a").await == Some(vec![NAME.to_owned()]);
    cluster.eventually("it has the finalizer", has_ours).await;
    delete::<ConfigMap>(&cluster, "a").await;
    is_gone(&cluster, "a").await;
    assert_eq!(log.lock().first(), Some(&"apply"));
    assert_eq!(log.lock().last(), Some(&"cleanup"));
    running.end().await;
}

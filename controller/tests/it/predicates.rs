//! Predicates of changes without a watch event, on the built-in API server, under virtual time.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_apiserver::faults::Rule;
use reeve_controller::client::Patch;
use reeve_controller::predicate::{self, Predicate};
use reeve_controller::testing::Cluster;
use reeve_controller::{Context, Controller, ObjectKey, Outcome, Request, reconcile};
use reeve_informer::{Event, UpdateReason};
use serde_json::{Value, json};
use tokio::time::sleep;

/// One update from the view of a predicate.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Update {
    name: String,
    reason: UpdateReason,
    labels_changed: bool,
    annotations_changed: bool,
    version_changed: bool,
    /// The result of a predicate for changes of only the labels.
    labels_alone: bool,
}

fn update_of(event: &Event<ConfigMap>) -> Option<Update> {
    let Event::Updated { new, reason, .. } = event else {
        return None;
    };
    let alone = predicate::and(
        predicate::labels_changed(),
        predicate::not(predicate::annotations_changed()),
    );
    Some(Update {
        name: new.metadata.name.clone().unwrap_or_default(),
        reason: *reason,
        labels_changed: predicate::labels_changed().allows(event),
        annotations_changed: predicate::annotations_changed().allows(event),
        version_changed: predicate::resource_version_changed().allows(event),
        labels_alone: alone.allows(event),
    })
}

async fn change(cluster: &Cluster, name: &str, metadata: Value) {
    let key = ObjectKey::namespaced("default", name);
    let patch = Patch::merge(json!({"metadata": metadata}));
    let client = cluster.client();
    let patched = client.patch::<ConfigMap>(&key, patch);
    patched.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn changes_without_a_watch_event_arrive_as_one_update() {
    let cluster = Cluster::in_process().await;
    for name in ["back", "both"] {
        let labels =
            json!({"metadata": {"namespace": "default", "name": name, "labels": {"state": "a"}}});
        cluster.create::<ConfigMap>(labels).await;
    }
    let seen: Arc<Mutex<Vec<Update>>> = Arc::default();
    let runs: Arc<Mutex<Vec<String>>> = Arc::default();
    let (shown, noted) = (Arc::clone(&seen), Arc::clone(&runs));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .with_predicate(move |event: &Event<ConfigMap>| {
            shown.lock().extend(update_of(event));
            true
        })
        .with_predicate(predicate::labels_changed())
        .complete(reconcile::function(move |_: Context, request: Request| {
            noted.lock().push(request.name.to_string());
            async { Ok::<_, reconcile::Error>(Outcome::done()) }
        }));
    let running = cluster.run([controller.unwrap()]).await;
    cluster
        .eventually("both", async || runs.lock().len() == 2)
        .await;
    runs.lock().clear();

    let server = cluster.built_in().unwrap();
    let away = ["list", "watch"].map(|verb| {
        let rule = Rule::new().verb(verb).resource("configmaps");
        cluster.faults().add(rule.status(503, "later"))
    });
    server.close_watches();
    change(&cluster, "back", json!({"labels": {"state": "b"}})).await;
    change(&cluster, "back", json!({"labels": {"state": "a"}})).await;
    change(&cluster, "both", json!({"labels": {"state": "b"}})).await;
    change(&cluster, "both", json!({"annotations": {"seen": "yes"}})).await;
    server.forget_history(None);
    for rule in &away {
        rule.remove();
    }
    sleep(Duration::from_secs(120)).await;

    let update = |name: &str, changed| Update {
        name: name.into(),
        reason: UpdateReason::Relist,
        labels_changed: changed,
        annotations_changed: changed,
        version_changed: true,
        labels_alone: false,
    };
    let mut seen = seen.lock().clone();
    seen.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(seen, [update("back", false), update("both", true)]);
    assert_eq!(*runs.lock(), ["both"]);
    running.end().await;
}

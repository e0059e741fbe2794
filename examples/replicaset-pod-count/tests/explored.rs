//! The count under every fault that the explorer tries: `REEVE_EXPLORE_SECONDS` is how long, by default 5.

use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use reeve_controller::testing::explore::{Explorer, Process, World};
use replicaset_pod_count::{LABEL, add};
use serde_json::{Value, json};

fn pod(name: &str, owner: &ReplicaSet) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "labels": {"app": "web"}, "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true,
            "name": owner.metadata.name, "uid": owner.metadata.uid,
        }]},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    })
}

async fn replica_set(world: &World<()>) -> ReplicaSet {
    let app = json!({"app": "web"});
    let containers = json!([{"name": "c", "image": "nginx"}]);
    let set = json!({
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"selector": {"matchLabels": app}, "template": {
            "metadata": {"labels": app}, "spec": {"containers": containers},
        }},
    });
    let set = world.create(set).await;
    world.settle().await;
    set
}

/// A ReplicaSet with two Pods, then one, then another ReplicaSet of its name.
async fn scenario(world: &World<()>) {
    let first = replica_set(world).await;
    for name in ["web-1", "web-2"] {
        world.create::<Pod>(pod(name, &first)).await;
    }
    world.settle().await;
    world.delete::<Pod>("default", "web-1").await;
    world.settle().await;
    world.delete::<ReplicaSet>("default", "web").await;
    world.settle().await;
    let second = replica_set(world).await;
    world.create::<Pod>(pod("web-3", &second)).await;
    world.settle().await;
}

/// The cache shows a ReplicaSet that is gone, while another one of its name gets its Pod. The patch of the label was repeated each
/// second until the cache showed the other one.
const ANOTHER_OF_ITS_NAME: &str = "hold-on P1 modified replicasets default/web 5; hold-on P1 deleted replicasets default/web 1; \
    hold-on P1 modified replicasets default/web 3; hold-on P1 modified replicasets default/web 2";

#[test]
fn explored_the_count_is_right_after_every_fault() {
    let seconds = std::env::var("REEVE_EXPLORE_SECONDS").ok();
    let seconds = seconds.map_or(5, |text| text.parse().expect("a number of seconds"));
    let explorer = Explorer::of_manager(|process: Process<()>| {
        Box::pin(async move {
            let manager = process.manager().build().await.unwrap();
            add::<Pod>(&manager).unwrap();
            manager
        })
    });
    let explorer = explorer.at_rest("the label is the number of Pods", |state, ()| {
        let set = state.of("replicasets").first();
        set.is_some_and(|set| set["metadata"]["labels"][LABEL] == "1")
    });
    explorer
        .budget(usize::MAX, Duration::from_secs(seconds))
        .first([ANOTHER_OF_ITS_NAME.parse().unwrap()])
        .drawn(u64::MAX)
        .check(scenario);
}

//! The ConfigMap, changed while the operator runs.

use serde_json::json;

use crate::world::World;

on_both_servers!(
    an_allowlist_edit_lifts_what_it_covers,
    a_bad_edit_keeps_the_last_good_configuration
);

async fn an_allowlist_edit_lifts_what_it_covers(world: World) {
    let _operator = world.operator("ipblock-operator-0").await;
    world
        .create("inside", json!({"ip": "203.0.113.40", "duration": "1h"}))
        .await;
    world
        .create("outside", json!({"ip": "198.51.100.40", "duration": "1h"}))
        .await;
    world.phase("inside", "active").await;
    world.phase("outside", "active").await;

    world
        .configure(json!({"whitelist": "203.0.113.0/24"}))
        .await;
    world.phase("inside", "skipped").await;
    world.enforces(&["198.51.100.40"]).await;

    world
        .create("late", json!({"ip": "203.0.113.41", "duration": "1h"}))
        .await;
    world.phase("late", "skipped").await;
    world
        .create(
            "containing",
            json!({"ip": "203.0.113.0/24", "duration": "1h", "trigger": true}),
        )
        .await;
    world.phase("containing", "skipped").await;
    world.enforces(&["198.51.100.40"]).await;
}

async fn a_bad_edit_keeps_the_last_good_configuration(world: World) {
    let operator = world.operator("ipblock-operator-0").await;
    world.configure(json!({"whitelist": "203.0.113.50"})).await;
    world
        .create("allowed", json!({"ip": "203.0.113.50", "duration": "1h"}))
        .await;
    world.phase("allowed", "skipped").await;
    world
        .configure(json!({"whitelist": "203.0.113.50\nnot-an-address"}))
        .await;
    world
        .until(
            "the refusal is said in an Event of the ConfigMap",
            async |world| {
                !world
                    .event_reasons("ipblock-operator-config")
                    .await
                    .is_empty()
            },
        )
        .await;
    world
        .create(
            "still-allowed",
            json!({"ip": "203.0.113.50", "duration": "1h"}),
        )
        .await;
    world.phase("still-allowed", "skipped").await;
    let (status, _) = crate::process::get(operator.health, "/readyz")
        .await
        .expect("it answers");
    assert_eq!(status, 200, "readiness stays");
}

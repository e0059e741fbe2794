//! Death and return: of the operator, of its leader, of the API server.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::process::lost_its_lease;
use crate::world::{World, collection};

on_both_servers!(
    killed_in_the_middle_every_ban_is_lifted_when_due,
    a_block_deleted_while_no_operator_runs_is_lifted_afterwards,
    the_api_server_restarts_in_the_middle_and_everything_converges,
    a_second_copy_takes_over_when_the_first_dies,
    sigterm_ends_it_cleanly_and_a_restarted_pod_leads_at_once,
    a_leader_whose_lease_is_taken_exits_and_says_so,
);

async fn killed_in_the_middle_every_ban_is_lifted_when_due(world: World) {
    let operator = world.operator("ipblock-operator-0").await;
    for n in 0..20 {
        world
            .create(
                &format!("kill-{n}"),
                json!({"ip": format!("203.0.113.{n}"), "duration": "6s"}),
            )
            .await;
        if n == 10 {
            // Some are active now, some under way, some not made yet.
            world.phase("kill-0", "active").await;
        }
    }
    operator.process.kill().await;
    let _operator = world.operator("ipblock-operator-0").await;
    for n in 0..20 {
        let expired = world.phase(&format!("kill-{n}"), "expired").await;
        assert_eq!(
            expired["status"]["banCount"], 1,
            "a ban that was under way is asserted, not counted twice: {expired:#}"
        );
    }
    world.enforces(&[]).await;
}

async fn a_block_deleted_while_no_operator_runs_is_lifted_afterwards(world: World) {
    let operator = world.operator("ipblock-operator-0").await;
    world
        .create("gone", json!({"ip": "203.0.113.60", "duration": "1h"}))
        .await;
    world.phase("gone", "active").await;
    operator.process.kill().await;
    world.delete("gone").await;
    world.enforces(&["203.0.113.60"]).await;
    let _operator = world.operator("ipblock-operator-0").await;
    world.enforces(&[]).await;
    world
        .until("the object is gone as well", async |world| {
            world.block("gone").await.is_none()
        })
        .await;
}

async fn the_api_server_restarts_in_the_middle_and_everything_converges(mut world: World) {
    let mut operator = world.operator("ipblock-operator-0").await;
    let case = async {
        // Longer than the outage: a block that cannot be banned within its duration fails.
        for n in 0..10 {
            let ip = format!("203.0.113.{n}");
            world
                .create(&format!("api-{n}"), json!({"ip": ip, "duration": "30s"}))
                .await;
        }
        world
            .create("stays", json!({"ip": "198.51.100.1", "duration": "1h"}))
            .await;
        world.cluster.stop_api();
        sleep(Duration::from_secs(3)).await;
        world.cluster.start_api().await;
        world.client = world.cluster.client();
        world.phase("stays", "active").await;
        for n in 0..10 {
            world.phase(&format!("api-{n}"), "expired").await;
        }
        world.enforces(&["198.51.100.1"]).await;
    };
    // An API server that takes more than ten seconds costs the leader its lease, and with it its process.
    tokio::select! {
        () = case => {}
        never = operator.process.kept_running() => match never {},
    }
}

async fn a_second_copy_takes_over_when_the_first_dies(world: World) {
    let first = world.operator("ipblock-operator-0").await;
    world
        .create("before", json!({"ip": "203.0.113.70", "duration": "20s"}))
        .await;
    world.phase("before", "active").await;
    let second = world.operator("ipblock-operator-1").await;
    // A standby is ready: it serves triggers and health.
    second.ready().await;
    first.process.kill().await;
    world
        .create("after", json!({"ip": "203.0.113.71", "duration": "1h"}))
        .await;
    world.phase("after", "active").await;
    world.phase("before", "expired").await;
    world.enforces(&["203.0.113.71"]).await;
}

async fn sigterm_ends_it_cleanly_and_a_restarted_pod_leads_at_once(world: World) {
    let operator = world.operator("ipblock-operator-0").await;
    world
        .create("one", json!({"ip": "203.0.113.80", "duration": "1h"}))
        .await;
    world.phase("one", "active").await;
    assert_eq!(operator.process.terminate().await, Some(0));
    let _operator = world.operator("ipblock-operator-0").await;
    world
        .create("two", json!({"ip": "203.0.113.81", "duration": "1h"}))
        .await;
    world.phase("two", "active").await;
    world.enforces(&["203.0.113.80", "203.0.113.81"]).await;
}

async fn a_leader_whose_lease_is_taken_exits_and_says_so(world: World) {
    let operator = world.operator("ipblock-operator-0").await;
    world
        .create("one", json!({"ip": "203.0.113.82", "duration": "1h"}))
        .await;
    world.phase("one", "active").await;
    let lease = format!("{}/ipblock-operator", collection("Lease", "default"));
    let other = json!({"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}});
    world.request("PATCH", &lease, &other).await;
    let (code, log) = operator.process.ended(Duration::from_secs(60)).await;
    assert_eq!(code, Some(1), "{log}");
    assert!(lost_its_lease(&log), "{log}");
    assert!(log.contains("the lease was taken by another"), "{log}");
    world.enforces(&["203.0.113.82"]).await;
}

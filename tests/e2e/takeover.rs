//! Objects of the original operator, and leaving again.

use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{Process, get};
use crate::world::World;

on_both_servers!(
    objects_of_the_original_are_adopted,
    uninstall_lifts_bans_and_removes_finalizers,
    uninstall_can_keep_bans
);

async fn objects_of_the_original_are_adopted(world: World) {
    // As the original leaves them: no expiresAt, an old hash, a local zone, no finalizer; the gateway already bans them.
    let now = jiff::Timestamp::from_second(seconds_now()).expect("a date");
    let zone = jiff::tz::Offset::constant(8).to_time_zone();
    let at = |ago: i64| {
        let when = now - jiff::SignedDuration::from_secs(ago);
        when.to_zoned(zone.clone())
            .strftime("%Y-%m-%dT%H:%M:%S+08:00")
            .to_string()
    };
    for (name, ip, duration, blocked) in [
        ("ipblock-6465ec74397c9126", "1.2.3.4", "1h", at(60)),
        ("overdue", "203.0.113.100", "1m", at(3600)),
        ("forever", "203.0.113.101", "", at(60)),
    ] {
        world
            .create(
                name,
                json!({"ip": ip, "duration": duration, "reason": "old", "source": "grafana"}),
            )
            .await;
        let status = json!({"status": {"phase": "active", "result": "success", "message": "limited", "blockedAt": blocked,
            "lastSpecHash": "0f0e0d0c", "banCount": 3}});
        world
            .request(
                "PATCH",
                &format!("/apis/ops.yiiong.top/v1/namespaces/default/ipblocks/{name}/status"),
                &status,
            )
            .await;
        get(world.gateway, &format!("/limit?ip={ip}"))
            .await
            .expect("the gateway bans it");
    }
    let _operator = world.operator("ipblock-operator-0").await;
    world.phase("overdue", "expired").await;
    world
        .until("the others get an end and a finalizer", async |world| {
            let (timed, forever) = (
                world.block("ipblock-6465ec74397c9126").await,
                world.block("forever").await,
            );
            let (Some(timed), Some(forever)) = (timed, forever) else {
                return false;
            };
            timed["status"]["expiresAt"].is_string()
                && !timed["metadata"]["finalizers"].is_null()
                && !forever["metadata"]["finalizers"].is_null()
        })
        .await;
    let adopted = world
        .block("ipblock-6465ec74397c9126")
        .await
        .expect("it is there");
    assert_eq!(adopted["status"]["phase"], "active");
    assert_eq!(
        adopted["status"]["banCount"], 3,
        "adopting is no new ban: {adopted:#}"
    );
    world.enforces(&["1.2.3.4", "203.0.113.101"]).await;
}

async fn uninstall_lifts_bans_and_removes_finalizers(world: World) {
    uninstall(world, "--bans=lift", &[]).await;
}

async fn uninstall_can_keep_bans(world: World) {
    uninstall(world, "--bans=keep", &["203.0.113.110", "203.0.113.111"]).await;
}

async fn uninstall(world: World, bans: &str, left: &[&str]) {
    let operator = world.operator("ipblock-operator-0").await;
    for n in 0..2 {
        world
            .create(
                &format!("left-{n}"),
                json!({"ip": format!("203.0.113.11{n}"), "duration": "1h"}),
            )
            .await;
        world.phase(&format!("left-{n}"), "active").await;
    }
    assert_eq!(operator.process.terminate().await, Some(0));
    let container = crate::cluster::uninstall_container();
    let mut args = crate::cluster::arguments(&container);
    for arg in &mut args {
        if arg.starts_with("--bans=") {
            *arg = bans.into();
        }
    }
    args.push("--allow-loopback-gateway".into());
    let process = Process::operator(
        "uninstall",
        &args,
        &world.environment(&container, "uninstall"),
    );
    assert_eq!(process.ended(Duration::from_secs(30)).await, Some(0));
    world.enforces(left).await;
    for block in world.blocks().await {
        assert!(
            block["metadata"]["finalizers"]
                .as_array()
                .is_none_or(Vec::is_empty),
            "{block:#}"
        );
        world
            .delete(block["metadata"]["name"].as_str().expect("a name"))
            .await;
    }
    assert!(
        world.blocks().await.is_empty(),
        "nothing holds the objects any more"
    );
    let _: Value = world
        .request(
            "DELETE",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ipblocks.ops.yiiong.top",
            &Value::Null,
        )
        .await;
}

#[allow(
    clippy::disallowed_methods,
    reason = "the test plays a program that ran before, on the real clock"
)]
fn seconds_now() -> i64 {
    jiff::Timestamp::now().as_second()
}

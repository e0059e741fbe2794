//! A gateway that hangs, fails or is away, and objects that should not be there.

use serde_json::json;

use crate::world::{BLOCKS, Operator, World, until};

on_both_servers!(
    a_hanging_gateway_delays_no_other_block,
    faults_of_the_gateway_are_reported_once_a_change_and_everything_converges,
    a_ban_that_cannot_be_lifted_says_so_once_and_is_lifted_later,
    a_gateway_that_is_away_is_retried_and_the_reason_is_shown,
    a_dead_gateway_does_not_hang_a_deletion_when_released,
    original_bad_objects_end_failed_with_the_reason,
);

async fn a_hanging_gateway_delays_no_other_block(mut world: World) {
    // A call that hangs outlasts the whole case: blocks that are settled meanwhile did not wait for it.
    world
        .configure(json!({"requestTimeout": "1h", "whitelist": "198.51.100.0/24"}))
        .await;
    let _operator = world
        .operator_with("ipblock-operator-0", &["--workers=24"])
        .await;

    world.gateway.fault("fault=hang&target=203.0.113.90").await;
    block(&world, "hangs", "203.0.113.90").await;
    world.message("hangs", "waiting for").await;
    for n in 0..5 {
        let name = format!("other-{n}");
        block(&world, &name, &format!("203.0.113.{n}")).await;
        world.phase(&name, "active").await;
        world
            .patch(&name, json!({"spec": {"duration": "1s"}}))
            .await;
        world.phase(&name, "expired").await;
        world.delete(&name).await;
    }
    world.message("hangs", "waiting for").await;

    // All calls hang, of more blocks than there are workers. Those that need no gateway are settled.
    world.gateway.fault("fault=hang").await;
    let names: Vec<String> = (0..40).map(|n| format!("stuck-{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        block(&world, name, &format!("203.0.113.{}", 100 + n)).await;
    }
    block(&world, "allowed", "198.51.100.7").await;
    world.phase("allowed", "skipped").await;
    block(&world, "wide", "2001:db8::/32").await;
    world.phase("wide", "failed").await;
    for name in &names {
        let block = world.block(name).await.expect("it is there");
        assert_ne!(block["status"]["phase"], "active", "{block:#}");
    }
    world.message("hangs", "waiting for").await;

    // The process dies, and another one takes its place: the hanging calls fail, and are tried again.
    world.gateway.down().await;
    world.gateway.up().await;
    let mut wanted = vec!["203.0.113.90".to_owned()];
    wanted.extend((0..40).map(|n| format!("203.0.113.{}", 100 + n)));
    for name in names.iter().map(String::as_str).chain(["hangs"]) {
        world.phase(name, "active").await;
    }
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    world.enforces(&wanted).await;
}

async fn faults_of_the_gateway_are_reported_once_a_change_and_everything_converges(world: World) {
    let operator = world.operator("ipblock-operator-0").await;
    for (engine, faults) in [
        (
            "iptables",
            [
                ("reset", "GatewayReset", "connection closed"),
                ("fail", "GatewayFailed", "failed: simulated failure"),
            ],
        ),
        (
            "xdp",
            [
                ("fail", "GatewayFailed", "failed: Failed to add"),
                ("503", "GatewayError", "answered HTTP 503"),
            ],
        ),
    ] {
        let reloads = "ipblock_config_reloads_total";
        let (former, loaded) = (
            world.configuration().await["engine"].clone(),
            operator.counted(reloads, &[]).await,
        );
        world.configure(json!({"engine": engine})).await;
        if former != engine {
            // A block that is made before is tried at the former engine first.
            until("the engine is loaded", async || {
                operator.counted(reloads, &[]).await > loaded
            })
            .await;
        }
        let (name, ip) = (engine, "203.0.113.93");
        for (n, (fault, reason, words)) in faults.into_iter().enumerate() {
            world.gateway.no_faults().await;
            world.gateway.fault(&format!("fault={fault}")).await;
            let before = failures(&operator).await;
            if n == 0 {
                block(&world, name, ip).await;
            }
            let shown = world.reason(name, reason).await;
            assert_eq!(shown["status"]["phase"], "pending", "{shown:#}");
            let message = shown["status"]["message"].as_str().unwrap_or_default();
            assert!(
                message.contains(words) && message.contains(engine),
                "{fault}: {message}"
            );
            if n == 0 {
                until(&format!("{fault}: it is tried again"), async || {
                    failures(&operator).await >= before + 4.0
                })
                .await;
                let later = world.block(name).await.expect("it is there");
                assert_eq!(
                    later["metadata"]["resourceVersion"], shown["metadata"]["resourceVersion"],
                    "what is the same as before is not written again"
                );
            }
        }
        world.gateway.no_faults().await;
        world.phase(name, "active").await;
        world.gateway.enforces_by(engine, &[ip]).await;
        until("every change has its Event", async || {
            world.events(name).await.len() >= 3
        })
        .await;
        let [one, other] = faults.map(|(_, _, words)| words);
        let wanted = [("BanFailed", one), ("BanFailed", other), ("Banned", ip)];
        said_once(&world, name, &wanted).await;
        world.delete(name).await;
        world.enforces(&[]).await;
    }
}

async fn a_ban_that_cannot_be_lifted_says_so_once_and_is_lifted_later(world: World) {
    let operator = world.operator("ipblock-operator-0").await;
    world.gateway.fault("fault=fail&operation=unban").await;
    world.create("kept", json!({"ip": "203.0.113.95"})).await;
    world.phase("kept", "active").await;
    let unblock = json!({"spec": {"unblock": true}});
    world.patch("kept", unblock).await;
    let kept = world.message("kept", "lifting the ban failed").await;
    assert_eq!(kept["status"]["phase"], "active", "it is still enforced");
    until("it is tried again", async || {
        failures(&operator).await >= 4.0
    })
    .await;
    world.enforces(&["203.0.113.95"]).await;
    world.gateway.no_faults().await;
    world.phase("kept", "expired").await;
    world.enforces(&[]).await;
    until("every change has its Event", async || {
        world.events("kept").await.len() >= 3
    })
    .await;
    let target = "203.0.113.95";
    said_once(
        &world,
        "kept",
        &[
            ("Banned", target),
            ("LiftFailed", target),
            ("Unbanned", target),
        ],
    )
    .await;
}

async fn a_gateway_that_is_away_is_retried_and_the_reason_is_shown(mut world: World) {
    let operator = world.operator("ipblock-operator-0").await;
    world.gateway.down().await;
    let blocks = [
        ("waiting-1", "203.0.113.96"),
        ("waiting-2", "203.0.113.97"),
        ("waiting-3", "203.0.113.98"),
    ];
    for (name, ip) in blocks {
        block(&world, name, ip).await;
    }
    for (name, _) in blocks {
        let shown = world.reason(name, "GatewayRefused").await;
        assert_eq!(shown["status"]["phase"], "pending", "{shown:#}");
        let message = shown["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("connection refused"), "{message}");
    }
    // More than five in a row: the gateway is not called for a while, with the same text.
    until("all are tried again", async || {
        failures(&operator).await >= 12.0
    })
    .await;
    world.gateway.up().await;
    for (name, ip) in blocks {
        world.phase(name, "active").await;
        until("both changes have an Event", async || {
            world.events(name).await.len() >= 2
        })
        .await;
        said_once(&world, name, &[("BanFailed", "refused"), ("Banned", ip)]).await;
    }
    world.enforces(&blocks.map(|(_, ip)| ip)).await;
}

async fn block(world: &World, name: &str, ip: &str) {
    world
        .create(name, json!({"ip": ip, "duration": "1h"}))
        .await;
}

/// How many calls of the gateway failed so far.
async fn failures(operator: &Operator) -> f64 {
    let metric = "ipblock_engine_request_seconds_count";
    operator.counted(metric, &[]).await - operator.counted(metric, &["outcome=\"ok\""]).await
}

/// The Events about a block are these, each once: reason, and words of the note.
async fn said_once(world: &World, name: &str, wanted: &[(&str, &str)]) {
    let events = world.events(name).await;
    assert_eq!(events.len(), wanted.len(), "{events:#?}");
    for (event, (reason, words)) in events.iter().zip(wanted) {
        assert_eq!(event.reason, *reason, "{events:#?}");
        assert!(event.note.contains(words), "{words}: {events:#?}");
        assert_eq!(event.times, 1, "{events:#?}");
    }
}

async fn a_dead_gateway_does_not_hang_a_deletion_when_released(mut world: World) {
    let _operator = world.operator("ipblock-operator-0").await;
    world
        .create("held", json!({"ip": "203.0.113.91", "duration": "1h"}))
        .await;
    world.phase("held", "active").await;
    world.gateway.down().await;
    world.delete("held").await;
    let held = world
        .block("held")
        .await
        .expect("the finalizer holds it while the ban may still be there");
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    world
        .patch(
            "held",
            json!({"metadata": {"annotations": {ipblock_operator::api::RELEASE_ANNOTATION: "true"}}}),
        )
        .await;
    world
        .until("the annotation releases it", async |world| {
            world.block("held").await.is_none()
        })
        .await;
}

async fn original_bad_objects_end_failed_with_the_reason(world: World) {
    // Made before the CRD had its checks: put in by taking the checks away for a moment.
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ipblocks.ops.yiiong.top";
    let crd = world.request("GET", path, &serde_json::Value::Null).await;
    let mut open = crd.clone();
    open["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    world.request("PUT", path, &open).await;
    let bad = [
        ("hostname", json!({"ip": "example.org"}), "example.org"),
        ("no-ip", json!({"ip": "not-an-ip"}), "not-an-ip"),
        (
            "injected",
            json!({"ip": "203.0.113.1&ip=1.1.1.1"}),
            "203.0.113.1&ip",
        ),
        (
            "negative",
            json!({"ip": "203.0.113.1", "duration": "-5m"}),
            "negative",
        ),
        (
            "zero",
            json!({"ip": "203.0.113.1", "duration": "0s"}),
            "zero",
        ),
        (
            "huge",
            json!({"ip": "203.0.113.1", "duration": "99999999999h"}),
            "100 years",
        ),
        (
            "words",
            json!({"ip": "203.0.113.1", "duration": "soon"}),
            "soon",
        ),
    ];
    for (name, spec, _) in &bad {
        world
            .until(&format!("{name}: a bad object can be made"), async |world| {
                let body = json!({"apiVersion": "ops.yiiong.top/v1", "kind": "IPBlock", "metadata": {"name": name}, "spec": spec});
                world.try_request("POST", BLOCKS, &body).await.is_ok()
            })
            .await;
    }
    let _operator = world.operator("ipblock-operator-0").await;
    for (name, _, words) in &bad {
        let failed = world.phase(name, "failed").await;
        let message = failed["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{name}: {message}");
    }
    block(&world, "good", "203.0.113.92").await;
    world.phase("good", "active").await;
    world.enforces(&["203.0.113.92"]).await;
    // Wrong types cannot be read at all. They stop nothing.
    for (name, spec) in [
        ("number", json!({"ip": 7})),
        ("nothing", json!({})),
        ("text", json!("203.0.113.1")),
    ] {
        let body = json!({"apiVersion": "ops.yiiong.top/v1", "kind": "IPBlock", "metadata": {"name": name}, "spec": spec});
        world.request("POST", BLOCKS, &body).await;
    }
    block(&world, "after", "203.0.113.93").await;
    world.phase("after", "active").await;
    world.enforces(&["203.0.113.92", "203.0.113.93"]).await;
}

//! The life of a block, as kubectl shows it and the gateway enforces it.

use serde_json::{Value, json};

use crate::world::{BLOCKS, World};

on_both_servers!(
    a_block_is_banned_and_lifted_when_due,
    kubectl_drives_the_whole_lifecycle,
    bad_specs_are_refused_with_the_field_named,
    two_blocks_on_one_address_hold_until_the_longer_is_due,
    ranges_and_ipv6_are_enforced_in_canonical_form,
    editing_the_duration_moves_the_end_and_editing_the_reason_bans_nothing_again,
);

async fn a_block_is_banned_and_lifted_when_due(world: World) {
    let _operator = world.operator("ipblock-operator-0").await;
    world
        .create(
            "short",
            json!({"ip": "203.0.113.9", "duration": "3s", "reason": "scan", "source": "test"}),
        )
        .await;
    let active = world.phase("short", "active").await;
    assert_eq!(active["status"]["target"], "203.0.113.9");
    assert_eq!(active["status"]["banCount"], 1);
    assert_eq!(active["status"]["result"], "success");
    assert!(
        active["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|finalizers| finalizers.len() == 1),
        "{active:#}"
    );
    world.enforces(&["203.0.113.9"]).await;

    let expired = world.phase("short", "expired").await;
    world.enforces(&[]).await;
    assert!(expired["status"]["unblockedAt"].is_string(), "{expired:#}");
    world
        .until("both transitions have an Event", async |world| {
            let reasons = world.event_reasons("short").await;
            reasons.iter().any(|reason| reason == "Banned")
                && reasons.iter().any(|reason| reason == "Expired")
        })
        .await;

    world.delete("short").await;
    world
        .until("a deleted block is gone", async |world| {
            world.block("short").await.is_none()
        })
        .await;
}

async fn kubectl_drives_the_whole_lifecycle(world: World) {
    let Some(kubectl) = world.kubectl() else {
        return;
    };
    let _operator = world.operator("ipblock-operator-0").await;
    let manifest = "apiVersion: ops.yiiong.top/v1\nkind: IPBlock\nmetadata: {name: scanner, namespace: default}\nspec: {ip: 203.0.113.7, duration: 10m, reason: port scan, source: kubectl}\n";
    let created = kubectl.apply(&["apply", "-f", "-"], Some(manifest)).await;
    assert_eq!(created.trim(), "ipblock.ops.yiiong.top/scanner created");
    kubectl
        .ok(&[
            "wait",
            "--for=condition=Enforced",
            "ipb/scanner",
            "--timeout=30s",
        ])
        .await;
    world.enforces(&["203.0.113.7"]).await;

    let table = kubectl.ok(&["get", "ipb"]).await;
    let mut lines = table.lines();
    let header: Vec<&str> = lines.next().unwrap_or("").split_whitespace().collect();
    assert_eq!(
        header,
        ["NAME", "IP", "PHASE", "EXPIRES", "REASON", "SOURCE", "AGE"],
        "{table}"
    );
    let row = lines.next().unwrap_or("");
    assert!(
        row.starts_with("scanner")
            && row.contains("203.0.113.7")
            && row.contains("active")
            && row.contains("port scan"),
        "{table}"
    );

    world
        .until("describe shows the Banned event", async |world| {
            let kubectl = world.kubectl().expect("found before");
            kubectl
                .ok(&["describe", "ipb", "scanner"])
                .await
                .contains("Banned")
        })
        .await;

    let edited = kubectl.ok(&["edit", "ipb", "scanner"]).await;
    assert!(edited.contains("edited"), "{edited}");
    let unchanged = world.phase("scanner", "active").await;
    assert_eq!(
        unchanged["status"]["banCount"], 1,
        "editing the reason bans nothing again"
    );
    assert_eq!(unchanged["spec"]["reason"], "edited");

    kubectl
        .ok(&[
            "patch",
            "ipb",
            "scanner",
            "--type=merge",
            "-p",
            r#"{"spec":{"unblock":true}}"#,
        ])
        .await;
    kubectl
        .ok(&[
            "wait",
            "--for=jsonpath={.status.phase}=expired",
            "ipb/scanner",
            "--timeout=30s",
        ])
        .await;
    world.enforces(&[]).await;
    assert_ne!(
        world.block("scanner").await.expect("still there")["spec"]["unblock"],
        true,
        "the request is taken back once done"
    );

    kubectl
        .ok(&[
            "patch",
            "ipb",
            "scanner",
            "--type=merge",
            "-p",
            r#"{"spec":{"trigger":true}}"#,
        ])
        .await;
    kubectl
        .ok(&[
            "wait",
            "--for=condition=Enforced",
            "ipb/scanner",
            "--timeout=30s",
        ])
        .await;
    world.enforces(&["203.0.113.7"]).await;
    assert_eq!(
        world.phase("scanner", "active").await["status"]["banCount"],
        2
    );

    let bad = manifest
        .replace("203.0.113.7", "example.org")
        .replace("scanner", "bad");
    let refusal = kubectl.refused(&["create", "-f", "-"], Some(&bad)).await;
    assert!(
        refusal.contains("spec.ip must be an IP address or a CIDR range"),
        "{refusal}"
    );

    let deleted = kubectl
        .ok(&["delete", "ipb", "scanner", "--timeout=30s"])
        .await;
    assert!(deleted.contains("deleted"), "{deleted}");
    assert!(
        world.gateway.enforced().await.is_empty(),
        "kubectl delete returns when the ban is lifted"
    );
}

async fn bad_specs_are_refused_with_the_field_named(world: World) {
    let good = "203.0.113.1";
    let long = "x".repeat(5000);
    let cases = [
        ("not-an-address", json!({"ip": "not-an-ip"}), "spec.ip"),
        ("hostname", json!({"ip": "example.org"}), "spec.ip"),
        ("octets", json!({"ip": "1.2.3.256"}), "spec.ip"),
        ("zeros", json!({"ip": "001.2.3.4"}), "spec.ip"),
        ("prefix", json!({"ip": "203.0.113.0/33"}), "spec.ip"),
        ("port", json!({"ip": "203.0.113.1:80"}), "spec.ip"),
        ("zone", json!({"ip": "fe80::1%eth0"}), "spec.ip"),
        ("query", json!({"ip": "203.0.113.1&ip=1.1.1.1"}), "spec.ip"),
        ("empty", json!({"ip": ""}), "spec.ip"),
        ("no-address", json!({"reason": "none"}), "spec.ip"),
        ("number", json!({"ip": 7}), "spec.ip"),
        ("null", json!({"ip": null}), "spec.ip"),
        ("list", json!({"ip": ["203.0.113.1"]}), "spec.ip"),
        (
            "negative",
            json!({"ip": good, "duration": "-5m"}),
            "spec.duration",
        ),
        (
            "zero",
            json!({"ip": good, "duration": "0s"}),
            "spec.duration",
        ),
        (
            "huge",
            json!({"ip": good, "duration": "99999999999h"}),
            "spec.duration",
        ),
        (
            "words",
            json!({"ip": good, "duration": "soon"}),
            "spec.duration",
        ),
        (
            "no-unit",
            json!({"ip": good, "duration": "10"}),
            "spec.duration",
        ),
        (
            "seconds",
            json!({"ip": good, "duration": 300}),
            "spec.duration",
        ),
        ("tags", json!({"ip": good, "tags": "one"}), "spec.tags"),
        ("tag", json!({"ip": good, "tags": [1]}), "spec.tags[0]"),
        (
            "unblock",
            json!({"ip": good, "unblock": "yes"}),
            "spec.unblock",
        ),
        ("trigger", json!({"ip": good, "trigger": 1}), "spec.trigger"),
        ("reason", json!({"ip": good, "reason": long}), "spec.reason"),
        ("by", json!({"ip": good, "by": {}}), "spec.by"),
        ("spec", json!("203.0.113.1"), "spec"),
    ];
    for (name, spec, field) in cases {
        let refusal = refused(&world, BLOCKS, name, &spec).await;
        assert_eq!(refusal.code, 422, "{name}: {refusal:?}");
        assert_eq!(refusal.reason, "Invalid", "{name}: {refusal:?}");
        let causes = refusal.details.map(|details| details.causes);
        let named = causes.iter().flatten().any(|cause| cause.field == field);
        assert!(named, "{name}: {field} in {causes:?}");
        assert!(
            refusal.message.contains(field),
            "{name}: {}",
            refusal.message
        );
    }
    let strict = format!("{BLOCKS}?fieldValidation=Strict");
    for (name, spec, field) in [
        (
            "misspelt",
            json!({"ip": good, "durration": "5m"}),
            "unknown field \"spec.durration\"",
        ),
        (
            "invented",
            json!({"ip": good, "ports": [80]}),
            "unknown field \"spec.ports\"",
        ),
    ] {
        let refusal = refused(&world, &strict, name, &spec).await;
        assert_eq!(refusal.code, 400, "{name}: {refusal:?}");
        assert!(
            refusal.message.contains(field),
            "{name}: {}",
            refusal.message
        );
    }
    assert!(world.blocks().await.is_empty(), "nothing was made");
    // kubectl asks for strictness by itself.
    if let Some(kubectl) = world.kubectl() {
        let manifest = "apiVersion: ops.yiiong.top/v1\nkind: IPBlock\nmetadata: {name: typed, namespace: default}\nspec: {ip: 203.0.113.1, durration: 5m}\n";
        let said = kubectl
            .refused(&["create", "-f", "-"], Some(manifest))
            .await;
        assert!(said.contains("unknown field \"spec.durration\""), "{said}");
        let bad = manifest.replace("durration: 5m", "duration: -5m");
        let said = kubectl.refused(&["create", "-f", "-"], Some(&bad)).await;
        assert!(said.contains("spec.duration must be a duration"), "{said}");
    }

    world
        .create("fixed", json!({"ip": "203.0.113.1", "duration": "5m"}))
        .await;
    let moved = world
        .try_request(
            "PATCH",
            "/apis/ops.yiiong.top/v1/namespaces/default/ipblocks/fixed",
            &json!({"spec": {"ip": "203.0.113.2"}}),
        )
        .await;
    assert!(
        moved
            .expect_err("an address never changes")
            .to_string()
            .contains("immutable")
    );
}

/// The API server's error for a block that it refuses.
async fn refused(
    world: &World,
    path: &str,
    name: &str,
    spec: &Value,
) -> kube_core::response::Status {
    let body = json!({"apiVersion": "ops.yiiong.top/v1", "kind": "IPBlock", "metadata": {"name": name}, "spec": spec});
    match world.try_request("POST", path, &body).await {
        Err(kube_client::Error::Api(status)) => *status,
        other => panic!("{name} is refused: {other:?}"),
    }
}

async fn two_blocks_on_one_address_hold_until_the_longer_is_due(world: World) {
    let _operator = world.operator("ipblock-operator-0").await;
    world
        .create("short", json!({"ip": "203.0.113.20", "duration": "2s"}))
        .await;
    world
        .create("long", json!({"ip": "203.0.113.20", "duration": "10m"}))
        .await;
    world.phase("long", "active").await;
    world.phase("short", "expired").await;
    world.enforces(&["203.0.113.20"]).await;
    world.delete("long").await;
    world.enforces(&[]).await;
}

async fn ranges_and_ipv6_are_enforced_in_canonical_form(world: World) {
    // The iptables agent has IPv4 only.
    world.configure(json!({"engine": "xdp"})).await;
    let _operator = world.operator("ipblock-operator-0").await;
    for (name, ip, target) in [
        ("range", "198.51.100.77/24", "198.51.100.0/24"),
        ("six", "2001:0DB8:0:0::1", "2001:db8::1"),
        ("host", "203.0.113.5/32", "203.0.113.5"),
    ] {
        world
            .create(name, json!({"ip": ip, "duration": "5m"}))
            .await;
        assert_eq!(
            world.phase(name, "active").await["status"]["target"],
            target,
            "{ip}"
        );
    }
    world
        .enforces(&["198.51.100.0/24", "2001:db8::1", "203.0.113.5"])
        .await;
}

async fn editing_the_duration_moves_the_end_and_editing_the_reason_bans_nothing_again(
    world: World,
) {
    let _operator = world.operator("ipblock-operator-0").await;
    world
        .create("edited", json!({"ip": "203.0.113.30", "duration": "1h"}))
        .await;
    let before = world.phase("edited", "active").await;
    world
        .patch("edited", json!({"spec": {"duration": "2h"}}))
        .await;
    world
        .until("the end moves with the duration", async |world| {
            let block = world.block("edited").await.expect("it is there");
            block["status"]["expiresAt"] != before["status"]["expiresAt"]
        })
        .await;
    let after = world.phase("edited", "active").await;
    assert_eq!(after["status"]["blockedAt"], before["status"]["blockedAt"]);
    assert_eq!(after["status"]["banCount"], 1);
    world
        .patch("edited", json!({"spec": {"duration": "1s"}}))
        .await;
    world.phase("edited", "expired").await;
    world.enforces(&[]).await;
}

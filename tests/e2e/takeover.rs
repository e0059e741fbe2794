//! Objects of the original operator, and leaving again.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::manifests;
use crate::process::{Process, get};
use crate::recorder::Recorder;
use crate::world::{BLOCKS, World, collection, until};

on_both_servers!(
    objects_of_the_original_are_adopted,
    uninstall_lifts_bans_and_leaves_nothing,
    uninstall_can_keep_bans
);

async fn objects_of_the_original_are_adopted(world: World) {
    // As the original leaves them: no expiresAt, an old hash, a local zone, no finalizer; the gateway already bans them.
    let now = Timestamp::from_second(seconds_now()).expect("a date");
    let zone = jiff::tz::Offset::constant(8).to_time_zone();
    let at = |ago: i64| {
        let when = now - jiff::SignedDuration::from_secs(ago);
        when.to_zoned(zone.clone())
            .strftime("%Y-%m-%dT%H:%M:%S+08:00")
            .to_string()
    };
    let timed = "ipblock-6465ec74397c9126";
    for (name, ip, duration, blocked) in [
        (timed, "1.2.3.4", "1h", at(60)),
        ("overdue", "203.0.113.100", "1m", at(3600)),
        ("forever", "203.0.113.101", "", at(60)),
    ] {
        let status = json!({"phase": "active", "result": "success", "message": "limited", "blockedAt": blocked,
            "lastSpecHash": "0f0e0d0c", "banCount": 3});
        original(&world, name, ip, duration, &status).await;
        get(world.gateway.address, &format!("/limit?ip={ip}"))
            .await
            .expect("the gateway bans it");
    }
    let over = json!({"phase": "expired", "result": "unblocked", "message": "unlimited", "blockedAt": at(7200),
        "unblockedAt": at(3600), "lastSpecHash": "0f0e0d0c", "banCount": 1});
    let untouched = original(&world, "over", "203.0.113.102", "1h", &over).await;
    // Its ConfigMap, with errors that it ignores: a line that is not an address, templates in its image.
    let hook = Recorder::start();
    world
        .replace_configuration(&json!({
            "gatewayHost": world.gateway.address.to_string(),
            "engine": "iptables",
            "whitelist": "198.51.100.7\n\nnot-an-address\n",
            "trigger": format!("- name: grafana\n  addr: \"127.0.0.1:{}\"\n  path: \"/trigger/grafana\"\n", crate::process::free_port()),
            "notifyType": "lark",
            "notifyWebhookURL": hook.url("/bot"),
            "notifyTemplate_ban": "/templates/lark/ban.json",
            "notifyTemplate_resolve": "/templates/lark/resolve.json",
            "notifyTemplate_common": "/templates/lark/common.json",
        }))
        .await;
    for (round, fresh) in ["203.0.113.103", "203.0.113.104"].into_iter().enumerate() {
        // The second time it has taken over already, and reads its own objects.
        let operator = world
            .operator_with("ipblock-operator-0", &["--insecure-triggers", "--takeover"])
            .await;
        world.phase("overdue", "expired").await;
        for name in [timed, "forever"] {
            until(&format!("{name} gets a finalizer"), async || {
                let block = world.block(name).await.unwrap_or_default();
                !block["metadata"]["finalizers"].is_null() && !block["status"]["target"].is_null()
            })
            .await;
            let adopted = world.phase(name, "active").await;
            let status = &adopted["status"];
            assert_eq!(status["banCount"], 3, "adopting is no new ban: {adopted:#}");
            let time = |field: &str| status[field].as_str()?.parse::<Timestamp>().ok();
            let began = now - jiff::SignedDuration::from_secs(60);
            assert_eq!(time("blockedAt"), Some(began), "{adopted:#}");
            let until = began + jiff::SignedDuration::from_hours(1);
            let until = (name == timed).then_some(until);
            assert_eq!(time("expiresAt"), until, "{adopted:#}");
        }
        // Notifications go out in order: those about the others are out when this one is.
        let name = format!("fresh-{round}");
        world
            .create(&name, json!({"ip": fresh, "duration": "1h"}))
            .await;
        hook.receives("/bot", fresh).await;
        assert_eq!(operator.process.terminate().await, Some(0));
    }
    let all = hook.all();
    let cards_about = |ip: &str| {
        let bodies = all.iter().map(|one| one.body.to_string());
        bodies.filter(|body| body.contains(ip)).count()
    };
    assert_eq!(
        cards_about("1.2.3.4") + cards_about("203.0.113.101"),
        0,
        "{all:#?}"
    );
    // Only what really happened: one lifted, two banned.
    for ip in ["203.0.113.100", "203.0.113.103", "203.0.113.104"] {
        assert_eq!(cards_about(ip), 1, "{ip}: {all:#?}");
    }
    assert_eq!(all.len(), 3, "{all:#?}");
    world
        .enforces(&["1.2.3.4", "203.0.113.101", "203.0.113.103", "203.0.113.104"])
        .await;
    let over = world.block("over").await.expect("it is there");
    assert_eq!(
        over["metadata"]["resourceVersion"], untouched["metadata"]["resourceVersion"],
        "what is settled is not written: {over:#}"
    );
}

/// An object as the original leaves it.
async fn original(world: &World, name: &str, ip: &str, duration: &str, status: &Value) -> Value {
    let spec = json!({"ip": ip, "duration": duration, "reason": "old", "source": "grafana"});
    world.create(name, spec).await;
    let path = format!("{BLOCKS}/{name}/status");
    world
        .request("PATCH", &path, &json!({"status": status}))
        .await
}

async fn uninstall_lifts_bans_and_leaves_nothing(world: World) {
    uninstall(&world, "--bans=lift", &[]).await;
    let blocks = world.blocks().await;
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        assert_eq!(block["status"]["phase"], "expired", "{block:#}");
        assert!(block["status"]["expiresAt"].is_null(), "{block:#}");
    }
    // `kubectl delete -k manifests/`: the objects go with their kind, and nothing hangs.
    for document in manifests() {
        world.delete_document(&document).await;
    }
    for document in manifests() {
        let (kind, name) = (&document["kind"], &document["metadata"]["name"]);
        world
            .until(&format!("{kind} {name} is gone"), async |world| {
                !world.has_document(&document).await
            })
            .await;
    }
    world
        .until("the kind is not served any more", async |world| {
            world
                .try_request("GET", BLOCKS, &Value::Null)
                .await
                .is_err()
        })
        .await;
    // The operator's own objects, and those with its label of whichever kind.
    for kind in [
        "Lease",
        "ConfigMap",
        "Secret",
        "Service",
        "ServiceAccount",
        "Deployment",
        "Job",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
    ] {
        let list = world
            .try_request("GET", &collection(kind, "default"), &Value::Null)
            .await;
        // The built-in server does not serve every kind.
        let list = match list {
            Err(_) if kind == "Job" => continue,
            list => list.unwrap_or_else(|error| panic!("{kind}: {error}")),
        };
        let left: Vec<&Value> = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|item| &item["metadata"])
            .filter(|metadata| metadata.to_string().contains("ipblock"))
            .collect();
        assert!(left.is_empty(), "{kind}: {left:#?}");
    }
}

async fn uninstall_can_keep_bans(world: World) {
    uninstall(&world, "--bans=keep", &["203.0.113.110", "203.0.113.111"]).await;
    for block in world.blocks().await {
        assert_eq!(block["status"]["phase"], "active", "{block:#}");
        let name = block["metadata"]["name"].as_str().expect("a name");
        world.delete(name).await;
    }
    assert!(
        world.blocks().await.is_empty(),
        "nothing holds the objects any more"
    );
    world.enforces(&["203.0.113.110", "203.0.113.111"]).await;
}

/// As in docs/operate.md: the operator is scaled to zero, then the Job runs.
async fn uninstall(world: &World, bans: &str, left: &[&str]) {
    let operator = world.operator("ipblock-operator-0").await;
    for n in 0..2 {
        let name = format!("left-{n}");
        let ip = format!("203.0.113.11{n}");
        world
            .create(&name, json!({"ip": ip, "duration": "1h"}))
            .await;
        world.phase(&name, "active").await;
    }
    assert_eq!(operator.process.terminate().await, Some(0));
    let container = crate::cluster::uninstall_container();
    let mut args = crate::cluster::arguments(&container);
    for arg in &mut args {
        if arg.starts_with("--bans=") {
            *arg = bans.into();
        }
    }
    args.push("--allow-loopback".into());
    let process = Process::operator(
        "uninstall",
        &args,
        &world.environment(&container, "uninstall"),
    );
    let (code, log) = process.ended(Duration::from_secs(30)).await;
    assert_eq!(code, Some(0), "{log}");
    world.enforces(left).await;
    let record = "/api/v1/namespaces/default/configmaps/ipblock-operator-record";
    let record = world
        .try_request("GET", record, &serde_json::Value::Null)
        .await;
    assert!(record.is_err(), "nothing of the operator's own stays");
    for block in world.blocks().await {
        let finalizers = block["metadata"]["finalizers"].as_array();
        assert!(finalizers.is_none_or(Vec::is_empty), "{block:#}");
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the test plays a program that ran before, on the real clock"
)]
fn seconds_now() -> i64 {
    Timestamp::now().as_second()
}

//! The ConfigMap, changed while the operator runs.

use reeve_controller::events::{COMBINED, SIMILAR};
use serde_json::json;

use crate::world::World;

on_both_servers!(
    an_allowlist_edit_lifts_what_it_covers,
    a_bad_edit_keeps_the_last_good_configuration,
    without_the_configmap_the_last_configuration_stays,
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
    block(&world, "allowed", "203.0.113.50").await;
    world.phase("allowed", "skipped").await;
    let good = world.configuration().await;
    let refused = async || {
        let metric = "ipblock_config_reloads_total";
        operator.counted(metric, &["result=\"refused\""]).await
    };
    let trigger = "- name: grafana\n  addr: \":1\"\n  path: /p\n  insecur: true\n";
    for (n, (key, text, said)) in [
        (
            "whitelist",
            "203.0.113.50\nnot-an-address",
            "whitelist, line 2",
        ),
        ("protectedRanges", "10.0.0.0/99", "protectedRanges, line 1"),
        ("engine", "netfilter", "engine"),
        ("gatewayHost", "http://", "gatewayHost"),
        ("gatewayHost", "169.254.169.254:80", "gatewayHost"),
        ("requestTimeout", "soon", "requestTimeout"),
        ("protectPrivate", "perhaps", "protectPrivate"),
        ("minPrefixV4", "4", "minPrefixV4"),
        ("minPrefixV6", "129", "minPrefixV6"),
        ("maxDuration", "-1h", "maxDuration"),
        ("defaultDuration", "0s", "defaultDuration"),
        ("resyncInterval", "1s", "resyncInterval"),
        ("debounceEntries", "0", "debounceEntries"),
        ("trigger", trigger, "insecur"),
        ("trigger", "grafana", "trigger"),
        ("notifyType", "pigeon", "notifyType"),
        ("notifyType", "lark", "notifyWebhookURL"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut wrong = good.clone();
        // With each comes a right key, which must not count either.
        wrong["minPrefixV4"] = json!("8");
        wrong[key] = json!(text);
        world.replace_configuration(&wrong).await;
        world
            .until(&format!("{key}: {text:?} is refused"), async |_| {
                refused().await > n as f64
            })
            .await;
        // From the tenth of them within ten minutes on, one Event counts all, and the log has the rest.
        let combined = n + 1 >= SIMILAR;
        world
            .until(&format!("{key}: an Event says so"), async |world| {
                let events = world.events("ipblock-operator-config").await;
                events.iter().any(|event| {
                    let told =
                        event.note.contains(said) || combined && event.note.starts_with(COMBINED);
                    event.reason == "ConfigInvalid" && told
                })
            })
            .await;
        world
            .until(&format!("{key}: the log says so"), async |_| {
                let log = operator.process.log();
                let mut wrong = log.lines().rev();
                let last = wrong.find(|line| line.contains("the configuration is wrong"));
                last.is_some_and(|line| line.contains(said))
            })
            .await;
    }
    // Nothing of the above is in force.
    block(&world, "still-allowed", "203.0.113.50").await;
    world.phase("still-allowed", "skipped").await;
    block(&world, "still-banned", "203.0.113.51").await;
    world.phase("still-banned", "active").await;
    block(&world, "still-too-wide", "198.51.100.0/22").await;
    world.phase("still-too-wide", "failed").await;
    let (status, _) = crate::process::get(operator.health, "/readyz")
        .await
        .expect("it answers");
    assert_eq!(status, 200, "readiness stays");
    // The way back is told too, though nothing changes with it.
    let told = || {
        let log = operator.process.log();
        log.matches("the configuration is in force").count()
    };
    let before = told();
    world.replace_configuration(&good).await;
    world
        .until("it says that all is well again", async |_| told() > before)
        .await;
}

async fn without_the_configmap_the_last_configuration_stays(world: World) {
    let operator = world.operator("ipblock-operator-0").await;
    world.configure(json!({"whitelist": "203.0.113.50"})).await;
    block(&world, "allowed", "203.0.113.50").await;
    world.phase("allowed", "skipped").await;
    let before = world.configuration().await;
    world.delete_configuration().await;
    world
        .until("the operator has noticed", async |_| {
            operator.process.log().contains("the ConfigMap is gone")
        })
        .await;
    block(&world, "still-allowed", "203.0.113.50").await;
    world.phase("still-allowed", "skipped").await;
    block(&world, "still-banned", "203.0.113.51").await;
    world.phase("still-banned", "active").await;
    // Somebody makes it again, without the entry.
    let mut data = before;
    data["whitelist"] = json!("");
    world.create_configuration(&data).await;
    world.phase("allowed", "active").await;
    world.phase("still-allowed", "active").await;
}

async fn block(world: &World, name: &str, ip: &str) {
    world
        .create(name, json!({"ip": ip, "duration": "1h"}))
        .await;
}

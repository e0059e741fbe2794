//! The ConfigMap, changed while the operator runs.

use reeve_controller::events::SIMILAR;
use serde_json::{Value, json};

use crate::world::{Operator, World};

on_both_servers!(
    an_allowlist_edit_lifts_what_it_covers,
    a_bad_edit_keeps_the_last_good_configuration,
    a_bad_edit_of_a_limit_or_a_server_keeps_the_last_good_configuration,
    a_restart_beside_a_bad_edit_goes_on_with_the_last_good_configuration,
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
    operator.ready().await;
    world.configure(json!({"whitelist": "203.0.113.50"})).await;
    block(&world, "allowed", "203.0.113.50").await;
    world.phase("allowed", "skipped").await;
    let good = world.configuration().await;
    let edits = [
        (
            "whitelist",
            "203.0.113.50\nnot-an-address",
            "whitelist, line 2",
        ),
        ("protectedRanges", "10.0.0.0/99", "protectedRanges, line 1"),
        ("engine", "netfilter", "engine: unknown engine"),
        ("gatewayHost", "http://", "gatewayHost"),
        (
            "gatewayHost",
            "169.254.169.254:80",
            "gatewayHost: the operator must not",
        ),
        ("requestTimeout", "soon", "requestTimeout"),
        ("protectPrivate", "perhaps", "protectPrivate"),
        (
            "gatewayBearerTokenFile",
            "/var/run/secrets/kubernetes.io/serviceaccount/token",
            "gatewayBearerTokenFile",
        ),
    ];
    all_refused(&world, &operator, &good, &edits).await;
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
    // The way back is reported too, though nothing changes with it.
    let reported = || {
        let log = operator.process.log();
        log.matches("the configuration is in force").count()
    };
    let before = reported();
    world.replace_configuration(&good).await;
    world
        .until("it reports that all is well again", async |_| {
            reported() > before
        })
        .await;
}

async fn a_bad_edit_of_a_limit_or_a_server_keeps_the_last_good_configuration(world: World) {
    let operator = world.operator("ipblock-operator-0").await;
    block(&world, "banned", "203.0.113.52").await;
    world.phase("banned", "active").await;
    let good = world.configuration().await;
    let trigger = "- name: grafana\n  addr: \":1\"\n  path: /p\n  insecur: true\n";
    let edits = [
        ("minPrefixV6", "129", "minPrefixV6"),
        ("maxDuration", "-1h", "maxDuration"),
        ("defaultDuration", "0s", "defaultDuration"),
        ("resyncInterval", "1s", "resyncInterval"),
        ("debounceEntries", "0", "debounceEntries"),
        ("trigger", trigger, "insecur"),
        ("trigger", "grafana", "trigger, line 1"),
        ("notifyType", "pigeon", "notifyType: unknown channel"),
        ("notifyType", "lark", "notifyWebhookURL: notifyType is set"),
    ];
    all_refused(&world, &operator, &good, &edits).await;
    block(&world, "still-too-wide", "198.51.100.0/22").await;
    world.phase("still-too-wide", "failed").await;
}

/// Each edit of `good` is refused, counted, and reported by an Event and a line of the log that name the error.
async fn all_refused(
    world: &World,
    operator: &Operator,
    good: &Value,
    edits: &[(&str, &str, &str)],
) {
    // From that many within ten minutes on, one Event counts all of them and names none.
    assert!(edits.len() < SIMILAR, "each edit has an Event of its own");
    let refused = async || {
        let metric = "ipblock_config_reloads_total";
        operator.counted(metric, &["result=\"refused\""]).await
    };
    for (n, (key, text, said)) in edits.iter().enumerate() {
        let mut wrong = good.clone();
        // Each edit has a right key too, which must not count either.
        wrong["minPrefixV4"] = json!("8");
        wrong[*key] = json!(text);
        world.replace_configuration(&wrong).await;
        world
            .until(&format!("{key}: {text:?} is refused"), async |_| {
                refused().await > n as f64
            })
            .await;
        world
            .until(&format!("{key}: an Event says so"), async |world| {
                let events = world.events("ipblock-operator-config").await;
                events
                    .iter()
                    .any(|event| event.reason == "ConfigInvalid" && event.note.contains(said))
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
}

async fn a_restart_beside_a_bad_edit_goes_on_with_the_last_good_configuration(world: World) {
    let operator = world.operator("ipblock-operator-0").await;
    world
        .configure(json!({"whitelist": "203.0.113.0/24"}))
        .await;
    block(&world, "before", "203.0.113.60").await;
    world.phase("before", "skipped").await;
    operator.process.kill().await;
    world
        .configure(json!({"whitelist": "203.0.113.0/33"}))
        .await;
    let operator = world.operator("ipblock-operator-0").await;
    block(&world, "office", "203.0.113.61").await;
    world.phase("office", "skipped").await;
    block(&world, "other", "198.51.100.61").await;
    world.phase("other", "active").await;
    world.enforces(&["198.51.100.61"]).await;
    world
        .until("an Event says so", async |world| {
            let events = world.events("ipblock-operator-config").await;
            events.iter().any(|event| {
                event.reason == "ConfigInvalid" && event.note.contains("whitelist, line 1")
            })
        })
        .await;
    operator.ready().await;
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
    // It is made again, without the entry.
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

//! Alerts at a running operator: what a wave of resolved ones lifts, and what one within the grace reports.

use super::*;
use crate::page::tests::get;
use crate::target::Target;

const MINUTE: Duration = Duration::from_secs(60);

impl World {
    /// Bans `count` addresses, each from a block of the trigger `am`.
    async fn banned_by_alerts(&self, count: usize, duration: &str) {
        for number in 0..count {
            let (name, ip) = (format!("a{number}"), format!("192.0.2.{number}"));
            self.create_from("am", &name, &ip, duration).await;
        }
        for number in 0..count {
            self.until(&format!("a{number}"), "active", MINUTE).await;
        }
    }

    /// The last alert of a block is resolved, as a trigger writes it.
    async fn resolve(&self, name: &str) {
        let at = api::write_time(self.clock.now());
        let patch = Patch::Merge(json!({
            "metadata": {"annotations": {api::RESOLVED: at}},
            "spec": {"duration": "1s"},
        }));
        let params = PatchParams::default();
        self.blocks.patch(name, &params, &patch).await.unwrap();
    }
}

const LIFTING: &[(&str, &str)] = &[
    (
        "trigger",
        "[{name: am, type: alertmanager, addr: '127.0.0.1:0', path: /am, insecure: true, resolved: lift}]",
    ),
    ("brake", "{liftPercent: 50, liftLeast: 3}"),
];

#[tokio::test(start_paused = true)]
async fn a_wave_of_resolved_alerts_lifts_few_bans_and_the_rest_stands_over_a_restart_until_its_release()
 {
    let mut world = World::new().await;
    world.configure(LIFTING).await;
    world.start().await;
    world.banned_by_alerts(6, "1h").await;
    tokio::time::sleep(2 * SECOND).await;
    for number in 0..6 {
        world.resolve(&format!("a{number}")).await;
        tokio::time::sleep(SECOND).await;
    }
    let left = ["192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"];
    world.banned_becomes(GATEWAY, &left, SECOND).await;
    assert_eq!(world.reason("a5").await, "ResolvedBraked");
    assert_eq!(world.metric("ipblock_brake{kind=\"alerts\"}"), 1.0);
    tokio::time::sleep(MINUTE).await;
    assert!(world.announced("ResolvedLiftsBraked", "trigger am").await);
    world.kill();
    world.start().await;
    tokio::time::sleep(MINUTE).await;
    world.banned_becomes(GATEWAY, &left, SECOND).await;
    assert_eq!(world.metric("ipblock_brake{kind=\"alerts\"}"), 1.0);
    // A lift by hand passes.
    world.set("a5", json!({"unblock": true})).await;
    world.until("a5", "expired", SECOND).await;
    let message = world.status("a4").await.message.unwrap();
    let id = message.split(" of the ConfigMap to ").nth(1).unwrap();
    assert!(id.starts_with("alerts-am-"), "{message}");
    world.release_brake(id).await;
    for number in 2..5 {
        let status = world.until(&format!("a{number}"), "expired", MINUTE).await;
        assert!(status.expires_at.is_none());
    }
    assert_eq!(world.metric("ipblock_brake{kind=\"alerts\"}"), 0.0);
    tokio::time::sleep(MINUTE).await;
    assert!(
        world
            .announced("BrakeReleased", "ResolvedLiftsBraked")
            .await
    );
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_the_brake_on_resolved_alerts_holds_ends_at_its_own_time() {
    let mut world = World::new().await;
    world.configure(LIFTING).await;
    world.start().await;
    world.banned_by_alerts(4, "5m").await;
    tokio::time::sleep(2 * SECOND).await;
    for number in 0..4 {
        world.resolve(&format!("a{number}")).await;
        tokio::time::sleep(SECOND).await;
    }
    tokio::time::sleep(4 * MINUTE).await;
    assert_eq!(world.reason("a3").await, "ResolvedBraked");
    world.until("a3", "expired", MINUTE).await;
    world.until("a2", "expired", MINUTE).await;
    assert_eq!(world.metric("ipblock_brake{kind=\"alerts\"}"), 0.0);
    tokio::time::sleep(MINUTE).await;
    assert!(world.announced("BrakeEnded", "without a release").await);
    assert!(!world.announced("BrakeReleased", "").await);
}

#[tokio::test]
async fn an_alert_that_meets_the_grace_after_a_lift_by_hand_is_an_event_of_its_block() {
    let mut world = World::new().await;
    world.configure(LIFTING).await;
    world.start().await;
    let triggers = Arc::clone(world.triggers.as_ref().unwrap());
    let started = Instant::now();
    let address = loop {
        if let [address] = triggers.addresses().await.as_slice() {
            break *address;
        }
        assert!(started.elapsed() < MINUTE, "the trigger does not listen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let alert = async || {
        let alert = json!({
            "status": "firing", "fingerprint": "f",
            "labels": {"alertname": "Scan", "ip": "192.0.2.7"},
        });
        let body = json!({"version": "4", "status": "firing", "alerts": [alert]}).to_string();
        let lines = format!("Host: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let answer = get(address, "POST /am", &lines).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    alert().await;
    let name = "192.0.2.7".parse::<Target>().unwrap().object_name();
    world.until(&name, "active", MINUTE).await;
    world.set(&name, json!({"unblock": true})).await;
    world.until(&name, "expired", MINUTE).await;
    alert().await;
    let started = Instant::now();
    while !world.announced("UnblockGrace", "an alert of am").await {
        assert!(started.elapsed() < MINUTE, "no Event");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.until(&name, "expired", SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn lifts_by_resolved_alerts_before_a_restart_count_for_the_brake_after_it() {
    let mut world = World::new().await;
    world.configure(LIFTING).await;
    world.start().await;
    world.banned_by_alerts(6, "1h").await;
    tokio::time::sleep(2 * SECOND).await;
    for number in 0..2 {
        world.resolve(&format!("a{number}")).await;
        world
            .until(&format!("a{number}"), "expired", 5 * SECOND)
            .await;
    }
    world.kill();
    world.start().await;
    tokio::time::sleep(MINUTE).await;
    for number in 2..6 {
        world.resolve(&format!("a{number}")).await;
        tokio::time::sleep(SECOND).await;
    }
    tokio::time::sleep(MINUTE).await;
    let left = ["192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"];
    world.banned_becomes(GATEWAY, &left, SECOND).await;
    assert_eq!(world.reason("a2").await, "ResolvedBraked");
}

#[tokio::test(start_paused = true)]
async fn a_brake_is_found_again_after_a_restart_while_the_gateway_is_away() {
    let mut world = World::new().await;
    let mut data = LIFTING.to_vec();
    data.push(("resyncInterval", "1m"));
    world.configure(&data).await;
    let faults = world.faulty(Duration::ZERO);
    let connect = || Arc::new(super::faulty::Connect(Arc::clone(&faults)));
    let connector = connect();
    world
        .start_with(|settings| settings.connector = Some(connector))
        .await;
    world.banned_by_alerts(6, "1h").await;
    tokio::time::sleep(2 * SECOND).await;
    for number in 0..6 {
        world.resolve(&format!("a{number}")).await;
        tokio::time::sleep(SECOND).await;
    }
    let left = ["192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"];
    world.banned_becomes(GATEWAY, &left, SECOND).await;
    faults.refuses.lock().insert(GATEWAY.to_owned());
    // Longer than lifts count.
    tokio::time::sleep(12 * MINUTE).await;
    for number in 2..6 {
        let reason = world.reason(&format!("a{number}")).await;
        assert_ne!(reason, "ResolvedBraked", "the gateway is away");
    }
    world.kill();
    faults.refuses.lock().clear();
    let connector = connect();
    world
        .start_with(|settings| settings.connector = Some(connector))
        .await;
    tokio::time::sleep(2 * MINUTE).await;
    world.banned_becomes(GATEWAY, &left, SECOND).await;
    assert_eq!(world.reason("a5").await, "ResolvedBraked");
    assert_eq!(world.metric("ipblock_brake{kind=\"alerts\"}"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn what_both_brakes_on_lifts_hold_stays_held_when_the_edit_is_taken_back() {
    let mut world = World::new().await;
    world.configure(LIFTING).await;
    world.start().await;
    world.banned_by_alerts(6, "5h").await;
    tokio::time::sleep(2 * SECOND).await;
    for number in 0..6 {
        world.resolve(&format!("a{number}")).await;
        tokio::time::sleep(SECOND).await;
    }
    let left = ["192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"];
    world.banned_becomes(GATEWAY, &left, SECOND).await;
    for (allowed, reason) in [("192.0.2.0/24", "LiftBraked"), ("", "ResolvedBraked")] {
        let edited = [LIFTING, &[("whitelist", allowed)]].concat();
        world.configure(&edited).await;
        // The lifts from before the brake engaged are forgotten after ten minutes.
        tokio::time::sleep(15 * MINUTE).await;
        world.banned_becomes(GATEWAY, &left, SECOND).await;
        assert_eq!(world.reason("a5").await, reason);
    }
}

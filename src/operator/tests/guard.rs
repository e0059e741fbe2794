//! The guard rails of an operator: what may be banned, how fast, and what holds back a mass of bans or lifts.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_entry_of_the_allowlist_that_ends_protects_until_then_and_is_reported_a_day_ahead() {
    let mut world = World::new().await;
    let line = "192.0.2.7 until=2026-01-02T00:05:00Z reason=\"the office\"";
    world.configure(&[("whitelist", line)]).await;
    world.start().await;
    world.create("office", "192.0.2.7", "3d").await;
    let status = world.until("office", "skipped", 5 * SECOND).await;
    let message = status.message.unwrap();
    assert!(
        message.contains("(the office, until 2026-01-02T00:05:00Z)"),
        "{message}"
    );
    assert!(!world.announced("AllowlistEnds", "192.0.2.7").await);
    tokio::time::sleep(6 * MINUTE).await;
    assert!(world.announced("AllowlistEnds", "the office").await);
    // Two minutes before the end.
    world.clock.jump(SignedDuration::from_mins(24 * 60 - 3));
    tokio::time::sleep(MINUTE).await;
    let left = "2026-01-02T00:05:00Z".parse::<jiff::Timestamp>().unwrap();
    let left = left.duration_since(world.clock.now());
    assert!(left.is_positive(), "{left:?}");
    world.until("office", "skipped", SECOND).await;
    tokio::time::sleep(left.try_into().unwrap()).await;
    world.until("office", "active", 5 * SECOND).await;
}

impl World {
    pub(super) async fn create_from(&self, source: &str, name: &str, ip: &str, duration: &str) {
        let spec = IPBlockSpec {
            ip: ip.to_owned(),
            duration: Some(duration.to_owned()),
            source: Some(source.to_owned()),
            ..IPBlockSpec::default()
        };
        let create = PostParams::default();
        let block = IPBlock::new(name, spec);
        self.blocks.create(&create, &block).await.unwrap();
    }

    pub(super) async fn set(&self, name: &str, spec: serde_json::Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        let params = PatchParams::default();
        self.blocks.patch(name, &params, &patch).await.unwrap();
    }

    pub(super) async fn release_brake(&self, id: &str) {
        let annotation = json!({"ops.yiiong.top/release-brake": id});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotation}}));
        let params = PatchParams::default();
        self.maps.patch(CONFIG_MAP, &params, &patch).await.unwrap();
    }

    /// Why a block waits.
    pub(super) async fn reason(&self, name: &str) -> String {
        let status = self.status(name).await;
        let ready = status.condition(api::condition::READY);
        ready.map_or_else(String::new, |ready| ready.reason.clone())
    }

    /// The note of the last Event about a brake on bans.
    async fn brake_message(&self) -> String {
        let events: Api<Event> = Api::namespaced(self.server.client(), "default");
        let events = events.list(&ListParams::default()).await.unwrap();
        let about = |event: &&Event| event.reason.as_deref() == Some("BansBraked");
        let last = events
            .items
            .iter()
            .filter(about)
            .max_by_key(|event| event.event_time.as_ref().map(|time| time.0));
        last.unwrap().note.clone().unwrap()
    }

    /// The value of a series.
    pub(super) fn metric(&self, series: &str) -> f64 {
        let text = self.manager.as_ref().unwrap().metrics().encode();
        let line = text.lines().find(|line| line.starts_with(series));
        let line = line.unwrap_or_else(|| panic!("no {series} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// The text that releases the brake, from the message of a block.
fn release_id(message: &str) -> String {
    let id = message.split(" of the ConfigMap to ").nth(1).unwrap();
    id.trim_end_matches(", or raise bansPerMinute").to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_block_over_the_cap_of_active_ones_waits_visibly_and_is_banned_when_another_ends() {
    let mut world = World::new().await;
    world.configure(&[("maxActiveBlocks", "2")]).await;
    world.start().await;
    world.create("a", "192.0.2.1", "1h").await;
    world.create("b", "192.0.2.2", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    world.until("b", "active", 5 * SECOND).await;
    world.create("c", "192.0.2.3", "1h").await;
    let status = world.until("c", "pending", 5 * SECOND).await;
    let message = status.message.unwrap();
    assert!(message.contains("maxActiveBlocks"), "{message}");
    assert!(world.announced("Limited", "maxActiveBlocks").await);
    assert!(world.metric("ipblock_waiting{reason=\"active\"}") > 0.0);
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(world.reason("c").await, "Limited");
    // A lift by hand passes the cap, and makes room at once.
    world.set("a", json!({"unblock": true})).await;
    world.until("a", "expired", SECOND).await;
    world.until("c", "active", SECOND).await;
    let both = ["192.0.2.2", "192.0.2.3"];
    world.banned_becomes(GATEWAY, &both, SECOND).await;
    assert_eq!(world.metric("ipblock_waiting{reason=\"active\"}"), 0.0);
    assert_eq!(
        world.metric("ipblock_limited_total{limit=\"active\",scope=\"all\"}"),
        1.0
    );
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_stands_is_begun_again_whatever_the_caps() {
    let mut world = World::new().await;
    let caps = [("maxActiveBlocks", "1"), ("maxBansPerMinute", "1")];
    world.configure(&caps).await;
    world.start().await;
    world.create("a", "192.0.2.1", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    world.create("b", "192.0.2.2", "1h").await;
    world.until("b", "pending", 5 * SECOND).await;
    for again in 2..=4 {
        world.set("a", json!({"trigger": true})).await;
        tokio::time::sleep(SECOND).await;
        let status = world.status("a").await;
        assert_eq!(
            (status.phase, status.ban_count),
            (Some(api::Phase::Active), Some(again))
        );
        world.banned_becomes(GATEWAY, &["192.0.2.1"], SECOND).await;
    }
    assert_eq!(world.reason("b").await, "Limited");
}

#[tokio::test(start_paused = true)]
async fn a_cap_of_bans_a_minute_by_source_delays_its_bans_and_no_lift_and_no_other_source() {
    let mut world = World::new().await;
    let limits = "sources: {feed: {maxBansPerMinute: 2}}";
    world.configure(&[("limits", limits)]).await;
    world.start().await;
    for last in 1..=4 {
        let (name, ip) = (format!("feed-{last}"), format!("192.0.2.{last}"));
        world.create_from("feed", &name, &ip, "90s").await;
    }
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 2);
    world
        .create_from("grafana", "other", "192.0.2.9", "1h")
        .await;
    world.until("other", "active", SECOND).await;
    // A restart gives no second burst.
    world.kill();
    world.start().await;
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 3);
    tokio::time::sleep(31 * SECOND).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 5);
    // The first two are lifted when they are due, the others have their full time.
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 3);
    assert_eq!(
        world.metric("ipblock_expiry_lag_seconds_bucket{le=\"1.0\"}"),
        2.0
    );
    tokio::time::sleep(62 * SECOND).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_flood_over_the_cap_is_banned_at_the_pace_of_the_cap_also_when_most_of_it_is_deleted() {
    let mut world = World::new().await;
    world.configure(&[("maxBansPerMinute", "3")]).await;
    world.start().await;
    for last in 1..=20 {
        let (name, ip) = (format!("b-{last:02}"), format!("192.0.2.{last}"));
        world.create(&name, &ip, "1h").await;
    }
    tokio::time::sleep(63 * SECOND).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 6);
    let mut waiting = Vec::new();
    for block in world.blocks.list(&ListParams::default()).await.unwrap() {
        let status = block.status.clone().unwrap_or_default();
        if status.is(&api::Phase::Pending) {
            waiting.push(block.metadata.name.unwrap());
        }
    }
    assert_eq!(waiting.len(), 14);
    for name in &waiting[..12] {
        let delete = DeleteParams::default();
        world.blocks.delete(name, &delete).await.unwrap();
    }
    // The last two do not wait for those that are gone.
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 8);
    assert_eq!(world.metric("ipblock_waiting{reason=\"rate\"}"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_mass_of_bans_is_stopped_until_the_brake_is_released_also_over_a_restart() {
    let mut world = World::new().await;
    world.configure(&[("brake", "{bansPerMinute: 3}")]).await;
    world.start().await;
    for last in 1..=8 {
        let (name, ip) = (format!("b-{last}"), format!("192.0.2.{last}"));
        world.create_from("feed", &name, &ip, "1h").await;
    }
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 3);
    assert_eq!(world.metric("ipblock_brake{kind=\"bans\"}"), 1.0);
    assert!(world.announced("BansBraked", "brake.bansPerMinute").await);
    assert!(world.unready().contains("[]"), "{}", world.unready());
    let message = world.brake_message().await;
    world.kill();
    world.start().await;
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(
        world.banned(GATEWAY).await.len(),
        3,
        "the brake is found again"
    );
    assert_eq!(world.brake_message().await, message, "with the same text");
    let id = release_id(&message);
    world.release_brake(&id).await;
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 8);
    assert_eq!(world.metric("ipblock_brake{kind=\"bans\"}"), 0.0);
    assert!(world.announced("BrakeReleased", "BansBraked").await);
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_would_lift_most_bans_is_held_until_it_is_released_or_taken_back() {
    let mut world = World::new().await;
    let brake = ("brake", "{liftPercent: 50, liftLeast: 3}");
    world.configure(&[brake]).await;
    world.start().await;
    for last in 1..=4 {
        let (name, ip) = (format!("b-{last}"), format!("192.0.2.{last}"));
        world.create(&name, &ip, "1h").await;
        world.until(&name, "active", 5 * SECOND).await;
    }
    world.create("short", "192.0.2.5", "2m").await;
    world.until("short", "active", 5 * SECOND).await;
    world
        .configure(&[brake, ("whitelist", "192.0.2.0/24 reason=typo")])
        .await;
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 5, "nothing is lifted");
    assert_eq!(world.metric("ipblock_brake{kind=\"lifts\"}"), 1.0);
    assert_eq!(world.reason("b-1").await, "LiftBraked");
    assert!(world.announced("LiftsBraked", "5 bans out of 5").await);
    assert!(world.unready().contains("[]"), "{}", world.unready());
    // A new block follows the policy; lifts by hand, deletions and due lifts pass.
    world.create("new", "192.0.2.9", "1h").await;
    world.until("new", "skipped", 5 * SECOND).await;
    world.set("b-1", json!({"unblock": true})).await;
    let left = ["192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"];
    world.banned_becomes(GATEWAY, &left, SECOND).await;
    world
        .blocks
        .delete("b-2", &DeleteParams::default())
        .await
        .unwrap();
    tokio::time::sleep(2 * MINUTE).await;
    let both = ["192.0.2.3", "192.0.2.4"];
    world.banned_becomes(GATEWAY, &both, SECOND).await;
    // Taken back.
    world.configure(&[brake, ("whitelist", "")]).await;
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(world.metric("ipblock_brake{kind=\"lifts\"}"), 0.0);
    assert_eq!(world.reason("b-3").await, "Banned");
}

#[tokio::test(start_paused = true)]
async fn a_mass_lift_that_is_meant_is_released_by_the_text_of_its_event_also_after_a_restart() {
    let mut world = World::new().await;
    let brake = ("brake", "{liftPercent: 50, liftLeast: 3}");
    world.configure(&[brake]).await;
    world.start().await;
    for last in 1..=4 {
        let (name, ip) = (format!("b-{last}"), format!("192.0.2.{last}"));
        world.create(&name, &ip, "1h").await;
        world.until(&name, "active", 5 * SECOND).await;
    }
    world.kill();
    // The edit is made while no operator runs.
    world
        .configure(&[brake, ("whitelist", "192.0.2.0/24")])
        .await;
    world.start().await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 4);
    let message = world.status("b-1").await.message.unwrap();
    world.release_brake("something else").await;
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 4);
    world.release_brake(&release_id(&message)).await;
    world.until("b-1", "skipped", 5 * SECOND).await;
    world.banned_becomes(GATEWAY, &[], 5 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_in_shadow_mode_is_shown_and_not_banned_until_it_leaves() {
    let mut world = World::new().await;
    world.configure(&[("shadowSources", "feed")]).await;
    world.start().await;
    world.create_from("feed", "long", "192.0.2.1", "1h").await;
    world.create_from("feed", "short", "192.0.2.2", "1m").await;
    let status = world.until("long", "skipped", 5 * SECOND).await;
    assert!(
        status
            .message
            .unwrap()
            .starts_with("would ban 192.0.2.1 for 1h")
    );
    tokio::time::sleep(2 * MINUTE).await;
    assert!(!world.called(GATEWAY), "no gateway is called");
    assert_eq!(world.metric("ipblock_shadow_total{source=\"feed\"}"), 2.0);
    world.configure(&[("shadowSources", "")]).await;
    world.until("long", "active", 5 * SECOND).await;
    assert_eq!(
        world.banned(GATEWAY).await.len(),
        1,
        "the other's time is over"
    );
}

fn node(name: &str, address: &str) -> k8s_openapi::api::core::v1::Node {
    let node = json!({
        "metadata": {"name": name},
        "spec": {"podCIDR": "198.51.100.0/24", "podCIDRs": ["198.51.100.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    });
    serde_json::from_value(node).unwrap()
}

#[tokio::test(start_paused = true)]
async fn nodes_their_pods_and_services_are_never_banned_also_those_that_come_later() {
    let mut world = World::new().await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(world.server.client());
    let services: Api<k8s_openapi::api::core::v1::Service> =
        Api::namespaced(world.server.client(), "default");
    let create = PostParams::default();
    nodes
        .create(&create, &node("one", "192.0.2.11"))
        .await
        .unwrap();
    world.configure(&[]).await;
    world.start().await;
    world.create("first", "192.0.2.11", "1h").await;
    let status = world.until("first", "skipped", 5 * SECOND).await;
    assert!(status.message.unwrap().contains("node one"));
    assert!(!world.called(GATEWAY), "not for a moment");
    world.create("pod", "198.51.100.9", "1h").await;
    world.until("pod", "skipped", 5 * SECOND).await;
    // Nodes and Services that come later lift what stands against them.
    world.create("later", "192.0.2.12", "1h").await;
    world.create("balancer", "203.0.113.0/28", "1h").await;
    world.until("later", "active", 5 * SECOND).await;
    world.until("balancer", "active", 5 * SECOND).await;
    let mut two = node("two", "192.0.2.12");
    two.spec = None;
    nodes.create(&create, &two).await.unwrap();
    let service = json!({
        "metadata": {"name": "front"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "externalIPs": ["203.0.113.7"]},
    });
    let service = serde_json::from_value(service).unwrap();
    services.create(&create, &service).await.unwrap();
    world.until("later", "skipped", 3 * SECOND).await;
    let status = world.until("balancer", "skipped", 3 * SECOND).await;
    let message = status.message.unwrap();
    assert!(
        message.contains("contains Service default/front (203.0.113.7)"),
        "{message}"
    );
    assert_eq!(
        world.metric("ipblock_protected_ranges{kind=\"nodes\"}"),
        4.0
    );
    // One that goes protects nothing any more, and a switch turns all of it off.
    nodes.delete("two", &DeleteParams::default()).await.unwrap();
    world.until("later", "active", 5 * SECOND).await;
    world.configure(&[("protectCluster", "false")]).await;
    world.until("first", "active", 5 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_without_a_range_of_pods_are_reported_unless_the_range_is_configured() {
    for (ranges, reported) in [("", true), ("198.51.100.0/24", false)] {
        let mut world = World::new().await;
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(world.server.client());
        let mut one = node("one", "192.0.2.11");
        one.spec = None;
        nodes.create(&PostParams::default(), &one).await.unwrap();
        let open = ("protectPrivate", "false");
        world.configure(&[open, ("protectedRanges", ranges)]).await;
        world.start().await;
        tokio::time::sleep(MINUTE).await;
        let found = world.announced("PodRangesUnknown", "protectedRanges").await;
        assert_eq!(found, reported, "{ranges:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_read_nodes_the_operator_works_and_reports_it() {
    let mut world = World::new().await;
    let forbidden = Rule::new().resource("nodes");
    world.server.faults().add(forbidden.status(403, "no right"));
    world.configure(&[]).await;
    world.start().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    tokio::time::sleep(2 * MINUTE).await;
    assert!(world.announced("ConfigPartly", "cannot follow nodes").await);
    assert_eq!(
        world.metric("ipblock_discovery_failing{kind=\"nodes\"}"),
        1.0
    );
    assert!(world.unready().contains("[]"), "{}", world.unready());
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_cannot_express_most_bans_lifts_none_until_the_brake_is_released() {
    let mut world = World::new().await;
    let brake = ("brake", "{liftPercent: 50, liftLeast: 3}");
    world.configure(&[brake, ("engine", "xdp")]).await;
    world.start().await;
    for last in 1..=4 {
        let (name, ip) = (format!("b-{last}"), format!("2001:db8::{last}"));
        world.create(&name, &ip, "1h").await;
        world.until(&name, "active", 5 * SECOND).await;
    }
    world.configure(&[brake, ("engine", "iptables")]).await;
    tokio::time::sleep(MINUTE).await;
    let status = world.until("b-1", "active", SECOND).await;
    assert_eq!(world.reason("b-1").await, "LiftBraked");
    world
        .release_brake(&release_id(&status.message.unwrap()))
        .await;
    world.until("b-1", "failed", 5 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_with_a_name_alone_is_never_banned_at_the_addresses_that_it_has_lately() {
    let mut world = World::new().await;
    let services: Api<k8s_openapi::api::core::v1::Service> =
        Api::namespaced(world.server.client(), "default");
    let service = json!({
        "metadata": {"name": "front"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    let service = serde_json::from_value(service).unwrap();
    let create = PostParams::default();
    services.create(&create, &service).await.unwrap();
    let named = json!({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example"}]}}});
    let params = PatchParams::default();
    let patch = Patch::Merge(&named);
    services
        .patch_status("front", &params, &patch)
        .await
        .unwrap();
    let resolves_to = |address: Option<&str>| {
        *world.names.0.lock() = address.map(|address| address.parse().unwrap());
    };
    resolves_to(Some("198.51.100.1"));
    world.configure(&[]).await;
    world.start().await;
    world.create("first", "198.51.100.1", "1h").await;
    let status = world.until("first", "skipped", 5 * SECOND).await;
    let message = status.message.unwrap();
    assert!(
        message.contains("Service default/front (lb.example)"),
        "{message}"
    );
    assert!(!world.called(GATEWAY), "not for a moment");
    world.create("next", "198.51.100.2", "1h").await;
    world.until("next", "active", 5 * SECOND).await;
    let resolves_to = |address: Option<&str>| {
        *world.names.0.lock() = address.map(|address| address.parse().unwrap());
    };
    resolves_to(Some("198.51.100.2"));
    world.until("next", "skipped", 35 * SECOND).await;
    resolves_to(None);
    tokio::time::sleep(2 * MINUTE).await;
    world.until("next", "skipped", SECOND).await;
    assert!(
        world
            .announced("ConfigPartly", "cannot resolve lb.example")
            .await
    );
    let failing = "ipblock_discovery_failing{kind=\"names\"}";
    assert_eq!(world.metric(failing), 1.0);
    services
        .delete("front", &DeleteParams::default())
        .await
        .unwrap();
    world.until("next", "active", 5 * SECOND).await;
    assert_eq!(world.metric(failing), 0.0);
}

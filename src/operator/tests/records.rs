//! The record of the operator, and the intents of users that it follows.

use reeve_apiserver::faults::Rule;
use reeve_controller::Client;

use super::*;
use crate::reconcile::Record;

const NEXT: &str = "192.0.2.251:9521";

impl World {
    /// A block that was banned at [`GATEWAY`], and a ConfigMap that names [`NEXT`] since. Nothing runs.
    async fn moved() -> Self {
        let mut world = Self::configured().await;
        world.create("a", "192.0.2.7", "10m").await;
        world.until("a", "active", 5 * SECOND).await;
        world.kill();
        world.configure(&[("gatewayHost", NEXT)]).await;
        world
    }

    /// Every Event, in one text.
    async fn events(&self) -> String {
        let events: Api<Event> = Api::namespaced(self.server.client(), "default");
        let events = events.list(&ListParams::default()).await.unwrap();
        let line = |event: &Event| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            format!(
                "{} {}: {}\n",
                text(&event.metadata.name),
                text(&event.reason),
                text(&event.note)
            )
        };
        events.iter().map(line).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_operator_reports_which_intents_it_ignores() {
    let mut world = World::moved().await;
    let delete = DeleteParams::default();
    world.maps.delete(RECORD, &delete).await.unwrap();
    world.start().await;
    world
        .banned_becomes(NEXT, &["192.0.2.7"], 15 * SECOND)
        .await;
    tokio::time::sleep(60 * SECOND).await;
    let announced = world.announced("IntentIgnored", "formerGateways").await;
    assert!(announced, "{}", world.events().await);
}

#[tokio::test(start_paused = true)]
async fn a_start_reads_the_record_once_for_all_workers() {
    let mut world = World::configured().await;
    for n in 0..40 {
        let ip = format!("192.0.2.{n}");
        world.create(&format!("block-{n}"), &ip, "1h").await;
    }
    for n in 0..40 {
        let name = format!("block-{n}");
        world.until(&name, "active", 5 * SECOND).await;
    }
    world.kill();
    let slow = Rule::new().verb("get").resource("configmaps").name(RECORD);
    let slow = world.server.faults().add(slow.delay(SECOND));
    world.start().await;
    tokio::time::sleep(10 * SECOND).await;
    // The reconcilers of blocks, of the set engines and of the configuration, which also writes it.
    assert!((1..=6).contains(&slow.hits()), "{} reads", slow.hits());
}

/// The gateways of the record.
async fn recorded(world: &World) -> String {
    let record = world.maps.get(RECORD).await.unwrap();
    let annotations = record.metadata.annotations.unwrap_or_default();
    annotations["ops.yiiong.top/gateways"].clone()
}

async fn annotate_record(world: &World, annotations: serde_json::Value) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let params = PatchParams::default();
    world.maps.patch(RECORD, &params, &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_replicas_that_write_the_record_at_once_lose_no_gateway_of_each_other() {
    let world = World::new().await;
    let client = Client::new(world.server.client());
    let place = |name: &str| Place::new("iptables", format!("{name}:9521"));
    let replicas = [Record::new("default"), Record::new("default")];
    // First they both create it, then they both change it.
    for names in [["first", "second"], ["third", "fourth"]] {
        let together = Rule::new().verb("get").resource("configmaps").name(RECORD);
        let together = together.times(2).delay_answer(SECOND);
        world.server.faults().add(together);
        let mut writes = Vec::new();
        for (replica, name) in replicas.iter().zip(names) {
            replica.trust([place(name)]);
            let data = BTreeMap::from([("gatewayHost".to_owned(), name.to_owned())]);
            let client = client.clone();
            writes.push(async move { replica.write(&client, &data).await });
        }
        let [one, other] = [writes.remove(0), writes.remove(0)];
        let written = tokio::join!(one, other);
        written.0.unwrap();
        written.1.unwrap();
        let restarted = Record::new("default");
        restarted.read(&client).await.unwrap();
        for name in names {
            assert!(restarted.trusts(&place(name)), "{name}");
        }
    }
    let text = recorded(&world).await;
    assert!(text.contains("first") && text.contains("fourth"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_others_keep_changing_is_reported_and_written_when_they_stop() {
    let world = World::configured().await;
    tokio::time::sleep(5 * SECOND).await;
    let busy = Rule::new()
        .verb("patch")
        .resource("configmaps")
        .name(RECORD);
    let busy = world.server.faults().add(busy.status(409, "changed"));
    world.configure(&[("gatewayHost", NEXT)]).await;
    world.create("a", "192.0.2.7", "1h").await;
    world
        .banned_becomes(NEXT, &["192.0.2.7"], 15 * SECOND)
        .await;
    tokio::time::sleep(5 * SECOND).await;
    assert!(busy.hits() >= 3, "it is tried again at once");
    assert!(
        world
            .announced("ConfigPartly", "cannot write its record")
            .await
    );
    world.server.faults().clear();
    tokio::time::sleep(15 * SECOND).await;
    let text = recorded(&world).await;
    assert!(text.contains(NEXT) && text.contains(GATEWAY), "{text}");
}

#[tokio::test(start_paused = true)]
async fn no_ban_is_made_at_a_gateway_before_the_record_names_it() {
    let world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    let down = Rule::new()
        .verb("patch")
        .resource("configmaps")
        .name(RECORD);
    let down = world.server.faults().add(down.status(503, "down"));
    world.configure(&[("gatewayHost", NEXT)]).await;
    tokio::time::sleep(30 * SECOND).await;
    world.create("b", "192.0.2.8", "1h").await;
    let waits = world.until("b", "pending", 5 * SECOND).await;
    let message = waits.message.unwrap();
    assert!(message.contains("does not name the gateway"), "{message}");
    let stands = BTreeSet::from(["192.0.2.7".to_owned()]);
    assert_eq!(world.banned(GATEWAY).await, stands);
    assert!(!world.called(NEXT));
    assert!(down.hits() >= 3, "it is tried again");
    assert!(
        world
            .announced("ConfigPartly", "cannot write its record")
            .await
    );
    world.server.faults().clear();
    world
        .banned_becomes(NEXT, &["192.0.2.7", "192.0.2.8"], 30 * SECOND)
        .await;
    world.banned_becomes(GATEWAY, &[], 15 * SECOND).await;
    let text = recorded(&world).await;
    assert!(text.contains(NEXT) && text.contains(GATEWAY), "{text}");
}

#[tokio::test(start_paused = true)]
async fn bans_wait_ten_minutes_at_most_for_a_record_that_cannot_be_written() {
    let world = World::configured().await;
    tokio::time::sleep(5 * SECOND).await;
    let down = Rule::new()
        .verb("patch")
        .resource("configmaps")
        .name(RECORD);
    world.server.faults().add(down.status(500, "no webhook"));
    world.configure(&[("gatewayHost", NEXT)]).await;
    world.create("a", "192.0.2.7", "1h").await;
    tokio::time::sleep(590 * SECOND).await;
    assert!(!world.called(NEXT));
    world
        .banned_becomes(NEXT, &["192.0.2.7"], 30 * SECOND)
        .await;
}

#[tokio::test(start_paused = true)]
async fn gateways_that_cannot_be_read_from_the_record_are_reported_and_nothing_is_called_there() {
    for corrupt in ["{not json", "{}", r#"["192.0.2.250:9521"]"#] {
        let mut world = World::moved().await;
        annotate_record(&world, json!({"ops.yiiong.top/gateways": corrupt})).await;
        world.start().await;
        world
            .banned_becomes(NEXT, &["192.0.2.7"], 15 * SECOND)
            .await;
        tokio::time::sleep(60 * SECOND).await;
        let announced = world
            .announced("ConfigPartly", "cannot read annotation")
            .await;
        assert!(announced, "{corrupt}: {}", world.events().await);
        let left = BTreeSet::from(["192.0.2.7".to_owned()]);
        assert_eq!(world.banned(GATEWAY).await, left, "{corrupt}");
        let former = format!("iptables {GATEWAY}");
        let edit = [("gatewayHost", NEXT), ("formerGateways", former.as_str())];
        world.configure(&edit).await;
        world.banned_becomes(GATEWAY, &[], 400 * SECOND).await;
        let text = recorded(&world).await;
        assert!(text.contains(NEXT) && text.contains(GATEWAY), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_last_good_configuration_that_cannot_be_read_bans_nothing_and_the_message_says_so() {
    let mut world = World::configured().await;
    world.create("standing", "192.0.2.7", "1h").await;
    world.until("standing", "active", 5 * SECOND).await;
    world.kill();
    let wrong = Patch::Merge(json!({"data": {"whitelist": "203.0.113.0/33"}}));
    let params = PatchParams::default();
    for map in [RECORD, CONFIG_MAP] {
        world.maps.patch(map, &params, &wrong).await.unwrap();
    }
    world.start().await;
    world.create("new", "198.51.100.7", "1h").await;
    let status = world.until("new", "pending", 20 * SECOND).await;
    let message = status.message.unwrap();
    assert!(message.contains(RECORD), "{message}");
    assert!(world.announced("ConfigInvalid", RECORD).await);
    assert!(world.unready().contains(RECORD), "{}", world.unready());
    tokio::time::sleep(600 * SECOND).await;
    let standing = BTreeSet::from(["192.0.2.7".to_owned()]);
    assert_eq!(world.banned(GATEWAY).await, standing, "what stands stays");
    world.configure(&[("whitelist", "203.0.113.0/24")]).await;
    world.until("new", "active", 20 * SECOND).await;
}

/// A user's block that requests the lift of `ip` at [`GATEWAY`].
async fn forge(world: &World, name: &str, ip: &str) {
    let place = Place::new("iptables", GATEWAY);
    let spec = IPBlockSpec {
        ip: ip.into(),
        unblock: Some(true),
        ..IPBlockSpec::default()
    };
    let mut block = IPBlock::new(name, spec);
    let intent = api::Intent::new(ip.parse().unwrap(), place, 1).to_string();
    let annotations = block.metadata.annotations.get_or_insert_default();
    annotations.insert(INTENT.into(), intent);
    let create = PostParams::default();
    world.blocks.create(&create, &block).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_block_lifts_nothing_at_a_gateway_that_was_replaced_before_the_block_was_made() {
    let mut world = World::configured().await;
    world.create("moves", "192.0.2.7", "1h").await;
    world.until("moves", "active", 5 * SECOND).await;
    world.configure(&[("gatewayHost", NEXT)]).await;
    world
        .banned_becomes(NEXT, &["192.0.2.7"], 15 * SECOND)
        .await;
    // The gateway serves another cluster by now.
    let theirs = ["198.51.100.1", "198.51.100.2", "198.51.100.3"];
    let place = Place::new("iptables", GATEWAY);
    let gateway = world.places.0.lock().get(&place).cloned().unwrap();
    for ip in theirs {
        gateway.ban(&ip.parse().unwrap(), None).await.unwrap();
    }
    tokio::time::sleep(120 * SECOND).await;
    forge(&world, "forged", theirs[0]).await;
    tokio::time::sleep(30 * SECOND).await;
    assert!(world.announced("IntentIgnored", "formerGateways").await);
    world.kill();
    forge(&world, "while-nothing-runs", theirs[1]).await;
    world.start().await;
    tokio::time::sleep(30 * SECOND).await;
    world.banned_becomes(GATEWAY, &theirs, SECOND).await;
    // Until the administrator trusts the intent of every block.
    let former = format!("iptables {GATEWAY}");
    let edit = [("gatewayHost", NEXT), ("formerGateways", former.as_str())];
    world.configure(&edit).await;
    world
        .banned_becomes(GATEWAY, &theirs[2..], 400 * SECOND)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_ban_from_just_before_its_gateway_was_replaced_is_lifted_though_the_nodes_clock_is_behind()
 {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let node = Clock::simulated(world.clock.now() - SignedDuration::from_mins(5), 5);
    let server = super::clocks::At(world.clock.clone());
    world
        .start_with(|settings| {
            settings.clock = node;
            settings.server_time = Some(Arc::new(server));
        })
        .await;
    tokio::time::sleep(30 * SECOND).await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    world.configure(&[("gatewayHost", NEXT)]).await;
    world
        .banned_becomes(NEXT, &["192.0.2.7"], 15 * SECOND)
        .await;
    world.banned_becomes(GATEWAY, &[], 15 * SECOND).await;
    assert!(!world.announced("IntentIgnored", "").await);
}

#[tokio::test(start_paused = true)]
async fn a_ban_made_while_the_record_of_another_gateway_is_written_is_lifted_with_the_others() {
    let world = World::configured().await;
    tokio::time::sleep(5 * SECOND).await;
    let record = || Rule::new().resource("configmaps").name(RECORD).times(3);
    let slow = record().verb("get").delay(25 * SECOND);
    world.server.faults().add(slow);
    let busy = record().verb("patch").status(409, "changed");
    world.server.faults().add(busy);
    world.configure(&[("gatewayHost", NEXT)]).await;
    tokio::time::sleep(68 * SECOND).await;
    world.create("late", "192.0.2.7", "1h").await;
    world
        .banned_becomes(GATEWAY, &["192.0.2.7"], 5 * SECOND)
        .await;
    world
        .banned_becomes(NEXT, &["192.0.2.7"], 100 * SECOND)
        .await;
    world.banned_becomes(GATEWAY, &[], 15 * SECOND).await;
    assert!(!world.announced("IntentIgnored", "").await);
}

#[tokio::test(start_paused = true)]
async fn an_unblocked_block_of_a_withdrawn_gateway_loses_its_intent_and_goes_when_the_key_is_gone()
{
    let mut world = World::new().await;
    let withdrawn = format!("iptables {GATEWAY}");
    let withdrawn = ("withdrawnGateways", withdrawn.as_str());
    world.configure(&[("gatewayHost", NEXT), withdrawn]).await;
    forge(&world, "a", "192.0.2.7").await;
    let hold = json!({"metadata": {"finalizers": [api::FINALIZER]}});
    let params = PatchParams::default();
    let hold = Patch::Merge(hold);
    world.blocks.patch("a", &params, &hold).await.unwrap();
    world.start().await;
    world.until("a", "expired", 5 * SECOND).await;
    tokio::time::sleep(SECOND).await;
    let block = world.blocks.get("a").await.unwrap();
    assert_eq!(block.annotation(INTENT), None);
    let gone = Patch::Merge(json!({"data": {"withdrawnGateways": null}}));
    world.maps.patch(CONFIG_MAP, &params, &gone).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    let delete = DeleteParams::default();
    world.blocks.delete("a", &delete).await.unwrap();
    tokio::time::sleep(SECOND).await;
    assert!(world.blocks.get_opt("a").await.unwrap().is_none());
    assert!(!world.called(GATEWAY));
}

#[tokio::test(start_paused = true)]
async fn a_block_of_a_withdrawn_gateway_lifts_nothing_at_the_next_one_before_it_is_banned_there() {
    let mut world = World::moved().await;
    let withdrawn = format!("iptables {GATEWAY}");
    let withdrawn = ("withdrawnGateways", withdrawn.as_str());
    world.configure(&[("gatewayHost", NEXT), withdrawn]).await;
    let next = world.places.connect(&Place::new("iptables", NEXT), None);
    let theirs = "192.0.2.7".parse().unwrap();
    next.unwrap().ban(&theirs, None).await.unwrap();
    let delete = DeleteParams::default();
    world.blocks.delete("a", &delete).await.unwrap();
    world.start().await;
    tokio::time::sleep(30 * SECOND).await;
    assert!(world.blocks.get_opt("a").await.unwrap().is_none());
    world.banned_becomes(NEXT, &["192.0.2.7"], SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_record_a_ban_at_a_replaced_gateway_is_lifted_once_the_gateway_is_named() {
    for end in ["stands", "deleted", "due"] {
        let mut world = World::configured().await;
        world.create("a", "192.0.2.7", "10m").await;
        world.until("a", "active", 5 * SECOND).await;
        world.kill();
        // As after an upgrade from a version that kept no record.
        let delete = DeleteParams::default();
        world.maps.delete(RECORD, &delete).await.unwrap();
        let next = "192.0.2.251:9521";
        world.configure(&[("gatewayHost", next)]).await;
        world.start().await;
        world
            .banned_becomes(next, &["192.0.2.7"], 15 * SECOND)
            .await;
        if end == "deleted" {
            world.blocks.delete("a", &delete).await.unwrap();
        }
        if end == "due" {
            tokio::time::sleep(700 * SECOND).await;
        }
        let here: &[&str] = if end == "stands" { &["192.0.2.7"] } else { &[] };
        world.banned_becomes(next, here, 5 * SECOND).await;
        tokio::time::sleep(60 * SECOND).await;
        let left = BTreeSet::from(["192.0.2.7".to_owned()]);
        assert_eq!(world.banned(GATEWAY).await, left, "{end}");
        assert!(world.blocks.get_opt("a").await.unwrap().is_some(), "{end}");
        let former = format!("iptables {GATEWAY}");
        let edit = [("gatewayHost", next), ("formerGateways", former.as_str())];
        world.configure(&edit).await;
        // Standing bans are asserted, and lifted where they should not be, every five minutes.
        world.banned_becomes(GATEWAY, &[], 400 * SECOND).await;
        match end {
            "stands" => drop(world.until("a", "active", SECOND).await),
            "due" => drop(world.until("a", "expired", 5 * SECOND).await),
            _ => {
                tokio::time::sleep(5 * SECOND).await;
                assert!(world.blocks.get_opt("a").await.unwrap().is_none());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_record_and_beside_a_wrong_configuration_what_is_due_is_lifted() {
    let mut world = World::configured().await;
    world.create("due", "192.0.2.7", "1m").await;
    world.create("standing", "192.0.2.8", "1h").await;
    world.until("due", "active", 5 * SECOND).await;
    world.until("standing", "active", 5 * SECOND).await;
    world.kill();
    let delete = DeleteParams::default();
    world.maps.delete(RECORD, &delete).await.unwrap();
    world.configure(&[("whitelist", "203.0.113.0/33")]).await;
    tokio::time::sleep(90 * SECOND).await;
    world.start().await;
    world.until("due", "expired", 15 * SECOND).await;
    world.banned_becomes(GATEWAY, &["192.0.2.8"], SECOND).await;
    world.until("standing", "active", SECOND).await;
}

//! The gateways of an operator: those behind a name, the recorded ones, the withdrawn ones.

use std::sync::atomic::Ordering;

use super::faulty::Connect;
use super::*;
use crate::reconcile::Record;

const NEXT: &str = "192.0.2.251:9521";

impl World {
    fn resolves_to(&self, address: &str) {
        *self.names.0.lock() = Some(address.parse().unwrap());
    }

    async fn record(&self) -> ConfigMap {
        self.maps.get(RECORD).await.unwrap()
    }
}

/// The gateways that a record names, as text.
fn recorded(record: &ConfigMap) -> &str {
    let annotations = record.metadata.annotations.as_ref().unwrap();
    &annotations["ops.yiiong.top/gateways"]
}

#[tokio::test(start_paused = true)]
async fn a_gateway_whose_name_gets_another_address_is_protected_there_without_an_edit() {
    let mut world = World::new().await;
    world.resolves_to("198.51.100.1");
    world
        .configure(&[("gatewayHost", "gateway.example:9521")])
        .await;
    world.start().await;
    world.create("first", "198.51.100.1", "1h").await;
    world.create("next", "198.51.100.2", "1h").await;
    world.until("first", "skipped", 5 * SECOND).await;
    world.until("next", "active", 5 * SECOND).await;
    world.resolves_to("198.51.100.2");
    world.until("next", "skipped", 35 * SECOND).await;
    // Addresses stay protected while their name is not resolved.
    *world.names.0.lock() = None;
    tokio::time::sleep(60 * SECOND).await;
    world.until("next", "skipped", SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn addresses_that_take_turns_behind_a_name_stay_protected_and_wake_no_other_block() {
    let mut world = World::new().await;
    world.resolves_to("198.51.100.1");
    world
        .configure(&[
            ("gatewayHost", "gateway.example:9521"),
            ("resyncInterval", "6h"),
        ])
        .await;
    world.start().await;
    world.create("other", "192.0.2.7", "12h").await;
    world.until("other", "active", 5 * SECOND).await;
    tokio::time::sleep(SECOND).await;
    let before = world.reconciles();
    assert!(before > 0);
    for _ in 0..10 {
        for address in ["198.51.100.2", "198.51.100.1"] {
            world.resolves_to(address);
            tokio::time::sleep(30 * SECOND).await;
        }
    }
    assert_eq!(world.reconciles(), before);
    world
        .create("out-of-the-answer", "198.51.100.2", "12h")
        .await;
    world
        .until("out-of-the-answer", "skipped", 5 * SECOND)
        .await;
    // An hour after its last answer it is an address as any other.
    tokio::time::sleep(58 * MINUTE).await;
    world.until("out-of-the-answer", "skipped", SECOND).await;
    world.until("out-of-the-answer", "active", 5 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_deleted_is_written_again_with_all_gateways() {
    let world = World::configured().await;
    tokio::time::sleep(SECOND).await;
    world.configure(&[("gatewayHost", NEXT)]).await;
    tokio::time::sleep(5 * SECOND).await;
    let delete = DeleteParams::default();
    world.maps.delete(RECORD, &delete).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    let record = world.record().await;
    assert!(recorded(&record).contains(GATEWAY), "{record:?}");
    assert!(recorded(&record).contains(NEXT), "{record:?}");
    assert_eq!(record.data.as_ref().unwrap()["gatewayHost"], NEXT);
    // An emptied list is written again, too.
    let emptied = Patch::Merge(json!({"metadata": {"annotations": null}}));
    let params = PatchParams::default();
    world.maps.patch(RECORD, &params, &emptied).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    let record = world.record().await;
    assert!(recorded(&record).contains(GATEWAY), "{record:?}");
    tokio::time::sleep(5 * MINUTE).await;
    let after = world.record().await.metadata.resource_version;
    assert_eq!(after, record.metadata.resource_version, "it is right");
}

#[tokio::test(start_paused = true)]
async fn two_replicas_do_not_overwrite_each_others_record_in_turn() {
    let world = World::new().await;
    let client = reeve_controller::Client::new(world.server.client());
    let data = |gateway: &str| BTreeMap::from([("gatewayHost".to_owned(), gateway.to_owned())]);
    let place = |gateway: &str| Place::new("iptables", gateway);
    let (lagging, other) = (Record::new("default"), Record::new("default"));
    // The calls of the configuration's reconciler in each run.
    let reconcile = async |replica: &Record, gateway: &str| {
        let mut data = data(gateway);
        data.insert("engine".to_owned(), "iptables".to_owned());
        let config = crate::config::parse(&data, &crate::config::Options::default()).unwrap();
        replica.trust_gateways(&config);
        replica.write(&client, &data).await.unwrap();
        replica.in_force(world.clock.now());
        replica.write(&client, &data).await.unwrap();
        tokio::time::sleep(30 * SECOND).await;
    };
    // They read the gateways in another order, and one has seen an edit that the other has not.
    lagging.trust([place(NEXT), place(GATEWAY)]);
    other.trust([place(GATEWAY), place(NEXT)]);
    reconcile(&lagging, GATEWAY).await;
    reconcile(&other, NEXT).await;
    let before = world.record().await;
    assert_eq!(before.data.as_ref().unwrap()["gatewayHost"], NEXT);
    let annotations = before.metadata.annotations.as_ref().unwrap();
    let replaced = &annotations["ops.yiiong.top/gateways-replaced"];
    assert!(replaced.contains(GATEWAY), "{replaced}");
    assert!(!replaced.contains(NEXT), "it is configured: {replaced}");
    for _ in 0..3 {
        reconcile(&lagging, GATEWAY).await;
        reconcile(&other, NEXT).await;
    }
    assert_eq!(world.record().await, before);
    // A gateway that only one of them has gets into it all the same.
    lagging.trust([place("192.0.2.252:9521")]);
    reconcile(&lagging, GATEWAY).await;
    let after = world.record().await;
    assert!(recorded(&after).contains("192.0.2.252"), "{after:?}");
    assert_eq!(after.data, before.data);
    // It catches up.
    reconcile(&lagging, NEXT).await;
    let caught_up = world.record().await;
    let annotations = caught_up.metadata.annotations.as_ref().unwrap();
    let replaced = &annotations["ops.yiiong.top/gateways-replaced"];
    assert!(replaced.contains(GATEWAY), "{replaced}");
    assert!(!replaced.contains(NEXT), "{replaced}");
    reconcile(&other, NEXT).await;
    assert_eq!(world.record().await, caught_up);
}

#[tokio::test(start_paused = true)]
async fn a_block_that_goes_without_its_finalizer_causes_no_call_to_a_withdrawn_gateway() {
    let world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    // Nothing can be written about its new gateway.
    let patches = Rule::new().verb("patch").resource("ipblocks");
    let refused = world.server.faults().add(patches.status(500, "refused"));
    let withdrawn = format!("iptables {GATEWAY}");
    let withdrawn = ("withdrawnGateways", withdrawn.as_str());
    world.configure(&[("gatewayHost", NEXT), withdrawn]).await;
    tokio::time::sleep(5 * SECOND).await;
    assert!(refused.hits() > 0);
    let mut block = world.blocks.get("a").await.unwrap();
    block.metadata.finalizers = None;
    let replace = PostParams::default();
    world.blocks.replace("a", &replace, &block).await.unwrap();
    let delete = DeleteParams::default();
    world.blocks.delete("a", &delete).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert!(world.kept.coverage.lock().is_empty());
    let left = BTreeSet::from(["192.0.2.7".to_owned()]);
    assert_eq!(world.banned(GATEWAY).await, left, "it is not called");
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_gateway_is_not_called_and_what_stood_there_holds_nothing_back() {
    for restarted in [false, true] {
        let mut world = World::configured().await;
        world.create("a", "192.0.2.7", "1h").await;
        world.until("a", "active", 5 * SECOND).await;
        let withdrawn = format!("iptables {GATEWAY}");
        let withdrawn = ("withdrawnGateways", withdrawn.as_str());
        if restarted {
            world.kill();
        }
        world.configure(&[("gatewayHost", NEXT), withdrawn]).await;
        if restarted {
            world.start().await;
        }
        world
            .banned_becomes(NEXT, &["192.0.2.7"], 15 * SECOND)
            .await;
        tokio::time::sleep(10 * MINUTE).await;
        world.until("a", "active", SECOND).await;
        let delete = DeleteParams::default();
        world.blocks.delete("a", &delete).await.unwrap();
        world.banned_becomes(NEXT, &[], 5 * SECOND).await;
        tokio::time::sleep(SECOND).await;
        assert!(world.blocks.get_opt("a").await.unwrap().is_none());
        let left = BTreeSet::from(["192.0.2.7".to_owned()]);
        assert_eq!(world.banned(GATEWAY).await, left, "it is not called");
        assert!(world.announced("GatewayWithdrawn", GATEWAY).await);
        let record = world.record().await;
        assert!(!recorded(&record).contains(GATEWAY), "{record:?}");
        // The key goes again, and with it a former gateway that nothing names.
        let gone = Patch::Merge(json!({"data": {"withdrawnGateways": null}}));
        let params = PatchParams::default();
        world.maps.patch(CONFIG_MAP, &params, &gone).await.unwrap();
        tokio::time::sleep(MINUTE).await;
        let record = world.record().await;
        assert!(!recorded(&record).contains(GATEWAY), "{record:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_refuses_at_first_gets_the_bans_of_a_withdrawn_one_when_it_answers() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let faulty = world.faulty(Duration::ZERO);
    let connector = Arc::new(Connect(Arc::clone(&faulty)));
    world
        .start_with(|settings| settings.connector = Some(connector))
        .await;
    for (name, ip, duration) in [("a", "192.0.2.7", "1h"), ("due", "192.0.2.8", "2m")] {
        world.create(name, ip, duration).await;
        world.until(name, "active", 5 * SECOND).await;
    }
    faulty.refuses.lock().insert(NEXT.to_owned());
    world.configure(&[("gatewayHost", NEXT)]).await;
    tokio::time::sleep(30 * SECOND).await;
    let withdrawn = format!("iptables {GATEWAY}");
    let withdrawn = ("withdrawnGateways", withdrawn.as_str());
    world.configure(&[("gatewayHost", NEXT), withdrawn]).await;
    tokio::time::sleep(5 * MINUTE).await;
    // No call of it has taken effect, so there is nothing to lift.
    world.until("due", "expired", SECOND).await;
    let message = world.status("a").await.message.unwrap();
    assert!(
        message.starts_with("the ban could not be asserted"),
        "{message}"
    );
    faulty.refuses.lock().clear();
    world
        .banned_becomes(NEXT, &["192.0.2.7"], 30 * SECOND)
        .await;
}

#[tokio::test(start_paused = true)]
async fn blocks_of_one_address_do_not_wake_each_other_while_a_former_gateway_fails_to_lift() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let faulty = world.faulty(SECOND / 100);
    let connector = Arc::new(Connect(Arc::clone(&faulty)));
    world
        .start_with(|settings| settings.connector = Some(connector))
        .await;
    for name in ["a", "b"] {
        world.create(name, "192.0.2.7", "1h").await;
        world.until(name, "active", 5 * SECOND).await;
    }
    // Its answer leaves open whether the ban was lifted.
    faulty.dead.lock().insert(GATEWAY.to_owned());
    world.configure(&[("gatewayHost", NEXT)]).await;
    world
        .banned_becomes(NEXT, &["192.0.2.7"], 10 * SECOND)
        .await;
    tokio::time::sleep(MINUTE).await;
    let before = world.reconciles();
    tokio::time::sleep(10 * MINUTE).await;
    let runs = world.reconciles() - before;
    assert!(runs < 100, "{runs} runs in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_fails_in_two_ways_in_turn_is_called_after_the_back_off() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let faulty = world.faulty(SECOND / 100);
    faulty.varies.lock().insert(GATEWAY.to_owned());
    let connector = Arc::new(Connect(Arc::clone(&faulty)));
    world
        .start_with(|settings| settings.connector = Some(connector))
        .await;
    world.create("a", "192.0.2.7", "1h").await;
    tokio::time::sleep(10 * MINUTE).await;
    let calls = faulty.unanswered.load(Ordering::Relaxed);
    assert!((30..80).contains(&calls), "{calls} calls in ten minutes");
    let message = world.status("a").await.message.unwrap();
    assert!(message.starts_with("banning failed"), "{message}");
    faulty.varies.lock().clear();
    world
        .banned_becomes(GATEWAY, &["192.0.2.7"], 20 * SECOND)
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_configured_gateway_is_not_withdrawn() {
    let world = World::configured().await;
    let withdrawn = format!("iptables {GATEWAY}");
    world
        .configure(&[("withdrawnGateways", withdrawn.as_str())])
        .await;
    tokio::time::sleep(SECOND).await;
    assert!(
        world
            .announced("ConfigInvalid", "configure another one")
            .await
    );
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_moves_is_made_at_the_new_gateway_at_once_though_the_answer_to_its_intent_is_lost()
 {
    let world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    tokio::time::sleep(SECOND).await;
    let patches = Rule::new().verb("patch").resource("ipblocks").name("a");
    let lost = world.server.faults().add(patches.lose_answer().times(1));
    world.configure(&[("gatewayHost", NEXT)]).await;
    world
        .banned_becomes(NEXT, &["192.0.2.7"], 20 * SECOND)
        .await;
    assert_eq!(lost.hits(), 1);
    world.banned_becomes(GATEWAY, &[], 20 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_moved_gateway_takes_every_ban_with_it() {
    let world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.create("b", "192.0.2.8", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    world.until("b", "active", 5 * SECOND).await;
    let before = world.status("a").await;
    world
        .configure(&[("gatewayHost", "192.0.2.251:9521")])
        .await;
    let both = ["192.0.2.7", "192.0.2.8"];
    world
        .banned_becomes("192.0.2.251:9521", &both, 5 * SECOND)
        .await;
    world.banned_becomes(GATEWAY, &[], 5 * SECOND).await;
    tokio::time::sleep(SECOND).await;
    let after = world.status("a").await;
    assert_eq!(after.expires_at, before.expires_at, "moving is no new ban");
    assert_eq!(after.ban_count, Some(1));
    let delete = DeleteParams::default();
    world.blocks.delete("a", &delete).await.unwrap();
    world
        .banned_becomes("192.0.2.251:9521", &["192.0.2.8"], 5 * SECOND)
        .await;
}

const STRANGE: &str = "10.0.0.7:80";

fn strange_intent(target: &str, attempt: i64) -> String {
    let place = Place::new("iptables", STRANGE);
    api::Intent::new(target.parse().unwrap(), place, attempt).to_string()
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_only_an_annotation_names_is_never_called() {
    let mut world = World::configured().await;
    // A user of blocks tries to have an address called: before the first ban, while active, and to lift.
    let spec = IPBlockSpec {
        ip: "192.0.2.1".into(),
        unblock: Some(true),
        ..IPBlockSpec::default()
    };
    let mut block = IPBlock::new("born", spec);
    let annotations = block.metadata.annotations.get_or_insert_default();
    annotations.insert(INTENT.into(), strange_intent("192.0.2.1", 1));
    let create = PostParams::default();
    world.blocks.create(&create, &block).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    let message = world.status("born").await.message.unwrap();
    assert!(message.contains("formerGateways"), "{message}");
    let released = Patch::Merge(json!({"metadata": {"annotations": {RELEASE_ANNOTATION: "true"}}}));
    let params = PatchParams::default();
    world
        .blocks
        .patch("born", &params, &released)
        .await
        .unwrap();
    world.until("born", "expired", 5 * SECOND).await;

    world.create("active", "192.0.2.7", "1h").await;
    world.until("active", "active", 5 * SECOND).await;
    world
        .annotate("active", &strange_intent("192.0.2.7", 5))
        .await;
    let mut also: api::Intent = strange_intent("192.0.2.7", 1).parse().unwrap();
    also.also = vec![also.standing.clone()];
    also.standing.place = Place::new("iptables", GATEWAY);
    tokio::time::sleep(5 * SECOND).await;
    world.annotate("active", &also.to_string()).await;
    tokio::time::sleep(5 * SECOND).await;
    world.banned_becomes(GATEWAY, &["192.0.2.7"], SECOND).await;

    // A new leader reads the objects, and an object may be gone without its finalizer.
    world.kill();
    world
        .annotate("active", &strange_intent("192.0.2.7", 1))
        .await;
    world.start().await;
    tokio::time::sleep(5 * SECOND).await;
    world
        .annotate("active", &strange_intent("192.0.2.7", 1))
        .await;
    let delete = DeleteParams::default();
    world.blocks.delete("active", &delete).await.unwrap();
    world.banned_becomes(GATEWAY, &[], 5 * SECOND).await;
    tokio::time::sleep(60 * SECOND).await;
    assert!(world.blocks.get_opt("active").await.unwrap().is_some());
    world
        .blocks
        .patch("active", &params, &released)
        .await
        .unwrap();
    tokio::time::sleep(5 * SECOND).await;
    assert!(world.blocks.get_opt("active").await.unwrap().is_none());
    assert!(!world.called(STRANGE));
}

#[tokio::test(start_paused = true)]
async fn a_gateway_replaced_while_nothing_runs_is_still_called_to_lift_what_stands_there() {
    let mut world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    world.kill();
    let next = "192.0.2.251:9521";
    world.configure(&[("gatewayHost", next)]).await;
    world.start().await;
    world
        .banned_becomes(next, &["192.0.2.7"], 15 * SECOND)
        .await;
    world.banned_becomes(GATEWAY, &[], 15 * SECOND).await;
}

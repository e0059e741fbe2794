//! Found by random days.

use std::sync::atomic::Ordering;

use reeve_apiserver::faults::Handle;

use super::super::*;
use super::sets::{sources, write_entries};
use super::world::{COLLEAGUE, World};
use super::*;

async fn quiet(follows: bool) -> World {
    let timeline = Timeline {
        lines: Arc::default(),
        begun: Instant::now(),
    };
    let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
    let mut world = World::new("iptables", follows, clock, timeline).await;
    world.start().await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_block_that_is_gone_is_lifted_and_reported_once_while_the_watch_fails() {
    let world = quiet(false).await;
    let spec = IPBlockSpec {
        ip: "198.51.100.1".into(),
        ..IPBlockSpec::default()
    };
    let create = PostParams::default();
    let block = IPBlock::new("a", spec);
    world.blocks.create(&create, &block).await.unwrap();
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(world.sites[0].gateway.targets(), ["198.51.100.1"]);
    world.sites[0].off.store(true, Ordering::Relaxed);
    let delete = DeleteParams::default();
    world.blocks.delete("a", &delete).await.unwrap();
    tokio::time::sleep(SECOND).await;
    // The cache has the deletion, and does not learn that it is complete.
    for verb in ["watch", "list"] {
        let rule = Rule::new().verb(verb).resource("ipblocks");
        world.server.faults().add(rule.status(503, "away"));
    }
    world.server.close_watches();
    world.sites[0].off.store(false, Ordering::Relaxed);
    tokio::time::sleep(20 * MINUTE).await;
    assert!(world.blocks.get_opt("a").await.unwrap().is_none());
    let notices = world.notices.all.lock();
    let lifts = notices.iter().filter(|(left, _)| left.event == "resolve");
    assert_eq!(lifts.count(), 1, "{notices:?}");
    let calls = world.sites[0].gateway.calls();
    let lifts = calls
        .iter()
        .filter(|call| call.operation == ipblock_simulator::Operation::Unban);
    assert_eq!(lifts.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_whose_intent_is_left_is_reported_once_though_the_next_leader_has_no_configuration()
 {
    let mut world = quiet(false).await;
    // The operator reports the refusal, and cannot remove the intent with which the trigger made the block.
    let object = Rule::new().verb("patch").resource("ipblocks");
    let object = object.subresource("").status(503, "away");
    let removal = world.server.faults().add(object);
    let intake = world.processes[0]
        .operator()
        .unwrap()
        .triggers()
        .pulled("feed", None);
    let target = COLLEAGUE.parse().unwrap();
    intake.ban(&target, "1h", "attack").await.unwrap();
    tokio::time::sleep(10 * SECOND).await;
    let hidden = ["list", "watch"].map(|verb| {
        let rule = Rule::new().verb(verb).resource("configmaps");
        world.server.faults().add(rule.status(503, "away"))
    });
    world.restart(0, SECOND);
    tokio::time::sleep(MINUTE).await;
    removal.remove();
    for rule in hidden {
        rule.remove();
    }
    tokio::time::sleep(5 * MINUTE).await;
    let block = world.blocks.get(&target.object_name()).await.unwrap();
    assert!(block.annotation(api::INTENT).is_none(), "{block:?}");
    let status = block.status.clone().unwrap();
    assert!(status.is(&api::Phase::Skipped));
    // It was never banned, so there is no ban to be reported as over.
    let notices = world.notices.all.lock().clone();
    assert_eq!(notices.len(), 0, "{notices:?}");
    let events: Api<Event> = Api::namespaced(world.server.client(), "default");
    let events = events.list(&ListParams::default()).await.unwrap();
    let of_block = events.iter().filter(|event| {
        let regarding = event.regarding.as_ref();
        regarding.and_then(|of| of.uid.as_ref()) == block.metadata.uid.as_ref()
    });
    let reports: Vec<_> = of_block
        .map(|event| (event.reason.as_deref(), event.series.is_none()))
        .collect();
    assert_eq!(reports, [(Some("Allowlisted"), true)]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_emptied_leaves_the_set() {
    let world = quiet(true).await;
    let lists: Api<BlockList> = Api::namespaced(world.server.client(), "default");
    for targets in [&["198.51.100.77"][..], &[]] {
        let entries = targets.iter().map(|it| (it.parse().unwrap(), None));
        write_entries(&lists, &entries.collect()).await;
        tokio::time::sleep(10 * SECOND).await;
        let operator = world.processes[0].operator().unwrap();
        let set = operator.sets().desired().view().set;
        let sources = sources(&operator, "iptables");
        assert_eq!(set.len(), targets.len(), "{set:?}; {sources}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_answers_with_failures_gets_a_call_of_each_ban_in_fifteen_seconds() {
    let world = quiet(false).await;
    for number in 0..20 {
        let spec = IPBlockSpec {
            ip: format!("198.51.100.{number}"),
            ..IPBlockSpec::default()
        };
        let block = IPBlock::new(&format!("block-{number}"), spec);
        let create = PostParams::default();
        world.blocks.create(&create, &block).await.unwrap();
    }
    tokio::time::sleep(MINUTE).await;
    let gateway = &world.sites[0].gateway;
    let calls = async |minutes: u32| {
        gateway.forget_calls();
        tokio::time::sleep(minutes * MINUTE).await;
        gateway.calls().len()
    };
    // Each ban once in five minutes, and the list or three bans every twenty seconds.
    let quiet = calls(10).await;
    assert!((40..=130).contains(&quiet), "{quiet} calls while it works");
    gateway.faults().set(ipblock_simulator::Fault::Fail);
    calls(10).await;
    let failing = calls(10).await;
    let most = 20 * 4 * 10 + 3 * 3 * 10;
    assert!((700..=most).contains(&failing), "{failing} of {most} calls");
}

#[tokio::test(start_paused = true)]
async fn a_trigger_outlasts_a_kill_and_a_process_that_cannot_read_the_configuration() {
    let mut world = quiet(false).await;
    let spec = IPBlockSpec {
        ip: "198.51.100.1".into(),
        duration: Some("46m".into()),
        ..IPBlockSpec::default()
    };
    let block = IPBlock::new("a", spec);
    let create = PostParams::default();
    world.blocks.create(&create, &block).await.unwrap();
    tokio::time::sleep(30 * MINUTE).await;
    // The intent is written, and the status is not.
    let rule = Rule::new().resource("ipblocks").subresource("status");
    let rule = world.server.faults().add(rule.status(500, "electing"));
    let trigger = Patch::Merge(json!({"spec": {"trigger": true}}));
    let params = PatchParams::default();
    world.blocks.patch("a", &params, &trigger).await.unwrap();
    tokio::time::sleep(SECOND).await;
    let begun = world.blocks.get("a").await.unwrap();
    assert!(begun.has_begun_ban() && begun.spec.trigger == Some(false));
    let configuration = ["list", "watch"].map(|verb| {
        let rule = Rule::new().verb(verb).resource("configmaps");
        world.server.faults().add(rule.status(500, "electing"))
    });
    world.restart(0, SECOND);
    rule.remove();
    tokio::time::sleep(2 * MINUTE).await;
    configuration.iter().for_each(Handle::remove);
    tokio::time::sleep(MINUTE).await;
    let status = world.blocks.get("a").await.unwrap().status.unwrap();
    assert_eq!(status.bans(), 2, "{status:?}");
    // The ban that stood would be over.
    tokio::time::sleep(20 * MINUTE).await;
    assert_eq!(world.sites[0].gateway.targets(), ["198.51.100.1"]);
}

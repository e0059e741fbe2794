//! How bans and blocks end, whatever happens at the same time.

use std::sync::atomic::Ordering;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use reeve_apiserver::faults::Rule;

use super::faulty::{Connect, Faulty};
use super::*;
use crate::decide::{Announcement, Notice};
use crate::reconcile::Announcer;

#[tokio::test(start_paused = true)]
async fn after_a_restart_in_a_flood_of_new_blocks_what_is_due_is_lifted_first() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    world.start().await;
    for n in 0..20 {
        let address = format!("192.0.2.{n}");
        world.create(&format!("due-{n}"), &address, "60s").await;
    }
    world.until("due-19", "active", 5 * SECOND).await;
    tokio::time::sleep(50 * SECOND).await;
    world.kill();
    let slow = world.faulty(SECOND / 5);
    for n in 0..150 {
        let address = format!("198.51.100.{n}");
        world.create(&format!("before-{n}"), &address, "1h").await;
    }
    world
        .start_with(|settings| {
            settings.workers = 2;
            settings.connector = Some(Arc::new(Connect(slow)));
        })
        .await;
    for n in 0..150 {
        let address = format!("203.0.113.{n}");
        world.create(&format!("after-{n}"), &address, "1h").await;
    }
    // Due within 10 s; two at a time, 20 lifts take 2 s, and 300 bans half a minute.
    tokio::time::sleep(14 * SECOND).await;
    let phases = world.phases().await;
    assert_eq!(phases.get("expired"), Some(&20), "{phases:?}");
    let active = phases.get("active").copied().unwrap_or_default();
    assert!((20..200).contains(&active), "a flood all along: {phases:?}");
}

#[tokio::test(start_paused = true)]
async fn in_a_flood_of_new_blocks_what_has_to_be_lifted_is_lifted_first() {
    for restarted in [false, true] {
        let mut world = World::new().await;
        world.configure(&[]).await;
        let slow = Arc::new(Connect(world.faulty(SECOND / 5)));
        world
            .start_with(|settings| {
                settings.workers = 2;
                settings.connector = Some(slow);
            })
            .await;
        for (name, address) in [
            ("deleted", "192.0.2.1"),
            ("unblocked", "192.0.2.2"),
            ("allowed", "192.0.2.3"),
        ] {
            world.create(name, address, "1h").await;
            world.until(name, "active", 5 * SECOND).await;
        }
        if restarted {
            world.kill();
        }
        for n in 0..200 {
            let address = format!("198.51.100.{n}");
            world.create(&format!("new-{n}"), &address, "1h").await;
        }
        let delete = DeleteParams::default();
        world.blocks.delete("deleted", &delete).await.unwrap();
        let unblock = Patch::Merge(json!({"spec": {"unblock": true}}));
        let params = PatchParams::default();
        world
            .blocks
            .patch("unblocked", &params, &unblock)
            .await
            .unwrap();
        if restarted {
            let slow = Arc::new(Connect(world.faulty(SECOND / 5)));
            world
                .start_with(|settings| {
                    settings.workers = 2;
                    settings.connector = Some(slow);
                })
                .await;
        } else {
            world.configure(&[("whitelist", "192.0.2.3")]).await;
        }
        // Two at a time: three lifts take half a second, 200 bans 20 s.
        tokio::time::sleep(3 * SECOND).await;
        assert!(!world.exists("deleted").await, "restarted: {restarted}");
        world.until("unblocked", "expired", SECOND / 10).await;
        if !restarted {
            world.until("allowed", "skipped", SECOND / 10).await;
        }
        let active = world.phases().await.get("active").copied();
        let active = active.unwrap_or_default();
        assert!((5..100).contains(&active), "a flood all along: {active}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_conflicts_after_the_status_loses_no_event() {
    let world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    // The patch of the user, then the one that sets the flag back.
    let flag = Rule::new().verb("patch").resource("ipblocks");
    let flag = flag.subresource("").after(1).times(1);
    world.server.faults().add(flag.status(409, "changed"));
    let patch = Patch::Merge(json!({"spec": {"unblock": true}}));
    let params = PatchParams::default();
    world.blocks.patch("a", &params, &patch).await.unwrap();
    world.until("a", "expired", 5 * SECOND).await;
    tokio::time::sleep(MINUTE).await;
    let events: Api<Event> = Api::namespaced(world.server.client(), "default");
    let events = events.list(&ListParams::default()).await.unwrap();
    let unbanned = |event: &&Event| event.reason.as_deref() == Some("Unbanned");
    assert_eq!(events.iter().filter(unbanned).count(), 1);
    let block = world.blocks.get("a").await.unwrap();
    assert_eq!(block.spec.unblock, Some(false), "set back by the next run");
}

#[tokio::test(start_paused = true)]
async fn a_replaced_gateway_that_stays_dead_lets_the_object_go_ten_minutes_after_its_end() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let faults = world.faulty(Duration::ZERO);
    let connector = Arc::new(Connect(Arc::clone(&faults)));
    world
        .start_with(|settings| settings.connector = Some(connector))
        .await;
    world.create("a", "192.0.2.7", "5m").await;
    world.until("a", "active", 5 * SECOND).await;
    faults.dead.lock().insert(GATEWAY.to_owned());
    let other = "192.0.2.251:9521";
    world.configure(&[("gatewayHost", other)]).await;
    world
        .banned_becomes(other, &["192.0.2.7"], 5 * SECOND)
        .await;
    tokio::time::sleep(14 * MINUTE).await;
    assert_eq!(world.phases().await.get("active"), Some(&1), "still tried");
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(world.phases().await.get("expired"), Some(&1));
    assert!(world.banned(other).await.is_empty());
    let delete = DeleteParams::default();
    world.blocks.delete("a", &delete).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    assert!(!world.exists("a").await);
}

#[tokio::test(start_paused = true)]
async fn an_unblock_ends_ten_minutes_after_its_first_failure_at_a_replaced_gateway_across_restarts()
{
    let mut world = World::new().await;
    world.configure(&[]).await;
    let faults = world.faulty(Duration::ZERO);
    let connector = || Some(Arc::new(Connect(Arc::clone(&faults))) as Arc<dyn Connector>);
    world
        .start_with(|settings| settings.connector = connector())
        .await;
    world.create("a", "192.0.2.7", "12h").await;
    world.until("a", "active", 5 * SECOND).await;
    faults.dead.lock().insert(GATEWAY.to_owned());
    let other = "192.0.2.251:9521";
    world.configure(&[("gatewayHost", other)]).await;
    world
        .banned_becomes(other, &["192.0.2.7"], 5 * SECOND)
        .await;
    tokio::time::sleep(60 * MINUTE).await;
    let unblock = Patch::Merge(json!({"spec": {"unblock": true}}));
    let params = PatchParams::default();
    world.blocks.patch("a", &params, &unblock).await.unwrap();
    world.banned_becomes(other, &[], 5 * SECOND).await;
    tokio::time::sleep(5 * MINUTE).await;
    world.kill();
    tokio::time::sleep(MINUTE).await;
    world
        .start_with(|settings| settings.connector = connector())
        .await;
    tokio::time::sleep(3 * MINUTE).await;
    let waiting = world.server_block("a").await;
    assert_eq!(waiting.spec.unblock, Some(true), "still tried");
    let status = waiting.status.unwrap();
    let lifted = status.condition("Lifted").unwrap();
    assert!(lifted.message.contains("retrying until"), "{lifted:?}");
    world.until("a", "expired", 2 * MINUTE).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(world.server_block("a").await.spec.unblock, Some(false));
    assert!(world.announced("LeftBehind", GATEWAY).await);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_gateway_that_answers_again_is_cleared_within_half_a_minute() {
    let mut world = World::new().await;
    world.configure(&[("resyncInterval", "6h")]).await;
    let faults = world.faulty(Duration::ZERO);
    let connector = Arc::new(Connect(Arc::clone(&faults)));
    world
        .start_with(|settings| settings.connector = Some(connector))
        .await;
    for last in 0..50 {
        let address = format!("192.0.2.{last}");
        world.create(&format!("b-{last}"), &address, "12h").await;
    }
    world.until("b-49", "active", 5 * SECOND).await;
    tokio::time::sleep(SECOND).await;
    let all = world.banned(GATEWAY).await;
    assert_eq!(all.len(), 50);
    faults.dead.lock().insert(GATEWAY.to_owned());
    let other = "192.0.2.251:9521";
    let edit = [("resyncInterval", "6h"), ("gatewayHost", other)];
    world.configure(&edit).await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.banned(other).await, all);
    assert!(world.announced("LeftBehind", GATEWAY).await);
    let unanswered = || faults.unanswered.load(Ordering::Relaxed);
    let before = unanswered();
    tokio::time::sleep(60 * MINUTE).await;
    let tried = unanswered() - before;
    assert!((60..=180).contains(&tried), "{tried} calls in an hour");
    faults.dead.lock().clear();
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 0);
    assert_eq!(world.banned(other).await, all);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_lost_its_bans_has_them_again_within_a_minute() {
    for (unlisted, long) in [(false, false), (true, false), (false, true)] {
        let mut world = World::new().await;
        world.configure(&[("resyncInterval", "6h")]).await;
        let faults = Arc::new(Faulty {
            places: Arc::clone(&world.places),
            unlisted,
            long,
            ..Faulty::default()
        });
        let connector = Arc::new(Connect(Arc::clone(&faults)));
        world
            .start_with(|settings| settings.connector = Some(connector))
            .await;
        for last in 0..50 {
            let address = format!("192.0.2.{last}");
            world.create(&format!("b-{last}"), &address, "12h").await;
        }
        world.until("b-49", "active", 5 * SECOND).await;
        tokio::time::sleep(MINUTE).await;
        let all = world.banned(GATEWAY).await;
        assert_eq!(all.len(), 50);
        for _ in 0..2 {
            let place = Place::new("iptables", GATEWAY);
            let engine = Arc::clone(&world.places.0.lock()[&place]);
            for address in &all {
                engine.unban(&address.parse().unwrap()).await.unwrap();
            }
            tokio::time::sleep(25 * SECOND).await;
            assert_eq!(world.banned(GATEWAY).await, all, "unlisted: {unlisted}");
        }
        let events: Api<Event> = Api::namespaced(world.server.client(), "default");
        let events = events.list(&ListParams::default()).await.unwrap();
        let about = |event: &&Event| event.reason.as_deref() == Some("BansLost");
        let lost: Vec<&Event> = events.items.iter().filter(about).collect();
        assert!((1..=2).contains(&lost.len()), "not one a ban: {lost:?}");
        let note = lost[0].note.as_deref().unwrap();
        assert!(note.contains("iptables at 192.0.2.250:9521"), "{note}");
        assert_eq!(
            lost[0].regarding.as_ref().unwrap().name.as_deref(),
            Some(CONFIG_MAP)
        );
        let text = world.manager.as_ref().unwrap().metrics().encode();
        assert!(
            text.contains("ipblock_gateway_losses_total 2"),
            "{unlisted}"
        );
        assert!(
            text.contains("ipblock_drift_repaired_total{engine=\"iptables\"} 100"),
            "{text}"
        );
        let lists = faults.lists.load(Ordering::Relaxed);
        assert!(
            !long || lists == 1,
            "asked {lists} times for a list that is too long"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_block_whose_gateway_was_changed_to_a_dead_one_and_back_ends_within_a_minute_of_that() {
    // The end of the ban lies before the restore, or after it.
    for (ban, expected) in [("5m", "expired"), ("12m", "active")] {
        let mut world = World::new().await;
        world.configure(&[]).await;
        let faults = world.faulty(Duration::ZERO);
        let connector = Arc::new(Connect(Arc::clone(&faults)));
        world
            .start_with(|settings| settings.connector = Some(connector))
            .await;
        world.create("a", "192.0.2.7", ban).await;
        world.until("a", "active", 5 * SECOND).await;
        let other = "192.0.2.251:9521";
        faults.refuses.lock().insert(other.to_owned());
        world.configure(&[("gatewayHost", other)]).await;
        tokio::time::sleep(6 * MINUTE).await;
        world.configure(&[("gatewayHost", GATEWAY)]).await;
        world.until("a", expected, MINUTE).await;
        tokio::time::sleep(6 * MINUTE).await;
        world.until("a", "expired", SECOND).await;
        assert!(world.banned(GATEWAY).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn blocks_that_come_and_go_while_a_leader_reads_all_blocks_are_seen() {
    let mut world = World::configured().await;
    world.start().await;
    let count = 45;
    let address = |n: usize| format!("192.0.2.{n}");
    for n in 0..count {
        world.create(&format!("b-{n:02}"), &address(n), "1h").await;
    }
    let all: BTreeSet<String> = (0..count).map(address).collect();
    until_banned(&world, &all).await;
    world.kill();
    tokio::time::sleep(30 * SECOND).await;
    world.start().await;
    let (mut expected, mut changes) = (all, 0);
    // A page is read each millisecond, and nothing is banned before the last. New names are before all that are read; blocks go
    // that were read, and blocks that were not.
    while !world.banned(GATEWAY).await.contains("198.51.100.0") {
        if changes < 200 {
            let ip = format!("198.51.100.{changes}");
            world.create(&format!("a-{changes:03}"), &ip, "1h").await;
            expected.insert(ip);
            if changes < count {
                let of_each_end = changes / 2;
                let last = count - 1 - of_each_end;
                let gone = [of_each_end, last][changes % 2];
                let name = format!("b-{gone:02}");
                let delete = DeleteParams::default();
                world.blocks.delete(&name, &delete).await.unwrap();
                expected.remove(&address(gone));
            }
            changes += 1;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!((5..200).contains(&changes), "{changes} during the reading");
    until_banned(&world, &expected).await;
}

/// Waits until these addresses are banned, and no others.
async fn until_banned(world: &World, expected: &BTreeSet<String>) {
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    world.banned_becomes(GATEWAY, &expected, 60 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_block_that_another_finalizer_keeps_is_left_alone_once_its_ban_is_lifted() {
    let mut world = World::configured().await;
    world.create("a", "192.0.2.7", "1m").await;
    world.until("a", "active", 5 * SECOND).await;
    let mut block = world.blocks.get("a").await.unwrap();
    let finalizers = block.metadata.finalizers.get_or_insert_default();
    finalizers.push("example.com/kept".into());
    let replace = PostParams::default();
    world.blocks.replace("a", &replace, &block).await.unwrap();
    let delete = DeleteParams::default();
    world.blocks.delete("a", &delete).await.unwrap();
    world.banned_becomes(GATEWAY, &[], 5 * SECOND).await;
    for restarted in [false, true] {
        if restarted {
            world.kill();
            world.start().await;
        }
        tokio::time::sleep(2 * MINUTE).await;
        let before = world.reconciles();
        tokio::time::sleep(MINUTE).await;
        let runs = world.reconciles() - before;
        assert!(runs < 3, "{runs} runs a minute of a block that is over");
        assert!(world.kept.coverage.lock().is_empty());
    }
}

/// The blocks whose end was notified.
#[derive(Debug, Default)]
struct Resolved(Mutex<Vec<String>>);

impl Announcer for Resolved {
    fn announce(&self, block: &IPBlock, announcement: &Announcement, _: Timestamp) {
        if announcement.notice == Some(Notice::Resolve) {
            self.0.lock().push(block.key());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_is_resolved_when_the_last_block_that_bans_it_ends() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let resolved = Arc::<Resolved>::default();
    let start = async |world: &mut World| {
        let announcer = Arc::clone(&resolved) as Arc<dyn Announcer>;
        let observed = |settings: &mut Settings| settings.announcer = Some(announcer);
        world.start_with(observed).await;
    };
    start(&mut world).await;
    let due: Vec<String> = (0..20).map(|n| format!("a-{n}")).collect();
    let of_a_minute = due.iter().map(|name| (&**name, "1m"));
    let of_an_hour = ["b", "c", "d"].map(|name| (name, "1h"));
    for (name, duration) in of_an_hour.into_iter().chain(of_a_minute) {
        world.create(name, "192.0.2.7", duration).await;
        world.until(name, "active", 5 * SECOND).await;
    }
    let delete = DeleteParams::default();
    world.blocks.delete("d", &delete).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    assert!(world.blocks.get_opt("d").await.unwrap().is_none());
    assert_eq!(*resolved.0.lock(), [""; 0]);
    world.kill();
    tokio::time::sleep(MINUTE).await;
    // Some are lifted before the others are asserted.
    start(&mut world).await;
    for name in &due {
        world.until(name, "expired", 5 * SECOND).await;
    }
    world.blocks.delete("c", &delete).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    assert!(world.blocks.get_opt("c").await.unwrap().is_none());
    assert_eq!(*resolved.0.lock(), [""; 0]);
    world.blocks.delete("b", &delete).await.unwrap();
    world.banned_becomes(GATEWAY, &[], 5 * SECOND).await;
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(*resolved.0.lock(), ["default/b"]);
}

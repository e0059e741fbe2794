//! The configuration of an operator: absent, wrong, gone, edited, and after a restart.

use super::*;
use crate::logged::Logged;

#[tokio::test(start_paused = true)]
async fn a_block_made_before_its_configuration_says_what_it_waits_for_and_is_banned_with_it() {
    let mut world = World::new().await;
    world.start().await;
    world.create("a", "192.0.2.7", "1h").await;
    let status = world.until("a", "pending", 20 * SECOND).await;
    let message = status.message.unwrap();
    assert!(message.contains(CONFIG_MAP), "{message}");
    world.configure(&[]).await;
    world.until("a", "active", 5 * SECOND).await;
    assert_eq!(
        world.banned(GATEWAY).await,
        BTreeSet::from(["192.0.2.7".into()])
    );
}

#[tokio::test(start_paused = true)]
async fn a_source_of_lists_is_reported_once_while_no_engine_enforces_them() {
    let source = |name: &str| {
        format!("- name: {name}\n  type: feed\n  url: http://127.0.0.1:1/\n  objects: BlockList\n")
    };
    let one = source("one");
    let both = one.clone() + &source("two");
    let engine = "- name: edge\n  type: list\n  addr: 127.0.0.1:0\n  insecure: true\n";
    let log = Logged::at(tracing::Level::WARN);
    let mut world = World::new().await;
    world.configure(&[("sources", &one)]).await;
    world.start().await;
    tokio::time::sleep(MINUTE).await;
    let reported = |text: &str, name: &str| {
        let line = format!("source {name} has objects: BlockList");
        text.matches(&line).count()
    };
    assert_eq!(reported(&log.take(), "one"), 1);
    let event = world.announced("SourceNotEnforced", "source one").await;
    assert!(event, "an Event of the ConfigMap");
    // Only what is new is reported.
    world.configure(&[("sources", &both)]).await;
    tokio::time::sleep(MINUTE).await;
    let lines = log.take();
    assert_eq!((reported(&lines, "one"), reported(&lines, "two")), (0, 1));
    // With an engine there is nothing to report, nor is there in shadow mode.
    for key in [("engines", engine), ("shadowSources", "one\ntwo")] {
        world.configure(&[("sources", &both), key]).await;
        tokio::time::sleep(MINUTE).await;
        let lines = log.take();
        assert_eq!((reported(&lines, "one"), reported(&lines, "two")), (0, 0));
        world.configure(&[("sources", &both), (key.0, "")]).await;
        tokio::time::sleep(MINUTE).await;
        let lines = log.take();
        assert_eq!(
            (reported(&lines, "one"), reported(&lines, "two")),
            (1, 1),
            "it is so again: {lines}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_becomes_wrong_or_goes_leaves_the_last_one_in_force() {
    let world = World::configured().await;
    world.configure(&[("whitelist", "192.0.2.7")]).await;
    world.create("allowed", "192.0.2.7", "1h").await;
    world.until("allowed", "skipped", 5 * SECOND).await;
    world
        .configure(&[("whitelist", "192.0.2.7\nnonsense")])
        .await;
    tokio::time::sleep(SECOND).await;
    world.create("still", "192.0.2.7/32", "1h").await;
    world.until("still", "skipped", 5 * SECOND).await;
    let delete = DeleteParams::default();
    world.maps.delete(CONFIG_MAP, &delete).await.unwrap();
    tokio::time::sleep(SECOND).await;
    world.create("range", "192.0.2.0/28", "1h").await;
    world.until("range", "skipped", 5 * SECOND).await;
    world.create("other", "198.51.100.7", "1h").await;
    world.until("other", "active", 5 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_configuration_what_is_due_is_lifted_where_it_was_banned() {
    let mut world = World::configured().await;
    world.create("due", "192.0.2.7", "1m").await;
    world.create("standing", "192.0.2.8", "1h").await;
    world.until("due", "active", 5 * SECOND).await;
    world.until("standing", "active", 5 * SECOND).await;
    world.kill();
    let delete = DeleteParams::default();
    world.maps.delete(CONFIG_MAP, &delete).await.unwrap();
    tokio::time::sleep(90 * SECOND).await;
    world.start().await;
    world.until("due", "expired", 15 * SECOND).await;
    world
        .banned_becomes(GATEWAY, &["192.0.2.8"], 15 * SECOND)
        .await;
    world.until("standing", "active", SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_yet_is_not_overwritten_and_counts_when_it_can() {
    let mut world = World::new().await;
    world.configure(&[("whitelist", "203.0.113.0/24")]).await;
    world.start().await;
    world.create("before", "203.0.113.7", "1h").await;
    world.until("before", "skipped", 20 * SECOND).await;
    world.kill();
    // The allowlist gets lost while the access rules are those of an earlier version.
    let lost = Patch::Merge(json!({"data": {"whitelist": null}}));
    let params = PatchParams::default();
    world.maps.patch(CONFIG_MAP, &params, &lost).await.unwrap();
    let denied = Rule::new().verb("get").resource("configmaps").name(RECORD);
    let denied = world.server.faults().add(denied.status(403, "no"));
    world.start().await;
    tokio::time::sleep(60 * SECOND).await;
    assert!(denied.hits() > 1, "it is read again");
    world.server.faults().clear();
    tokio::time::sleep(15 * SECOND).await;
    let record = world.maps.get(RECORD).await.unwrap().data.unwrap();
    assert!(record.contains_key("whitelist"), "{record:?}");
    world.create("after", "203.0.113.8", "1h").await;
    world.until("after", "skipped", 20 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn beside_a_configuration_that_was_never_right_nothing_is_banned_and_readiness_says_why() {
    for (key, text) in [
        ("whitelist", "198.51.100.0/24\n203.0.113.0/33"),
        ("engine", "iptable"),
    ] {
        let mut world = World::new().await;
        world.configure(&[(key, text)]).await;
        world.start().await;
        world.create("office", "203.0.113.7", "1h").await;
        let status = world.until("office", "pending", 20 * SECOND).await;
        let message = status.message.unwrap();
        assert!(message.contains(key), "{message}");
        assert!(world.unready().contains(key), "{}", world.unready());
        assert!(world.announced("ConfigInvalid", key).await);
        tokio::time::sleep(600 * SECOND).await;
        assert!(world.places.0.lock().is_empty(), "no gateway was called");
        // The edit that corrects it.
        let mended = if key == "engine" {
            "iptables"
        } else {
            "203.0.113.0/24"
        };
        world.configure(&[(key, mended)]).await;
        let phase = if key == "engine" { "active" } else { "skipped" };
        world.until("office", phase, 20 * SECOND).await;
        assert_eq!(world.unready(), "[]");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_beside_a_wrong_edit_goes_on_with_the_last_good_configuration() {
    let mut world = World::configured().await;
    world.configure(&[("whitelist", "203.0.113.0/24")]).await;
    world.create("before", "203.0.113.7", "1h").await;
    world.until("before", "skipped", 5 * SECOND).await;
    world.kill();
    world
        .configure(&[("whitelist", "203.0.113.0/33"), ("engine", "iptable")])
        .await;
    world.start().await;
    world.create("office", "203.0.113.8", "1h").await;
    world.until("office", "skipped", 20 * SECOND).await;
    world.create("other", "198.51.100.7", "1h").await;
    world.until("other", "active", 20 * SECOND).await;
    assert_eq!(
        world.unready(),
        "[]",
        "as the replica that was not restarted"
    );
    assert_eq!(
        world.banned(GATEWAY).await,
        BTreeSet::from(["198.51.100.7".into()])
    );
    // The same holds for the whole ConfigMap.
    world.kill();
    let delete = DeleteParams::default();
    world.maps.delete(CONFIG_MAP, &delete).await.unwrap();
    world.start().await;
    world.create("late", "203.0.113.9", "1h").await;
    world.until("late", "skipped", 20 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn in_a_takeover_only_the_first_configuration_is_read_leniently_at_a_restart_too() {
    let mut world = World::new().await;
    world.takeover = true;
    world
        .configure(&[("whitelist", "203.0.113.0/24\nexample.com")])
        .await;
    world.start().await;
    world.create("office", "203.0.113.7", "1h").await;
    world.until("office", "skipped", 20 * SECOND).await;
    for _ in 0..2 {
        world.kill();
        world.start().await;
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(world.unready(), "[]");
        world.until("office", "skipped", SECOND).await;
        // An edit, refused now and after the next restart.
        world.configure(&[("whitelist", "example.com")]).await;
        tokio::time::sleep(10 * SECOND).await;
        world.until("office", "skipped", SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_allowlist_whose_key_is_gone_stays_and_an_emptied_one_is_empty() {
    let world = World::configured().await;
    world.configure(&[("whitelist", "203.0.113.0/24")]).await;
    world.create("office", "203.0.113.7", "1h").await;
    world.until("office", "skipped", 5 * SECOND).await;
    let gone = Patch::Merge(json!({"data": {"whitelist": null, "whiteList": "203.0.113.0/24"}}));
    let params = PatchParams::default();
    world.maps.patch(CONFIG_MAP, &params, &gone).await.unwrap();
    tokio::time::sleep(30 * SECOND).await;
    world.until("office", "skipped", SECOND).await;
    world.configure(&[("whitelist", "")]).await;
    world.until("office", "active", 5 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_trigger_that_cannot_listen_leaves_the_replica_ready_while_another_listens() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = (taken.local_addr().unwrap().to_string(), taken);
    let entry = |name: &str, address: &str| {
        format!("{{name: {name}, type: grafana, addr: '{address}', path: /p, insecure: true}}")
    };
    let world = World::configured().await;
    let alone = format!("[{}]", entry("one", &taken.0));
    world.configure(&[("trigger", &alone)]).await;
    tokio::time::sleep(SECOND).await;
    assert!(
        world.unready().contains("cannot listen"),
        "{}",
        world.unready()
    );
    let both = format!(
        "[{}, {}]",
        entry("one", &taken.0),
        entry("two", "127.0.0.1:0")
    );
    world.configure(&[("trigger", &both)]).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(world.unready(), "[]");
    assert!(world.announced("ConfigPartly", "cannot listen").await);
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_stays_unreadable_is_announced_once_with_its_configuration() {
    let log = Logged::at(tracing::Level::INFO);
    let world = World::configured().await;
    let notify = "[{type: slack, urlFile: /etc/ipblock-operator/secrets/none}]";
    world.configure(&[("notify", notify)]).await;
    tokio::time::sleep(SECOND).await;
    assert!(log.take().contains("cannot read"));
    // It is tried each ten seconds.
    tokio::time::sleep(2 * MINUTE).await;
    let log = log.take();
    assert!(!log.contains("configuration is in force"), "{log}");
    assert!(!log.contains("cannot read"), "{log}");
}

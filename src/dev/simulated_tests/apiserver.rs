//! An API server whose writes and watches fail, and one that restarts.

use super::*;

/// Bans twenty while the API server misbehaves, and checks that all come and go. They last long enough to be read in
/// time: a block that is read after its own duration is not banned any more. Watches that end at once use up the
/// requests that all informers share, those of nodes, Services and lists too, so that a list may wait for minutes.
async fn survives(what: &str, trouble: impl AsyncFnOnce(&World) -> Vec<api_faults::Handle>) {
    let world = World::new("xdp").await;
    world.create_many(5, "30s").await;
    world.until("active", 5, 5 * SECOND).await;
    let rules = trouble(&world).await;
    for last in 6..=20 {
        let (name, ip) = (format!("block-{last}"), format!("192.0.2.{last}"));
        let created = async {
            loop {
                let spec = IPBlockSpec {
                    ip: ip.clone(),
                    duration: Some("5m".into()),
                    ..IPBlockSpec::default()
                };
                let block = IPBlock::new(&name, spec);
                match world.blocks.create(&PostParams::default(), &block).await {
                    Ok(_) => break,
                    Err(kube_client::Error::Api(status)) if status.code == 409 => break,
                    Err(_) => tokio::time::sleep(SECOND).await,
                }
            }
        };
        created.await;
    }
    let started = Instant::now();
    loop {
        let all = world.blocks.list(&ListParams::default()).await;
        let ended = |block: &IPBlock| phase_of(block) == "expired";
        if all.is_ok_and(|all| all.items.len() == 20 && all.items.iter().all(ended)) {
            break;
        }
        let blocked = world.gateway.targets();
        assert!(
            started.elapsed() < 900 * SECOND,
            "{what}: not settled; the gateway blocks {blocked:?}"
        );
        tokio::time::sleep(2 * SECOND).await;
    }
    assert!(world.gateway.targets().is_empty(), "{what}");
    for rule in &rules {
        assert!(rule.hits() > 0, "{what}: the fault never struck");
    }
    for last in 1..=20 {
        let status = world.get(&format!("block-{last}")).await.status.unwrap();
        assert_eq!(status.bans(), 1, "{what}: block-{last} was banned once");
    }
    for last in 1..=20 {
        let banned = world.gateway.drops([192, 0, 2, last].into());
        assert!(!banned, "{what}: a hole or a rest is left");
    }
}

#[tokio::test(start_paused = true)]
async fn writes_that_conflict_fail_or_lose_their_answer_converge() {
    type Change = fn(api_faults::Rule) -> api_faults::Rule;
    let table: [(&str, Change); 5] = [
        ("conflicts", |rule| {
            rule.status(409, "Operation cannot be fulfilled")
        }),
        ("errors", |rule| rule.status(500, "boom")),
        ("overload", |rule| {
            rule.text(429, "too many requests").retry_after(1)
        }),
        ("resets", api_faults::Rule::reset),
        ("lost answers", api_faults::Rule::lose_answer),
    ];
    for (what, change) in table {
        survives(what, async |world: &World| {
            // The operator patches; the verb does not matter here.
            let patches = api_faults::Rule::new().verb("patch").resource("ipblocks");
            vec![world.server.faults().add(change(patches.probability(0.4)))]
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_break_stall_or_are_too_old_converge() {
    type Change = fn(api_faults::Rule) -> api_faults::Rule;
    let table: [(&str, Change); 4] = [
        ("empty watches", api_faults::Rule::close_empty),
        ("broken watches", |rule| rule.reset_after(1)),
        ("cut events", |rule| rule.truncate_after(1)),
        ("gone versions", |rule| {
            rule.status(410, "too old resource version")
        }),
    ];
    for (what, change) in table {
        survives(what, async |world: &World| {
            // The next watch for certain, later ones by chance.
            let watch = || api_faults::Rule::new().verb("watch");
            let first = world.server.faults().add(change(watch().times(1)));
            world.server.faults().add(change(watch().probability(0.6)));
            world.server.close_watches();
            vec![first]
        })
        .await;
    }
    survives("a lost history", async |world: &World| {
        world.server.forget_history(None);
        world.server.close_watches();
        Vec::new()
    })
    .await;
    survives("a watch that falls silent", async |world: &World| {
        let rule = api_faults::Rule::new()
            .verb("watch")
            .stall_after(1)
            .times(2);
        let rule = world.server.faults().add(rule);
        world.server.close_watches();
        vec![rule]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_restarts_in_the_middle_is_found_again() {
    for seconds in [1, 10, 60] {
        survives("a restart", async |world: &World| {
            world.server.go_down();
            tokio::time::sleep(seconds * SECOND).await;
            world.server.come_up();
            Vec::new()
        })
        .await;
    }
}

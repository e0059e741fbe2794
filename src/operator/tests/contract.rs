//! Rules of docs/contract.md that need the whole operator, and that no other test is about.

use k8s_openapi::api::coordination::v1::Lease;

use super::faulty::Connect;
use super::*;
use crate::target::object_name;

/// What the operator wrote about blocks, as `verb resource/subresource`, Events included.
fn writes(world: &World) -> Vec<String> {
    let all = world.server.requests().all().into_iter();
    let own = all.filter(|request| {
        request.user.ends_with(":ipblock-operator")
            && matches!(&*request.verb, "create" | "update" | "patch" | "delete")
            && matches!(&*request.resource, "events" | "ipblocks")
    });
    own.map(|it| format!("{} {}/{}", it.verb, it.resource, it.subresource))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_takes_longer_than_a_second_is_shown_as_pending_and_a_faster_one_is_not() {
    for (takes, shown) in [(900, false), (1_500, true)] {
        let mut world = World::new().await;
        world.configure(&[]).await;
        let slow = world.faulty(Duration::from_millis(takes));
        world
            .start_with(|settings| settings.connector = Some(Arc::new(Connect(slow))))
            .await;
        world.create("a", "192.0.2.7", "1h").await;
        let started = Instant::now();
        let mut pending = None;
        while !world.status("a").await.is(&api::Phase::Active) {
            if world.status("a").await.is(&api::Phase::Pending) {
                pending.get_or_insert(started.elapsed());
            }
            assert!(started.elapsed() < 5 * SECOND, "it is banned");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(pending.is_some(), shown, "{takes} ms: {pending:?}");
        let since = pending.unwrap_or(SECOND);
        assert!((SECOND..SECOND * 5 / 4).contains(&since), "{since:?}");
        let expected = if shown { 2 } else { 1 };
        let statuses = writes(&world);
        let statuses = statuses.iter().filter(|it| *it == "patch ipblocks/status");
        assert_eq!(statuses.count(), expected, "{takes} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_life_of_a_block_that_a_trigger_made_costs_four_writes() {
    let world = World::configured().await;
    tokio::time::sleep(5 * SECOND).await;
    let spec = IPBlockSpec {
        ip: "192.0.2.7".into(),
        duration: Some("1m".into()),
        ..IPBlockSpec::default()
    };
    let (name, target) = (object_name("192.0.2.7"), "192.0.2.7".parse().unwrap());
    let place = Place::new("iptables", GATEWAY);
    let block = IPBlock::born(&name, "default", &target, Some(&place), spec);
    let create = PostParams::default();
    world.blocks.create(&create, &block).await.unwrap();
    world.until(&name, "expired", 90 * SECOND).await;
    tokio::time::sleep(10 * SECOND).await;
    let expected = ["patch ipblocks/status", "create events/"];
    assert_eq!(writes(&world), [expected, expected].concat());
}

#[tokio::test(start_paused = true)]
async fn a_block_that_is_released_has_an_event_and_is_counted() {
    let world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    let released = json!({"metadata": {"annotations": {RELEASE_ANNOTATION: "true"}}});
    let params = PatchParams::default();
    let patched = world
        .blocks
        .patch("a", &params, &Patch::Merge(released))
        .await;
    patched.unwrap();
    let delete = DeleteParams::default();
    world.blocks.delete("a", &delete).await.unwrap();
    tokio::time::sleep(5 * SECOND).await;
    assert!(world.blocks.get_opt("a").await.unwrap().is_none());
    assert!(world.announced("Released", "192.0.2.7").await);
    let metrics = world.manager.as_ref().unwrap().metrics().encode();
    assert!(
        metrics.contains("\nipblock_released_total 1\n"),
        "{metrics}"
    );
    let left = BTreeSet::from(["192.0.2.7".to_owned()]);
    assert_eq!(world.banned(GATEWAY).await, left, "no gateway was called");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_pod_takes_its_own_lease_back_at_once_and_another_waits_for_its_end() {
    for (next, most) in [("pod-0", 2 * SECOND), ("pod-1", 30 * SECOND)] {
        let mut world = World::new().await;
        world.configure(&[]).await;
        let named = |name: &str| Some(name.to_owned());
        world
            .start_with(|settings| settings.identity = named("pod-0"))
            .await;
        world.create("before", "192.0.2.7", "1h").await;
        world.until("before", "active", 30 * SECOND).await;
        // Without a word to the API server.
        world.kill();
        world
            .start_with(|settings| settings.identity = named(next))
            .await;
        world.create("after", "192.0.2.8", "1h").await;
        let started = Instant::now();
        world.until("after", "active", most).await;
        let other = next != "pod-0";
        assert_eq!(started.elapsed() > 5 * SECOND, other, "{next}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_cannot_be_written_hold_up_neither_a_ban_nor_its_end() {
    let faults: [fn(Rule) -> Rule; 2] = [Rule::stall, |rule| rule.status(503, "no room")];
    for fault in faults {
        let world = World::configured().await;
        let events = world
            .server
            .faults()
            .add(fault(Rule::new().resource("events")));
        for last in 1..=20 {
            let (name, address) = (format!("b-{last}"), format!("192.0.2.{last}"));
            world.create(&name, &address, "1m").await;
        }
        let begun = Instant::now();
        for last in 1..=20 {
            world.until(&format!("b-{last}"), "active", SECOND).await;
        }
        assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
        tokio::time::sleep(Duration::from_secs(62)).await;
        for last in 1..=20 {
            world.until(&format!("b-{last}"), "expired", SECOND).await;
        }
        assert!(begun.elapsed() < 65 * SECOND, "{:?}", begun.elapsed());
        assert!(events.hits() > 0, "no Event was tried");
        world.banned_becomes(GATEWAY, &[], SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_configmap_that_does_not_parse_is_reported_and_counted_and_leaves_the_replica_ready() {
    let world = World::configured().await;
    world.create("before", "192.0.2.7", "1h").await;
    world.until("before", "active", 5 * SECOND).await;
    let refused = || {
        let text = world.manager.as_ref().unwrap().metrics().encode();
        let series = "ipblock_config_reloads_total{result=\"refused\"} ";
        let value = text.lines().find_map(|line| line.strip_prefix(series));
        value.map_or(0, |value| value.parse().unwrap())
    };
    assert_eq!(refused(), 0);
    world
        .configure(&[("whitelist", "192.0.2.7\nnonsense")])
        .await;
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(refused(), 1);
    assert!(world.announced("ConfigInvalid", "whitelist, line 2").await);
    assert_eq!(world.unready(), "[]");
    world.until("before", "active", SECOND).await;
    assert_eq!(world.banned(GATEWAY).await.len(), 1);
}

#[tokio::test]
async fn a_standby_takes_alerts_and_calls_no_engine() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut world = World::new().await;
    let lease = json!({
        "metadata": {"name": "ipblock-operator"},
        "spec": {
            "holderIdentity": "another",
            "leaseDurationSeconds": 3600,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    });
    let lease: Lease = serde_json::from_value(lease).unwrap();
    let leases: Api<Lease> = Api::namespaced(world.server.client(), "default");
    leases.create(&PostParams::default(), &lease).await.unwrap();
    let address =
        std::net::SocketAddr::from(([127, 0, 0, 1], reeve_apiserver::free_port().unwrap()));
    let trigger = format!("[{{name: grafana, addr: '{address}', path: /p, insecure: true}}]");
    world.configure(&[("trigger", &trigger)]).await;
    world
        .start_with(|settings| settings.identity = Some("standby".into()))
        .await;
    let alert = json!({"alerts": [{"status": "firing", "labels": {"ip": "192.0.2.7"}}]});
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{address}/p");
    let mut tries = 0;
    let answer = loop {
        let sent = client.post(&url).body(alert.to_string()).send().await;
        match sent {
            Ok(answer) => break answer,
            // It does not listen yet.
            Err(error) => assert!(error.is_connect() && tries < 3_000, "{error}"),
        }
        tries += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(answer.status(), 200);
    let block = world.blocks.get(&object_name("192.0.2.7")).await.unwrap();
    assert!(block.is_held() && block.annotation(INTENT).is_some());
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(world.places.0.lock().is_empty(), "an engine was called");
    }
    assert_eq!(world.unready(), "[]");
    let block = world.blocks.get(&object_name("192.0.2.7")).await.unwrap();
    assert!(block.status.is_none(), "{:?}", block.status);
}

#[test]
fn the_addresses_of_the_api_server_the_pod_and_its_node_are_protected() {
    let environment = |name: &str| {
        let value = match name {
            "KUBERNETES_SERVICE_HOST" => "10.96.0.1",
            "POD_IP" => "10.244.0.7 ",
            "HOST_IP" => "2001:db8::1",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let policy = crate::policy::Policy {
        protected: crate::operator::infrastructure(environment)
            .into_iter()
            .collect(),
        ..crate::policy::Policy::default()
    };
    for (given, what) in [
        ("10.96.0.1", "the API server"),
        ("10.96.0.0/24", "the API server"),
        ("10.244.0.7", "the operator's own Pod"),
        ("2001:db8::/48", "the operator's own node"),
    ] {
        let refusal = policy.refusal(&given.parse().unwrap());
        let refusal = refusal.unwrap_or_else(|| panic!("{given} is allowed"));
        assert_eq!(refusal.kind, crate::policy::RefusalKind::Protected);
        assert!(refusal.message.contains(what), "{}", refusal.message);
    }
    let nothing = |name: &str| (name == "POD_IP").then(|| "not an address".to_owned());
    assert!(crate::operator::infrastructure(nothing).is_empty());
}

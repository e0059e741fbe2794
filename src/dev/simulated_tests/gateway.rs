//! A gateway that hangs, fails, forgets, or loses answers.

use ipblock_simulator::{Fault, Rule};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_gateway_that_hangs_does_not_delay_blocks_that_need_none() {
    let world = World::new("iptables").await;
    world.gateway.faults().set(Fault::Hang);
    world.create_many(50, "1h").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.create("colleague", ALLOWLISTED, "1h").await;
    let took = world.until("skipped", 1, 10 * SECOND).await;
    assert!(took <= Duration::from_millis(1500), "{took:?}");

    // Also later, when probes come and go.
    for round in 0..5 {
        tokio::time::sleep(5 * SECOND).await;
        let name = format!("later-{round}");
        world.create(&name, ALLOWLISTED, "1h").await;
        let took = world.until("skipped", 2 + round, 10 * SECOND).await;
        assert!(took <= Duration::from_millis(200), "{took:?}");
    }
    assert_eq!(world.in_phase("pending").await, 50);
    let calls = world.calls(Operation::Ban);
    assert!(calls <= 40, "{calls} calls");

    world.gateway.faults().clear();
    let took = world.until("active", 50, 45 * SECOND).await;
    assert!(took <= 25 * SECOND, "{took:?}");
    assert_eq!(world.gateway.targets().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn one_address_that_hangs_does_not_delay_the_others() {
    let world = World::new("iptables").await;
    world
        .gateway
        .faults()
        .add(Rule::all(Fault::Hang).target("198.51.100.99"));
    world.create("stuck", "198.51.100.99", "1h").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.create_many(50, "1h").await;
    let took = world.until("active", 50, 10 * SECOND).await;
    assert!(took <= SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn every_fault_is_survived_with_few_calls_and_a_stable_reason() {
    for (fault, words) in [
        (Fault::Reset, "connection closed"),
        (Fault::Status(500), "HTTP 500"),
        (Fault::Fail, "simulated failure"),
    ] {
        let world = World::new("iptables").await;
        world.gateway.faults().set(fault);
        world.create_many(10, "1h").await;
        tokio::time::sleep(30 * SECOND).await;
        let calls = world.calls(Operation::Ban);
        assert!(calls <= 100, "{fault:?}: {calls} calls in 30 s");
        let stuck = world.get("block-1").await;
        let message = stuck.status.clone().unwrap().message.unwrap();
        assert!(message.contains(words), "{message}");
        tokio::time::sleep(30 * SECOND).await;
        let later = world.get("block-1").await;
        assert_eq!(
            stuck.metadata.resource_version, later.metadata.resource_version,
            "{fault:?}: a lasting fault is written once"
        );
        world.gateway.faults().clear();
        world.until("active", 10, 45 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_expiry_leaves_no_ban_behind() {
    let world = World::new("xdp").await;
    world.create_many(50, "10s").await;
    world.until("active", 50, 5 * SECOND).await;
    world
        .gateway
        .faults()
        .add(Rule::all(Fault::Status(500)).on(Operation::Unban));
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(
        world.in_phase("expired").await,
        0,
        "what is not lifted is not called expired"
    );
    world.gateway.faults().clear();
    world.until("expired", 50, 45 * SECOND).await;
    assert!(world.gateway.targets().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_lost_a_ban_gets_it_again() {
    let world = World::new("iptables").await;
    world.create_many(5, "1h").await;
    world.until("active", 5, 5 * SECOND).await;
    world.gateway.lose_state();
    let started = Instant::now();
    while world.gateway.targets().len() < 5 {
        assert!(
            started.elapsed() < 120 * SECOND,
            "the interval is one minute"
        );
        tokio::time::sleep(SECOND).await;
    }
    for last in 1..=5 {
        let status = world.get(&format!("block-{last}")).await.status.unwrap();
        assert_eq!(status.bans(), 1, "asserting is no new ban");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_is_one_ban() {
    for engine in ["iptables", "xdp"] {
        let world = World::new(engine).await;
        world
            .gateway
            .faults()
            .add(Rule::all(Fault::LoseAnswer).on(Operation::Ban).times(1));
        world.create("one", "192.0.2.7", "1h").await;
        world.until("active", 1, 10 * SECOND).await;
        assert_eq!(world.get("one").await.status.unwrap().bans(), 1);
        assert_eq!(world.gateway.targets(), ["192.0.2.7"]);
    }
}

//! The engines against the simulated gateway, over the network and in process.

use std::sync::Arc;
use std::time::Duration;

use ipblock_simulator::{Fault, Gateway, Operation, Rule};
use reeve_clock::Clock;

use crate::engine::{Ban, Endpoint, Engine, Error, Iptables, Remaining, Unban, Xdp};
use crate::outbound::{self, AddressPolicy, Http, InProcess, Outbound};
use crate::target::Target;

/// Calls the gateway without a socket, within the default limits.
pub(super) fn in_process(gateway: &Gateway) -> Arc<dyn Outbound> {
    let gateway = gateway.clone();
    Arc::new(InProcess::new(move |request| {
        let answer = gateway.answer(&request);
        async move { answer.await.ok_or(outbound::Error::Reset) }
    }))
}

fn gateway() -> Gateway {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    Gateway::new(Clock::simulated(start, 1))
}

fn http() -> Arc<dyn Outbound> {
    let policy = AddressPolicy {
        allow_loopback: true,
    };
    Arc::new(Http::builder().policy(policy).build().unwrap())
}

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

fn engines(endpoint: &Endpoint, outbound: &Arc<dyn Outbound>) -> [Arc<dyn Engine>; 2] {
    [
        Arc::new(Iptables::new(endpoint.clone(), Arc::clone(outbound))),
        Arc::new(Xdp::new(endpoint.clone(), Arc::clone(outbound))),
    ]
}

#[tokio::test]
async fn both_engines_ban_and_unban_over_the_network() {
    let gateway = gateway();
    let address = gateway.listen(([127, 0, 0, 1], 0).into()).unwrap();
    let endpoint = Endpoint::parse(&address.to_string()).unwrap();
    for engine in engines(&endpoint, &http()) {
        let one = target("192.0.2.7");
        let minute = Some(Remaining::new(Duration::from_secs(60)));
        assert_eq!(engine.ban(&one, minute).await, Ok(Ban::Added));
        assert_eq!(engine.ban(&one, minute).await, Ok(Ban::Already));
        assert!(gateway.drops([192, 0, 2, 7].into()));
        assert_eq!(gateway.targets(), ["192.0.2.7"]);
        assert_eq!(engine.unban(&one).await, Ok(Unban::Removed));
        assert!(engine.unban(&one).await.is_ok());
        assert!(gateway.targets().is_empty());
    }
    let minutes = gateway
        .calls()
        .into_iter()
        .filter(|call| call.request.contains("ban_time"));
    assert!(
        minutes.clone().count() == 2
            && minutes
                .into_iter()
                .all(|call| call.request == "/update?cidr=192.0.2.7&ban_type=0&ban_time=60")
    );
}

#[tokio::test]
async fn a_gateway_that_is_gone_refuses_and_comes_back_at_its_address() {
    let gateway = gateway();
    let address = gateway.listen(([127, 0, 0, 1], 0).into()).unwrap();
    let endpoint = Endpoint::parse(&address.to_string()).unwrap();
    let engine = Xdp::new(endpoint, http());
    engine.ban(&target("192.0.2.7"), None).await.unwrap();
    gateway.refuse().await;
    // The closed connection may still be in the pool once: then it is a reset.
    let mut last = engine.ban(&target("192.0.2.8"), None).await.unwrap_err();
    if last.reason() == "GatewayReset" {
        last = engine.ban(&target("192.0.2.8"), None).await.unwrap_err();
    }
    assert_eq!(last.reason(), "GatewayRefused");
    assert_eq!(gateway.accept().unwrap(), address);
    engine.ban(&target("192.0.2.8"), None).await.unwrap();
    assert_eq!(gateway.targets(), ["192.0.2.7", "192.0.2.8"]);
}

#[tokio::test(start_paused = true)]
async fn every_fault_reaches_the_engine_as_what_it_is() {
    let gateway = gateway();
    let endpoint = Endpoint::parse("192.0.2.250:8080").unwrap();
    for engine in engines(&endpoint, &in_process(&gateway)) {
        let one = target("192.0.2.7");
        for (fault, reason, enforced) in [
            (Fault::Reset, "GatewayReset", false),
            (Fault::Hang, "GatewayTimeout", false),
            (Fault::Status(500), "GatewayError", false),
            (Fault::Fail, "GatewayFailed", false),
            (Fault::Slow(Duration::from_secs(9)), "GatewayTimeout", true),
            (Fault::LoseAnswer, "GatewayReset", true),
        ] {
            gateway.lose_state();
            gateway
                .faults()
                .add(Rule::all(fault).on(Operation::Ban).times(1));
            let error: Error = engine.ban(&one, None).await.unwrap_err();
            assert_eq!(error.reason(), reason, "{fault:?}");
            assert_eq!(gateway.targets().len(), usize::from(enforced), "{fault:?}");
            engine.ban(&one, None).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_gateways_own_end_of_a_ban_follows_the_clock() {
    let gateway = gateway();
    let endpoint = Endpoint::parse("192.0.2.250:8080").unwrap();
    let engine = Xdp::new(endpoint, in_process(&gateway));
    let ten = Some(Remaining::new(Duration::from_secs(10)));
    engine.ban(&target("192.0.2.7"), ten).await.unwrap();
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(gateway.drops([192, 0, 2, 7].into()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!gateway.drops([192, 0, 2, 7].into()));
}

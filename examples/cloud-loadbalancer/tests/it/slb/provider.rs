//! What the controller relies on.

use std::time::Duration;

use cloud_loadbalancer::model::{
    AddressType, Backend, Create, Fixed, GroupId, HealthCheck, InstanceCharge, Internet, IpVersion,
    LbId, ListenerKey, ListenerSettings, Probe, Protocol, Scheduler, Server as Target, State, Tags,
    TrafficCharge,
};
use cloud_loadbalancer::provider::slb::Slb;
use cloud_loadbalancer::provider::{Error, Kind, Provider, Token};
use jiff::SignedDuration;
use slbd::parameters::Parameters;
use slbd::server::{Fault, Rule, Server};

use crate::world::new_group;

pub(super) fn quick() -> (Server, Slb) {
    let server = super::cloud(SignedDuration::ZERO, SignedDuration::ZERO);
    let slb = super::slb(server.api());
    (server, slb)
}

pub(super) fn wanted() -> Create {
    Create {
        name: "web".to_owned(),
        fixed: Fixed {
            address_type: AddressType::Internet,
            ip_version: IpVersion::Ipv4,
            subnet: None,
            zone: Some("zone-a".to_owned()),
            resource_group: None,
        },
        internet: Some(Internet {
            charge: TrafficCharge::PayByTraffic,
            bandwidth: 0,
        }),
        instance_charge: None,
        spec: Some("slb.s1.small".to_owned()),
        tags: Tags::from([("service".to_owned(), "default/web".to_owned())]),
        identity: Tags::new(),
    }
}

pub(super) async fn balancer(slb: &Slb) -> (LbId, GroupId) {
    let id = slb.create(&Token::new("t"), &wanted()).await.unwrap();
    let group = slb.create_group(&id, &new_group("g/80")).await.unwrap();
    (id, group)
}

pub(super) fn settings(group: &GroupId, probe: Probe) -> ListenerSettings {
    ListenerSettings {
        name: "cluster/default.web/80".to_owned(),
        group: group.clone(),
        scheduler: Scheduler::Wrr,
        affinity: None,
        sources: Vec::new(),
        health_check: HealthCheck {
            probe,
            port: None,
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(5),
            healthy: 3,
            unhealthy: 3,
        },
        drain: None,
        proxy_protocol: false,
        certificate: None,
    }
}

fn http(path: &str) -> Probe {
    Probe::Http {
        path: path.to_owned(),
    }
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> Kind {
    result.unwrap_err().kind
}

#[tokio::test]
async fn a_load_balancer_is_described_as_it_was_wanted() {
    let (_server, slb) = quick();
    let wanted = wanted();
    let id = slb.create(&Token::new("t"), &wanted).await.unwrap();
    let has = slb.describe(&id).await.unwrap().unwrap();
    assert_eq!(has.name, wanted.name);
    assert_eq!(has.fixed, wanted.fixed);
    assert_eq!(Some(has.internet), wanted.internet);
    assert_eq!(has.spec, "slb.s1.small");
    assert_eq!(has.tags, wanted.tags);
    assert_eq!(has.state, State::Active);
    assert_eq!(
        (has.delete_protection, has.modification_protection),
        (false, false)
    );
    assert_eq!(slb.find(&wanted.tags).await.unwrap(), [has]);
    assert_eq!(slb.describe(&"lb-none".into()).await.unwrap(), None);
}

#[tokio::test]
async fn every_attribute_is_set_with_its_call() {
    let (server, slb) = quick();
    let id = slb.create(&Token::new("t"), &wanted()).await.unwrap();
    slb.set_name(&id, "other").await.unwrap();
    slb.set_spec(&id, "slb.s2.small").await.unwrap();
    let internet = Internet {
        charge: TrafficCharge::PayByBandwidth,
        bandwidth: 50,
    };
    slb.set_internet(&id, internet).await.unwrap();
    slb.set_delete_protection(&id, true).await.unwrap();
    slb.set_modification_protection(&id, true).await.unwrap();
    let more = Tags::from([
        ("a".to_owned(), "1".to_owned()),
        ("b".to_owned(), String::new()),
    ]);
    slb.tag(&id, &more).await.unwrap();
    slb.untag(&id, &["a".to_owned(), "service".to_owned()])
        .await
        .unwrap();
    let has = slb.describe(&id).await.unwrap().unwrap();
    assert_eq!(
        (has.name.as_str(), has.spec.as_str()),
        ("other", "slb.s2.small")
    );
    assert_eq!(has.internet, internet);
    assert!(has.delete_protection && has.modification_protection);
    assert_eq!(has.tags, Tags::from([("b".to_owned(), String::new())]));
    slb.set_instance_charge(&id, InstanceCharge::PayByUse)
        .await
        .unwrap();
    let has = slb.describe(&id).await.unwrap().unwrap();
    assert_eq!(has.instance_charge, InstanceCharge::PayByUse);
    slb.set_instance_charge(&id, InstanceCharge::PayBySpec)
        .await
        .unwrap();
    let calls = server.world().calls();
    assert_eq!(
        calls
            .iter()
            .filter(|call| call.action.starts_with("Modify"))
            .count(),
        4
    );
}

#[tokio::test]
async fn a_creation_is_not_repeated() {
    let (server, slb) = quick();
    let rule = Rule {
        action: Some("CreateLoadBalancer".to_owned()),
        skip: 0,
        times: Some(1),
        fault: Fault::LoseAnswer,
    };
    assert!(server.world().add_fault(rule));
    let token = Token::new("t");
    assert_eq!(kind(slb.create(&token, &wanted()).await), Kind::Unavailable);
    let id = slb.create(&token, &wanted()).await.unwrap();
    assert_eq!(slb.find(&wanted().tags).await.unwrap().len(), 1);
    let other = Create {
        name: "other".to_owned(),
        ..wanted()
    };
    assert_eq!(kind(slb.create(&token, &other).await), Kind::TokenReused);
    slb.delete(&id).await.unwrap();
    assert_eq!(slb.create(&token, &wanted()).await.unwrap(), id);
    assert_eq!(slb.describe(&id).await.unwrap(), None);
}

#[tokio::test]
async fn a_listener_is_read_as_it_was_written() {
    let (_server, slb) = quick();
    let (id, group) = balancer(&slb).await;
    let second = slb.create_group(&id, &new_group("g/81")).await.unwrap();
    let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    for (protocol, probe, other) in [
        (Protocol::Tcp, Probe::Tcp, http("/healthz")),
        (Protocol::Udp, Probe::Udp, Probe::Udp),
        (Protocol::Http, Probe::Tcp, http("/live")),
    ] {
        let key = ListenerKey { port: 80, protocol };
        let first = settings(&group, probe);
        slb.create_listener(&id, key, &first).await.unwrap();
        let layer_4 = protocol != Protocol::Http;
        let changed = ListenerSettings {
            name: "cluster/default.web/other".to_owned(),
            group: second.clone(),
            scheduler: Scheduler::Wlc,
            affinity: Some((slb.abilities().longest_affinity)(protocol)),
            sources: networks(&["10.0.0.0/8", "192.168.1.0/24"]),
            health_check: HealthCheck {
                port: Some(32_000),
                interval: Duration::from_secs(7),
                timeout: Duration::from_secs(9),
                healthy: 4,
                unhealthy: 5,
                probe: other,
            },
            drain: layer_4.then_some(Duration::from_secs(30)),
            proxy_protocol: layer_4,
            certificate: None,
        };
        let fewer = ListenerSettings {
            sources: networks(&["10.0.0.0/8", "172.16.0.0/12"]),
            affinity: Some(Duration::from_secs(60)),
            ..changed.clone()
        };
        // There and back: nothing of the settings before is left.
        for wanted in [&first, &changed, &fewer, &first] {
            slb.set_listener(&id, key, wanted).await.unwrap();
            let has = slb.listeners(&id).await.unwrap();
            assert_eq!(has.len(), 1);
            assert_eq!(has[0].key, key);
            assert_eq!(&has[0].settings, wanted, "{key}");
            assert!(!has[0].running);
        }
        slb.start_listener(&id, key).await.unwrap();
        assert!(slb.listeners(&id).await.unwrap()[0].running);
        assert_eq!(
            kind(slb.create_listener(&id, key, &first).await),
            Kind::Duplicate
        );
        slb.delete_listener(&id, key).await.unwrap();
        slb.delete_listener(&id, key).await.unwrap();
        assert!(slb.listeners(&id).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_listener_is_never_open_to_more_sources_than_wanted() {
    let (server, slb) = quick();
    let (id, group) = balancer(&slb).await;
    let key = ListenerKey {
        port: 80,
        protocol: Protocol::Tcp,
    };
    let mut wanted = settings(&group, Probe::Tcp);
    wanted.sources = vec!["10.0.0.0/8".parse().unwrap()];
    slb.create_listener(&id, key, &wanted).await.unwrap();
    let actions = |from: usize| -> Vec<String> {
        let calls = server.world().calls().into_iter().skip(from);
        let writes = calls.filter(|call| !call.action.starts_with("Describe"));
        writes.map(|call| call.action).collect()
    };
    let all = actions(0);
    assert_eq!(
        all[all.len() - 3..],
        [
            "CreateAccessControlList",
            "AddAccessControlListEntry",
            "CreateLoadBalancerTCPListener"
        ]
    );
    let before = server.world().calls().len();
    wanted.sources = vec!["172.16.0.0/12".parse().unwrap()];
    slb.set_listener(&id, key, &wanted).await.unwrap();
    assert_eq!(
        actions(before),
        [
            "AddAccessControlListEntry",
            "RemoveAccessControlListEntry",
            "SetLoadBalancerTCPListenerAttribute"
        ]
    );
}

#[tokio::test]
async fn a_deletion_leaves_no_access_control_list() {
    let (server, slb) = quick();
    let (id, group) = balancer(&slb).await;
    let key = ListenerKey {
        port: 80,
        protocol: Protocol::Tcp,
    };
    let mut wanted = settings(&group, Probe::Tcp);
    wanted.sources = vec!["10.0.0.0/8".parse().unwrap()];
    slb.create_listener(&id, key, &wanted).await.unwrap();
    slb.set_delete_protection(&id, true).await.unwrap();
    assert_eq!(kind(slb.delete(&id).await), Kind::Protected);
    // A refused deletion has no effect.
    assert_eq!(slb.listeners(&id).await.unwrap().len(), 1);
    slb.set_delete_protection(&id, false).await.unwrap();
    slb.delete(&id).await.unwrap();
    slb.delete(&id).await.unwrap();
    let lists = super::client(server.api()).access_lists("").await;
    assert_eq!(lists.unwrap(), []);
}

#[tokio::test]
async fn backends_are_instances_and_addresses() {
    let (_server, slb) = quick();
    let (id, group) = balancer(&slb).await;
    let backend = |server: Target, weight: u8| Backend {
        server,
        port: 30_080,
        weight,
    };
    let instance = |weight| backend(Target::Instance("i-1".to_owned()), weight);
    let address = |weight| backend(Target::Address("127.88.0.1".parse().unwrap()), weight);
    slb.add_backends(&id, &group, &[instance(100), address(100)])
        .await
        .unwrap();
    // Those that are there stay as they are.
    slb.add_backends(&id, &group, &[instance(1)]).await.unwrap();
    slb.set_weights(&id, &group, &[address(7)]).await.unwrap();
    let groups = slb.groups(&id).await.unwrap();
    assert_eq!(groups[0].backends, [instance(100), address(7)]);
    slb.remove_backends(&id, &group, &[instance(0)])
        .await
        .unwrap();
    slb.remove_backends(&id, &group, &[instance(0)])
        .await
        .unwrap();
    assert_eq!(slb.groups(&id).await.unwrap()[0].backends, [address(7)]);
    let key = ListenerKey {
        port: 80,
        protocol: Protocol::Tcp,
    };
    slb.create_listener(&id, key, &settings(&group, Probe::Tcp))
        .await
        .unwrap();
    assert_eq!(kind(slb.delete_group(&id, &group).await), Kind::InUse);
    slb.delete_listener(&id, key).await.unwrap();
    slb.delete_group(&id, &group).await.unwrap();
    slb.delete_group(&id, &group).await.unwrap();
    assert_eq!(kind(slb.groups(&"lb-none".into()).await), Kind::NotFound);
    assert_eq!(kind(slb.listeners(&"lb-none".into()).await), Kind::NotFound);
}

#[tokio::test]
async fn a_load_balancer_is_inactive_and_busy_at_first() {
    let minute = SignedDuration::from_mins(1);
    let server = super::cloud(minute, minute);
    let slb = super::slb(server.api());
    let id = slb.create(&Token::new("t"), &wanted()).await.unwrap();
    let has = slb.describe(&id).await.unwrap().unwrap();
    assert_eq!(has.state, State::Inactive);
    assert_eq!(kind(slb.set_name(&id, "other").await), Kind::Busy);
    // The search lags behind.
    assert_eq!(slb.find(&wanted().tags).await.unwrap(), []);
}

#[tokio::test]
async fn a_load_balancer_that_was_switched_off_accepts_changes_and_its_deletion() {
    let (server, slb) = quick();
    let id = slb.create(&Token::new("t"), &wanted()).await.unwrap();
    let off = Parameters::action("SetLoadBalancerStatus")
        .with("LoadBalancerId", &id)
        .with("LoadBalancerStatus", "inactive");
    super::client(server.api()).run(off).await.unwrap();
    let has = slb.describe(&id).await.unwrap().unwrap();
    assert_eq!(has.state, State::Inactive);
    slb.set_name(&id, "other").await.unwrap();
    slb.delete(&id).await.unwrap();
    assert_eq!(slb.describe(&id).await.unwrap(), None);
}

#[tokio::test]
async fn what_the_cloud_does_not_have_is_refused() {
    let (_server, slb) = quick();
    let (id, group) = balancer(&slb).await;
    let key = |protocol| ListenerKey { port: 80, protocol };
    let mut ipv6 = wanted();
    ipv6.fixed.ip_version = IpVersion::Ipv6;
    assert_eq!(
        kind(slb.create(&Token::new("6"), &ipv6).await),
        Kind::Invalid
    );
    let plain = settings(&group, Probe::Tcp);
    let mut source = plain.clone();
    source.sources = vec!["fd00::/8".parse().unwrap()];
    let mut draining = plain.clone();
    draining.drain = Some(Duration::from_secs(30));
    for (protocol, settings) in [
        (Protocol::Https, &plain),
        (Protocol::Tcp, &source),
        (Protocol::Http, &draining),
    ] {
        let refused = slb.create_listener(&id, key(protocol), settings).await;
        assert_eq!(kind(refused), Kind::Invalid, "{protocol}");
    }
}

#[tokio::test]
async fn a_cloud_that_is_away_is_unavailable() {
    let (server, slb) = quick();
    server.stop().await;
    assert_eq!(kind(slb.find(&wanted().tags).await), Kind::Unavailable);
}

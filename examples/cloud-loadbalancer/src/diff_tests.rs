//! Plans as text: each attribute unset, equal and different, and the order of actions.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::desired::WantedPort;
use crate::identity::Owner;
use crate::model::{
    Address, Fixed, HealthCheck, InstanceCharge, LbId, ListenerKey, Probe, Protocol, Scheduler,
    Server, State, Tags, Targets, TrafficCharge,
};

fn owner() -> Owner {
    Owner {
        cluster: "c".parse().unwrap(),
        uid: "u".to_owned(),
        name: "default/web".to_owned(),
    }
}

fn balancer() -> LoadBalancer {
    LoadBalancer {
        id: LbId("lb-1".to_owned()),
        name: "web".to_owned(),
        state: State::Active,
        address: Address::Ip([192, 0, 2, 1].into()),
        fixed: Fixed {
            address_type: AddressType::Internet,
            ip_version: IpVersion::Ipv4,
            subnet: Some("subnet-1".to_owned()),
            zone: Some("zone-1".to_owned()),
            resource_group: None,
        },
        internet: Internet {
            charge: TrafficCharge::PayByTraffic,
            bandwidth: 5,
        },
        instance_charge: InstanceCharge::PayByUse,
        spec: "small".to_owned(),
        delete_protection: false,
        modification_protection: false,
        tags: Tags::new(),
    }
}

/// A Service without ports that asks for nothing.
fn nothing() -> Wanted {
    Wanted {
        owner: owner(),
        reuse: None,
        override_listeners: false,
        address_type: None,
        ip_version: None,
        subnet: None,
        zone: None,
        resource_group: None,
        family: IpVersion::Ipv4,
        name: None,
        default_name: "au".to_owned(),
        renames: true,
        spec: None,
        instance_charge: None,
        traffic_charge: None,
        bandwidth: None,
        delete_protection: None,
        modification_protection: None,
        tags: Tags::new(),
        ports: Vec::new(),
        problems: Vec::new(),
        unsupported: Vec::new(),
    }
}

fn remote() -> Remote {
    Remote {
        balancer: balancer(),
        groups: Vec::new(),
        listeners: Some(Vec::new()),
    }
}

fn texts(plan: &Plan) -> Vec<String> {
    let notices = plan.notices.iter().map(|notice| format!("! {notice}"));
    notices
        .chain(plan.actions.iter().map(ToString::to_string))
        .collect()
}

fn settings(group: &str) -> ListenerSettings {
    ListenerSettings {
        name: "k8s/80/tcp/u/c".to_owned(),
        group: GroupId(group.to_owned()),
        scheduler: Scheduler::Wrr,
        affinity: None,
        sources: Vec::new(),
        health_check: HealthCheck {
            probe: Probe::Tcp,
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

fn backend(number: u8, weight: u8) -> Backend {
    Backend {
        server: Server::Instance(format!("i-{number}")),
        port: 30080,
        weight,
    }
}

const TCP: ListenerKey = ListenerKey {
    port: 80,
    protocol: Protocol::Tcp,
};

fn port(backends: Vec<Backend>) -> WantedPort {
    WantedPort {
        key: TCP,
        settings: settings(""),
        domains: BTreeMap::new(),
        targets: Targets::Instances,
        backends,
    }
}

/// A load balancer that serves port 80 as wanted.
fn served(backends: Vec<Backend>) -> (Wanted, Remote) {
    let mut wanted = nothing();
    wanted.ports = vec![port(backends.clone())];
    let mut remote = remote();
    remote.groups = vec![Group {
        id: GroupId("g-1".to_owned()),
        name: "k8s/80/tcp/u/c".to_owned(),
        targets: None,
        backends,
    }];
    remote.listeners = Some(vec![Listener {
        key: TCP,
        settings: settings("g-1"),
        domains: BTreeMap::new(),
        running: true,
    }]);
    (wanted, remote)
}

type Set = fn(&mut Wanted);
type Change = fn(&mut ListenerSettings);

#[test]
fn an_attribute_is_set_only_if_it_is_requested_and_differs() {
    let cases: [(&str, Set, Set, &str); 9] = [
        (
            "name",
            |w| w.name = Some("web".into()),
            |w| w.name = Some("shop".into()),
            "set name shop",
        ),
        (
            "spec",
            |w| w.spec = Some("small".into()),
            |w| w.spec = Some("large".into()),
            "set spec large",
        ),
        (
            "instance charge",
            |w| w.instance_charge = Some(InstanceCharge::PayByUse),
            |w| w.instance_charge = Some(InstanceCharge::PayBySpec),
            "set instance charge paybyspec",
        ),
        (
            "traffic charge",
            |w| w.traffic_charge = Some(TrafficCharge::PayByTraffic),
            |w| w.traffic_charge = Some(TrafficCharge::PayByBandwidth),
            "set internet paybybandwidth 5 Mbit/s",
        ),
        (
            "bandwidth",
            |w| w.bandwidth = Some(5),
            |w| w.bandwidth = Some(9),
            "set internet paybytraffic 9 Mbit/s",
        ),
        (
            "charge and bandwidth",
            |w| (w.traffic_charge, w.bandwidth) = (Some(TrafficCharge::PayByTraffic), Some(5)),
            |w| (w.traffic_charge, w.bandwidth) = (Some(TrafficCharge::PayByBandwidth), Some(9)),
            "set internet paybybandwidth 9 Mbit/s",
        ),
        (
            "delete protection",
            |w| w.delete_protection = Some(false),
            |w| w.delete_protection = Some(true),
            "set delete protection on",
        ),
        (
            "modification protection",
            |w| w.modification_protection = Some(false),
            |w| w.modification_protection = Some(true),
            "set modification protection on",
        ),
        (
            "tags",
            |w| w.tags = Tags::new(),
            |w| w.tags = [("a".into(), "b".into())].into(),
            "tag a=b",
        ),
    ];
    for (case, equal, different, text) in cases {
        assert_eq!(
            texts(&diff(&nothing(), &remote(), 40)),
            [] as [&str; 0],
            "{case} unset"
        );
        for (set, expected) in [(equal, vec![]), (different, vec![text])] {
            let mut wanted = nothing();
            set(&mut wanted);
            assert_eq!(texts(&diff(&wanted, &remote(), 40)), expected, "{case}");
        }
    }
}

#[test]
fn an_attribute_that_cannot_change_is_a_notice_if_it_differs() {
    let cases: [(Set, Set, &str); 5] = [
        (
            |w| w.address_type = Some(AddressType::Internet),
            |w| w.address_type = Some(AddressType::Intranet),
            "address-type is internet",
        ),
        (
            |w| w.ip_version = Some(IpVersion::Ipv4),
            |w| w.ip_version = Some(IpVersion::Ipv6),
            "ip-version is ipv4",
        ),
        (
            |w| w.subnet = Some("subnet-1".into()),
            |w| w.subnet = Some("subnet-2".into()),
            "subnet is subnet-1",
        ),
        (
            |w| w.zone = Some("zone-1".into()),
            |w| w.zone = Some("zone-2".into()),
            "zone is zone-1",
        ),
        (
            |w| w.resource_group = None,
            |w| w.resource_group = Some("shop".into()),
            "resource-group is not set",
        ),
    ];
    for (equal, different, text) in cases {
        let mut wanted = nothing();
        equal(&mut wanted);
        assert_eq!(diff(&wanted, &remote(), 40), Plan::default(), "{text}");
        different(&mut wanted);
        let plan = diff(&wanted, &remote(), 40);
        assert!(plan.is_empty());
        assert!(
            plan.notices[0].to_string().starts_with(text),
            "{:?}",
            plan.notices
        );
    }
}

#[test]
fn the_modification_protection_is_around_the_attributes_that_it_protects() {
    let (off, on) = (
        "set modification protection off",
        "set modification protection on",
    );
    for (is, requested, name, expected) in [
        (
            true,
            Some(true),
            Some("shop"),
            vec![off, "set name shop", on],
        ),
        (true, Some(true), None, vec![]),
        (true, Some(false), Some("shop"), vec![off, "set name shop"]),
        (true, Some(false), None, vec![off]),
        // A reused load balancer: people switched it on.
        (true, None, Some("shop"), vec!["set name shop"]),
        (false, Some(true), Some("shop"), vec!["set name shop", on]),
    ] {
        let mut remote = remote();
        remote.balancer.modification_protection = is;
        let mut wanted = nothing();
        wanted.modification_protection = requested;
        wanted.name = name.map(str::to_owned);
        assert_eq!(
            texts(&diff(&wanted, &remote, 40)),
            expected,
            "{is} {requested:?} {name:?}"
        );
    }
}

#[test]
fn what_is_as_wanted_has_no_plan() {
    let (wanted, remote) = served(vec![backend(1, 100)]);
    assert_eq!(diff(&wanted, &remote, 40), Plan::default());
}

#[test]
fn each_setting_of_a_listener_is_compared() {
    let cases: [(&str, Change); 8] = [
        ("name", |one| one.name = "k8s/81/tcp/u/c".to_owned()),
        ("scheduler", |one| one.scheduler = Scheduler::Rr),
        ("affinity", |one| {
            one.affinity = Some(Duration::from_secs(9));
        }),
        ("sources", |one| {
            one.sources = vec!["10.0.0.0/8".parse().unwrap()];
        }),
        ("health check", |one| one.health_check.healthy = 9),
        ("drain", |one| one.drain = Some(Duration::from_secs(9))),
        ("proxy protocol", |one| one.proxy_protocol = true),
        ("certificate", |one| {
            one.certificate = Some("cert".to_owned());
        }),
    ];
    for (field, change) in cases {
        let (wanted, mut remote) = served(vec![backend(1, 100)]);
        change(&mut remote.listeners.as_mut().unwrap()[0].settings);
        let expected = format!("set listener tcp:80: {field}");
        assert_eq!(texts(&diff(&wanted, &remote, 40)), [expected]);
    }
}

#[test]
fn a_stopped_listener_is_started() {
    let (wanted, mut remote) = served(vec![backend(1, 100)]);
    remote.listeners.as_mut().unwrap()[0].running = false;
    assert_eq!(
        texts(&diff(&wanted, &remote, 40)),
        ["start listener tcp:80"]
    );
}

#[test]
fn backends_are_compared_by_server_and_port_in_chunks() {
    let (mut wanted, remote) = served(vec![backend(1, 100), backend(2, 100), backend(3, 100)]);
    let mut moved = backend(3, 100);
    moved.port = 30081;
    wanted.ports[0].backends = vec![backend(1, 50), backend(4, 100), backend(5, 100), moved];
    let expected = [
        "add to group g-1: i-4:30080=100 i-5:30080=100",
        "add to group g-1: i-3:30081=100",
        "set weights in group g-1: i-1:30080=50",
        "remove from group g-1: i-2:30080=100 i-3:30080=100",
    ];
    assert_eq!(texts(&diff(&wanted, &remote, 2)), expected);
}

#[test]
fn a_group_has_its_backends_before_its_listener_and_loses_its_listener_before_it_goes() {
    let (_, mut remote) = served(vec![backend(1, 100)]);
    let mut wanted = nothing();
    wanted.ports = vec![port(vec![backend(1, 100)])];
    wanted.ports[0].key.port = 81;
    wanted.ports[0].settings.name = "k8s/81/tcp/u/c".to_owned();
    let expected = [
        "create group k8s/81/tcp/u/c",
        "add to group k8s/81/tcp/u/c: i-1:30080=100",
        "create listener tcp:81 to group k8s/81/tcp/u/c",
        "start listener tcp:81",
        "delete listener tcp:80",
        "delete group g-1 (k8s/80/tcp/u/c)",
    ];
    assert_eq!(texts(&diff(&wanted, &remote, 40)), expected);
    // Only backends are compared: the group of the new port is not there yet.
    remote.listeners = None;
    assert!(diff(&wanted, &remote, 40).is_empty());
}

#[test]
fn of_two_groups_with_one_name_the_used_one_stays() {
    let (wanted, mut remote) = served(vec![backend(1, 100)]);
    let mut second = remote.groups[0].clone();
    second.id = GroupId("g-0".to_owned());
    remote.groups.push(second);
    assert_eq!(
        texts(&diff(&wanted, &remote, 40)),
        ["delete group g-0 (k8s/80/tcp/u/c)"]
    );
}

#[test]
fn a_listener_and_a_group_of_others_are_left_unless_they_are_to_be_replaced() {
    let (mut wanted, mut remote) = served(vec![backend(1, 100)]);
    let listeners = remote.listeners.as_mut().unwrap();
    listeners[0].settings.name = "by hand".to_owned();
    listeners[0].key.protocol = Protocol::Http;
    remote.groups[0].name = "by hand".to_owned();
    let plan = diff(&wanted, &remote, 40);
    assert!(
        plan.is_empty() && plan.notices[0].reason() == "ListenerConflict",
        "{plan}"
    );
    wanted.override_listeners = true;
    let expected = [
        "create group k8s/80/tcp/u/c",
        "add to group k8s/80/tcp/u/c: i-1:30080=100",
        "delete listener http:80",
        "create listener tcp:80 to group k8s/80/tcp/u/c",
        "start listener tcp:80",
    ];
    assert_eq!(texts(&diff(&wanted, &remote, 40)), expected);
}

#[test]
fn a_udp_listener_does_not_take_a_tcp_port() {
    let (wanted, mut remote) = served(vec![backend(1, 100)]);
    let mut by_hand = remote.listeners.as_ref().unwrap()[0].clone();
    by_hand.key.protocol = Protocol::Udp;
    by_hand.settings.name = "by hand".to_owned();
    remote.listeners.as_mut().unwrap().insert(0, by_hand);
    assert_eq!(diff(&wanted, &remote, 40), Plan::default());
}

#[test]
fn a_removal_takes_only_what_the_service_has() {
    let (_, mut remote) = served(vec![backend(1, 100)]);
    let mut by_hand = remote.listeners.as_ref().unwrap()[0].clone();
    by_hand.key.port = 22;
    by_hand.settings.name = "k8s/22/tcp/another/c".to_owned();
    let listeners = remote.listeners.as_mut().unwrap();
    listeners.push(by_hand);
    let expected = [
        "delete listener tcp:80",
        "delete group g-1 (k8s/80/tcp/u/c)",
    ];
    assert_eq!(
        texts(&removal(&owner(), &remote.groups, listeners)),
        expected
    );
}

#[test]
fn a_name_that_cannot_change_is_reported() {
    let mut wanted = nothing();
    wanted.name = Some("shop".to_owned());
    wanted.renames = false;
    let plan = diff(&wanted, &remote(), 40);
    assert_eq!(plan.actions, []);
    let text = plan.to_string();
    assert!(
        text.contains("name is web and cannot change to shop"),
        "{text}"
    );
}

#[test]
fn a_group_for_other_servers_is_replaced_after_the_listener_left_it() {
    let (mut wanted, mut remote) = served(Vec::new());
    remote.groups[0].targets = Some(Targets::Instances);
    wanted.ports[0].targets = Targets::Addresses;
    let plan = diff(&wanted, &remote, 40);
    let calls: Vec<_> = plan.actions.iter().map(Action::call).collect();
    assert_eq!(calls, ["create_group", "set_listener", "delete_group"]);
    remote.groups[0].targets = Some(Targets::Addresses);
    assert_eq!(diff(&wanted, &remote, 40).actions, []);
}

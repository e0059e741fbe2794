//! What the controller relies on: one list of cases for all providers.
//!
//! A provider names the cases in which its cloud is known to differ, each with the reason. Such a case has to fail: a difference
//! that is gone has to leave the list.

use std::sync::Arc;
use std::time::Duration;

use cloud_loadbalancer::model::{
    AddressType, Backend, Create, Fixed, GroupId, HealthCheck, InstanceCharge, Internet, IpVersion,
    LbId, ListenerKey, ListenerSettings, NewGroup, Probe, Protocol, Scheduler, Server, State, Tags,
    Targets, TrafficCharge,
};
use cloud_loadbalancer::provider::{Error, Kind, Provider, Token};
use futures::FutureExt;
use futures::future::BoxFuture;

/// The provider of an empty cloud that has the instances `i-1` to `i-3`, without delays.
pub(crate) type Subject = Arc<dyn Provider>;

type Case = fn(Subject) -> BoxFuture<'static, ()>;

/// The cases by their names.
macro_rules! cases {
    ($($name:ident)*) => {
        const CASES: &[(&str, Case)] = &[$((stringify!($name), |subject| $name(subject).boxed())),*];
    };
}

cases! {
    a_load_balancer_is_described_as_it_was_wanted
    a_search_shows_those_that_carry_all_tags
    a_creation_that_is_repeated_makes_one_load_balancer
    a_load_balancer_with_the_same_name_is_not_taken_for_an_earlier_creation
    what_is_not_there_is_not_described_and_can_be_deleted
    delete_protection_refuses_a_deletion_that_then_changes_nothing
    a_deletion_leaves_nothing
    tags_are_added_replaced_and_removed
    what_the_cloud_lacks_is_refused
    a_group_is_found_by_its_name_and_deleted_twice
    a_group_with_a_listener_is_in_use
    backends_are_added_and_removed_twice
    a_server_with_two_ports_is_two_backends
    addresses_are_backends
    a_listener_is_read_as_it_was_written_and_changed
    a_port_has_one_listener
    a_listener_moves_to_another_group
}

/// Runs every case on a provider of its own; those in `differences` have to fail.
pub(crate) async fn check(differences: &[(&str, &str)], fresh: impl AsyncFn() -> Subject) {
    for (name, _) in differences {
        let known = CASES.iter().any(|(case, _)| case == name);
        assert!(known, "there is no case {name}");
    }
    for (name, case) in CASES {
        let result = tokio::spawn(case(fresh().await)).await;
        let difference = differences.iter().find(|(case, _)| case == name);
        match difference {
            None => assert!(result.is_ok(), "{name} failed"),
            Some((_, reason)) => assert!(result.is_err(), "{name} passes now, without: {reason}"),
        }
    }
}

fn tag(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

fn wanted() -> Create {
    let identity = Tags::from([tag("cluster", "c"), tag("uid", "u-1")]);
    let mut tags = identity.clone();
    tags.extend([tag("service", "default/web")]);
    Create {
        name: "web".to_owned(),
        fixed: Fixed {
            address_type: AddressType::Internet,
            ip_version: IpVersion::Ipv4,
            subnet: None,
            zone: None,
            resource_group: None,
        },
        internet: None,
        instance_charge: None,
        spec: None,
        tags,
        identity,
    }
}

fn group(name: &str) -> NewGroup {
    NewGroup {
        name: name.to_owned(),
        protocol: Protocol::Tcp,
        targets: Targets::Instances,
    }
}

const TCP: ListenerKey = ListenerKey {
    port: 80,
    protocol: Protocol::Tcp,
};

fn settings(cloud: &Subject, group: &GroupId) -> ListenerSettings {
    let wanted = HealthCheck {
        probe: Probe::Tcp,
        port: None,
        interval: Duration::from_secs(2),
        timeout: Duration::from_secs(5),
        healthy: 3,
        unhealthy: 3,
    };
    ListenerSettings {
        name: "k8s/80/tcp/u-1/c".to_owned(),
        group: group.clone(),
        scheduler: Scheduler::Wrr,
        affinity: None,
        sources: Vec::new(),
        health_check: (cloud.abilities().health_check)(&wanted),
        drain: None,
        proxy_protocol: false,
        certificate: None,
    }
}

fn instance(number: u8, port: u16) -> Backend {
    Backend {
        server: Server::Instance(format!("i-{number}")),
        port,
        weight: 100,
    }
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> Kind {
    result.unwrap_err().kind
}

async fn balancer(cloud: &Subject) -> LbId {
    cloud.create(&Token::new("t"), &wanted()).await.unwrap()
}

async fn with_group(cloud: &Subject) -> (LbId, GroupId) {
    let id = balancer(cloud).await;
    let group = cloud.create_group(&id, &group("g/80")).await.unwrap();
    (id, group)
}

async fn backends(cloud: &Subject, id: &LbId) -> Vec<Backend> {
    let mut groups = cloud.groups(id).await.unwrap();
    assert_eq!(groups.len(), 1);
    groups[0].backends.sort();
    groups.remove(0).backends
}

async fn a_load_balancer_is_described_as_it_was_wanted(cloud: Subject) {
    let id = balancer(&cloud).await;
    let has = cloud.describe(&id).await.unwrap().unwrap();
    let wanted = wanted();
    assert_eq!((&has.id, &has.name), (&id, &wanted.name));
    assert_eq!(has.fixed.address_type, wanted.fixed.address_type);
    assert_eq!(has.fixed.ip_version, wanted.fixed.ip_version);
    assert_eq!(has.tags, wanted.tags);
    assert_eq!(has.state, State::Active);
    assert!(!has.delete_protection && !has.modification_protection);
    assert!(!has.address.to_string().is_empty());
    // The id is the value of a label.
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    assert!(id.0.len() <= 63 && id.0.chars().all(allowed), "{id}");
}

async fn a_search_shows_those_that_carry_all_tags(cloud: Subject) {
    let first = balancer(&cloud).await;
    let mut other = wanted();
    other.name = "other".to_owned();
    for tags in [&mut other.tags, &mut other.identity] {
        tags.extend([tag("uid", "u-2")]);
    }
    let second = cloud.create(&Token::new("t2"), &other).await.unwrap();
    let find = async |tags: &[(&str, &str)]| {
        let tags = tags.iter().map(|(key, value)| tag(key, value)).collect();
        let found = cloud.find(&tags).await.unwrap().into_iter();
        let mut ids: Vec<_> = found.map(|one| one.id).collect();
        ids.sort();
        ids
    };
    let mut both = vec![first.clone(), second.clone()];
    both.sort();
    assert_eq!(find(&[("cluster", "c")]).await, both);
    assert_eq!(find(&[("cluster", "c"), ("uid", "u-2")]).await, [second]);
    assert_eq!(find(&[("cluster", "d"), ("uid", "u-1")]).await, []);
    let shown = cloud.find(&wanted().identity).await.unwrap();
    assert_eq!(shown, [cloud.describe(&first).await.unwrap().unwrap()]);
}

async fn a_creation_that_is_repeated_makes_one_load_balancer(cloud: Subject) {
    let id = balancer(&cloud).await;
    assert_eq!(balancer(&cloud).await, id);
    assert_eq!(cloud.find(&wanted().identity).await.unwrap().len(), 1);
}

async fn a_load_balancer_with_the_same_name_is_not_taken_for_an_earlier_creation(cloud: Subject) {
    let id = balancer(&cloud).await;
    let mut other = wanted();
    for tags in [&mut other.tags, &mut other.identity] {
        tags.extend([tag("uid", "u-2")]);
    }
    match cloud.create(&Token::new("t2"), &other).await {
        Ok(second) => assert_ne!(second, id),
        Err(error) => assert_eq!(error.kind, Kind::Duplicate),
    }
}

async fn what_is_not_there_is_not_described_and_can_be_deleted(cloud: Subject) {
    let gone = balancer(&cloud).await;
    cloud.delete(&gone).await.unwrap();
    for id in [gone, "net.none.0".into(), "lb-none".into()] {
        assert_eq!(cloud.describe(&id).await.unwrap(), None, "{id}");
        cloud.delete(&id).await.unwrap();
        assert_eq!(kind(cloud.groups(&id).await), Kind::NotFound, "{id}");
        assert_eq!(kind(cloud.listeners(&id).await), Kind::NotFound, "{id}");
        let group = cloud.create_group(&id, &group("g/80")).await;
        assert_eq!(kind(group), Kind::NotFound, "{id}");
    }
}

async fn delete_protection_refuses_a_deletion_that_then_changes_nothing(cloud: Subject) {
    let (id, group) = with_group(&cloud).await;
    let settings = settings(&cloud, &group);
    cloud.create_listener(&id, TCP, &settings).await.unwrap();
    cloud.set_delete_protection(&id, true).await.unwrap();
    assert_eq!(kind(cloud.delete(&id).await), Kind::Protected);
    assert!(
        cloud
            .describe(&id)
            .await
            .unwrap()
            .unwrap()
            .delete_protection
    );
    assert_eq!(cloud.listeners(&id).await.unwrap().len(), 1);
    cloud.set_delete_protection(&id, false).await.unwrap();
    cloud.delete(&id).await.unwrap();
    assert_eq!(cloud.describe(&id).await.unwrap(), None);
}

async fn a_deletion_leaves_nothing(cloud: Subject) {
    let (id, group) = with_group(&cloud).await;
    let listener = settings(&cloud, &group);
    cloud.create_listener(&id, TCP, &listener).await.unwrap();
    cloud
        .create_group(&id, &self::group("g/unused"))
        .await
        .unwrap();
    cloud.delete(&id).await.unwrap();
    assert_eq!(cloud.find(&wanted().identity).await.unwrap(), []);
    // The names are free again: the next one is empty.
    let id = cloud.create(&Token::new("next"), &wanted()).await.unwrap();
    assert_eq!(cloud.groups(&id).await.unwrap(), []);
    assert_eq!(cloud.listeners(&id).await.unwrap(), []);
}

async fn tags_are_added_replaced_and_removed(cloud: Subject) {
    let id = balancer(&cloud).await;
    let more = Tags::from([tag("team", "a"), tag("empty", ""), tag("service", "b")]);
    cloud.tag(&id, &more).await.unwrap();
    cloud.tag(&id, &more).await.unwrap();
    let keys = ["team", "uid", "absent"].map(str::to_owned);
    cloud.untag(&id, &keys).await.unwrap();
    cloud.untag(&id, &keys).await.unwrap();
    let has = cloud.describe(&id).await.unwrap().unwrap();
    let wanted = Tags::from([tag("cluster", "c"), tag("service", "b"), tag("empty", "")]);
    assert_eq!(has.tags, wanted);
}

async fn what_the_cloud_lacks_is_refused(cloud: Subject) {
    let (id, group) = with_group(&cloud).await;
    let lacks = |annotation: &str| {
        let mut all = cloud.abilities().lacks.iter();
        all.any(|lack| lack.annotation == annotation)
    };
    let internet = Internet {
        charge: TrafficCharge::PayByBandwidth,
        bandwidth: 50,
    };
    let spec = cloud.set_spec(&id, "slb.s2.small").await;
    let name = cloud.set_name(&id, "other").await;
    let bandwidth = cloud.set_internet(&id, internet).await;
    let charge = cloud
        .set_instance_charge(&id, InstanceCharge::PayByUse)
        .await;
    for (result, refused) in [
        (name, !cloud.abilities().renames),
        (spec, lacks("spec")),
        (bandwidth, lacks("bandwidth")),
        (charge, lacks("instance-charge")),
        // After the others, which it refuses.
        (
            cloud.set_modification_protection(&id, true).await,
            lacks("modification-protection"),
        ),
    ] {
        let kind = result.as_ref().err().map(|error| error.kind);
        assert_eq!(kind, refused.then_some(Kind::Invalid), "{result:?}");
    }
    let mut limited = settings(&cloud, &group);
    limited.sources = vec!["10.0.0.0/8".parse().unwrap()];
    let created = cloud.create_listener(&id, TCP, &limited).await;
    assert_eq!(created.is_ok(), cloud.abilities().sources, "{created:?}");
    let open = cloud.listeners(&id).await.unwrap();
    assert!(open.iter().all(|one| !one.settings.sources.is_empty()));
    for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Http] {
        let key = ListenerKey {
            port: 8080,
            protocol,
        };
        if !cloud.abilities().protocols.contains(&protocol) {
            let plain = settings(&cloud, &group);
            let created = cloud.create_listener(&id, key, &plain).await;
            assert_eq!(kind(created), Kind::Invalid, "{protocol}");
        }
    }
}

async fn a_group_is_found_by_its_name_and_deleted_twice(cloud: Subject) {
    let (id, first) = with_group(&cloud).await;
    let second = cloud.create_group(&id, &group("g/81")).await.unwrap();
    assert_ne!(first, second);
    let names = async || {
        let groups = cloud.groups(&id).await.unwrap();
        let mut names: Vec<_> = groups.into_iter().map(|one| (one.name, one.id)).collect();
        names.sort();
        names
    };
    let named = |name: &str, id: &GroupId| (name.to_owned(), id.clone());
    let both = [named("g/80", &first), named("g/81", &second)];
    assert_eq!(names().await, both);
    cloud.delete_group(&id, &first).await.unwrap();
    cloud.delete_group(&id, &first).await.unwrap();
    assert_eq!(names().await, both[1..]);
}

async fn a_group_with_a_listener_is_in_use(cloud: Subject) {
    let (id, group) = with_group(&cloud).await;
    let settings = settings(&cloud, &group);
    cloud.create_listener(&id, TCP, &settings).await.unwrap();
    assert_eq!(kind(cloud.delete_group(&id, &group).await), Kind::InUse);
    cloud.delete_listener(&id, TCP).await.unwrap();
    cloud.delete_group(&id, &group).await.unwrap();
}

async fn backends_are_added_and_removed_twice(cloud: Subject) {
    let (id, group) = with_group(&cloud).await;
    let all = [instance(1, 30_080), instance(2, 30_080)];
    assert_eq!(backends(&cloud, &id).await, []);
    for _ in 0..2 {
        cloud.add_backends(&id, &group, &all).await.unwrap();
        assert_eq!(backends(&cloud, &id).await, all);
    }
    if cloud.abilities().weights {
        let lighter = Backend {
            weight: 7,
            ..all[1].clone()
        };
        let some = [lighter.clone()];
        cloud.set_weights(&id, &group, &some).await.unwrap();
        assert_eq!(backends(&cloud, &id).await, [all[0].clone(), lighter]);
    }
    for _ in 0..2 {
        cloud.remove_backends(&id, &group, &all[1..]).await.unwrap();
        assert_eq!(backends(&cloud, &id).await, all[..1]);
    }
}

async fn a_server_with_two_ports_is_two_backends(cloud: Subject) {
    let (id, group) = with_group(&cloud).await;
    let both = [instance(1, 30_080), instance(1, 30_081)];
    cloud.add_backends(&id, &group, &both[..1]).await.unwrap();
    cloud.add_backends(&id, &group, &both[1..]).await.unwrap();
    assert_eq!(backends(&cloud, &id).await, both);
    cloud
        .remove_backends(&id, &group, &both[..1])
        .await
        .unwrap();
    assert_eq!(backends(&cloud, &id).await, both[1..]);
}

async fn addresses_are_backends(cloud: Subject) {
    let id = balancer(&cloud).await;
    let new = NewGroup {
        targets: Targets::Addresses,
        ..group("g/80")
    };
    let group = cloud.create_group(&id, &new).await.unwrap();
    let address = Backend {
        server: Server::Address("127.88.0.1".parse().unwrap()),
        port: 8080,
        weight: 100,
    };
    let all = [address];
    cloud.add_backends(&id, &group, &all).await.unwrap();
    assert_eq!(backends(&cloud, &id).await, all);
    let targets = cloud.groups(&id).await.unwrap()[0].targets;
    assert!(targets.is_none_or(|targets| targets == Targets::Addresses));
}

async fn a_listener_is_read_as_it_was_written_and_changed(cloud: Subject) {
    let (id, group) = with_group(&cloud).await;
    let abilities = cloud.abilities();
    let first = settings(&cloud, &group);
    let check = HealthCheck {
        probe: Probe::Http {
            path: "/live".to_owned(),
        },
        port: Some(32_000),
        interval: Duration::from_secs(9),
        timeout: Duration::from_secs(7),
        healthy: 4,
        unhealthy: 5,
    };
    let changed = ListenerSettings {
        name: "k8s/80/tcp/u-1/other".to_owned(),
        affinity: Some(abilities.affinity.unwrap_or(Duration::from_secs(60))),
        health_check: (abilities.health_check)(&check),
        drain: Some(Duration::from_secs(30)),
        proxy_protocol: true,
        ..first.clone()
    };
    cloud.create_listener(&id, TCP, &first).await.unwrap();
    cloud.start_listener(&id, TCP).await.unwrap();
    for wanted in [&first, &changed, &first] {
        // Twice: the second call finds what it sets.
        cloud.set_listener(&id, TCP, wanted).await.unwrap();
        cloud.set_listener(&id, TCP, wanted).await.unwrap();
        let has = cloud.listeners(&id).await.unwrap();
        assert_eq!(has.len(), 1);
        assert_eq!((has[0].key, &has[0].settings), (TCP, wanted));
        assert!(has[0].running && has[0].domains.is_empty());
    }
}

async fn a_port_has_one_listener(cloud: Subject) {
    let (id, group) = with_group(&cloud).await;
    let settings = settings(&cloud, &group);
    cloud.create_listener(&id, TCP, &settings).await.unwrap();
    let second = cloud.create_listener(&id, TCP, &settings).await;
    assert_eq!(kind(second), Kind::Duplicate);
    for _ in 0..2 {
        cloud.delete_listener(&id, TCP).await.unwrap();
        assert_eq!(cloud.listeners(&id).await.unwrap(), []);
    }
    let absent = cloud.set_listener(&id, TCP, &settings).await;
    assert_eq!(kind(absent), Kind::NotFound);
}

async fn a_listener_moves_to_another_group(cloud: Subject) {
    let (id, first) = with_group(&cloud).await;
    let second = cloud.create_group(&id, &group("g/81")).await.unwrap();
    let wanted = settings(&cloud, &first);
    cloud.create_listener(&id, TCP, &wanted).await.unwrap();
    let wanted = settings(&cloud, &second);
    cloud.set_listener(&id, TCP, &wanted).await.unwrap();
    assert_eq!(cloud.listeners(&id).await.unwrap()[0].settings, wanted);
    cloud.delete_group(&id, &first).await.unwrap();
    assert_eq!(kind(cloud.delete_group(&id, &second).await), Kind::InUse);
}

#[tokio::test(start_paused = true)]
async fn the_cloud_in_memory_keeps_the_contract() {
    use cloud_loadbalancer::provider::memory::{Cloud, Settings};
    check(&[], async || {
        let settings = Settings {
            latency: Duration::ZERO,
            provisioning: Duration::ZERO,
            lag: Duration::ZERO,
            ..Settings::default()
        };
        Arc::new(Cloud::new(settings)) as Subject
    })
    .await;
}

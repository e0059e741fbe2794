//! Histories of random calls: what holds after each of them.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

const ACTIONS: &[&str] = &[
    "CreateLoadBalancer",
    "DeleteLoadBalancer",
    "SetLoadBalancerDeleteProtection",
    "SetLoadBalancerName",
    "CreateLoadBalancerTCPListener",
    "CreateLoadBalancerUDPListener",
    "CreateLoadBalancerHTTPListener",
    "CreateLoadBalancerHTTPSListener",
    "SetLoadBalancerTCPListenerAttribute",
    "UploadServerCertificate",
    "DeleteServerCertificate",
    "CreateDomainExtension",
    "DeleteDomainExtension",
    "StartLoadBalancerListener",
    "StopLoadBalancerListener",
    "DeleteLoadBalancerListener",
    "AddBackendServers",
    "RemoveBackendServers",
    "CreateVServerGroup",
    "SetVServerGroupAttribute",
    "AddVServerGroupBackendServers",
    "RemoveVServerGroupBackendServers",
    "ModifyVServerGroupBackendServers",
    "DeleteVServerGroup",
    "CreateAccessControlList",
    "AddAccessControlListEntry",
    "DeleteAccessControlList",
    "TagResources",
    "UntagResources",
    "DescribeLoadBalancers",
    "DescribeLoadBalancerListeners",
    "ListTagResources",
];

static PAIR: LazyLock<(String, String)> = LazyLock::new(super::certificates::pair);

fn call() -> impl Strategy<Value = Parameters> {
    let maybe = |name: &'static str, values: Vec<String>| {
        let present = proptest::sample::select(values).prop_map(move |value| (name, value));
        proptest::option::weighted(0.8, present)
    };
    let texts = |texts: &[&str]| {
        texts
            .iter()
            .map(|&text| text.to_owned())
            .collect::<Vec<_>>()
    };
    // Ids are counted over all kinds, so low numbers meet each other.
    let ids = |prefix: &str| {
        (1..8)
            .map(|n| format!("{prefix}-{n:06}"))
            .collect::<Vec<_>>()
    };
    let parts = (
        proptest::sample::select(ACTIONS),
        maybe("LoadBalancerId", ids("lb")),
        maybe("VServerGroupId", ids("rsp")),
        maybe("AclId", ids("acl")),
        maybe("ServerCertificateId", ids("cert")),
        maybe("ListenerPort", texts(&["80", "81", "0"])),
        maybe("BackendServerPort", texts(&["8080"])),
        maybe("DeleteProtection", texts(&["on", "off", "maybe"])),
        maybe("AclStatus", texts(&["on", "off"])),
        maybe(
            "BackendServers",
            vec![backends(1), backends(3), "no json".to_owned()],
        ),
        proptest::option::weighted(0.2, proptest::sample::select(vec!["t1", "t2"])),
    );
    parts.prop_map(|(action, a, b, c, cert, d, e, f, g, h, token)| {
        let mut call = Parameters::action(action)
            .with("LoadBalancerName", "n")
            .with("AclName", "n")
            .with("AclType", "white")
            .with("AclEntrys", r#"[{"entry":"10.0.0.0/8"}]"#)
            .with("OldBackendServers", backends(1))
            .with("NewBackendServers", backends(2))
            .with("ServerCertificate", &PAIR.0)
            .with("PrivateKey", &PAIR.1)
            .with("Domain", "a.example.com")
            .with("DomainExtensionId", "de-000004")
            .with("ResourceType", "instance")
            .with("TagKey.1", "k")
            .with("Tag.1.Key", "k")
            .with("Tag.1.Value", "v");
        if let Some((_, id)) = &a {
            call.set("ResourceId.1", id);
        }
        for (name, value) in [a, b, c, cert, d, e, f, g, h].into_iter().flatten() {
            call.set(name, value);
        }
        if let Some(token) = token {
            call.set("ClientToken", token);
        }
        call
    })
}

fn check(state: &State) {
    let mut addresses = BTreeSet::new();
    for balancer in state.balancers.values() {
        assert!(
            addresses.insert(balancer.address),
            "an address is used twice"
        );
        let mut ports = BTreeSet::new();
        for listener in &balancer.listeners {
            let udp = listener.protocol == Protocol::Udp;
            assert!(ports.insert((listener.port, udp)), "a port is used twice");
            assert!(listener.group.is_some() || listener.backend_port.is_some());
            if let Some(group) = &listener.group {
                assert_eq!(state.groups[group].balancer, balancer.id);
            }
            if let Some(acl) = listener.settings.get("AclId") {
                assert!(
                    state.access_lists.contains_key(acl),
                    "a list in use is gone"
                );
            }
            for id in listener.certificates() {
                assert!(
                    state.certificates.contains_key(id),
                    "a certificate in use is gone"
                );
            }
        }
    }
    for group in state.groups.values() {
        assert!(
            state.balancers.contains_key(&group.balancer),
            "a group was left behind"
        );
        for (index, backend) in group.backends.iter().enumerate() {
            let others = &group.backends[index + 1..];
            assert!(!others.iter().any(|other| other.same_place(backend)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn refusals_change_nothing_and_references_hold(
        steps in proptest::collection::vec((call(), 0..400i64), 1..60)
    ) {
        let mut world = World::new(Rules::default());
        let mut made = BTreeSet::new();
        for (call, pause) in steps {
            world.pass(pause);
            let before = world.cloud.state().clone();
            let action = call.text("Action").unwrap().to_owned();
            let repeated = call.text("ClientToken").is_some_and(|token| before.tokens.contains_key(token));
            match world.try_call(&call) {
                Err(_) => prop_assert_eq!(world.cloud.state(), &before),
                Ok(answer) => {
                    if !Cloud::writes(&action) || repeated {
                        prop_assert_eq!(world.cloud.state(), &before);
                    } else if action == "CreateLoadBalancer" {
                        prop_assert!(made.insert(id(&answer)), "an id is used twice");
                    }
                    if call.text("ClientToken").is_some() {
                        prop_assert_eq!(world.try_call(&call).unwrap(), answer);
                    }
                }
            }
            check(world.cloud.state());
        }
        let stored = serde_json::to_vec(world.cloud.state()).unwrap();
        let read: State = serde_json::from_slice(&stored).unwrap();
        prop_assert_eq!(&read, world.cloud.state());
    }
}

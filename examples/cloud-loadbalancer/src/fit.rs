//! Adapts what a Service asks for to what its cloud can do.
//!
//! An annotation without an effect is reported (`UnsupportedSetting`) and left out, and the Service is served without
//! it. Where that could do harm, it is a [`Problem`]: a Service with allowed sources is not opened to all, and a port is not
//! served with another protocol.

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;

use crate::annotations::Problem;
use crate::desired::Wanted;
use crate::identity::PREFIX;
use crate::model::{Protocol, Scheduler, Targets};
use crate::provider::Abilities;

/// The weight of a backend where all are equal.
const EQUAL: u8 = 100;

/// The annotations of a health check, without those that only select the probe.
const HEALTH_CHECK: [&str; 4] = [
    "health-check-interval",
    "health-check-timeout",
    "healthy-threshold",
    "unhealthy-threshold",
];

// === impl Wanted ===

impl Wanted {
    /// The same for a cloud with these abilities.
    #[must_use]
    pub fn fit(mut self, service: &Service, abilities: &Abilities) -> Self {
        self.default_name = (abilities.default_name)(&self.owner);
        self.renames = abilities.renames;
        let annotations = service.metadata.annotations.as_ref();
        let set = |name: &str| {
            let key = format!("{PREFIX}{name}");
            annotations
                .is_some_and(|all| all.contains_key(&key))
                .then_some(key)
        };
        for lack in abilities.lacks {
            self.leave_out(lack.annotation);
            if let Some(key) = set(lack.annotation) {
                let message = format!("it has no effect: {}", lack.reason);
                self.unsupported.push(Problem::new(key, message));
            }
        }
        self.check_protocols(abilities);
        self.check_sources(abilities);
        self.check_proxy_protocol(abilities);
        self.check_udp_of_pods(abilities);
        self.fit_draining(abilities);
        self.fit_health_checks(abilities, set);
        self.fit_affinity(service, abilities);
        if !abilities.weights {
            let backends = self.ports.iter_mut().flat_map(|port| &mut port.backends);
            backends.for_each(|backend| backend.weight = EQUAL);
        }
        self
    }

    /// Takes the value of an annotation away.
    fn leave_out(&mut self, annotation: &str) {
        match annotation {
            "subnet" => self.subnet = None,
            "zone" => self.zone = None,
            "resource-group" => self.resource_group = None,
            "spec" => self.spec = None,
            "instance-charge" => self.instance_charge = None,
            "traffic-charge" => self.traffic_charge = None,
            "bandwidth" => self.bandwidth = None,
            "modification-protection" => self.modification_protection = None,
            "scheduler" => {
                let ports = self.ports.iter_mut();
                ports.for_each(|port| port.settings.scheduler = Scheduler::default());
            }
            "domain-certificates" => {
                let ports = self.ports.iter_mut();
                ports.for_each(|port| port.domains.clear());
            }
            // The others are read where they take effect.
            _ => {}
        }
    }

    fn check_protocols(&mut self, abilities: &Abilities) {
        for port in &self.ports {
            if !abilities.protocols.contains(&port.key.protocol) {
                let message = format!("load balancers of this cloud have no port {}", port.key);
                self.problems.push(Problem::new("spec.ports", message));
            }
        }
    }

    fn check_sources(&mut self, abilities: &Abilities) {
        let mut sources = self.ports.iter().flat_map(|port| &port.settings.sources);
        let message = if !abilities.sources && sources.next().is_some() {
            "load balancers of this cloud cannot be limited to some sources; \
             remove the ranges to open it to all"
        } else if !abilities.ipv6_sources && sources.any(|one| matches!(one, IpNet::V6(_))) {
            "load balancers of this cloud cannot be limited to IPv6 ranges"
        } else {
            return;
        };
        let field = "spec.loadBalancerSourceRanges";
        self.problems.push(Problem::new(field, message));
    }

    /// A backend that expects the PROXY protocol cannot read a connection without it.
    fn check_proxy_protocol(&mut self, abilities: &Abilities) {
        for port in &self.ports {
            let protocol = port.key.protocol;
            if port.settings.proxy_protocol && !(abilities.proxy_protocol)(protocol) {
                let message = format!("this cloud cannot send it at {}", port.key);
                let key = format!("{PREFIX}proxy-protocol");
                self.problems.push(Problem::new(key, message));
            }
        }
    }

    fn check_udp_of_pods(&mut self, abilities: &Abilities) {
        for port in &self.ports {
            let unchecked = port.key.protocol == Protocol::Udp
                && port.targets == Targets::Addresses
                && port.settings.health_check.port.is_none();
            if unchecked && !abilities.udp_checks {
                let message = format!(
                    "this cloud checks {} by HTTP at /healthz; name the port of the Pods that answers there",
                    port.key
                );
                let key = format!("{PREFIX}health-check-port");
                self.problems.push(Problem::new(key, message));
            }
        }
    }

    fn fit_draining(&mut self, abilities: &Abilities) {
        for port in &mut self.ports {
            let drain = &mut port.settings.drain;
            if !(abilities.drains)(port.key.protocol) && drain.take().is_some() {
                let message = format!("it has no effect at {} in this cloud", port.key);
                let key = format!("{PREFIX}drain");
                self.unsupported.push(Problem::new(key, message));
            }
        }
    }

    fn fit_health_checks(&mut self, abilities: &Abilities, set: impl Fn(&str) -> Option<String>) {
        let mut changed = None;
        for port in &mut self.ports {
            let check = &mut port.settings.health_check;
            let fits = (abilities.health_check)(check);
            if fits != *check {
                *check = fits;
                changed = Some(format!(
                    "this cloud does not accept it: checks are {} s apart and take {} s at most, {} good and {} bad ones count",
                    check.interval.as_secs(),
                    check.timeout.as_secs(),
                    check.healthy,
                    check.unhealthy
                ));
            }
        }
        let Some(message) = changed else { return };
        if let Some(key) = HEALTH_CHECK.iter().find_map(|name| set(name)) {
            self.unsupported.push(Problem::new(key, message));
        }
    }

    fn fit_affinity(&mut self, service: &Service, abilities: &Abilities) {
        for port in &mut self.ports {
            let longest = (abilities.longest_affinity)(port.key.protocol);
            let affinity = &mut port.settings.affinity;
            *affinity = affinity.map(|affinity| affinity.min(longest));
        }
        let Some(only) = abilities.affinity else {
            return;
        };
        let mut other = false;
        for affinity in self
            .ports
            .iter_mut()
            .map(|port| &mut port.settings.affinity)
        {
            if let Some(time) = affinity {
                other |= *time != only;
                *affinity = Some(only);
            }
        }
        let spec = service.spec.as_ref();
        if other && spec.is_some_and(|spec| spec.session_affinity_config.is_some()) {
            let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            let message = "it has no effect: the time of an affinity cannot be set in this cloud";
            self.unsupported.push(Problem::new(field, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    use super::*;
    use crate::annotations::TABLE;
    use crate::backends::{Readiness, Sources};
    use crate::identity::Owner;
    use crate::model::Protocol;
    use crate::provider::elbv2::ABILITIES;

    fn wanted(annotations: &[(&str, &str)], spec: Value) -> (Service, Wanted) {
        let all = annotations.iter();
        let all = all.map(|(name, value)| (format!("{PREFIX}{name}"), json!(value)));
        let mut service = json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "u-1",
                "annotations": Value::Object(all.collect())},
            "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local",
                "ports": [{"port": 80, "nodePort": 30080}]},
        });
        for (key, value) in spec.as_object().unwrap() {
            service["spec"][key] = value.clone();
        }
        let service: Service = serde_json::from_value(service).unwrap();
        let owner = Owner::of(&"c".parse().unwrap(), &service);
        let node = json!({"metadata": {"name": "n1"}, "spec": {"providerID": "aws:///z/i-1"}});
        let node: Node = serde_json::from_value(node).unwrap();
        let slice = json!({"metadata": {}, "addressType": "IPv4", "ports": [{"port": 8080}],
            "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "n1"},
                {"addresses": ["10.0.0.2"], "nodeName": "n1"}]});
        let sources = Sources {
            nodes: &[Arc::new(node)],
            slices: &[Arc::new(serde_json::from_value(slice).unwrap())],
        };
        let wanted = Wanted::of(&owner, &service, sources, Readiness::Ignore, None);
        (service, wanted)
    }

    fn fitted(annotations: &[(&str, &str)], spec: Value) -> Wanted {
        let (service, wanted) = wanted(annotations, spec);
        wanted.fit(&service, &ABILITIES)
    }

    fn texts(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(Problem::to_string).collect()
    }

    #[test]
    fn a_cloud_that_can_do_everything_changes_nothing() {
        let annotations = [("spec", "slb.s1.small"), ("health-check-interval", "2")];
        let (service, wanted) = wanted(&annotations, json!({"sessionAffinity": "ClientIP"}));
        assert_eq!(wanted.clone().fit(&service, &Abilities::ALL), wanted);
    }

    #[test]
    fn what_the_cloud_lacks_is_an_annotation_is_reported_and_is_left_out() {
        for lack in ABILITIES.lacks {
            let known = TABLE.iter().any(|row| row.name == lack.annotation);
            assert!(known, "{}", lack.annotation);
        }
        let wanted = fitted(
            &[
                ("spec", "large"),
                ("bandwidth", "50"),
                ("traffic-charge", "paybytraffic"),
                ("instance-charge", "paybyuse"),
                ("modification-protection", "on"),
                ("scheduler", "wlc"),
                ("zone", "z"),
                ("resource-group", "g"),
            ],
            json!({}),
        );
        assert_eq!(texts(&wanted.problems), [] as [String; 0]);
        assert_eq!(wanted.unsupported.len(), 8, "{:?}", wanted.unsupported);
        let spec = "lb.reeve.dev/spec: it has no effect: load balancers have no size";
        assert!(texts(&wanted.unsupported).contains(&spec.to_owned()));
        let plain = fitted(&[], json!({}));
        assert_eq!(plain.unsupported, []);
        let silent = Wanted {
            unsupported: Vec::new(),
            ..wanted
        };
        assert_eq!(silent, plain, "as if nothing of it was set");
        // Own load balancers are protected by default; that default is no request.
        assert_eq!(plain.modification_protection, None);
        assert_eq!(plain.delete_protection, Some(true));
    }

    #[test]
    fn a_limit_of_sources_and_another_protocol_are_never_left_out() {
        let limited = fitted(&[], json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}));
        let problem = &texts(&limited.problems)[0];
        assert!(
            problem.starts_with("spec.loadBalancerSourceRanges: "),
            "{problem}"
        );
        let http = fitted(&[("protocol-ports", "http:80")], json!({}));
        assert_eq!(
            texts(&http.problems),
            ["spec.ports: load balancers of this cloud have no port http:80"]
        );
    }

    #[test]
    fn what_a_cloud_has_at_some_ports_only_is_left_out_or_refused_at_the_others() {
        let annotations = [
            ("protocol-ports", "http:80"),
            ("drain", "30"),
            ("proxy-protocol", "on"),
        ];
        let ports = json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]});
        let (service, wanted) = wanted(&annotations, ports);
        let tcp_only: fn(Protocol) -> bool = |protocol| protocol == Protocol::Tcp;
        let abilities = Abilities {
            drains: tcp_only,
            proxy_protocol: tcp_only,
            ..Abilities::ALL
        };
        let wanted = wanted.fit(&service, &abilities);
        let drains = wanted.ports.iter().map(|port| port.settings.drain);
        let drains: Vec<_> = drains.collect();
        assert_eq!(drains, [None, Some(Duration::from_secs(30))]);
        assert_eq!(
            texts(&wanted.unsupported),
            ["lb.reeve.dev/drain: it has no effect at http:80 in this cloud"]
        );
        assert_eq!(
            texts(&wanted.problems),
            ["lb.reeve.dev/proxy-protocol: this cloud cannot send it at http:80"]
        );
    }

    #[test]
    fn health_checks_are_the_next_that_the_cloud_accepts() {
        let times = |wanted: &Wanted| {
            let check = &wanted.ports[0].settings.health_check;
            (check.interval.as_secs(), check.timeout.as_secs())
        };
        // The defaults are 2 s and 5 s. Adapting a default is no news.
        let plain = fitted(&[], json!({}));
        assert_eq!((times(&plain), plain.unsupported.len()), ((5, 5), 0));
        for (annotations, fitting, reported) in [
            (&[("health-check-interval", "2")][..], (5, 5), 1),
            (&[("health-check-timeout", "20")], (20, 20), 1),
            (
                &[
                    ("health-check-interval", "30"),
                    ("health-check-timeout", "200"),
                ],
                (120, 120),
                1,
            ),
            (
                &[
                    ("health-check-interval", "30"),
                    ("health-check-timeout", "10"),
                ],
                (30, 10),
                0,
            ),
        ] {
            let wanted = fitted(annotations, json!({}));
            let unsupported = wanted.unsupported.len();
            assert_eq!(
                (times(&wanted), unsupported),
                (fitting, reported),
                "{annotations:?}"
            );
        }
    }

    #[test]
    fn an_affinity_has_the_time_of_the_cloud_and_another_time_is_reported() {
        let affinity = |config: Value| {
            let spec = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config});
            let wanted = fitted(&[], spec);
            (wanted.ports[0].settings.affinity, wanted.unsupported.len())
        };
        let only = Some(Duration::from_secs(10_800));
        let time = |seconds: u32| json!({"clientIP": {"timeoutSeconds": seconds}});
        assert_eq!(affinity(Value::Null), (only, 0));
        assert_eq!(affinity(time(10_800)), (only, 0));
        assert_eq!(affinity(time(60)), (only, 1));
        assert_eq!(fitted(&[], json!({})).ports[0].settings.affinity, None);
    }

    #[test]
    fn an_ipv6_source_is_a_mistake_where_the_cloud_has_none() {
        let spec = |ranges: Value| json!({"loadBalancerSourceRanges": ranges});
        let mut abilities = Abilities::ALL;
        abilities.ipv6_sources = false;
        for (ranges, refused) in [
            (json!(["10.0.0.0/8"]), false),
            (json!(["0.0.0.0/0", "::/0"]), true),
        ] {
            let (service, wanted) = wanted(&[], spec(ranges));
            let problems = wanted.clone().fit(&service, &abilities).problems;
            assert_eq!(!problems.is_empty(), refused, "{problems:?}");
            assert!(wanted.fit(&service, &Abilities::ALL).problems.is_empty());
        }
    }

    #[test]
    fn without_weights_all_backends_count_as_equal() {
        let weight = |wanted: Wanted| wanted.ports[0].backends[0].weight;
        let (_, all) = wanted(&[], json!({}));
        assert_eq!(weight(all), 2, "the number of Pods on the node");
        assert_eq!(weight(fitted(&[], json!({}))), 100);
    }

    #[test]
    fn a_name_is_that_of_the_cloud_unless_one_is_requested() {
        assert!(
            fitted(&[], json!({}))
                .creation()
                .name
                .starts_with("k8s-shop-web-")
        );
        let named = fitted(&[("name", "shop")], json!({}));
        assert_eq!(named.creation().name, "shop");
        assert!(!named.renames);
    }
}

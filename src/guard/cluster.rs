//! The addresses of the cluster's own parts: nodes, the Pods on them, Services.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::networking::v1::ServiceCIDR;

use crate::policy::Protected;
use crate::target::Target;

/// A kind whose objects name addresses of the cluster.
pub(crate) trait OwnAddresses: reeve_controller::client::Object {
    /// The kind, for metrics and messages.
    const KIND: &'static str;

    /// The ranges that belong to the object. What is no address is left out.
    fn ranges(&self) -> Vec<Protected>;

    /// The names of hosts that stand for addresses of the object.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    /// What is not kept of the object: the large fields that [`OwnAddresses::ranges`] does not read.
    const SKIPPED: &'static [&'static str];
}

impl OwnAddresses for Node {
    const KIND: &'static str = "nodes";
    const SKIPPED: &'static [&'static str] = &[
        ".metadata.annotations",
        ".metadata.managedFields",
        ".spec.taints",
        ".status.allocatable",
        ".status.capacity",
        ".status.conditions",
        ".status.images",
        ".status.nodeInfo",
        ".status.volumesAttached",
        ".status.volumesInUse",
    ];

    fn ranges(&self) -> Vec<Protected> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let addresses = self.status.as_ref().and_then(|it| it.addresses.as_ref());
        let addresses = addresses.into_iter().flatten();
        let own = addresses.filter_map(|address| host(&address.address));
        let spec = self.spec.as_ref();
        let cidrs = spec.and_then(|spec| spec.pod_cidrs.as_ref());
        let cidr = spec.and_then(|spec| spec.pod_cidr.as_ref());
        let pods = cidrs.into_iter().flatten().chain(cidr);
        let pods = pods.filter_map(|text| range(text));
        let own = own.map(|target| protected(target, format!("node {name}")));
        let pods = pods.map(|target| protected(target, format!("the Pods of node {name}")));
        own.chain(pods).collect()
    }
}

impl OwnAddresses for Service {
    const KIND: &'static str = "services";
    const SKIPPED: &'static [&'static str] = &[
        ".metadata.annotations",
        ".metadata.managedFields",
        ".spec.ports",
        ".spec.selector",
        ".status.conditions",
    ];

    fn ranges(&self) -> Vec<Protected> {
        let metadata = &self.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let spec = self.spec.as_ref();
        let cluster = spec.and_then(|spec| spec.cluster_ips.as_ref());
        let first = spec.and_then(|spec| spec.cluster_ip.as_ref());
        let external = spec.and_then(|spec| spec.external_ips.as_ref());
        let status = self.status.as_ref();
        let balancer = status.and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
        let balancer = balancer.into_iter().flatten();
        let balancer = balancer.filter_map(|ingress| ingress.ip.as_ref());
        let texts = cluster.into_iter().flatten().chain(first);
        let texts = texts.chain(external.into_iter().flatten()).chain(balancer);
        texts
            .filter_map(|text| host(text))
            .map(|target| protected(target, format!("Service {namespace}/{name}")))
            .collect()
    }

    fn names(&self) -> Vec<String> {
        let status = self.status.as_ref();
        let balancer = status.and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
        // One with an address is known by it.
        let named = balancer
            .into_iter()
            .flatten()
            .filter(|ingress| ingress.ip.as_ref().is_none_or(String::is_empty));
        named
            .filter_map(|ingress| ingress.hostname.clone())
            .collect()
    }
}

impl OwnAddresses for ServiceCIDR {
    const KIND: &'static str = "servicecidrs";
    const SKIPPED: &'static [&'static str] = &[".metadata.managedFields", ".status"];

    fn ranges(&self) -> Vec<Protected> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let cidrs = self.spec.as_ref().and_then(|spec| spec.cidrs.as_ref());
        let cidrs = cidrs.into_iter().flatten().filter_map(|text| range(text));
        cidrs
            .map(|target| protected(target, format!("the Service range {name}")))
            .collect()
    }
}

fn protected(target: Target, what: String) -> Protected {
    Protected { target, what }
}

/// `None`, the empty text and names of hosts are no addresses.
fn host(text: &str) -> Option<Target> {
    text.parse::<IpAddr>().ok().map(Target::host)
}

/// A range of all addresses would protect everything.
fn range(text: &str) -> Option<Target> {
    let range = text.parse::<IpNet>().ok()?;
    (range.prefix_len() > 0).then(|| Target::range(range))
}

#[cfg(test)]
mod tests {
    use reeve_controller::cache::KindOptions;
    use serde_json::{Value, json};

    use super::*;

    fn ranges<T: OwnAddresses>(object: Value) -> Vec<String> {
        let object: T = serde_json::from_value(object).unwrap();
        let skipped = T::SKIPPED.iter().map(|path| path.parse().unwrap());
        drop(KindOptions::new().skip(skipped));
        object
            .ranges()
            .iter()
            .map(|entry| format!("{}: {}", entry.target, entry.what))
            .collect()
    }

    #[test]
    fn a_node_has_its_addresses_and_the_ranges_of_its_pods() {
        let node = json!({
            "metadata": {"name": "one", "annotations": {"a": "b"}},
            "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:1::/64"]},
            "status": {"addresses": [
                {"type": "InternalIP", "address": "192.0.2.11"},
                {"type": "InternalIP", "address": "2001:db8::11"},
                {"type": "ExternalIP", "address": "203.0.113.11"},
                {"type": "Hostname", "address": "one.example"},
            ], "nodeInfo": null},
        });
        assert_eq!(
            ranges::<Node>(node),
            [
                "192.0.2.11: node one",
                "2001:db8::11: node one",
                "203.0.113.11: node one",
                "10.244.1.0/24: the Pods of node one",
                "fd00:1::/64: the Pods of node one",
                "10.244.1.0/24: the Pods of node one",
            ]
        );
    }

    #[test]
    fn a_service_has_its_cluster_external_and_load_balancer_addresses() {
        let service = json!({
            "metadata": {"namespace": "web", "name": "front"},
            "spec": {"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00::7"],
                "externalIPs": ["203.0.113.7"], "ports": [{"port": 80}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7", "hostname": "ip.example"}, {"hostname": "lb.example"}]}},
        });
        let named: Service = serde_json::from_value(service.clone()).unwrap();
        assert_eq!(named.names(), ["lb.example"]);
        let all = ranges::<Service>(service);
        for address in ["10.96.0.7", "fd00::7", "203.0.113.7", "198.51.100.7"] {
            let entry = format!("{address}: Service web/front");
            assert!(all.contains(&entry), "{all:?}");
        }
        let headless = json!({"metadata": {"name": "x"}, "spec": {"clusterIP": "None", "clusterIPs": ["None"]}});
        assert!(ranges::<Service>(headless).is_empty());
    }

    #[test]
    fn a_service_range_is_protected_and_one_of_all_addresses_is_not() {
        let cidr = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/12", "0.0.0.0/0", "x"]}});
        assert_eq!(
            ranges::<ServiceCIDR>(cidr),
            ["10.96.0.0/12: the Service range kubernetes"]
        );
    }
}

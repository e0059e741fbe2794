//! Services: cluster addresses, node ports and the defaults clients look at.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::core::Core;
use crate::meta;

/// The cluster addresses are taken from 10.96.0.0/16, the first ten left out.
const FIRST_ADDRESS: u32 = 0x0a60_000a;
const LAST_ADDRESS: u32 = 0x0a60_fffe;
const NODE_PORTS: std::ops::RangeInclusive<u64> = 30_000..=32_767;

/// Completes a Service.
pub(crate) fn default(core: &Core, object: &mut Value) {
    let kind = object["spec"]["type"]
        .as_str()
        .unwrap_or("ClusterIP")
        .to_owned();
    let spec = meta::map_at(meta::object_mut(object), "spec");
    spec.insert("type".to_owned(), kind.clone().into());
    let mut put = |field: &str, value: Value| {
        spec.entry(field).or_insert(value);
    };
    put("sessionAffinity", "None".into());
    if kind != "ExternalName" {
        put("internalTrafficPolicy", "Cluster".into());
        put("ipFamilies", json!(["IPv4"]));
        put("ipFamilyPolicy", "SingleStack".into());
    }
    if kind == "NodePort" || kind == "LoadBalancer" {
        put("externalTrafficPolicy", "Cluster".into());
    }
    if kind == "LoadBalancer" {
        put("allocateLoadBalancerNodePorts", true.into());
    }
    let node_ports = kind == "NodePort"
        || (kind == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] == Value::Bool(true));
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let number = port["port"].clone();
        let port = meta::object_mut(port);
        port.entry("protocol").or_insert_with(|| "TCP".into());
        let target = port.get("targetPort");
        if target
            .is_none_or(|target| target.is_null() || *target == json!(0) || *target == json!(""))
        {
            port.insert("targetPort".to_owned(), number);
        }
        if !node_ports {
            port.remove("nodePort");
        }
    }
    if kind != "ExternalName"
        && spec
            .get("clusterIP")
            .is_none_or(|address| address == "" || address.is_null())
    {
        let taken = taken(core, |spec| spec["clusterIP"].as_str().map(str::to_owned));
        let address = (FIRST_ADDRESS..=LAST_ADDRESS)
            .map(|address| std::net::Ipv4Addr::from(address).to_string())
            .find(|address| !taken.contains(address));
        if let Some(address) = address {
            spec.insert("clusterIP".to_owned(), address.into());
        }
    }
    if let Some(address) = spec
        .get("clusterIP")
        .filter(|address| address.is_string())
        .cloned()
    {
        spec.entry("clusterIPs").or_insert_with(|| json!([address]));
    }
    if node_ports {
        allocate_node_ports(core, spec);
    }
    let addresses = object
        .pointer_mut("/status/loadBalancer/ingress")
        .and_then(Value::as_array_mut);
    for address in addresses
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        if address.contains_key("ip") {
            address.entry("ipMode").or_insert_with(|| "VIP".into());
        }
    }
}

fn allocate_node_ports(core: &Core, spec: &mut serde_json::Map<String, Value>) {
    let missing = spec["ports"].as_array().is_some_and(|ports| {
        ports
            .iter()
            .any(|port| port["nodePort"].as_u64().unwrap_or(0) == 0)
    });
    if !missing {
        return;
    }
    let mut taken: BTreeSet<u64> = BTreeSet::new();
    let (_, services) = core.store.list("services", "");
    let ports = services
        .iter()
        .filter_map(|service| service.value()["spec"]["ports"].as_array())
        .chain(spec["ports"].as_array())
        .flatten();
    taken.extend(ports.filter_map(|port| port["nodePort"].as_u64()));
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if port["nodePort"].as_u64().unwrap_or(0) != 0 {
            continue;
        }
        if let Some(free) = NODE_PORTS.clone().find(|free| !taken.contains(free)) {
            taken.insert(free);
            port["nodePort"] = free.into();
        }
    }
}

fn taken(core: &Core, of: impl Fn(&Value) -> Option<String>) -> BTreeSet<String> {
    let (_, services) = core.store.list("services", "");
    services
        .iter()
        .filter_map(|service| of(&service.value()["spec"]))
        .collect()
}

/// An update that leaves the addresses out keeps them.
pub(crate) fn keep_addresses(old: &Value, new: &mut Value) {
    let external = |object: &Value| object["spec"]["type"] == "ExternalName";
    if external(old) || external(new) {
        return;
    }
    let (was, is) = (
        old["spec"]["clusterIP"].clone(),
        new["spec"]["clusterIP"].clone(),
    );
    let left_out = is.as_str().is_none_or(str::is_empty);
    let spec = meta::map_at(meta::object_mut(new), "spec");
    if left_out {
        for field in ["clusterIP", "clusterIPs"] {
            if let Some(kept) = old["spec"].get(field).cloned() {
                spec.insert(field.to_owned(), kept);
            }
        }
    } else if was != is && new["spec"]["clusterIPs"] == old["spec"]["clusterIPs"] {
        // Named anew by the one field only: the other follows, and the check refuses the change.
        new["spec"]["clusterIPs"] = json!([is]);
    }
}

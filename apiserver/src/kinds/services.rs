//! Services: their rules, except those of other files: the allocation of addresses and the checks.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1;
use serde_json::{Map, Value, json};

use super::entry::Entry;
use super::service_rules;
use super::strategy::{Context, Strategy};
use crate::field::Errors;
use crate::meta;
use crate::names;
use crate::resource::{Column, ResourceInfo, SelectableField};
use crate::table::networking;

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[Entry::of::<v1::Service>("", "services", &Services)];

/// How long a client is sent to the same address by default.
const AFFINITY_SECONDS: u64 = 10_800;

/// Services.
#[derive(Debug)]
pub(super) struct Services;

/// Whether a Service can have certain fields.
type Needs = fn(&Value) -> bool;
/// Fields of certain Services only; those of one row belong together.
///
/// (kubernetes: `dropTypeDependentFields` in `pkg/registry/core/service/strategy.go`.)
const DEPENDENT: &[(Needs, &[&str])] = &[
    (has_address, &["clusterIP", "clusterIPs"]),
    (has_address, &["ipFamilies"]),
    (has_address, &["ipFamilyPolicy"]),
    (has_address, &["internalTrafficPolicy"]),
    (is_load_balancer, &["allocateLoadBalancerNodePorts"]),
    (is_load_balancer, &["loadBalancerClass"]),
    (needs_health_check, &["healthCheckNodePort"]),
    (is_accessible, &["externalTrafficPolicy"]),
];

// === impl Services ===

impl Strategy for Services {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
        info.create_on_update = true;
        info.selectable_fields = ["spec.clusterIP", "spec.type"]
            .map(SelectableField::at)
            .into();
    }

    fn columns(&self) -> Vec<Column> {
        networking::services()
    }

    fn name_problems(&self, name: &str) -> Vec<String> {
        names::dns_label(name)
    }

    fn prepare_update(&self, _: &Context<'_>, old: &Value, new: &mut Value) {
        keep(old, new);
    }

    fn default(&self, _: &ResourceInfo, service: &mut Value) {
        default(service);
    }

    fn checks_spec(&self) -> bool {
        true
    }

    fn validate(&self, _: &Context<'_>, service: &Value, old: Option<&Value>, errors: &mut Errors) {
        if let Some(old) = old {
            service_rules::kept_address(service, old, errors);
            service_rules::kept_health_check_port(service, old, errors);
        }
        service_rules::validate(service, old, errors);
    }

    fn validate_status(&self, service: &Value, _: &Value, errors: &mut Errors) {
        service_rules::status(service, errors);
    }

    fn set_later(&self) -> &'static [&'static str] {
        &["/spec/ipFamilies", "/spec/ipFamilyPolicy"]
    }

    fn claims_addresses(&self) -> bool {
        true
    }
}

/// Completes a Service, except the values that are allocated.
fn default(object: &mut Value) {
    let kind = object["spec"]["type"]
        .as_str()
        .unwrap_or("ClusterIP")
        .to_owned();
    object["spec"]["type"] = kind.clone().into();
    let accessible = is_accessible(object);
    // Without an address and without a selector, its endpoints may be of any family.
    let is_elsewhere =
        object["spec"]["clusterIP"] == "None" && object["spec"].get("selector").is_none();
    let spec = meta::map_at(meta::object_mut(object), "spec");
    let mut put = |field: &str, value: Value| {
        spec.entry(field).or_insert(value);
    };
    put("sessionAffinity", "None".into());
    if kind != "ExternalName" {
        put("internalTrafficPolicy", "Cluster".into());
        let (families, policy) = if is_elsewhere {
            (json!(["IPv4", "IPv6"]), "RequireDualStack")
        } else {
            (json!(["IPv4"]), "SingleStack")
        };
        put("ipFamilies", families);
        put("ipFamilyPolicy", policy.into());
    }
    if accessible {
        put("externalTrafficPolicy", "Cluster".into());
    }
    if kind == "LoadBalancer" {
        put("allocateLoadBalancerNodePorts", true.into());
    }
    default_affinity(spec);
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

/// The configuration is removed with the affinity.
fn default_affinity(spec: &mut Map<String, Value>) {
    if spec["sessionAffinity"] == "None" {
        spec.remove("sessionAffinityConfig");
    } else if spec["sessionAffinity"] == "ClientIP" {
        let config = meta::map_at(spec, "sessionAffinityConfig");
        let client = meta::map_at(config, "clientIP");
        client
            .entry("timeoutSeconds")
            .or_insert_with(|| AFFINITY_SECONDS.into());
    }
}

pub(super) fn has_address(service: &Value) -> bool {
    service["spec"]["type"] != "ExternalName"
}

fn is_load_balancer(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer"
}

/// Whether a Service is reachable from outside the cluster.
pub(crate) fn is_accessible(service: &Value) -> bool {
    let spec = &service["spec"];
    match spec["type"].as_str() {
        Some("NodePort" | "LoadBalancer") => true,
        None | Some("ClusterIP" | "") => {
            let addresses = spec["externalIPs"].as_array();
            addresses.is_some_and(|addresses| !addresses.is_empty())
        }
        _ => false,
    }
}

/// Whether the load balancer checks at a port of this Service which nodes have Pods of it.
pub(super) fn needs_health_check(service: &Value) -> bool {
    is_load_balancer(service) && service["spec"]["externalTrafficPolicy"] == "Local"
}

/// The port of these checks; 0 without one.
pub(super) fn health_check_port(service: &Value) -> i64 {
    service["spec"]["healthCheckNodePort"].as_i64().unwrap_or(0)
}

pub(super) fn has_node_ports(service: &Value) -> bool {
    matches!(
        service["spec"]["type"].as_str(),
        Some("NodePort" | "LoadBalancer")
    )
}

pub(super) fn node_port(port: &Value) -> u64 {
    port["nodePort"].as_u64().unwrap_or(0)
}

pub(super) fn node_ports(service: &Value) -> BTreeSet<u64> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports.map(node_port).filter(|&port| port != 0).collect()
}

/// Removes the fields that only the former type has and that the update did not change; an update that leaves out the
/// addresses, the node ports or the health check port keeps them.
fn keep(old: &Value, new: &mut Value) {
    for (needs, fields) in DEPENDENT {
        let same = |field: &&str| old["spec"].get(*field) == new["spec"].get(*field);
        if needs(old) && !needs(new) && fields.iter().all(same) {
            let spec = meta::map_at(meta::object_mut(new), "spec");
            spec.retain(|field, _| !fields.contains(&field.as_str()));
        }
    }
    match (has_node_ports(old), has_node_ports(new)) {
        (true, true) => keep_node_ports(old, new),
        // Ports may be removed with the type; a new one is refused.
        (true, false) if node_ports(new).is_subset(&node_ports(old)) => {
            for port in ports_mut(new) {
                meta::object_mut(port).remove("nodePort");
            }
        }
        _ => {}
    }
    if needs_health_check(old) && needs_health_check(new) && health_check_port(new) == 0 {
        new["spec"]["healthCheckNodePort"] = health_check_port(old).into();
    }
    if has_address(old) && has_address(new) {
        keep_address(old, new);
    }
    if is_load_balancer(old)
        && !is_load_balancer(new)
        && let Some(status) = new.get_mut("status").and_then(Value::as_object_mut)
    {
        status.insert("loadBalancer".to_owned(), json!({}));
    }
}

fn keep_address(old: &Value, new: &mut Value) {
    let is = new["spec"]["clusterIP"].clone();
    let spec = meta::map_at(meta::object_mut(new), "spec");
    if is.as_str().is_none_or(str::is_empty) {
        for field in ["clusterIP", "clusterIPs"] {
            if let Some(kept) = old["spec"].get(field).cloned() {
                spec.insert(field.to_owned(), kept);
            }
        }
    } else if is != old["spec"]["clusterIP"]
        && new["spec"]["clusterIPs"] == old["spec"]["clusterIPs"]
    {
        // Only one of the two fields has a new value: the other follows, and the check refuses the change.
        new["spec"]["clusterIPs"] = json!([is]);
    }
}

/// A port without a node port keeps that of the port of its name, unless another one has it now.
fn keep_node_ports(old: &Value, new: &mut Value) {
    let mut used: BTreeSet<u64> = &node_ports(old) & &node_ports(new);
    let former = |name: &Value| {
        let mut ports = old["spec"]["ports"].as_array().into_iter().flatten();
        ports.find(|port| port["name"] == *name).map(node_port)
    };
    for port in ports_mut(new).filter(|port| node_port(port) == 0) {
        let former = former(&port["name"]).filter(|&former| former != 0);
        if let Some(former) = former.filter(|&former| used.insert(former)) {
            port["nodePort"] = former.into();
        }
    }
}

fn ports_mut(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    let ports = service
        .pointer_mut("/spec/ports")
        .and_then(Value::as_array_mut);
    ports.into_iter().flatten()
}

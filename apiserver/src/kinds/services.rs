//! Services: cluster addresses, node ports and defaults.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value, json};

use crate::core::Core;
use crate::field::{FieldError, Path, quote};
use crate::meta;
use crate::request::Request;
use crate::status::Status;
use crate::store::Key;

/// The cluster addresses are those of 10.96.0.0/16; the first ten must be requested explicitly.
const FIRST_IN_RANGE: u32 = 0x0a60_0001;
const FIRST_ADDRESS: u32 = 0x0a60_000a;
const LAST_ADDRESS: u32 = 0x0a60_fffe;
const NODE_PORTS: std::ops::RangeInclusive<u64> = 30_000..=32_767;
/// How long a client is sent to the same address by default.
const AFFINITY_SECONDS: u64 = 10_800;

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
    (is_accessible, &["externalTrafficPolicy"]),
];

/// Completes a Service, except the values that [`allocate`] chooses.
pub(crate) fn default(object: &mut Value) {
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

/// Chooses missing addresses and node ports, and claims the given ones. The caller holds
/// [`Core::service_allocation`] until the Service is stored, so that no other write chooses the same.
///
/// # Errors
/// 422 for a value that another Service has or that no Service can have; 500 when none is left.
pub(crate) fn allocate(
    core: &Core,
    request: &Request,
    old: Option<&Value>,
    object: &mut Value,
) -> Result<(), Status> {
    if has_address(object) && old.is_none_or(|old| !has_address(old)) {
        allocate_address(core, request, object)?;
    }
    if has_node_ports(object) {
        allocate_node_ports(core, request, old, object)?;
    }
    Ok(())
}

fn has_address(service: &Value) -> bool {
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

fn has_node_ports(service: &Value) -> bool {
    matches!(
        service["spec"]["type"].as_str(),
        Some("NodePort" | "LoadBalancer")
    )
}

fn allocate_address(core: &Core, request: &Request, object: &mut Value) -> Result<(), Status> {
    let name = meta::text(object, "name").to_owned();
    let spec = meta::map_at(meta::object_mut(object), "spec");
    let first = spec.get("clusterIPs").and_then(|all| all.get(0));
    let wanted = [first, spec.get("clusterIP")]
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .find(|address| !address.is_empty())
        .map(str::to_owned);
    if wanted.as_deref() == Some("None") {
        spec.insert("clusterIP".to_owned(), json!("None"));
        spec.entry("clusterIPs").or_insert_with(|| json!(["None"]));
        return Ok(());
    }
    let taken = || -> HashSet<Ipv4Addr> {
        let services = core.store.list("services", "").1;
        services
            .iter()
            .filter_map(|service| service.value()["spec"]["clusterIP"].as_str()?.parse().ok())
            .collect()
    };
    let address = match wanted {
        None => {
            let taken = taken();
            (FIRST_ADDRESS..=LAST_ADDRESS)
                .map(Ipv4Addr::from)
                .find(|address| !taken.contains(address))
                .ok_or_else(|| {
                    Status::internal(format!(
                        "failed to allocate a serviceIP for Service {}: range is full",
                        quote(&name)
                    ))
                })?
                .to_string()
        }
        Some(text) => {
            let path = Path::new("spec").child("clusterIPs");
            let refuse = |path: &Path, why: String| {
                let error = FieldError::invalid(path, json!([text]), why);
                Err(request.invalid(&name, &[error]))
            };
            let Ok(address) = text.parse::<Ipv4Addr>() else {
                if text.parse::<Ipv6Addr>().is_ok() {
                    return refuse(
                        &path.index(0),
                        "IPv6 is not configured on this cluster".to_owned(),
                    );
                }
                let error = FieldError::invalid(
                    &path.index(0),
                    text.as_str(),
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                );
                return Err(request.invalid(&name, &[error]));
            };
            if !(FIRST_IN_RANGE..=LAST_ADDRESS).contains(&u32::from(address)) {
                return refuse(
                    &path,
                    format!(
                        "failed to allocate IP {text}: the provided network does not match the current range"
                    ),
                );
            }
            // A dry run claims nothing, so it finds no conflict.
            if !request.dry_run && taken().contains(&address) {
                return refuse(
                    &path,
                    format!("failed to allocate IP {text}: provided IP is already allocated"),
                );
            }
            text
        }
    };
    spec.insert("clusterIPs".to_owned(), json!([address]));
    spec.insert("clusterIP".to_owned(), address.into());
    Ok(())
}

fn allocate_node_ports(
    core: &Core,
    request: &Request,
    old: Option<&Value>,
    object: &mut Value,
) -> Result<(), Status> {
    let name = meta::text(object, "name").to_owned();
    let key = request_key(request, &name);
    let own: BTreeSet<u64> = old.map(node_ports).unwrap_or_default();
    let named = node_ports(object);
    let chooses = object["spec"]["allocateLoadBalancerNodePorts"] != Value::Bool(false)
        || object["spec"]["type"] == "NodePort";
    let ports = object["spec"]["ports"].as_array();
    let missing = ports.is_some_and(|ports| ports.iter().any(|port| node_port(port) == 0));
    if named.is_subset(&own) && !(missing && chooses) {
        return Ok(());
    }
    let services = core.store.list("services", "").1;
    let mut taken: BTreeSet<u64> = services
        .iter()
        .filter(|service| service.key() != key && has_node_ports(service.value()))
        .flat_map(|service| node_ports(service.value()))
        .collect();
    for (at, port) in ports.into_iter().flatten().enumerate() {
        let number = node_port(port);
        if number == 0 || own.contains(&number) {
            continue;
        }
        let why = if !NODE_PORTS.contains(&number) {
            format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                NODE_PORTS.start(),
                NODE_PORTS.end()
            )
        } else if taken.contains(&number) {
            "provided port is already allocated".to_owned()
        } else {
            continue;
        };
        let path = Path::new("spec").child("ports").index(at).child("nodePort");
        return Err(request.invalid(&name, &[FieldError::invalid(&path, number, why)]));
    }
    if !chooses {
        return Ok(());
    }
    taken.extend(named);
    // Entries for one port, of several protocols, share a node port.
    let mut of_port: BTreeMap<u64, u64> = BTreeMap::new();
    if old.is_none() {
        for port in ports
            .into_iter()
            .flatten()
            .filter(|port| node_port(port) != 0)
        {
            of_port
                .entry(port["port"].as_u64().unwrap_or(0))
                .or_insert_with(|| node_port(port));
        }
    }
    let ports = object
        .pointer_mut("/spec/ports")
        .and_then(Value::as_array_mut);
    for port in ports
        .into_iter()
        .flatten()
        .filter(|port| node_port(port) == 0)
    {
        let number = port["port"].as_u64().unwrap_or(0);
        let shared = of_port.get(&number).filter(|_| old.is_none()).copied();
        let free = match shared {
            Some(shared) => shared,
            None => NODE_PORTS
                .clone()
                .find(|free| !taken.contains(free))
                .ok_or_else(|| Status::internal("failed to allocate a nodePort: range is full"))?,
        };
        taken.insert(free);
        of_port.insert(number, free);
        port["nodePort"] = free.into();
    }
    Ok(())
}

fn request_key(request: &Request, name: &str) -> Key {
    Key::new(Some(&request.namespace_of_object()), name)
}

fn node_port(port: &Value) -> u64 {
    port["nodePort"].as_u64().unwrap_or(0)
}

fn node_ports(service: &Value) -> BTreeSet<u64> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports.map(node_port).filter(|&port| port != 0).collect()
}

/// Removes the fields that only the former type has and that the update did not change; an update that leaves out the
/// addresses or the node ports keeps them.
pub(crate) fn keep(old: &Value, new: &mut Value) {
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

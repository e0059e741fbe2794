//! The cluster addresses, node ports and health check ports of Services.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use super::claims::{Choice, Claim};
use super::service_rules;
use super::services::{
    has_address, has_node_ports, health_check_port, needs_health_check, node_port, node_ports,
};
use super::taken::own_health_check_port;
use crate::core::Core;
use crate::field::{FieldError, Path, quote};
use crate::meta;
use crate::request::Request;
use crate::status::Status;
use crate::store::Key;

const NODE_PORTS: std::ops::RangeInclusive<u64> = 30_000..=32_767;

/// Chooses missing addresses and ports of nodes, and claims them with the given ones until the Service is stored, so that no
/// other write chooses the same.
///
/// # Errors
/// 422 for a value that another Service has or that no Service can have; 500 for such a health check port, and when none is
/// left.
pub(crate) fn allocate(
    core: &Core,
    request: &Request,
    old: Option<&Value>,
    object: &mut Value,
) -> Result<Claim, Status> {
    let mut problems = Vec::new();
    service_rules::families(object, &mut problems);
    if !problems.is_empty() {
        return Err(request.invalid(meta::text(object, "name"), &problems));
    }
    let mut choice = core.claims.choose(&core.store);
    if has_address(object) && old.is_none_or(|old| !has_address(old)) {
        allocate_address(core, request, object, &mut choice)?;
    }
    if has_node_ports(object) {
        allocate_node_ports(request, old, object, &mut choice)?;
    }
    if needs_health_check(object) && !old.is_some_and(needs_health_check) {
        allocate_health_check_port(request, old, object, &mut choice)?;
    }
    Ok(choice.claim())
}

fn allocate_address(
    core: &Core,
    request: &Request,
    object: &mut Value,
    choice: &mut Choice<'_>,
) -> Result<(), Status> {
    let name = meta::text(object, "name").to_owned();
    let range = core.options.service_range;
    let spec = meta::map_at(meta::object_mut(object), "spec");
    let first = spec.get("clusterIPs").and_then(|all| all.get(0));
    let wanted = [first, spec.get("clusterIP")]
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .find(|address| !address.is_empty())
        .map(str::to_owned);
    if wanted.as_deref() == Some("None") {
        spec.entry("clusterIPs").or_insert_with(|| json!(["None"]));
        return Ok(());
    }
    let address = match wanted {
        None => range
            .chosen()
            .map(Ipv4Addr::from)
            .find(|address| !choice.is_taken(*address))
            .ok_or_else(|| {
                Status::internal(format!(
                    "failed to allocate a serviceIP for Service {}: range is full",
                    quote(&name)
                ))
            })?,
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
            if !range.contains(address) {
                return refuse(
                    &path,
                    format!(
                        "failed to allocate IP {text}: the provided network does not match the current range"
                    ),
                );
            }
            // A dry run claims nothing, so it finds no conflict.
            if !request.dry_run && choice.is_taken(address) {
                return refuse(
                    &path,
                    format!("failed to allocate IP {text}: provided IP is already allocated"),
                );
            }
            address
        }
    };
    // A dry run claims nothing.
    if !request.dry_run {
        choice.add_address(address);
    }
    let address = address.to_string();
    spec.insert("clusterIPs".to_owned(), json!([address]));
    spec.insert("clusterIP".to_owned(), address.into());
    Ok(())
}

fn allocate_node_ports(
    request: &Request,
    old: Option<&Value>,
    object: &mut Value,
    choice: &mut Choice<'_>,
) -> Result<(), Status> {
    let name = meta::text(object, "name").to_owned();
    let own: BTreeSet<u64> = old.map(node_ports).unwrap_or_default();
    let named = node_ports(object);
    let chooses = object["spec"]["allocateLoadBalancerNodePorts"] != Value::Bool(false)
        || object["spec"]["type"] == "NodePort";
    let ports = object["spec"]["ports"].as_array();
    let missing = ports.is_some_and(|ports| ports.iter().any(|port| node_port(port) == 0));
    if named.is_subset(&own) && !(missing && chooses) {
        return Ok(());
    }
    let mut taken = choice.ports_of_others(&request_key(request, &name));
    taken.extend(old.and_then(own_health_check_port));
    for (at, port) in ports.into_iter().flatten().enumerate() {
        let number = node_port(port);
        if number == 0 || own.contains(&number) {
            continue;
        }
        let Some(why) = refused(number.cast_signed(), &taken, request) else {
            continue;
        };
        let path = Path::new("spec").child("ports").index(at).child("nodePort");
        return Err(request.invalid(&name, &[FieldError::invalid(&path, number, why)]));
    }
    let is_new = |port: &u64| !own.contains(port);
    if !request.dry_run {
        choice.add_ports(named.iter().copied().filter(is_new));
    }
    if !chooses {
        return Ok(());
    }
    taken.extend(named);
    taken.extend(own_health_check_port(object));
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
            None => free_port(&taken)
                .ok_or_else(|| Status::internal("failed to allocate a nodePort: range is full"))?,
        };
        taken.insert(free);
        if !request.dry_run {
            choice.add_ports([free]);
        }
        of_port.insert(number, free);
        port["nodePort"] = free.into();
    }
    Ok(())
}

/// Chooses or claims the port at which load balancers check nodes, of a Service that had none before.
fn allocate_health_check_port(
    request: &Request,
    old: Option<&Value>,
    object: &mut Value,
    choice: &mut Choice<'_>,
) -> Result<(), Status> {
    let mut taken = choice.ports_of_others(&request_key(request, meta::text(object, "name")));
    // What the update gives up is free after it.
    taken.extend(old.map(node_ports).unwrap_or_default());
    taken.extend(node_ports(object));
    let wanted = health_check_port(object);
    let problem = refused(wanted, &taken, request).filter(|_| wanted != 0);
    if let Some(why) = problem {
        return Err(Status::internal(format!(
            "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
        )));
    }
    let number = match u64::try_from(wanted) {
        Ok(0) => free_port(&taken).ok_or_else(|| {
            Status::internal("failed to allocate a HealthCheck NodePort 0: range is full")
        })?,
        Ok(number) => number,
        // Of a dry run: the check refuses it.
        Err(_) => return Ok(()),
    };
    if !request.dry_run {
        choice.add_ports([number]);
    }
    object["spec"]["healthCheckNodePort"] = number.into();
    Ok(())
}

/// Why a port that the request names is not to be had. A dry run looks only for ports that are taken.
fn refused(number: i64, taken: &BTreeSet<u64>, request: &Request) -> Option<String> {
    let port = u64::try_from(number)
        .ok()
        .filter(|port| NODE_PORTS.contains(port));
    if port.is_none() && !request.dry_run {
        return Some(format!(
            "provided port is not in the valid range. The range of valid ports is {}-{}",
            NODE_PORTS.start(),
            NODE_PORTS.end()
        ));
    }
    let taken = port.is_some_and(|port| taken.contains(&port));
    taken.then(|| "provided port is already allocated".to_owned())
}

fn free_port(taken: &BTreeSet<u64>) -> Option<u64> {
    NODE_PORTS.clone().find(|free| !taken.contains(free))
}

fn request_key(request: &Request, name: &str) -> Key {
    Key::new(Some(&request.namespace_of_object()), name)
}

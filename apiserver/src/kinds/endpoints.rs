//! Endpoints and EndpointSlices.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api;
use serde_json::Value;

use super::check::{self, one_of, port_number, refuse};
use super::entry::Entry;
use super::pods::put;
use super::strategy::{Context, Strategy};
use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::names;
use crate::resource::{Column, Generation, ResourceInfo};
use crate::table::cells::{aged, first_three, items, plain, string, text};
use crate::table::networking::endpoints;

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[
    Entry::of::<api::core::v1::Endpoints>("", "endpoints", &Endpoints),
    Entry::of::<api::discovery::v1::EndpointSlice>(
        "discovery.k8s.io",
        "endpointslices",
        &EndpointSlices,
    ),
];

const LINK_LOCAL: &str = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
const LINK_MULTICAST: &str =
    "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";

const ADDRESS_TYPES: &[&str] = &["FQDN", "IPv4", "IPv6"];
/// The most endpoints of a slice, and addresses of one.
const MOST_ENDPOINTS: usize = 1000;
/// The most ports of a slice.
const MOST_PORTS: usize = 20_000;
const MOST_ADDRESSES: usize = 100;

/// Endpoints.
#[derive(Debug)]
pub(super) struct Endpoints;

/// EndpointSlices.
#[derive(Debug)]
pub(super) struct EndpointSlices;

// === impl Endpoints ===

impl Strategy for Endpoints {
    fn describe(&self, info: &mut ResourceInfo) {
        info.create_on_update = true;
    }

    fn columns(&self) -> Vec<Column> {
        vec![text("Endpoints", endpoints), aged()]
    }

    fn default(&self, _: &ResourceInfo, object: &mut Value) {
        let subsets = object.get_mut("subsets").and_then(Value::as_array_mut);
        for subset in subsets.into_iter().flatten() {
            let ports = subset.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten() {
                put(meta::object_mut(port), "protocol", "TCP");
            }
        }
    }

    fn validate(&self, _: &Context<'_>, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        if old.is_some_and(|old| old["subsets"] == object["subsets"]) {
            return;
        }
        for (at, subset) in items(&object["subsets"]).iter().enumerate() {
            let path = Path::new("subsets").index(at);
            let (ready, others) = (
                items(&subset["addresses"]),
                items(&subset["notReadyAddresses"]),
            );
            if ready.is_empty() && others.is_empty() {
                let text = "must specify `addresses` or `notReadyAddresses`";
                errors.push(FieldError::required(&path, text));
            }
            for (field, addresses) in [("addresses", ready), ("notReadyAddresses", others)] {
                for (at, one) in addresses.iter().enumerate() {
                    address(one, &path.child(field).index(at), errors);
                }
            }
            let ports = items(&subset["ports"]);
            for (at, one) in ports.iter().enumerate() {
                let path = path.child("ports").index(at);
                port(one, ports.len() > 1, &path, errors);
            }
        }
    }
}

fn address(address: &Value, path: &Path, errors: &mut Errors) {
    let (text, at) = (string(&address["ip"]), path.child("ip"));
    let ip = check::ip(text, &at, errors);
    let hostname = string(&address["hostname"]);
    if !hostname.is_empty() {
        refuse(hostname, names::dns_label, &path.child("hostname"), errors);
    }
    if let Some(node) = address["nodeName"].as_str() {
        refuse(node, names::dns_subdomain, &path.child("nodeName"), errors);
    }
    match ip {
        None => errors.push(FieldError::invalid(&at, text, "must be a valid IP address")),
        Some(ip) => reachable(ip, text, &at, errors),
    }
}

/// Refuses addresses that lead to no other host.
pub(super) fn reachable(ip: IpAddr, text: &str, path: &Path, errors: &mut Errors) {
    let problem = match ip {
        ip if ip.is_unspecified() => format!("may not be unspecified ({text})"),
        ip if ip.is_loopback() => {
            "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()
        }
        IpAddr::V4(ip) if ip.is_link_local() => LINK_LOCAL.to_owned(),
        IpAddr::V6(ip) if ip.is_unicast_link_local() => LINK_LOCAL.to_owned(),
        IpAddr::V4(ip) if ip.octets()[..3] == [224, 0, 0] => LINK_MULTICAST.to_owned(),
        IpAddr::V6(ip) if ip.segments()[0] & 0xff0f == 0xff02 => LINK_MULTICAST.to_owned(),
        _ => return,
    };
    errors.push(FieldError::invalid(path, text, problem));
}

fn port(port: &Value, needs_name: bool, path: &Path, errors: &mut Errors) {
    let name = string(&port["name"]);
    if !name.is_empty() {
        refuse(name, names::dns_label, &path.child("name"), errors);
    } else if needs_name {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    let number = port["port"].as_i64().unwrap_or(0);
    port_number(number, &path.child("port"), errors);
    one_of(
        &port["protocol"],
        &path.child("protocol"),
        &["SCTP", "TCP", "UDP"],
        errors,
    );
    if let Some(protocol) = port["appProtocol"].as_str() {
        let path = path.child("appProtocol");
        refuse(protocol, names::qualified_name, &path, errors);
    }
}

// === impl EndpointSlices ===

impl Strategy for EndpointSlices {
    fn describe(&self, info: &mut ResourceInfo) {
        info.generation = Generation::OutsideMetadata;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("AddressType", |value, _| plain(&value["addressType"])),
            text("Ports", |value, _| {
                let ports = items(&value["ports"]).iter();
                let ports = ports.map(|port| match port["port"].as_i64() {
                    Some(number) => number.to_string(),
                    None => port["name"].as_str().unwrap_or("*").to_owned(),
                });
                first_three(&some(ports.collect()))
            }),
            text("Endpoints", |value, _| {
                let all = items(&value["endpoints"]).iter();
                let all = all.flat_map(|one| items(&one["addresses"]));
                first_three(&some(
                    all.map(|address| string(address).to_owned()).collect(),
                ))
            }),
            aged(),
        ]
    }

    fn default(&self, _: &ResourceInfo, slice: &mut Value) {
        let ports = slice.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            let port = meta::object_mut(port);
            port.entry("name").or_insert_with(|| "".into());
            port.entry("protocol").or_insert_with(|| "TCP".into());
        }
    }

    fn validate(&self, _: &Context<'_>, slice: &Value, old: Option<&Value>, errors: &mut Errors) {
        slice_ports(slice, errors);
        // Addresses of an earlier release stay valid.
        if old.is_none_or(|old| old["endpoints"] != slice["endpoints"]) {
            slice_endpoints(slice, errors);
        }
        check::one_of(
            &slice["addressType"],
            &Path::new("addressType"),
            ADDRESS_TYPES,
            errors,
        );
        if old.is_some_and(|old| old["addressType"] != slice["addressType"]) {
            errors.push(FieldError::invalid(
                &Path::new("addressType"),
                slice["addressType"].clone(),
                "field is immutable",
            ));
        }
    }
}

fn slice_ports(slice: &Value, errors: &mut Errors) {
    let all = items(&slice["ports"]);
    if all.len() > MOST_PORTS {
        errors.push(FieldError::too_many(&Path::new("ports"), all.len(), 20_000));
        return;
    }
    let mut known = BTreeSet::new();
    for (at, port) in all.iter().enumerate() {
        let path = Path::new("ports").index(at);
        let name = string(&port["name"]);
        check::optional(&port["name"], names::dns_label, &path.child("name"), errors);
        if !known.insert(name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        let protocol = &port["protocol"];
        check::supported(
            protocol,
            &path.child("protocol"),
            &["SCTP", "TCP", "UDP"],
            errors,
        );
        if let Some(protocol) = port["appProtocol"].as_str() {
            let path = path.child("appProtocol");
            refuse(protocol, names::qualified_name, &path, errors);
        }
    }
}

fn slice_endpoints(slice: &Value, errors: &mut Errors) {
    let all = items(&slice["endpoints"]);
    if all.len() > MOST_ENDPOINTS {
        let path = Path::new("endpoints");
        errors.push(FieldError::too_many(&path, all.len(), 1000));
        return;
    }
    for (at, endpoint) in all.iter().enumerate() {
        let path = Path::new("endpoints").index(at);
        let addresses = items(&endpoint["addresses"]);
        let at = path.child("addresses");
        match addresses.len() {
            0 => errors.push(FieldError::required(&at, "must contain at least 1 address")),
            more if more > MOST_ADDRESSES => errors.push(FieldError::too_many(&at, more, 100)),
            _ => {}
        }
        for (index, address) in addresses.iter().enumerate() {
            let text = string(address);
            slice_address(&slice["addressType"], text, &at, index, errors);
        }
        for (field, rule) in [
            ("nodeName", names::dns_subdomain as check::Rule),
            ("hostname", names::dns_label),
        ] {
            if let Some(name) = endpoint[field].as_str() {
                refuse(name, rule, &path.child(field), errors);
            }
        }
    }
}

fn slice_address(kind: &Value, text: &str, list: &Path, at: usize, errors: &mut Errors) {
    let path = list.index(at);
    let family = string(kind);
    match family {
        "IPv4" | "IPv6" => {
            let Some(ip) = check::ip(text, &path, errors) else {
                return;
            };
            if ip.is_ipv4() != (family == "IPv4") {
                let problem = format!("must be an {family} address");
                errors.push(FieldError::invalid(list, text, problem));
            }
            reachable(ip, text, &path, errors);
        }
        "FQDN" => full_name(text, &path, errors),
        _ => {}
    }
}

/// Checks a name of two segments or more. (apimachinery: `IsFullyQualifiedDomainName`.)
fn full_name(text: &str, path: &Path, errors: &mut Errors) {
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let problems = names::dns_subdomain(name);
    if !problems.is_empty() {
        errors.push(FieldError::invalid(path, name, problems.join(",")));
    } else if !name.contains('.') {
        let text = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(path, name, text));
    } else {
        for label in name.split('.') {
            let problems = names::dns_label(label);
            if !problems.is_empty() {
                errors.push(FieldError::invalid(path, label, problems.join(",")));
            }
        }
    }
}

/// An empty list is shown as `<unset>`.
fn some(all: Vec<String>) -> Vec<String> {
    if all.is_empty() {
        vec!["<unset>".to_owned()]
    } else {
        all
    }
}
